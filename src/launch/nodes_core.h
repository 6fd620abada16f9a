// What the serving agent of a run over several nodes decides: who takes part in a round, when it
// ends, and what follows. It has no sockets and no clock, so that tests can try every order of
// events. One thread at a time.
//
// A round begins when enough nodes have joined (the first one when all have, or the last call is
// over; later ones as soon as there are MIN). It ends for all when a worker fails, when a node is
// lost, when a late node may join, or when all workers have ended. Then all members report, and
// another round follows, or the end of the run.
#ifndef TRIREME_LAUNCH_NODES_CORE_H
#define TRIREME_LAUNCH_NODES_CORE_H

#include "launch/nodes_message.h"

typedef struct nodes_rules {
    int nodes_min, nodes_max, max_restarts;
    bool is_static; // nodes have the numbers that the user gave them
    double join_timeout_s, last_call_s, silence_s;
    // Sends a message to an agent. Must not call the core, which is in the middle of a decision.
    void (*send)(void *context, int agent, const nodes_message *message);
    // Prepares a round: fills in where its ranks meet, and the nonce. `first`: the node of rank 0.
    tri_status (*publish)(void *context, int round, const nodes_join *first, nodes_round *out);
    void *context;
} nodes_rules;

typedef struct nodes_core nodes_core;

enum { NODES_NOBODY = -1 };

nodes_core *nodes_core_create(const nodes_rules *rules, int64_t now_ns);
void nodes_core_destroy(nodes_core *core); // NULL allowed
// An agent has connected: returns its number; NODES_NOBODY: there are too many.
int nodes_core_arrive(nodes_core *core, int64_t now_ns);
// An agent's connection has ended.
void nodes_core_depart(nodes_core *core, int agent, int64_t now_ns);
// Handles an agent's message, which has been checked. False: the message has no place here, and the
// connection has to be closed.
bool nodes_core_receive(nodes_core *core, int agent, const nodes_message *message, int64_t now_ns);
// Does what is due by now. Returns when something will be due next, until when the caller may
// sleep; INT64_MAX: nothing is known to come. *silent: an agent whose connection has to be closed,
// or NODES_NOBODY.
int64_t nodes_core_expire(nodes_core *core, int64_t now_ns, int *silent);
int nodes_core_connected(const nodes_core *core);

#endif
