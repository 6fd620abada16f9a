// The table of fusions: which two nodes become one, or share their work in another way.
#ifndef TRIREME_PASS_FUSIONS_H
#define TRIREME_PASS_FUSIONS_H

#include "pass/pass.h"

typedef enum fusion_result {
    // The producer computes what the node would, and the node goes. Only if no other node reads
    // what the producer makes, and both are in one block.
    FUSION_PRODUCER_STAYS,
    // Both stay, and work moves from one to the other. On the same condition.
    FUSION_BOTH_STAY,
    // The node reads what the producer reads. The producer goes if no other node reads it.
    FUSION_NODE_STAYS,
} fusion_result;

typedef struct fusion {
    const char *name; // what is fused into what
    tri_fusion_time time;
    const tri_op *op;       // of the node
    int input;              // of the node, that
    const tri_op *producer; // a node of this op makes as its output 0
    fusion_result result;
    // Changes copies of the two nodes, with attributes of their own. false: these two do not fit.
    bool (*merge)(const tri_graph *graph, tri_node *node, tri_node *producer);
} fusion;

extern const fusion pass_fusions[]; // those of one node in the order in which they are tried
extern const int pass_fusion_count;

#endif
