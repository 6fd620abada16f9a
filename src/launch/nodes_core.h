// Decides what the nodes of a run do. Each node has a launcher, its agent, and one of these, the
// serving agent, makes the decisions. A round is one attempt of the run, from the start of all
// workers to their end. The serving agent decides which nodes take part in a round, when it ends,
// and what follows. There are no sockets and no clock, so that tests can try every order of events.
// Only one thread at a time may call these functions.
//
// The flag --nnodes MIN:MAX says how many nodes a round may have. The first round begins when MAX
// nodes have joined, or last_call_s after MIN have; later rounds begin as soon as there are MIN. A
// round ends for all nodes when a worker fails, when a node is lost, when another node has joined
// and there is room for it, or when all workers have ended. Then all nodes of the round report, and
// either another round follows or the run ends.
#ifndef TRIREME_LAUNCH_NODES_CORE_H
#define TRIREME_LAUNCH_NODES_CORE_H

#include "launch/nodes_message.h"

typedef struct nodes_rules {
    int nodes_min, nodes_max, max_restarts;
    bool is_static; // nodes have the numbers that the user gave
    double join_timeout_s, last_call_s, silence_s;
    // Sends a message to an agent (the launcher of a node). This function must not call the core
    // (any nodes_core_…), which is in the middle of a decision.
    void (*send)(void *context, int agent, const nodes_message *message);
    // Prepares a round (a start of the workers on all nodes): fills in the address at which the
    // ranks find each other, and the nonce, a secret by which they recognise each other. `first` is
    // the node of rank 0.
    tri_status (*publish)(void *context, int round, const nodes_join *first, nodes_round *out);
    void *context;
} nodes_rules;

typedef struct nodes_core nodes_core;

enum { NODES_NOBODY = -1 };

nodes_core *nodes_core_create(const nodes_rules *rules, int64_t now_ns);
void nodes_core_destroy(nodes_core *core); // NULL allowed
// Adds an agent (the launcher of a node) that has connected. Returns its number; NODES_NOBODY:
// there are too many.
int nodes_core_arrive(nodes_core *core, int64_t now_ns);
// Removes an agent (the launcher of a node) whose connection has ended. If the workers of its node
// were running, the node counts as lost, and the round ends for all nodes.
void nodes_core_depart(nodes_core *core, int agent, int64_t now_ns);
// Handles a message of an agent (the launcher of a node). The message has passed
// nodes_message_check. False: the agent may not send this message now, and its connection has to be
// closed.
bool nodes_core_receive(nodes_core *core, int agent, const nodes_message *message, int64_t now_ns);
// Does everything that is due by now: begins a round (a start of the workers on all nodes), or
// gives up an agent (the launcher on a node) that has been silent for too long. *silent: that
// agent, whose connection the caller has to close before it calls again; NODES_NOBODY: none.
// Returns until when the caller may sleep; INT64_MAX: until the next message.
int64_t nodes_core_expire(nodes_core *core, int64_t now_ns, int *silent);
int nodes_core_connected(const nodes_core *core);

#endif
