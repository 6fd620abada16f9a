// The graph of a model, as passes, plans and devices see it. Models use <trireme/graph.h>. A node
// is one use of an op; it reads values (tensors) and makes others. A block is a named run of nodes
// with its own parameters, such as a layer, and is scheduled as one. A pass rewrites the graph: the
// autodiff pass adds the backward nodes, and the layout pass chooses the order of elements in
// memory. A statistic is a running average of batch norm. With tensor parallelism, ranks share
// layers: each has a slice of a layer's parameters. NORM is the part of a step between the backward
// pass and the updates: it computes, over all ranks, the counts by which losses are divided and the
// norm of the gradients.
#ifndef TRIREME_GRAPH_GRAPH_H
#define TRIREME_GRAPH_GRAPH_H

#include "base/arena.h"
#include "base/index.h"
#include "base/option.h"
#include "base/status.h"
#include "graph/op.h"
#include "tensor/layout.h"

#include <stdio.h>
#include <trireme/graph.h>
#include <trireme/metrics.h>
#include <trireme/parameters.h>

typedef enum tri_phase {
    TRI_PHASE_FORWARD,
    TRI_PHASE_BACKWARD,
    // Nodes of the backward pass whose results no other block needs; most of them make gradients of
    // weights. tri_pass_split_backward moves them from BACKWARD to this phase; without that pass it
    // is empty.
    TRI_PHASE_WEIGHT,
    TRI_PHASE_STEP, // optimizer updates
    TRI_PHASE_COUNT
} tri_phase;

typedef enum tri_value_kind {
    TRI_VALUE_NONE,
    // Supplied per micro-batch: a field of the data, or "position" (tri_input_info).
    TRI_VALUE_INPUT,
    TRI_VALUE_PARAMETER, // a parameter of the model
    TRI_VALUE_SCALAR,    // one or a few numbers for the whole step; tri_scalar_kind lists them
    TRI_VALUE_RESULT,    // an output of a node
    TRI_VALUE_WEIGHTED,  // a weighted sum of losses, which no node reads (loss.h)
} tri_value_kind;

typedef struct tri_value_info {
    tri_value_kind kind;
    tri_dtype dtype;
    tri_shape shape;
    tri_layout layout; // plain (row-major) until the layout pass
    // For a result: the node that computes it, and which of the node's outputs it is.
    int node, output;
    // For an input, parameter or weighted sum: its index in the graph; for a scalar: its
    // tri_scalar_kind.
    int index;
} tri_value_info;

struct tri_node {
    const tri_op *op;
    const char *name; // name of the layer that added the node; "": no layer did
    int block;
    tri_phase phase;
    int input_count, output_count;
    tri_value inputs[TRI_MAX_INPUTS]; // id 0: an optional input that was left out
    tri_value outputs[TRI_MAX_OUTPUTS];
    const void *attr; // the op's attributes: op->attr_bytes bytes
};

typedef enum tri_parameter_role {
    TRI_ROLE_TRAINED, // updated by the optimizer
    TRI_ROLE_FROZEN,  // trainable, but this run does not change it (tri_graph_group, tri_lora)
    // A running average of batch norm. Its "gradient", which is summed over micro-batches and
    // ranks, is the mean or variance in a micro-batch times the number of its samples.
    TRI_ROLE_STATISTIC,
    // A running average over samples, as of instance norm: the same for any micro-batches.
    TRI_ROLE_SAMPLE_STATISTIC,
    // What each step computes from the weights and its former values, as the vectors of a spectral
    // norm: updated as a statistic, of which all micro-batches have the same.
    TRI_ROLE_ITERATE,
    TRI_ROLE_BUFFER,   // checkpoints have it, and no step changes it (tri_register_buffer)
    TRI_ROLE_CONSTANT, // its values are in the graph alone (tri_constant)
    TRI_ROLE_COUNTER,  // I64 scalar: number of updates (num_batches_tracked); read by no node
} tri_parameter_role;

// How the ranks of the tensor-parallel axis hold a value or a parameter. The placement decides
// whether its gradient has to be summed over these ranks. With PARTIAL_GRADIENT it has to be,
// because each rank has computed one term (summand) of the gradient.
typedef enum tri_placement {
    TRI_PLACEMENT_REPLICATED,       // every rank has the whole value and its whole gradient
    TRI_PLACEMENT_SLICED,           // each rank has one slice of the value and of its gradient
    TRI_PLACEMENT_PARTIAL_GRADIENT, // every rank has the whole value and one term of its gradient
} tri_placement;

// What one rank has of a parameter that the ranks of the tensor-parallel axis divide among them: a
// slice of it.
typedef struct tri_parameter_slice {
    int axis; // the dimension that is cut
    // How many slices there are, and which one this rank has; count 0: the parameter is not sliced.
    int count, index;
    // The axis consists of this many equal parts, such as the weights of q, k and v, and a slice
    // has its share of each; 0 means 1.
    int parts;
    tri_shape full; // shape of the full parameter
} tri_parameter_slice;

typedef struct tri_parameter_info {
    const char *name; // the canonical name (PyTorch's), such as "layer1.0.weight"
    // Of a tied parameter: the name that it would have as the other layer's own ("lm_head.weight"),
    // under which files may have it too; NULL: none.
    const char *alias;
    tri_parameter_role role;
    // The type in which the parameter is stored; `value` has the type in which kernels compute with
    // the parameter.
    tri_dtype dtype;
    // A matrix that files have transposed, so that everything that is by elements of the file goes
    // by tri_parameter_stored: shapes that are shown, ranges that are read, initial values.
    bool stored_transposed;
    tri_shape shape;
    tri_layout layout;  // the layout in which the parameter is stored between steps
    bool layout_chosen; // false until the layout pass chose one
    tri_init init;      // as the layer has it: see tri_init_resolve
    // The parameter begins as the norms of another one, along all axes but those that both have in
    // the same size (tri_parameter_of_norms); NULL: as `init` says.
    const struct tri_parameter_info *norms_of;
    // Of a statistic: new = (1 − momentum) · old + momentum · mean over the step. 0 means 1 / the
    // number of the update, so that it is the mean over all updates.
    double momentum;
    int group; // see tri_graph_group
    int block;
    tri_value value;
    int previous_of_layer; // the parameter of the same layer that was added before it; -1: none
    // How tensor parallelism slices the parameter's layer, as the model has set it
    // (tri_split_layer).
    tri_split split;
    int split_parts; // of a fused layer (tri_split_fused_layer); 0 means 1
    // Of a matrix of an adapter (tri_lora): 1 + the index of the weight that it adapts; else 0.
    int adapts;
    // If that weight is split so, this matrix is too; with any other split every rank has it whole.
    tri_split follows;
    tri_parameter_slice slice; // set by tri_pass_tensor_parallel: `shape` is then the slice's
    // Every tensor-parallel rank has all of the parameter and computes one term of its gradient.
    bool has_partial_gradient;
} tri_parameter_info;

// What one block adds to the gradient of a parameter. If several blocks read the parameter (tied
// weights), the graph has one tri_gradient_info for each, and the sum of their values is the
// gradient.
typedef struct tri_gradient_info {
    int parameter, block;
    tri_value value;
} tri_gradient_info;

typedef struct tri_input_info {
    // The name of a field of the data ("images", "labels", …), or "position". The value "position"
    // is I64 [2]: the number of the step, and the index of the micro-batch's first sample among the
    // samples of the step.
    const char *name;
    tri_value value;
    bool is_measured; // a metric needs it, which training does not compute
} tri_input_info;

// The loss, or one loss of a weighted sum: its weight, and its divisor, a count of samples or
// labels.
typedef struct tri_loss_term {
    double weight;
    double count;    // what a micro-batch of the graph adds to the divisor if no label is ignored
    bool has_labels; // the divisor is the number of labels that are not ignored
    // Index of the graph's input that holds the labels or from which `maker` makes them; -1: none.
    int labels;
    // The op that makes the labels from that input, with its attributes; NULL: the input holds
    // them.
    const tri_op *maker;
    const void *maker_attr;
    // The shape in which `maker` or, of soft labels, the loss reads them: views in between may
    // change what a row of classes or of tokens is.
    tri_shape read_as;
    // The weights of the classes, by whose sum over the labels the loss is divided; NULL: each
    // label counts 1.
    const float *weights;
    int64_t classes;
    bool are_counts; // the input holds the numbers by whose sum the loss is divided, in F32
} tri_loss_term;

typedef struct tri_metric_info {
    const char *name; // "loss" is always the first
    // The value none (id 0) if training does not compute the metric. Also none for a "loss" that is
    // a weighted sum, because the engine computes it from the losses of the sum.
    tri_value value;
    tri_loss_term term; // set where this metric is the loss, or one loss of the weighted sum
    bool is_minimised;  // it is the loss, or one loss of the weighted sum
    // Where its sums are: its own index or, if several metrics have this value, that of the one
    // which is minimised, else of the first.
    int source;
    // How the metric follows from its sums (graph/metric.h). All 0: it is sum / count.
    tri_metric_kind kind;
    tri_metric_average average;
    int tally; // a tri_tally
    int64_t classes, bins, k;
    tri_shape figures; // of what is shown: [] for one number, [K], or [K, K]
} tri_metric_info;

// A value that tri_output has named.
typedef struct tri_output_info {
    const char *name;
    tri_value value;
} tri_output_info;

enum { TRI_MAX_LOSS_TERMS = 8 };

typedef struct tri_weighted_sum {
    int count;
    tri_value losses[TRI_MAX_LOSS_TERMS];
    double weights[TRI_MAX_LOSS_TERMS];
} tri_weighted_sum;

// When the counts are known by which the losses of a weighted sum are divided. Each loss has a
// count of its own, of samples or labels, over the whole step. BACKWARD adds up the gradients of
// all losses, so each gradient must be divided before BACKWARD adds it. Only if all losses have the
// same count can the sum of the gradients be divided afterwards.
typedef enum tri_counting {
    // After BACKWARD: all losses have the same count, which NORM sums over the whole step.
    TRI_COUNT_BEHIND,
    TRI_COUNT_KNOWN, // always: what each loss counts follows from the sizes of micro-batches
    TRI_COUNT_AHEAD, // before the step: the host counts the labels of all its samples first
} tri_counting;

typedef struct tri_layer_info {
    const char *name;
    bool shared;     // tri_share_layer was called: the name may be used again
    bool begun;      // a layer has the name
    int64_t counted; // how often tri_layer_count has counted it
} tri_layer_info;

typedef enum tri_scalar_kind {
    // [1], in the graph's dtype: the loss seed, with which the backward pass begins. This is the
    // gradient of the loss with respect to its sum over samples or labels: loss scale / nominal
    // count (see TRI_STEP_GRADIENT_SCALE). Not used if the loss is a weighted sum of losses
    // (TRI_SCALAR_TERM).
    TRI_SCALAR_SEED,
    TRI_SCALAR_STEP, // F64 [TRI_STEP_SCALAR_COUNT]: the step scalars, written by NORM
    // The loss seed of the first loss of a weighted sum; TRI_SCALAR_TERM + i: that of loss i.
    TRI_SCALAR_TERM,
    TRI_SCALAR_KIND_COUNT = TRI_SCALAR_TERM + TRI_MAX_LOSS_TERMS
} tri_scalar_kind;

// The elements of the step scalars: numbers that NORM computes once in each step and the ops of the
// optimizer read.
enum {
    TRI_STEP_LR,
    // Factor of every gradient: nominal count / true count × clip factor / loss scale. With
    // TRI_COUNT_BEHIND, BACKWARD divides by the nominal count (all the step's labels), because the
    // true count, which omits ignored labels, is known only afterwards. Otherwise BACKWARD divides
    // by true counts, and nominal count / true count is left out.
    TRI_STEP_GRADIENT_SCALE,
    TRI_STEP_STATISTIC_SCALE, // factor of every statistic: 1 / samples of the step
    TRI_STEP_SKIP,            // not 0: the update changes nothing
    TRI_STEP_UPDATE,          // number of this update, from 1
    TRI_STEP_NORM,            // norm of the mean gradient before clipping
    // Not 0: a number of this step is not finite, and a smaller loss scale would not help. The
    // device then skips this step and all later ones, until the host has handled the error.
    TRI_STEP_HALTS,
    TRI_STEP_EMPTY, // not 0: all labels of the step are ignored
    // How far the averages of the weights move towards the weights after this step: 1: all the way;
    // 0: not at all, because the step is not averaged, or is skipped behind one that halts.
    TRI_STEP_AVERAGE,
    TRI_STEP_SCALAR_COUNT
};

// The types in which a graph is computed: see tri_pass_precision. The names are Lightning's.
typedef enum tri_precision {
    TRI_PRECISION_32_TRUE,
    TRI_PRECISION_BF16_MIXED, // matrix products, and the activations between them, in BF16
    TRI_PRECISION_16_MIXED,   // the same in F16, with a scaled loss
    TRI_PRECISION_BF16_TRUE,  // all activations in BF16; the optimizer's weights stay F32
} tri_precision;

// Low-rank adapters of linear layers (nn/lora.c), the recipe's section `lora`: y + alpha / rank ·
// B · A · x in place of y. Only the matrices A and B are trained.
typedef struct tri_lora {
    tri_strings match; // patterns of the names of layers; count 0: no layer has an adapter
    int64_t rank;      // rows of A, columns of B
    double alpha;
    double dropout; // the rate at which elements of x are dropped before A
} tri_lora;

typedef struct tri_graph_options {
    uint64_t seed;
    bool training;
    // The graph is built for the model's outputs (tri_output), which other graphs do not keep, and
    // not for its loss: tri_model_build drops losses and metrics. Not together with `training`.
    bool predicts;
    // The model keeps what it has computed of a sequence in caches (tri_cache), so that the tokens
    // of a sequence come in several calls: the most tokens of a sequence. 0: without caches. Only
    // together with `predicts`.
    int64_t cache_length;
    // Type of parameters and activations, where `precision` does not narrow them: TRI_F32 (0), or
    // TRI_F64, in which tests compute on the reference device `ref`.
    tri_dtype dtype;
    tri_precision precision; // only if dtype is TRI_F32
    // Files of weights have all matrices in the half type of `precision`. So parameters that are
    // read row by row (TRI_PRECISION_GATHER) have it too. Not together with `training`.
    bool half_weights;
    bool direct_convolution; // true: convolutions are computed without Winograd's algorithm
    bool tf32; // true: products and convolutions of F32 may round their inputs to TF32
    // How much of each label tri_cross_entropy and tri_nll_loss spread evenly over all classes.
    double label_smoothing;
    // The recipe's losses, which take the place of the model's (nn/recipe_loss.h); 0: there are
    // none.
    const struct tri_loss_options *losses;
    int loss_count;
    const struct tri_task *task; // the model of which it is; NULL: of none
    bool deterministic;          // true: every kernel has to give the same bits in every run
    tri_lora lora;
    tri_strings metrics;           // words of the recipe, see nn/options.h
    const tri_tree *model_options; // the recipe's options of the model, a map; NULL: there are none
    // Called with the key of each option for which the model asks; may be NULL.
    void (*model_asks)(void *context, const char *key);
    void *model_context;
} tri_graph_options;

struct tri_graph {
    tri_arena *arena;
    tri_graph_options options;
    tri_status status;
    const char *message;
    tri_value_info *values; // entry 0 stands for the value none
    int value_count, value_capacity;
    tri_node *nodes; // the nodes, in an order in which they can run
    int node_count, node_capacity;
    const tri_node *pending_nodes; // the nodes that the layout pass has not rewritten yet
    int pending_node_count;
    tri_parameter_info *parameters;
    int parameter_count, parameter_capacity;
    // Entries of batch norm's statistics (running means and variances) are there from the start.
    // Entries of trained parameters are there after the autodiff pass.
    tri_gradient_info *gradients;
    int gradient_count, gradient_capacity;
    tri_input_info *inputs;
    int input_count, input_capacity;
    tri_metric_info *metrics;
    int metric_count, metric_capacity;
    tri_weighted_sum *sums;
    int sum_count, sum_capacity;
    // The losses of the weighted sum are metrics[first_term … first_term + term_count - 1].
    // term_count 0: the loss is no weighted sum.
    int first_term, term_count;
    tri_counting counting;

    tri_layer_info *layers;
    int layer_count, layer_capacity;
    // Find layers, blocks and parameters by their names.
    tri_index layer_index, block_index, parameter_index;
    // By a layer's name: the parameter that was added to the layer last. The others of the layer
    // are found from it by tri_parameter_info.previous_of_layer.
    tri_index layer_parameters;
    const char **blocks; // names of the blocks
    int block_count, block_capacity;
    tri_phase phase; // phase of the nodes that are added from now on
    int block;       // block of the nodes that are added from now on; -1: no block has begun
    tri_value scalars[TRI_SCALAR_KIND_COUNT];
    bool smooths_labels; // a loss has made use of options.label_smoothing
    // Losses that are built now are dropped later, and read no labels: the graph is for outputs, or
    // the recipe's losses follow.
    bool drops_losses;
    bool reports_metrics; // a loss has declared options.metrics
    tri_output_info *outputs;
    int output_count, output_capacity;
};

// Makes a graph. The graph and all that it holds live in a child arena of `parent`.
tri_graph *tri_graph_create(tri_arena *parent, const tri_graph_options *options);
void tri_graph_destroy(tri_graph *graph); // NULL allowed
// Finds an option of the model, for which the model has then asked; NULL: the recipe does not have
// it, or it is null.
const tri_tree *tri_graph_model_option(tri_graph *graph, const char *key);

// Adds a node and returns its first output (none for an op without outputs). The op's shape rule
// sets the outputs' shapes. `attr` is copied.
tri_value tri_node_add(tri_graph *graph, const tri_op *op, const tri_value *inputs, int count,
                       const void *attr, const char *name);
// Gets output number `output`, counted from 0, of the node that made `value`: tri_node_add returns
// only output 0. The value none if the node has no such output.
tri_value tri_node_output(const tri_graph *graph, tri_value value, int output);

tri_value tri_input(tri_graph *graph, const char *name, tri_dtype dtype, tri_shape shape);
// Adds an entry to graph->outputs without checks, for passes that write a new graph.
void tri_output_add(tri_graph *graph, const char *name, tri_value value);
// Finds the input of that name; the value none if there is no such input.
tri_value tri_input_find(const tri_graph *graph, const char *name);
// Returns the size of the micro-batches for which the graph is built, in samples: the first axis of
// its inputs. 0: it has none.
int64_t tri_graph_samples(const tri_graph *graph);

// Makes the batch that is passed to the build function of a model (tri_task): it describes a
// micro-batch of `size` samples, whose fields are the graph's inputs.
tri_batch tri_batch_make(const tri_graph *graph, int64_t size);
// Gets the input "position", and adds it to the graph if it is missing. It tells where in the step
// the micro-batch begins, so that dropout draws the same numbers however the step is divided into
// micro-batches.
tri_value tri_position(tri_graph *graph);
tri_value tri_scalar(tri_graph *graph, tri_scalar_kind kind);
// True if `value` is one of the graph's values, or the value none.
bool tri_graph_has(const tri_graph *graph, tri_value value);
// Checks a value that a model passes to a layer: fails the graph if the graph has no such value
// (tri_graph_has). Returns false if the graph has failed, now or before. The error message names
// the user of the value: `what` is its kind, such as "add", and `name` its name, or NULL.
bool tri_graph_takes_value(tri_graph *graph, const char *what, const char *name, tri_value value);
// Checks an input of a layer. If it is none, the model has usually read a field of tri_batch that
// the data lacks. The graph then fails with a message that lists the fields that the data has, and
// the result is false. `name` may be NULL.
bool tri_graph_check_input(tri_graph *graph, const char *layer, const char *name, tri_value input);
// Fails the graph if `name` is NULL or not UTF-8, because no checkpoint can hold such a name.
// Returns false if the graph has failed, now or before.
bool tri_graph_takes_name(tri_graph *graph, const char *what, const char *name);
// Every layer calls this first. Notes the layer's name, and fails the graph if another layer has
// that name, unless tri_share_layer was called for it, or for a layer of which it is a part.
// Returns false if the graph has failed.
bool tri_layer_begin(tri_graph *graph, const char *name);
// Layers without parameters call this instead: any number of them may have the name. Returns how
// many it had before.
int64_t tri_layer_count(tri_graph *graph, const char *name);
// Adds a parameter to the current block. If the graph already has a parameter with this name, shape
// and role, returns its value instead: so layers share parameters.
tri_value tri_parameter_of_role(tri_graph *graph, const char *name, tri_dtype dtype,
                                tri_shape shape, tri_init init, tri_parameter_role role,
                                double momentum);

// Whether STEP updates parameters of the role as running averages, by their momentum.
bool tri_role_is_average(tri_parameter_role role);

// Adds a trained parameter that begins as the norms of the parameter `of` over all axes but `axis`,
// which are of size 1 in it; axis -1: over all of them, and it has no axes.
tri_value tri_parameter_of_norms(tri_graph *graph, const char *name, tri_value of, int axis);

// Reduces how a parameter of shape `shape` begins to CONSTANT (with `value`), VALUES, UNIFORM,
// NORMAL, TRUNC_NORMAL, ORTHOGONAL, DIRAC (of which a matrix is the identity) or SPARSE, with all
// numbers that these need. TRI_BAD_INPUT: the shape does not fit, or a number is impossible.
tri_status tri_init_resolve(const tri_init *init, const tri_shape *shape, tri_init *out);
// Copies `init` with its values, those of a parameter of shape `shape`, into the arena.
tri_init tri_init_copy(tri_arena *arena, const tri_init *init, const tri_shape *shape);

// Parameters that the optimizer treats alike, chosen by name.
typedef struct tri_parameter_group {
    const char *key;   // of the recipe, for messages
    tri_strings match; // patterns of names (`*` and `?`, as fnmatch)
    bool needs_all;    // each pattern has to match a parameter, and not only one and whole names
    bool frozen;       // the parameters are not trained
    bool may_be_empty; // that the group gets no parameter is no error
    // The number of a group without patterns that gets, of these parameters, biases and those of at
    // most one axis, as the weights of norms are; 0: they stay.
    int of_small;
} tri_parameter_group;

// Sets `group` of every trained parameter to the number, from 1, of the first group that matches
// its name; without one it is 0. Freezes the parameters of frozen groups. Call it before autodiff,
// which makes no gradients of frozen parameters. TRI_BAD_INPUT: a pattern matches no parameter (it
// is probably mistyped), a group gets none, or nothing is left to train.
tri_status tri_graph_group(tri_graph *graph, const tri_parameter_group *groups, int count);
// Whether a group's pattern matches a parameter, be it one that another group has.
bool tri_graph_has_match(const tri_graph *graph, const char *pattern);
// Adds an entry to graph->gradients: what the current block contributes to the parameter's
// gradient.
void tri_gradient_add(tri_graph *graph, int parameter, tri_value value);
// Gets the gradient of a parameter, such as a statistic, whose gradient at most one block makes;
// none if no block does.
tri_value tri_gradient_of(const tri_graph *graph, int parameter);

// Returns the index in the full parameter, in row-major order, of element `index` of a slice of
// shape `shape`. If the parameter is not sliced, this is `index` itself. Initial weights are
// computed from this index, so an element gets the same value in a slice as in the full parameter.
int64_t tri_parameter_full_index(const tri_parameter_slice *slice, const tri_shape *shape,
                                 int64_t index);
// Finds in which slice the element with index `full` of the full parameter lies. Returns the number
// of the slice. *local is the element's index there. *count is how many elements, from this one on,
// are consecutive both in the slice and in the full parameter, so that they can be copied at once.
// A parameter that is not sliced counts as slice 0.
int tri_parameter_locate(const tri_parameter_slice *slice, const tri_shape *shape, int64_t full,
                         int64_t *local, int64_t *count);
// Gets the length of a run: slice and full parameter consist of runs of this many elements, and the
// elements of a run are consecutive in both, so that one copy moves them. A slice [4, 3] of a full
// [4, 12] has runs of 3 elements; a slice [2, 12] of a full [8, 12] is one run of 24, or if it is
// cut from two parts, two of 12.
int64_t tri_parameter_run(const tri_parameter_slice *slice, const tri_shape *shape);
// Describes a parameter as files have it: shape, slice and layout of the matrix that they contain
// if it is `stored_transposed`, else of the parameter itself.
tri_parameter_info tri_parameter_stored(const tri_parameter_info *parameter);
// Finds the layer of a parameter: "fc1" for the name "fc1.weight". Returns the length of the
// layer's name, with which the parameter's name begins.
size_t tri_parameter_layer(const char *name);

const tri_value_info *tri_value_get(const tri_graph *graph, tri_value value);
// Returns the node that made the value; NULL: no node did, because it is an input, for example.
const tri_node *tri_value_node(const tri_graph *graph, tri_value value);
// True if the value is a loss: (sum, count) as an op with TRI_OP_LOSS makes it, or a weighted sum
// of such losses (loss.h).
bool tri_value_is_loss(const tri_graph *graph, tri_value value);
// Computes how many bytes of memory the value takes in its layout.
int64_t tri_value_bytes(const tri_graph *graph, tri_value value);
// Counts the elements of all trained parameters.
int64_t tri_graph_trained_count(const tri_graph *graph);
tri_op_signature tri_node_signature(const tri_graph *graph, const tri_node *node);
tri_cost tri_node_cost(const tri_graph *graph, const tri_node *node);
static inline bool tri_value_is(tri_value value) { return value.id != 0; }

// Checks what must be true after every pass: that every value is made before it is read, that
// shapes and types are what the ops' rules say, and that nodes are ordered by phase and, inside a
// phase, by block (in the backward pass the last block first). TRI_INTERNAL: a pass is wrong; the
// message names the node and the rule.
tri_status tri_graph_verify(const tri_graph *graph);
// tri_graph_print writes one line of text for each node; tri_graph_dot writes the graph as input of
// Graphviz.
void tri_graph_print(const tri_graph *graph, FILE *out);
void tri_graph_dot(const tri_graph *graph, FILE *out);

#endif
