// A model as a graph: values made by operations, cut into named blocks.
//
// A graph keeps its first error: after that every call does nothing and returns the value with id
// 0. So the function that builds a model need not check its calls. Its caller asks for the error
// once, at the end (tri_graph_status).
#ifndef TRIREME_GRAPH_H
#define TRIREME_GRAPH_H

#include <trireme/api.h>
#include <trireme/status.h>
#include <trireme/tensor.h>

TRI_API_BEGIN

typedef struct tri_graph tri_graph;

// One tensor of the graph: made once, read any number of times. Id 0 means "none". A value belongs
// to one graph: if it is used in another one that has no value of that id, the graph fails with a
// message.
typedef struct tri_value {
    uint32_t id;
} tri_value;

// The fields of one micro-batch of `size` samples, from which a model computes. A value is none (id
// 0) if the data set has no such field. The members are the fields that most models use;
// tri_batch_field finds all of them.
typedef struct tri_batch {
    int64_t size;
    tri_value images;       // F32 [size, C, H, W]
    tri_value labels;       // I64 [size, …]; -100: left out of loss and metrics
    tri_value inputs;       // F32 [size, …], regression
    tri_value targets;      // F32 [size, …]
    tri_value input_ids;    // I64 [size, T]
    const tri_graph *graph; // the graph that has these fields
} tri_batch;

// Finds the field `name` of the data, F32 or I64 [size, …]; none if the data have no such field. It
// also finds fields for which tri_batch has no member: attention_mask, soft_labels, and what the
// recipe's data.extra_fields declares.
tri_value tri_batch_field(const tri_batch *batch, const char *name);

// Begins the block `name`: the layers that follow belong to it. A block is what is sharded,
// reduced, recomputed and put on a pipeline stage as one; a model has at least one.
void tri_block(tri_graph *graph, const char *name);

// How tensor parallelism slices a layer over the ranks that differ only along the axis `tensor` of
// the recipe's strategy.mesh. A pair of linear layers is sliced COLUMN and then ROW, as in
// Megatron-LM.
typedef enum tri_split {
    TRI_SPLIT_NONE, // every rank computes the whole layer
    // Each rank computes a slice of the output features: axis 0 of the weight, and the bias. In an
    // embedding, each rank has a slice of the vocabulary.
    TRI_SPLIT_COLUMN,
    TRI_SPLIT_ROW, // each rank reads a slice of the input features: axis 1 of the weight
} tri_split;

// Sets how the existing linear layer or embedding `layer` is sliced. A column layer followed by a
// row layer needs only one exchange between the ranks, after the second layer, because the ops
// between the two work on each slice alone. The recipe's strategy.tensor overrides this. On a mesh
// without the axis `tensor` it has no effect.
void tri_split_layer(tri_graph *graph, const char *layer, tri_split split);
// As TRI_SPLIT_COLUMN, for a linear layer that is several layers of one size at once, whose outputs
// follow each other: 3 `parts` are queries, keys and values. Each rank has its slice of every part.
// A part that tri_chunk or tri_slice takes out, or that is an axis of its own after a reshape to
// [N, T, parts, …], is sliced as the output of one such layer would be.
void tri_split_fused_layer(tri_graph *graph, const char *layer, int parts);

// From here on, all layers called `name` share their parameters, so they must be of one kind and
// size. The layers of which such a layer is made share theirs, too, and dropout draws other
// elements at each call. The gradient is the sum over all of them. Without this call, a name that
// is used twice is an error, because it usually is a mistake.
void tri_share_layer(tri_graph *graph, const char *name);

// Declares the value to minimise; a model calls it once, unless the recipe has the loss. `loss` is
// a loss of nn.h, or a sum of losses: `tri_add(g, a, tri_weighted(g, b, 0.5))`. A loss is the mean
// over all samples (elements, labels) of a step, so that it does not depend on the number of ranks
// or micro-batches; a sum of losses is the sum of these means, as in PyTorch. Evaluation also
// reports each term of a sum as a metric, by the name of its function: huber_loss.
void tri_loss(tri_graph *graph, tri_value loss);
// Declares a metric: F64 [2], a sum over samples and their count. Evaluation reports sum / count
// under `name`. It is a pair because sums and counts of several ranks can be added, and means
// cannot. While the graph is built for training, `metric` may be none: the metric is then computed
// in evaluation only. `name` has 1 to 63 bytes and no control characters, and is none of the keys
// that an evaluation has beside its metrics: loss, kind, step, epoch, samples, evaluated_on,
// classes.
void tri_metric(tri_graph *graph, const char *name, tri_value metric);

// Names an output of the model, such as "logits": a tensor that layers made, with a row for each
// sample of the micro-batch. `trireme predict` writes it, and the recipe's `loss` takes it; other
// training and evaluation do not keep it. Losses and metrics are left out where only outputs are
// asked for, so that the data need no labels. `name` is not empty.
void tri_output(tri_graph *graph, const char *name, tri_value value);

// Returns the shape of a value, so that a model can choose sizes that depend on the data. It has
// rank 0 after an error, and for a value that the graph does not have.
tri_shape tri_value_shape(const tri_graph *graph, tri_value value);
// Returns true while the graph is built for training, false while it is built for evaluation, for
// models that compute something else in evaluation.
bool tri_training(const tri_graph *graph);
// The graph's first error and its message; TRI_OK if there was none.
tri_status tri_graph_status(const tri_graph *graph, const char **message);
// Formats a text that lives as long as the graph, for the names of layers made in a loop.
const char *tri_name(tri_graph *graph, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// Makes the graph fail with an error that the model itself has found ("hidden_size must be
// divisible by heads").
void tri_graph_fail(tri_graph *graph, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// The next functions read options of the recipe's `model:` section. A key of that section that the
// model does not ask for is an error that names the nearest known key, so that no misspelt key is
// ignored.

// The whole number of `key`; `otherwise` where the recipe does not have it.
int64_t tri_model_int(tri_graph *graph, const char *key, int64_t otherwise);
// The number of `key`; `otherwise` where the recipe does not have it.
double tri_model_float(tri_graph *graph, const char *key, double otherwise);
// The truth value of `key`; `otherwise` where the recipe does not have it.
bool tri_model_bool(tri_graph *graph, const char *key, bool otherwise);
// The text of `key`; `otherwise`, which may be NULL, where the recipe does not have it. The text
// lives as long as the graph.
const char *tri_model_text(tri_graph *graph, const char *key, const char *otherwise);

TRI_API_END

#endif
