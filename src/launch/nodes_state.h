// The state of a run over several nodes, in the serving agent, the launcher that decides for all
// nodes. A round is one attempt of the run, from the start of all workers to their end.
// nodes_core.c (the rounds) and nodes_verdict.c (what follows a round) share this state.
#ifndef TRIREME_LAUNCH_NODES_STATE_H
#define TRIREME_LAUNCH_NODES_STATE_H

#include "launch/nodes_core.h"

enum {
    NODES_EXIT_FAILED = 1,
    NODES_EXIT_BAD_INPUT = 2,
    NODES_EXIT_STOPPED = 75,
    NODES_EXIT_SIGNAL = 128,
};

// What a node does. A round is one start of the workers on all nodes.
typedef enum node_state {
    NODE_ABSENT,
    NODE_ARRIVED,  // the node's launcher is connected, but does not take part yet
    NODE_WAITS,    // waits for the next round (start of the workers on all nodes)
    NODE_RUNS,     // takes part in the present round; its workers run
    NODE_REPORTED, // takes part in the present round; its workers have ended
} node_state;

typedef struct node {
    node_state state;
    nodes_join join;
    nodes_outcome outcome; // set if the node has reported
    int signal;            // the signal that asked this node to end; 0: none did
    int64_t join_number;   // its position in the order in which nodes joined
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
    // gathers_since_ns: when the wait for enough nodes began. last_call_ns: when the next attempt
    // of the run begins even if more nodes could join (0: too few have joined). looked_ns: when we
    // last checked whether agents (the nodes' launchers) are silent. joins: the highest
    // node.join_number that a node got so far.
    int64_t gathers_since_ns, last_call_ns, looked_ns, joins;
    // The members below concern the current round (start of the workers on all nodes).
    nodes_stopping stopping;
    int group_size;
    int failed, lost;             // numbers of workers that failed, and of nodes that were lost
    int reported[NODES_OUTCOMES]; // by outcome: how many nodes have reported it
    bool is_final;                // a worker did not end when killed, so this is the last round
    bool is_told;                 // a worker has already printed why the input is bad
    bool is_joined_late; // a node came too late for this attempt and waits for the next one
    launch_cause cause;  // set if a worker failed or a node was lost
    char cause_name[128], cause_text[NODES_CAUSE_BYTES];
    char cause_lost_how[96]; // the cause is a lost node: how it was lost; "": a worker failed
    // Exit code and text of the message END that an agent gets if it joins after the run has ended.
    int code;
    char last_words[NODES_TEXT_BYTES];
    int end;                // nodes from this index on are absent
    node at[TRI_MAX_NODES]; // by agent (the launcher of a node)
};

// How many nodes are in this state.
int nodes_in_state(const nodes_core *core, node_state state);
void nodes_send(nodes_core *core, int agent, nodes_kind kind, nodes_message *message);
void nodes_order_text(nodes_message *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// Ends the run for all nodes, with this exit code and one line of text.
void nodes_end(nodes_core *core, int code, const char *text);
void nodes_stop(nodes_core *core, nodes_stopping how, int except, const char *text);
// Begins a round (one start of the workers on all nodes) if enough nodes have joined and wait.
// Returns the time at which this function has to be called again; INT64_MAX: it need not be,
// because a round has begun or the run is over.
int64_t nodes_gather(nodes_core *core, int64_t now_ns);
// Decides what follows a round. Called when all its nodes have reported or are lost.
void nodes_conclude(nodes_core *core, int64_t now_ns);

#endif
