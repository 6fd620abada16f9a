// The table of fusions. A fusion changes two nodes: one, called the node, reads output 0 of
// the other, called the producer. They become one node, or divide their work in another way.
#ifndef TRIREME_PASS_FUSIONS_H
#define TRIREME_PASS_FUSIONS_H

#include "pass/pass.h"

typedef enum fusion_result {
    // The producer does the work of both, and the node is removed. Output 0 of the producer then
    // has the node's shape and type. Conditions: both nodes are in one block and phase; nothing
    // else reads the producer's output 0, because its former contents are no longer computed; and
    // nothing reads an output of the node other than output 0.
    FUSION_PRODUCER_STAYS,
    // Both nodes stay, and work moves from one to the other. Conditions: both nodes are in one
    // block and phase, and nothing else reads the producer's output 0.
    FUSION_BOTH_STAY,
    // The node reads the producer's inputs instead of its output. The producer is removed if
    // nothing else reads its outputs.
    FUSION_NODE_STAYS,
} fusion_result;

typedef struct fusion {
    const char *name; // names what is fused into what
    tri_fusion_time time;
    const tri_op *op;       // the node's op
    int input;              // number of the node's input that reads output 0 of the producer
    const tri_op *producer; // the producer's op
    fusion_result result;
    // Changes `node` and `producer` to what the fusion makes of them. The caller passes copies of
    // the nodes and of their attributes, because it may still decide against the fusion. False:
    // these two nodes cannot be fused.
    bool (*merge)(const tri_graph *graph, tri_node *node, tri_node *producer);
} fusion;

extern const fusion pass_fusions[]; // the rows of one op are tried in this order
extern const int pass_fusion_count;

#endif
