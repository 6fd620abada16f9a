// What an operation is: one row with its shape rule, its gradient rule and its cost. The rows are
// in src/ops, one file per operation; what computes them is in src/device.
#ifndef TRIREME_GRAPH_OP_H
#define TRIREME_GRAPH_OP_H

#include <trireme/graph.h>

enum { TRI_MAX_INPUTS = 8, TRI_MAX_OUTPUTS = 6 };

typedef struct tri_node tri_node;

// Given to a shape rule: shapes and types of the inputs; the rule sets those of the outputs.
typedef struct tri_op_signature {
    int input_count, output_count;
    bool present[TRI_MAX_INPUTS]; // false: an optional input that was left out
    tri_shape in[TRI_MAX_INPUTS], out[TRI_MAX_OUTPUTS];
    tri_dtype in_type[TRI_MAX_INPUTS], out_type[TRI_MAX_OUTPUTS];
} tri_op_signature;

typedef struct tri_cost {
    double flops; // multiplications and additions
} tri_cost;

// The types of attributes, and below where one lies in its op's struct: so graphs can be printed
// without knowing each op.
typedef enum tri_attr_kind {
    TRI_ATTR_INT,
    TRI_ATTR_FLOAT,
    TRI_ATTR_BOOL,
    TRI_ATTR_KEY,
    TRI_ATTR_TYPE
} tri_attr_kind;
typedef struct tri_attr_field {
    const char *name;
    tri_attr_kind kind; // int64_t, double, bool, uint64_t, int64_t that is a tri_dtype
    size_t offset;
    int count; // of an array; 0: 1
} tri_attr_field;

// The class or token numbers that an op reads, which have to be checked against the data, because
// they are used as indices.
typedef struct tri_op_classes {
    int64_t (*count)(const void *attr, const tri_op_signature *signature);
    const char *of_data,
        *of_model; // what messages call them: "labels" of data, "classes" of models
} tri_op_classes;

typedef enum tri_op_flags {
    TRI_OP_VIEW = 1,   // output 0 is input 0's memory under another shape (plain layouts only)
    TRI_OP_RANDOM = 2, // reads the value `position`
    TRI_OP_UPDATE = 4, // no outputs; overwrites input 0 and its states (inputs 3 and up) in place
    TRI_OP_LOSS = 8,   // output 0 is F64 [2] (sum, count); the sum's gradient is a scalar `seed`
    TRI_OP_COLLECTIVE = 16, // communicates: the engine runs it, no device; plain layouts
    TRI_OP_STEP = 64,       // computes numbers of a step: only the engine adds it, no model
    // Cheap, and its gradient reads its inputs, which are kept: the backward pass computes output 0
    // again instead of keeping it.
    TRI_OP_RECOMPUTABLE = 32,
} tri_op_flags;

typedef struct tri_op {
    const char *name;
    const char *doc;     // one line: what it computes, with formula or source
    int input_count;     // inputs, optional ones included
    int optional_inputs; // how many of the last inputs may be none
    int output_count;
    unsigned flags;
    // The input over whose memory output 0 may be written, if that input is not needed later: its
    // index + 1; 0: none. Every kernel of the op must then allow it (same type, shape and layout).
    int in_place;
    size_t attr_bytes;
    const tri_attr_field *attr_fields; // a NULL name ends the list; NULL: none
    // Sets out and out_type, or returns TRI_FAIL(TRI_BAD_INPUT, …) saying which shape does not fit.
    tri_status (*shape)(const void *attr, tri_op_signature *signature);
    // Adds nodes that compute the gradients of the inputs from those of the outputs (none where an
    // output does not take part). wanted[i] says whether in_grads[i] is of use. NULL: no input has
    // a gradient.
    void (*gradient)(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                     const bool *wanted, tri_value *in_grads);
    // Of a loss: the input whose labels are its count (index + 1), so that ignored labels do not
    // count. 0: the count depends on shapes alone, and `count` computes it.
    int labels;
    int64_t (*count)(const tri_op_signature *signature);
    // Of an op that makes labels from its only input: counts, on the host, those that are not left
    // out. `input` is the values of that input.
    int64_t (*count_labels)(const tri_shape *shape, const int64_t *input);
    // Of an op that reads class or token numbers: how many classes or tokens there are, so that
    // data with larger numbers can be refused. NULL: it reads none.
    const tri_op_classes *classes;
    // What the op costs, for stages and estimates. NULL: one flop an output element.
    tri_cost (*cost)(const void *attr, const tri_op_signature *signature);
} tri_op;

#endif
