// A model as a graph: values made by operations, cut into named blocks.
//
// A graph owns all it holds and keeps its first error: after one, every call is a no-op that
// returns the value with id 0, so model code need not check anything; the caller asks once, at the
// end.
#ifndef TRIREME_GRAPH_H
#define TRIREME_GRAPH_H

#include <trireme/api.h>
#include <trireme/status.h>
#include <trireme/tensor.h>

TRI_API_BEGIN

typedef struct tri_graph tri_graph;

// One tensor of the graph: assigned once, read any number of times. id 0: none.
typedef struct tri_value {
    uint32_t id;
} tri_value;

// What the loader supplies for one micro-batch of `size` samples. A value is none where the data
// set has no such field.
typedef struct tri_batch {
    int64_t size;
    tri_value images;    // F32 [size, C, H, W]
    tri_value labels;    // I64 [size]; -100: left out of loss and metrics
    tri_value inputs;    // F32 [size, …], regression
    tri_value targets;   // F32 [size, …]
    tri_value input_ids; // I64 [size, T]
} tri_batch;

// Begins the block `name`: all that follows belongs to it. A block is the unit of sharding,
// reduction, recomputation and pipelining; a model has at least one.
void tri_block(tri_graph *graph, const char *name);

// How tensor parallelism divides a layer over the ranks along the mesh's axis `tensor`.
typedef enum tri_split {
    TRI_SPLIT_NONE,   // every rank has all of it
    TRI_SPLIT_COLUMN, // each rank makes a part of the features: axis 0 of the weight, and the bias.
                      // Of an embedding: each rank has a part of the vocabulary
    TRI_SPLIT_ROW,    // each rank reads a part of the features: axis 1 of the weight
} tri_split;

// Annotates the linear layer or embedding `layer`, after it was made. A column layer followed by a
// row layer needs one exchange in between them and the next. The recipe's strategy.tensor overrides
// it; on a mesh without the axis it means nothing.
void tri_split_layer(tri_graph *graph, const char *layer, tri_split split);

// Lets the name of a layer be used several times, from here on: all layers of that name, of one
// kind and one size, have the same parameters, whose gradient is the sum over them.
void tri_share_layer(tri_graph *graph, const char *name);

// Declares the value to minimise (once): a loss as the functions of nn.h make it, F64 [2]: (sum,
// count), or a sum of such, `tri_add(g, a, tri_weighted(g, b, 0.5))`. A loss is the mean over all
// samples (elements, labels) of a step, whatever ranks and micro-batches there are, and a sum is
// that of the means, as in PyTorch; evaluation reports its terms as metrics too, by the name of
// their op.
void tri_loss(tri_graph *graph, tri_value loss);
// Declares a metric by name, F64 [2]: (sum, count) over samples; reported by evaluation as sum /
// count. In training the metric may be none: then it is not computed there.
void tri_metric(tri_graph *graph, const char *name, tri_value metric);

// The shape of a value; rank 0 after an error.
tri_shape tri_value_shape(const tri_graph *graph, tri_value value);
// True while the graph is built for training, false for evaluation.
bool tri_training(const tri_graph *graph);
// The graph's first error; TRI_OK when there was none. The message is that of the error.
tri_status tri_graph_status(const tri_graph *graph, const char **message);
// Text that lives as long as the graph: names of layers that a loop makes.
const char *tri_name(tri_graph *graph, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// Reports an error of the model's own ("hidden_size must be divisible by heads").
void tri_graph_fail(tri_graph *graph, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// The options of the recipe's `model:` mapping. Each key that a model does not ask for is an error
// that names the nearest known one.
int64_t tri_model_int(tri_graph *graph, const char *key, int64_t otherwise);
double tri_model_float(tri_graph *graph, const char *key, double otherwise);
bool tri_model_bool(tri_graph *graph, const char *key, bool otherwise);

TRI_API_END

#endif
