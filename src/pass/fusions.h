// The table of fusions: which two nodes become one, or share their work in another way.
#ifndef TRIREME_PASS_FUSIONS_H
#define TRIREME_PASS_FUSIONS_H

#include "pass/pass.h"

typedef enum fusion_result {
    // The producer computes what the node would, and the node goes. Done only if nothing else reads
    // what the producer makes, because that is not made any more, and both are in one block.
    FUSION_PRODUCER_STAYS,
    // Both nodes stay, and work moves from one to the other. Done under the same condition.
    FUSION_BOTH_STAY,
    // The node reads what the producer reads. The producer goes if nothing reads its outputs then.
    FUSION_NODE_STAYS,
} fusion_result;

typedef struct fusion {
    const char *name; // what is fused into what
    tri_fusion_time time;
    const tri_op *op;       // the node's op
    int input;              // which of the node's inputs the producer makes, as its output 0
    const tri_op *producer; // the producer's op
    fusion_result result;
    // Changes copies of the two nodes, with attributes of their own, so that nothing has changed if
    // the fusion is given up. False: these two do not fit.
    bool (*merge)(const tri_graph *graph, tri_node *node, tri_node *producer);
} fusion;

extern const fusion pass_fusions[]; // those of one node in the order in which they are tried
extern const int pass_fusion_count;

#endif
