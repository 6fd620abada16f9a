// The messages between the agents of a run over several nodes (launchers, one on each node) and the
// serving agent, the one among them that decides what all nodes do. A connection begins with a
// greeting (rendezvous/greeting.h), which these messages follow. A message is a head and, depending
// on its kind, one of the structures below.
#ifndef TRIREME_LAUNCH_NODES_MESSAGE_H
#define TRIREME_LAUNCH_NODES_MESSAGE_H

#include "launch/failure.h"
#include "rendezvous/rendezvous.h"

enum { NODES_VERSION = 2, NODES_CAUSE_BYTES = 1536, NODES_TEXT_BYTES = 2048 };

// The kinds of messages. A round is one start of the workers on all nodes. In parentheses: the
// structure that follows the head; without parentheses it is the one with the kind's name
// (nodes_join after NODES_JOIN), or none.
typedef enum nodes_kind {
    NODES_BEAT = 0x54524e00, // both ways: a node's sign of life, and the answer to it
    NODES_JOIN,              // from a node: it wants to take part in the next start of the workers
    NODES_FAILING,           // from a node: one of its workers has just failed (nodes_order)
    NODES_LEAVE,             // from a node: signal `code` asks it to end (nodes_order)
    NODES_REPORT,            // from a node: all of its workers have ended
    NODES_BYE,               // from a node: its launcher ends
    NODES_ROUND,             // to a node: a round begins, start the workers
    NODES_STOP,              // to a node: stop the workers, and report (nodes_order)
    NODES_AGAIN,             // to a node: the workers will be started again (nodes_order)
    NODES_END,               // to a node: the run ends, with exit code `code` (nodes_order)
    NODES_KIND_END,
} nodes_kind;

typedef struct nodes_head {
    uint32_t kind;
    int32_t round; // number of the round, from 0; workers get it as TRIREME_GENERATION
} nodes_head;

typedef struct nodes_join {
    int32_t version;
    int32_t workers, nodes_min, nodes_max;
    int32_t node_rank;            // --node-rank, with --rdzv-backend static: number of this node
    int32_t is_serving;           // this node's launcher also serves the other nodes
    char host[TRI_HOST_NAME_MAX]; // name of the host, for messages
    // The address at which other nodes reach this one, --local-addr; "": not given.
    char address[TRI_HOST_NAME_MAX];
} nodes_join;

// One round (one start of the workers on all nodes) as one node sees it. From this follow the
// environment variables of the node's workers.
typedef struct nodes_round {
    int32_t group_rank, group_size; // number of this node in the round, and how many nodes it has
    int32_t restarts;    // how many rounds followed a failure, as --max-restarts counts them
    int32_t master_port; // a free port for rank 0, which may serve PyTorch's store there
    // Port of the workers' store (the key-value service through which they find each other), in
    // the launcher that serves all nodes.
    int32_t store_port;
    char master_addr[TRI_HOST_NAME_MAX]; // the host to which master_port and store_port belong
    char nonce[40];
    char job[64]; // names the run, the same in all rounds (TRIREME_JOB)
} nodes_round;

typedef enum nodes_outcome {
    NODES_DONE,
    NODES_STOPPED,
    NODES_FAILED,
    NODES_OUTCOMES
} nodes_outcome;

typedef struct nodes_report {
    int32_t outcome;    // a nodes_outcome
    int32_t failed;     // how many workers failed by themselves; 0: the members below are not set
    int32_t is_final;   // a worker did not end when killed, so none can be started again here
    launch_cause cause; // the most likely cause of the failures
    char name[128];     // the cause's name: "rank 3 on host b"
    char text[NODES_CAUSE_BYTES]; // the text about the cause, which another node prints
} nodes_report;

typedef struct nodes_order {
    int32_t code;        // LEAVE: number of the signal; END: exit code
    int32_t is_graceful; // STOP: there is time to save a checkpoint
    int32_t is_report;   // END: `text` is a report of several lines
    int32_t is_cut_off;  // END: the run ends only for this node, which may join again
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

// How many bytes a message of this kind has, with its head, so that the reader knows how much to
// wait for; 0: there is no such kind.
size_t nodes_message_bytes(uint32_t kind);
// Checks a message from another host, and ends all of its texts with 0 bytes. TRI_BAD_INPUT: a
// number is out of bounds.
tri_status nodes_message_check(nodes_message *message);

#endif
