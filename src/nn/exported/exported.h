// Networks that PyTorch has exported (format/pt2.h), built as graphs: `model: {name: torch,
// program: net.pt2}`. Each node of the exported graph is one of ATen's operations. A table
// (table.c) says by which functions of nn.h it is computed.
#ifndef TRIREME_NN_EXPORTED_EXPORTED_H
#define TRIREME_NN_EXPORTED_EXPORTED_H

#include "base/tree.h"
#include "format/pt2.h"

#include <trireme/task.h>

// The recipe's name of such a model, and the key of its file.
#define NN_EXPORTED_NAME "torch"
#define NN_EXPORTED_FILE_KEY "program"
#define NN_EXPORTED_EVALUATION_KEY "evaluation_program" // computed where nothing is trained

enum { NN_EXPORTED_MAX_LINES = 40 }; // of a refusal

typedef struct nn_exported nn_exported;

// Reads the network that the recipe's model section names, `options`, and finds how each of its
// nodes is computed. *out lies in `arena`. TRI_BAD_INPUT: an option is wrong. Other errors are
// those of tri_pt2_open.
tri_status nn_exported_open(tri_arena *arena, const tri_tree *options, nn_exported **out);
// What stands in the way of training the network: *count lines, one for each operation that is not
// supported, with how often it occurs and where. Such a network has no graph.
const char *const *nn_exported_refusals(const nn_exported *network, int *count);
// The network as a model.
const tri_task *nn_exported_task(const nn_exported *network);
// How many samples it was exported with, where that number is fixed and the graph has another; 0.
int64_t nn_exported_other_batch(const nn_exported *network, const tri_graph *graph);
// How many tokens a text has, of a network that takes texts of one length; 0: texts of any length
// up to *most, which is 0 if there is no limit.
int64_t nn_exported_text_length(const nn_exported *network, int64_t *most);
// How many tokens a decoder knows: scores of that many are what it returns for each token; 0: it
// returns none.
int64_t nn_exported_text_classes(const nn_exported *network);
// The network of which `task` is the model; NULL: it is another model.
const nn_exported *nn_exported_of(const tri_task *task);
const tri_pt2 *nn_exported_file(const nn_exported *network);
// True if a run begins with the weights of the file.
bool nn_exported_has_weights(const nn_exported *network);
int nn_exported_block_count(const nn_exported *network);
// A block: its name, and how many nodes it has.
const char *nn_exported_block(const nn_exported *network, int number, int *nodes);
// Operations that one computes for several which the network has written out: which ones were found
// (patterns.c), and how often.
int nn_exported_fused_count(const nn_exported *network);
const char *nn_exported_fused(const nn_exported *network, int number, int *times);

#endif
