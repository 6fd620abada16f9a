// What the agents of a run over several nodes say to the one of them that serves, and what that one
// answers, after the greeting (rendezvous/greeting.h). A message is a head and, by its kind, one of
// the structures below.
#ifndef TRIREME_LAUNCH_NODES_MESSAGE_H
#define TRIREME_LAUNCH_NODES_MESSAGE_H

#include "launch/failure.h"
#include "rendezvous/rendezvous.h"

enum { NODES_VERSION = 2, NODES_CAUSE_BYTES = 1536, NODES_TEXT_BYTES = 2048 };

typedef enum nodes_kind {
    NODES_BEAT = 0x54524e00, // both ways; answered by the same
    NODES_JOIN,              // agent: takes part in the next round
    NODES_FAILING,           // agent: a worker has just failed; nodes_order
    NODES_LEAVE,             // agent: signal `code` asks this node to end; nodes_order
    NODES_REPORT,            // agent: all of its workers have ended
    NODES_BYE,               // agent: it ends
    NODES_ROUND,             // begins: start the workers
    NODES_STOP,              // stop the workers, and report; nodes_order
    NODES_AGAIN,             // another round follows; nodes_order
    NODES_END,               // the run ends, with exit code `code`; nodes_order
    NODES_KIND_END,
} nodes_kind;

typedef struct nodes_head {
    uint32_t kind;
    int32_t round; // from 0; the generation of what the workers do
} nodes_head;

typedef struct nodes_join {
    int32_t version;
    int32_t workers, nodes_min, nodes_max;
    int32_t node_rank;               // of a static run
    int32_t is_serving;              // the agent is in the process that serves
    char host[TRI_HOST_NAME_MAX];    // for messages
    char address[TRI_HOST_NAME_MAX]; // at which other nodes reach it, --local-addr; "": not given
} nodes_join;

// One round, as one node sees it: what its workers get in their environment follows from this.
typedef struct nodes_round {
    int32_t group_rank, group_size;
    int32_t restarts;                    // rounds that began because of a failure
    int32_t master_port;                 // free for rank 0, which may serve PyTorch's store there
    int32_t store_port;                  // where the serving agent serves the workers' store
    char master_addr[TRI_HOST_NAME_MAX]; // of both
    char nonce[40];
    char job[64]; // the run's name for its workers
} nodes_round;

typedef enum nodes_outcome {
    NODES_DONE,
    NODES_STOPPED,
    NODES_FAILED,
    NODES_OUTCOMES
} nodes_outcome;

typedef struct nodes_report {
    int32_t outcome;              // nodes_outcome
    int32_t failed;               // workers that failed by themselves; 0: the rest is not set
    int32_t is_final;             // nothing can be started again on this node
    launch_cause cause;           // the first of them
    char name[128];               // "rank 3 on host b"
    char text[NODES_CAUSE_BYTES]; // its part of the report
} nodes_report;

typedef struct nodes_order {
    int32_t code;
    int32_t is_graceful; // STOP: there is time to save
    int32_t is_report;   // END: the text has lines of its own
    int32_t is_cut_off;  // END: for this node alone, which may join again
    char text[NODES_TEXT_BYTES];
} nodes_order;

typedef struct nodes_message {
    nodes_head head;
    union {
        nodes_join join;
        nodes_round round;
        nodes_report report;
        nodes_order order;
    };
} nodes_message;

// Bytes of a message of this kind with its head, which is all that the reader has to wait for; 0:
// there is no such kind.
size_t nodes_message_bytes(uint32_t kind);
// Checks a message from another host: TRI_BAD_INPUT unless all numbers are within their bounds.
// Ends all texts.
tri_status nodes_message_check(nodes_message *message);

#endif
