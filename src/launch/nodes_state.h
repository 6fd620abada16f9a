// The state of a run over several nodes, which nodes_core.c (the rounds) and nodes_verdict.c (how
// they end) share.
#ifndef TRIREME_LAUNCH_NODES_STATE_H
#define TRIREME_LAUNCH_NODES_STATE_H

#include "launch/nodes_core.h"

enum {
    NODES_EXIT_FAILED = 1,
    NODES_EXIT_BAD_INPUT = 2,
    NODES_EXIT_STOPPED = 75,
    NODES_EXIT_SIGNAL = 128,
};

typedef enum node_state {
    NODE_ABSENT,
    NODE_ARRIVED,  // its agent is connected, but takes no part
    NODE_WAITS,    // for the next round
    NODE_RUNS,     // a member of the round, with workers
    NODE_REPORTED, // a member of the round, whose workers have ended
} node_state;

typedef struct node {
    node_state state;
    nodes_join join;
    nodes_outcome outcome; // if it reported
    int signal;            // asked it to end; 0: none
    int64_t order;         // in which it joined
    int64_t heard_ns;
} node;

typedef enum nodes_phase { NODES_GATHERING, NODES_RUNNING, NODES_OVER } nodes_phase;

typedef enum nodes_stopping {
    NODES_GO_ON,
    NODES_STOP_GRACEFULLY,
    NODES_STOP_AT_ONCE,
} nodes_stopping;

struct nodes_core {
    nodes_rules rules;
    nodes_phase phase;
    int round, restarts;
    int64_t gathers_since_ns, last_call_ns, looked_ns, orders;
    // These are about the present round.
    nodes_stopping stopping;
    int group_size;
    int failed, lost; // workers, nodes
    int reported[NODES_OUTCOMES];
    bool is_final;       // nothing can be started again
    bool is_told;        // a worker has printed what bad input there is
    bool is_joined_late; // a node waits for the next round
    launch_cause cause;  // if failed or lost
    bool cause_is_lost_node;
    char cause_name[128], cause_text[NODES_CAUSE_BYTES];
    // These are about the end of the run.
    int code;
    char last_words[NODES_TEXT_BYTES];
    int end; // all nodes from here on are absent
    node at[TRI_MAX_NODES];
};

int nodes_arrived(const nodes_core *core, node_state state); // how many are in this state
void nodes_send(nodes_core *core, int agent, nodes_kind kind, nodes_message *message);
void nodes_order_text(nodes_message *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void nodes_end(nodes_core *core, int code, const char *text); // for all, with one line
void nodes_stop(nodes_core *core, nodes_stopping how, int except, const char *text);
// Begins a round if enough nodes wait; returns when to look again.
int64_t nodes_gather(nodes_core *core, int64_t now_ns);
// Called when all members of the round have reported or are lost: decides what follows.
void nodes_conclude(nodes_core *core, int64_t now_ns);

#endif
