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
    // The node does the work of both, and the producer is removed. All inputs of the node that are
    // outputs of the producer are merged at once. Conditions: both nodes are in one block and
    // phase, and pass_gains says yes.
    FUSION_NODE_ABSORBS,
    // The producer does the work of both and makes the node's outputs instead of its own. The node
    // is removed. Conditions: both nodes are in one block and phase, nothing else reads the
    // producer's output 0, and the kernel rounds as two would.
    FUSION_PRODUCER_ABSORBS,
} fusion_result;

typedef struct fusion {
    const char *name; // names what is fused into what
    tri_fusion_time time;
    const tri_op *op; // the node's op
    // Number of the node's input that reads output 0 of the producer. With FUSION_PRODUCER_ABSORBS
    // it may be any input, and with FUSION_NODE_ABSORBS any output, too.
    int input;
    const tri_op *producer; // the producer's op
    fusion_result result;
    // Changes `node` and `producer` to what the fusion makes of them. The caller passes copies of
    // the nodes and of their attributes, because it may still decide against the fusion. False:
    // these two nodes cannot be fused.
    bool (*merge)(const tri_graph *graph, tri_node *node, tri_node *producer);
} fusion;

// What is known of a graph that is rewritten, by value or node.
typedef struct fusion_facts {
    tri_fusion_time time;
    int *uses;         // how many nodes, metrics, outputs and gradients read the value
    bool *removed;     // by node: a fusion has made it superfluous
    bool *from_data;   // the value depends on the graph's inputs
    bool *wanted;      // it depends on a trained parameter
    bool *of_integers; // it is computed of integers alone
} fusion_facts;

// Whether it is of use that `merged`, into which `node` and `producer` were merged, takes the place
// of both. The answer follows from the formulas and shapes, but never from the number of samples.
bool pass_gains(const tri_graph *graph, const fusion_facts *facts, const tri_node *node,
                const tri_node *producer, const tri_node *merged);
// The merge of one map into another (fusion.merge).
bool pass_merge_maps(const tri_graph *graph, tri_node *node, tri_node *producer);
// The merge of a map into the product that it reads.
bool pass_merge_map_into_product(const tri_graph *graph, tri_node *node, tri_node *producer);
// The merge of a map into the reduction of its output.
bool pass_merge_map_into_reduce(const tri_graph *graph, tri_node *node, tri_node *producer);

extern const fusion pass_fusions[]; // the rows of one op are tried in this order
extern const int pass_fusion_count;

#endif
