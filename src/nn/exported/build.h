// What the files of this folder share: the network, values while a graph is built, and the calls of
// operations.
#ifndef TRIREME_NN_EXPORTED_BUILD_H
#define TRIREME_NN_EXPORTED_BUILD_H

#include "format/pt2.h"
#include "graph/graph.h"
#include "nn/exported/exported.h"
#include "ops/formula.h"

#include <trireme/nn.h>

enum {
    EXPORTED_MAX_ARGUMENTS = 16,
    EXPORTED_MAX_PARTS = 4096,   // parts of a split, values of a concatenation
    EXPORTED_MAX_HOST = 1 << 26, // elements of a tensor that is computed on the host
    EXPORTED_MAX_RANK = TRI_MAX_PT2_RANK,
    EXPORTED_MAX_FACTORS = 12,
};

// A tensor that neither data nor parameters reach: it is computed while the graph is built, in F64.
// Views share `data`; an axis that is repeated has the stride 0.
typedef struct exported_host {
    int rank;
    int64_t sizes[EXPORTED_MAX_RANK], strides[EXPORTED_MAX_RANK];
    const double *data;
} exported_host;

typedef enum exported_kind {
    EXPORTED_NOTHING, // None, or what no node has made
    EXPORTED_GRAPH,
    EXPORTED_HOST,
    EXPORTED_NUMBER,
} exported_kind;

// A part of an axis of a view: how many elements, and how far apart they lie in the base.
typedef struct exported_factor {
    int axis;
    int64_t size, step;
} exported_factor;

// How a view lies in its base (layouts.c): its factors, the outermost first.
typedef struct exported_layout {
    int count;
    int64_t offset;
    exported_factor factors[EXPORTED_MAX_FACTORS];
} exported_layout;

typedef struct exported_value {
    exported_kind kind;
    int dtype; // PyTorch's number
    tri_value graph;
    // Of GRAPH: the value of which this one is a view, and how; none: of none.
    tri_value base;
    const exported_layout *layout;
    exported_host host;
    // Of HOST: an axis's size depends on the number of samples, which no constant may have in it.
    bool is_sized;
    double real; // of NUMBER; `integer` is the same as a whole number, if it is one
    int64_t integer;
    const char *name; // what constants made of it are called
} exported_value;

typedef struct exported_build exported_build;
typedef struct exported_call exported_call;

// One row of the table: an operation of ATen. `name` has its overload ("aten.sum.dim_IntList"), or
// stands for all of them ("aten.add"); an operation in place ("aten.add_") is the same row.
// `schema` lists the arguments in their order, with defaults: "self dim=None keepdim=False". Either
// `lower` computes it, or `formula` does, whose inputs are the first arguments and whose parameters
// are the others.
typedef struct exported_row {
    const char *name, *schema, *formula;
    void (*lower)(exported_call *call);
    // An argument that is true in networks that train. Where it is not, eval() was called before.
    const char *trains;
    bool draws; // it draws random numbers, once a step, whichever blocks read them
} exported_row;

#define ROW(name, schema, lower)                                                                   \
    { name, schema, NULL, lower, NULL, false }
#define DRAW(name, schema, lower, trains)                                                          \
    { name, schema, NULL, lower, trains, true }
#define FORMULA(name, schema, formula)                                                             \
    { name, schema, formula, NULL, NULL, false }

// Finds the row of an operation; NULL: it is not supported.
const exported_row *exported_find_row(tri_arena *arena, const char *target);

// A node of the network with what is known of it.
typedef struct exported_node {
    const tri_pt2_node *node;
    const exported_row *row;
    bool is_live;    // what the network returns depends on it
    bool is_reached; // a parameter reaches it
    int block;       // of those that are reached
} exported_node;

// What a pattern has found (patterns.c), and how often.
typedef struct exported_fused {
    const char *name;
    int count;
} exported_fused;

// How a parameter begins that is an argument of an operation.
typedef struct exported_beginning {
    const char *operation, *argument;
    tri_init_kind kind;
    double value;
} exported_beginning;

typedef struct exported_rule {
    const tri_pt2_node *node; // the operation; NULL: there is no rule
    const exported_beginning *begins;
} exported_rule;

struct nn_exported {
    tri_task task; // first: nn_exported_of finds the network by its task
    tri_arena *arena;
    tri_pt2 file;
    const tri_tree *options;
    nn_exported *evaluation;    // the program for evaluation; NULL: it is the same
    const nn_exported *trained; // of that program: the one of which it is
    exported_node *nodes;
    int *makers;                // of each value, which node makes it; -1: it comes from outside
    const tri_pt2_port **ports; // of each value that comes from outside
    bool *is_read;              // of each value: a live node reads it
    exported_rule *rules;       // of each value that is a parameter
    const char **blocks;        // names
    const char **refusals;      // what stands in the way of training, a line each
    int block_count, refusal_count, refusal_capacity;
    exported_fused *fused;
    int fused_count, fused_capacity;
    bool has_weights;
    bool draws; // random numbers that evaluation does not draw
};

// Makes a model of the network, whose file has been read. For errors see nn_exported_open.
tri_status exported_prepare(nn_exported *network);
// Puts one operation in the place of a group of them, wherever a pattern of patterns.c finds such a
// group, so that equal networks train at the same speed, however they are written. Nodes have their
// rows before.
void exported_find_patterns(nn_exported *network);
// Finds which nodes are live and reached, and cuts them into blocks. TRI_BAD_INPUT: a pattern of
// the recipe matches no module, or a program for evaluation has another order.
tri_status exported_find_blocks(nn_exported *network);
// Finds how parameters begin.
void exported_find_rules(nn_exported *network);
// The function of the task.
void exported_build_network(tri_graph *graph, const tri_batch *batch);

// The options of a network.
extern const char *const exported_keys[];
extern const int exported_key_count;
// The text of an option; NULL: it is left out, or no text.
const char *exported_option(const nn_exported *network, const char *key);
// The field that the recipe names for an argument of forward; NULL: it names none.
const char *exported_input_field(const nn_exported *network, const char *argument);
// How many arguments the network reads.
int exported_input_count(const nn_exported *network);
// The name of a parameter or buffer: of a tied one, the first.
const char *exported_parameter_name(const nn_exported *network, const tri_pt2_port *port);

// A graph that is being built.
struct exported_build {
    tri_graph *graph;
    const tri_batch *batch;
    const nn_exported *network;
    exported_value *values; // by their numbers in the file
    int *made;              // in which block a value was made; -1: not yet
    int block;
};

struct exported_call {
    exported_build *build;
    const tri_pt2_node *node;
    const exported_row *row;
    // By the schema; a missing argument has its default.
    int count;
    tri_pt2_argument arguments[EXPORTED_MAX_ARGUMENTS];
};

// Arguments of a call by their number in the schema. Each fails the graph if the argument is of
// another kind.
exported_value exported_operand(exported_call *call, int k); // a tensor, a number or nothing
tri_value exported_tensor(exported_call *call, int k);       // as a value of the graph; none: None
bool exported_is_none(const exported_call *call, int k);
int64_t exported_int(exported_call *call, int k);
double exported_real(exported_call *call, int k);
bool exported_bool(exported_call *call, int k);
const char *exported_text(const exported_call *call, int k); // "": it is no text
// A list of whole numbers, of which there are at most `most`; a number stands for a list of it.
int exported_ints(exported_call *call, int k, int64_t *out, int most);
// The same with `count` numbers, of which one that is given stands for all.
void exported_sizes(exported_call *call, int k, int64_t *out, int count);
int exported_reals(exported_call *call, int k, double *out, int most);
// A list of tensors, each possibly nothing.
int exported_list(exported_call *call, int k, exported_value *out, int most);
// The number of an axis, from 0; of one more axis than `rank` has, where one is added.
int exported_axis(exported_call *call, int64_t axis, int rank);
// The axis of the first argument that argument k names.
int exported_axis_of(exported_call *call, int k);
// The type of a result as the file says, and of a result that may be asked for by an argument.
int exported_result_type(const exported_call *call, int k);
// Whether the file leaves a size of that result open.
bool exported_is_sized(const exported_call *call, int k);

// Sets a result: the only one, or number k.
void exported_give(exported_call *call, exported_value value);
void exported_give_at(exported_call *call, int k, exported_value value);
void exported_give_graph(exported_call *call, tri_value value);
void exported_give_graph_at(exported_call *call, int k, tri_value value);
int exported_result_count(const exported_call *call);
// The name of the first result, which no other value has.
const char *exported_result_name(const exported_call *call);
void exported_fail(exported_call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// The value as one of the graph; what the host has computed becomes a constant of it.
tri_value exported_as_graph(exported_build *build, const exported_value *value);
// The same, as F32 where it is of another type.
tri_value exported_as_float(exported_build *build, const exported_value *value);
exported_value exported_of_graph(tri_value value, int dtype);
exported_value exported_of_number(double value, int dtype);

int exported_rank(exported_build *build, const exported_value *value);
int64_t exported_size(exported_build *build, const exported_value *value, int axis);
int64_t exported_count(exported_build *build, const exported_value *value);

// y is a view of x, a tensor of the graph, and made of x's base if it has one: x with its axes in
// another order, x in other sizes, x[.., first:end:step, ..] along `axis`.
exported_value exported_view_permuted(exported_build *b, const exported_value *x, const int *order);
exported_value exported_view_reshaped(exported_build *b, const exported_value *x,
                                      const int64_t *sizes, int rank);
exported_value exported_view_sliced(exported_build *b, const exported_value *x, int axis,
                                    int64_t first, int64_t end, int64_t step);
// Whether x has the rows (of the last axis) of its base in another order, *rows is the shape of the
// base. What is computed of each row alone may then be computed of the base; exported_of_rows makes
// of its result y [.., width] the one for x.
bool exported_has_rows(exported_build *b, const exported_value *x, tri_shape *rows);
exported_value exported_of_rows(exported_build *b, const exported_value *x, tri_value y, int dtype);
// Of a network that was exported with a fixed batch, where the micro-batch has another size
// (fixed.c): the batch in the file; 0: there is none, or it is the same.
int64_t exported_fixed_batch(const exported_build *b);
// The axis of x, the first argument, that has another size than in the file; -1: none.
int exported_batch_axis(exported_call *call, const exported_value *x);
// Puts the number of samples into sizes that x, the first argument, is reshaped to.
void exported_refit(exported_call *call, const exported_value *x, int64_t *sizes, int rank);
// The same with sizes that it is expanded to, or numbers of times that it is repeated.
void exported_refit_repeats(exported_call *call, const exported_value *x, int64_t *sizes, int rank,
                            bool is_times);
// Lets tensors of the host that are repeated have the sizes of those that they stand beside;
// `axis`, -1: none, may differ.
void exported_refit_repeated(exported_build *b, exported_value *values, int count, int axis);
// The index of x's axis, where it counts the samples.
exported_value exported_refit_index(exported_call *call, exported_value index,
                                    const exported_value *x, int axis);

// Functions of tensors of either kind.
exported_value exported_reshape(exported_build *b, exported_value x, const int64_t *sizes,
                                int rank);
exported_value exported_permute(exported_build *b, exported_value x, const int *order);
exported_value exported_slice(exported_build *b, exported_value x, int axis, int64_t first,
                              int64_t end, int64_t step);
exported_value exported_expand(exported_build *b, exported_value x, const int64_t *sizes, int rank);
exported_value exported_concat(exported_build *b, const exported_value *values, int count,
                               int axis);
// Computes a formula of values, which are broadcast; numbers count as tensors of no axis.
exported_value exported_map(exported_build *b, const tri_formula *formula, const exported_value *in,
                            int count, int dtype);
// The same with the formula's text and its parameters, NULL: none.
exported_value exported_map_text(exported_build *b, const char *formula, const double *parameters,
                                 const exported_value *in, int count, int dtype);

// The indices of argument k, of which masks that are constant become numbers. `out` has room for
// twice EXPORTED_MAX_RANK.
int exported_indices(exported_call *call, int k, exported_value *out);
// Whether an index counts the elements of x's axis along an axis of its own: 0, 1, 2, …
bool exported_counts(exported_build *b, exported_value index, const exported_value *x, int axis);
// The numbers of index k counted from 0, for an axis of that size.
exported_value exported_from_zero(exported_call *call, exported_value index, int64_t size, int k);

// Puts elements of `source` into x along an axis, by tri_scatter or tri_index_copy, which take
// numbers with floating point; integers go in two parts, which these hold exactly (up to 2^44).
typedef tri_value exported_setter(tri_graph *, tri_value, int, tri_value, tri_value);
tri_value exported_set_along(tri_graph *g, exported_setter *set, tri_value x, int axis,
                             tri_value index, tri_value source);

// Tensors of the host.
exported_value exported_host_fill(exported_build *b, const int64_t *sizes, int rank, double value,
                                  int dtype);
// A tensor whose elements are still to be set, in *data.
exported_value exported_host_new(exported_build *b, const int64_t *sizes, int rank, int dtype,
                                 double **data);
exported_value exported_host_read(exported_build *b, const tri_pt2_tensor *tensor);
// Copies the elements row by row.
exported_value exported_host_row_major(exported_build *b, const exported_value *x);
bool exported_host_next(const exported_host *x, int64_t *index);
double exported_host_at(const exported_host *x, const int64_t *index);
exported_value exported_host_map(exported_build *b, const tri_formula *formula,
                                 const exported_value *in, int count, int dtype);

// The full name of the parameter or buffer that argument k is; NULL: it is none.
const char *exported_full_name(const exported_call *call, int k);
// Whether argument k is the parameter or buffer LAYER.NAME.
bool exported_is_own(const exported_call *call, int k, const char *layer, const char *name);

// The name of the layer: its module, which may be called several times and then is shared.
const char *exported_layer(exported_call *call);

bool exported_type_is_float(int dtype);
bool exported_type_is_int(int dtype);

// Rows of the files of this folder, each ended by a row of zeros.
extern const exported_row exported_function_rows[], exported_shape_rows[], exported_layer_rows[],
    exported_pool_rows[], exported_recurrent_rows[], exported_reduction_rows[],
    exported_creation_rows[], exported_loss_rows[], exported_index_rows[], exported_join_rows[],
    exported_product_rows[], exported_order_rows[], exported_image_rows[], exported_scatter_rows[],
    exported_write_rows[], exported_table_rows[], exported_linear_rows[], exported_fused_rows[],
    exported_own_loss_rows[];

#endif
