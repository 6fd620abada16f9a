// What an operation (op) is: one row with its shape rule, its gradient rule and its cost. The rows
// are in src/ops, one file per operation; the kernels that compute them are in src/device. A node
// is one use of an op in a graph.
#ifndef TRIREME_GRAPH_OP_H
#define TRIREME_GRAPH_OP_H

#include <stdio.h>
#include <trireme/graph.h>

enum { TRI_MAX_INPUTS = 8, TRI_MAX_OUTPUTS = 6 };

typedef struct tri_node tri_node;

// Shapes and types of a node's inputs and outputs. A shape rule gets those of the inputs and sets
// those of the outputs.
typedef struct tri_op_signature {
    int input_count, output_count;
    bool present[TRI_MAX_INPUTS]; // present[i] false: the optional input i was left out
    tri_shape in[TRI_MAX_INPUTS], out[TRI_MAX_OUTPUTS];
    tri_dtype in_type[TRI_MAX_INPUTS], out_type[TRI_MAX_OUTPUTS];
} tri_op_signature;

typedef struct tri_cost {
    double flops;    // multiplications and additions
    double repeated; // those of them that compute again what the forward pass has computed
} tri_cost;

// The types of attributes; an attribute is a setting of an op, such as a stride. tri_attr_field
// says at which offset of the op's struct each attribute lies, so that graphs can be printed by
// code that knows no op.
typedef enum tri_attr_kind {
    TRI_ATTR_INT,
    TRI_ATTR_FLOAT,
    TRI_ATTR_BOOL,
    TRI_ATTR_KEY,
    TRI_ATTR_TYPE,
    TRI_ATTR_PRINTED // anything else: `print` prints it
} tri_attr_kind;
typedef struct tri_attr_field {
    const char *name;
    // The C types, in the order of the enum: int64_t, double, bool, uint64_t, int64_t that holds a
    // tri_dtype.
    tri_attr_kind kind;
    size_t offset;
    int count; // number of elements if the attribute is an array; 0: it is a single value
    void (*print)(const void *at, FILE *out);
} tri_attr_field;

// How many classes or tokens an op knows. The labels or token numbers in the data must be smaller
// than this, because the op uses them as indices.
typedef struct tri_op_classes {
    int64_t (*count)(const void *attr, const tri_op_signature *signature);
    // Plural nouns for error messages: what the numbers in the data are ("labels"), and what they
    // are indices of ("classes").
    const char *of_data, *of_model;
} tri_op_classes;

typedef enum tri_op_flags {
    TRI_OP_VIEW = 1,   // output 0 is input 0's memory under another shape (plain layouts only)
    TRI_OP_RANDOM = 2, // reads the graph's input `position`, from which its random numbers follow
    // Has no outputs: it overwrites the parameter (input 0) and its optimizer states (inputs 3 and
    // up).
    TRI_OP_UPDATE = 4,
    // Output 0 is F64 [2]: a loss as (sum, count). The backward pass begins with the gradient of
    // the loss with respect to this sum.
    TRI_OP_LOSS = 8,
    // The ranks of a group compute the op together: the engine runs it, not a device. Its inputs
    // and outputs have plain (row-major) layouts.
    TRI_OP_COLLECTIVE = 16,
    // Computes numbers that an update needs, such as the learning rate or sums of squares of
    // gradients. No model and no pass uses such an op: the engine runs it outside of the model's
    // graph.
    TRI_OP_STEP = 64,
    // The op is cheap to compute, and its gradient reads its inputs, which are therefore kept
    // anyway: so output 0 is not kept for the backward pass but computed again.
    TRI_OP_RECOMPUTABLE = 32,
    // Output 0 is a cache: its memory lives from call to call, and is the same for all programs of
    // a plan. A call writes a part of it.
    TRI_OP_KEPT = 128,
} tri_op_flags;

// In which types an op of the forward pass reads and writes when the graph is computed in a half
// type (BF16 or F16; pass/precision.c). Sums over many terms, and differences of nearly equal
// numbers, need F32, because a half type has few digits. The ops of gradients need no class: their
// types follow from those of the values that they read.
typedef enum tri_precision_class {
    TRI_PRECISION_FULL,   // reads and writes F32
    TRI_PRECISION_HALF,   // reads and writes half types, sums in F32
    TRI_PRECISION_FOLLOW, // writes the type of its inputs; if they differ, the wider one
    // Reads its input x in the type that x has, weights and means in F32; writes a half type if all
    // readers need that.
    TRI_PRECISION_NORM,
    TRI_PRECISION_ANY,   // reads any types, computes in F32
    TRI_PRECISION_CARRY, // copies its input, mostly between ranks, in the type that it has
    // Reads its input x in the type that x has; rounds the bias to a half type first, as a linear
    // layer does.
    TRI_PRECISION_BIAS,
    // Copies rows of a parameter in the type that the parameter has. Readers that accept both types
    // get the copies as F32.
    TRI_PRECISION_GATHER,
} tri_precision_class;

// Bits for axes of an op's inputs: the first axis, those in the middle, and the last.
typedef enum tri_op_axes {
    TRI_AXES_FIRST = 1,
    TRI_AXES_MIDDLE = 2,
    TRI_AXES_LAST = 4,
    TRI_AXES_ROWS = TRI_AXES_FIRST | TRI_AXES_MIDDLE,
    TRI_AXES_ANY = TRI_AXES_ROWS | TRI_AXES_LAST,
} tri_op_axes;

// How ranks that divide layers (strategy.mesh.tensor) share a node, of which each has a slice.
typedef struct tri_op_slices {
    int64_t count, index;   // how many slices there are, and the number of this rank's one
    int in[TRI_MAX_INPUTS]; // the axis along which each input is sliced; -1: it is replicated
    int out;                // the axis along which the outputs are sliced
    // How many equal parts the sliced axes consist of, of each of which a slice has its share:
    // those of the inputs, and those of the outputs.
    int64_t parts, out_parts;
} tri_op_slices;

// A field that a row leaves out is 0, which is always right: such an op is computed in F32, and
// every rank computes all of it.
typedef struct tri_op {
    const char *name;
    const char *doc;     // one line that says what the op computes, with a formula or a source
    int input_count;     // inputs, optional ones included
    int optional_inputs; // how many of the last inputs may be none
    int output_count;
    unsigned flags;
    // Index + 1 of the input over whose memory output 0 may be written; 0: none. Every kernel of
    // the op must allow it. The plan does it only if nothing reads that input later, and if output
    // 0 has the input's type, shape and layout.
    int in_place;
    // Whether this holds for a node with these attributes; NULL: for all nodes.
    bool (*may_overwrite)(const void *attr);
    // Whether a node with these attributes has what TRI_OP_RECOMPUTABLE says; NULL: the flag tells.
    bool (*is_recomputable)(const void *attr);
    size_t attr_bytes;
    // Ends with a field whose name is NULL; NULL: the op has no attributes.
    const tri_attr_field *attr_fields;
    tri_precision_class precision;
    size_t narrow; // for a norm: offset of the attribute that holds the type of its output
    // What ranks that divide layers may do with the op. If one of the first `streams` inputs is
    // sliced along an axis that `axes` has, all of these inputs are sliced in this way, and so is
    // the output: each rank computes its slice alone. Further inputs, such as the weight of a norm,
    // are replicated. If none of these inputs is sliced along such an axis, every rank computes the
    // op on full tensors.
    int streams;
    unsigned axes;
    // For an op of which this is not all. Input `input`, of the full shapes and types in `full`, is
    // sliced along axis `dim`. `slices` says what `streams` and `axes` make of it; the rule
    // corrects it, and changes `attr`, a copy of the node's, to the attributes of the slice. false:
    // the op cannot be sliced in this way.
    bool (*slice)(int input, int dim, const tri_op_signature *full, void *attr,
                  tri_op_slices *slices);
    // Sets out and out_type, or returns TRI_FAIL(TRI_BAD_INPUT, …) saying which shape does not fit.
    tri_status (*shape)(const void *attr, tri_op_signature *signature);
    // Adds nodes that compute the gradients of the inputs from the gradients of the outputs, and
    // sets in_grads. out_grads[i] is none if output i does not influence the loss. wanted[i] tells
    // whether in_grads[i] is needed. An op whose `gradient` is NULL passes no gradient to its
    // inputs.
    void (*gradient)(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                     const bool *wanted, tri_value *in_grads);
    // For an op that computes a loss, alone or together with its gradient: index + 1 of the input
    // that holds the labels. The count of the loss is then the number of labels that are not
    // ignored. 0: the count depends on shapes alone, and `count` computes it.
    int labels;
    int64_t (*count)(const tri_op_signature *signature);
    // For an op that makes labels from its only input: returns label number `index` of those that
    // it makes from `input`, on the host, so that labels can be counted before a step.
    int64_t (*label_at)(const void *attr, const tri_shape *shape, const int64_t *input,
                        int64_t index);
    // For an op that makes labels of another form from its first input: the same ones are ignored.
    bool keeps_labels;
    // For an op that makes the weights of labels: index + 1 of the input with a weight for each
    // class, a constant. The count of a loss on them is the sum of the weights. 0: it makes none.
    int label_weights;
    // For a loss that is divided by the sum of the numbers in input `labels`.
    bool sums_labels;
    // For an op that reads class or token numbers: how many classes or tokens there are, so that
    // data with larger numbers can be rejected. NULL: the op reads none.
    const tri_op_classes *classes;
    // Computes the cost of a node, by which blocks are divided into pipeline stages and times are
    // estimated. NULL: one flop for each element of output 0; a view costs nothing.
    tri_cost (*cost)(const void *attr, const tri_op_signature *signature);
} tri_op;

// Index of the input over whose memory the node's output 0 may be written (tri_op.in_place); -1:
// none.
int tri_node_overwrites(const tri_op *op, const void *attr);

#endif
