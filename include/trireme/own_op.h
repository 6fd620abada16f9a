// Ops of your own: functions of tensors that the library does not have, computed by your code on
// the host. Where an expression says what is computed (tri_map), or functions that are there can be
// put together, these are faster and run on every device; an op of your own is for the rest.
//
//     static const tri_own_op cube = {.name = "cube", .inputs = 1, .compute = …, .gradient = …};
//     tri_op_register(&cube);                          // in `main`, or where the graph is built
//     y = tri_op_apply(graph, "cube", &x, NULL, NULL); // in the function that builds the graph
//
// The op is trained, planned and divided between ranks as those of the library: its inputs and
// outputs are kept or computed again, and ranks that divide layers each compute it whole. On a
// device with memory of its own, such as a GPU, it runs on the host, with copies before and after.
// What it draws at random it takes as an input, such as tri_rand_like.
#ifndef TRIREME_OWN_OP_H
#define TRIREME_OWN_OP_H

#include <trireme/api.h>
#include <trireme/graph.h>

TRI_API_BEGIN

enum { TRI_OWN_INPUTS = 4, TRI_OWN_OUTPUTS = 2, TRI_OWN_SETTINGS = 8 };

// A tensor in the host's memory, whose elements lie one after the other, those of the last axis
// side by side.
typedef struct tri_own_tensor {
    void *data;      // NULL: it is not there
    tri_dtype dtype; // F32 in a run, F64 in tri_op_check; I64: integers
    tri_shape shape;
    int64_t count; // how many elements there are
} tri_own_tensor;

// Element i as a number, whatever the type is, so that one loop serves all. The compiler takes the
// question out of loops.
static inline double tri_own_get(const tri_own_tensor *x, int64_t i) {
    if (x->dtype == TRI_F32) return ((const float *)x->data)[i];
    return x->dtype == TRI_F64 ? ((const double *)x->data)[i]
                               : (double)((const int64_t *)x->data)[i];
}

static inline void tri_own_put(const tri_own_tensor *x, int64_t i, double number) {
    if (x->dtype == TRI_F32)
        ((float *)x->data)[i] = (float)number;
    else
        ((double *)x->data)[i] = number;
}

// What a function of the op reads and writes.
typedef struct tri_own_call {
    tri_own_tensor in[TRI_OWN_INPUTS];
    // Of `compute` the results; of `gradient` the same ones to read, if the op keeps its outputs.
    tri_own_tensor out[TRI_OWN_OUTPUTS];
    // Of `gradient`: the gradients of the outputs, of which one that takes no part in the loss is
    // not there; and those of the inputs, which begin with zeros. Integers have none.
    tri_own_tensor out_grad[TRI_OWN_OUTPUTS], in_grad[TRI_OWN_INPUTS];
    const double *settings; // those that tri_op_apply was given
} tri_own_call;

// A zero is the usual choice for all that is left out.
typedef struct tri_own_op {
    const char *name;    // letters, digits, - and _
    int inputs, outputs; // outputs: 0 means 1
    int settings;        // how many numbers the op is given, such as a slope
    unsigned integers;   // bit k: input k is I64, such as indices; all others are numbers
    bool keeps_outputs;  // `gradient` reads the outputs; false: only the inputs
    bool mixes_samples;  // an element of a result depends on more than one sample (axis 0)
    // Sets the shapes of the outputs. Returns NULL, or a few words about what does not fit, which
    // a message shows with the shapes. Left out: all outputs have the shape of input 0.
    const char *(*shape)(const tri_shape *in, tri_shape *out, const double *settings);
    // Writes every element of the outputs. It is called by one thread at a time for each rank, and
    // has to depend on what it reads alone.
    void (*compute)(const tri_own_call *call);
    // Writes the gradients of the inputs: that of input i sums out_grad · d out / d in_i. Left out:
    // the op passes no gradient on.
    void (*gradient)(const tri_own_call *call);
} tri_own_op;

// Makes the op known by its name. The row may be registered again, as by a function that builds
// the graph more than once; another row of the same name is refused, as is the name of an op that
// the library has. What the row's pointers point to has to stay.
tri_status tri_op_register(const tri_own_op *op);

// Applies the op: returns its first output, and writes all to `outputs`, unless that is NULL.
// `inputs` and `settings` have as many as the row says; `settings` may be NULL if there are none.
tri_value tri_op_apply(tri_graph *graph, const char *name, const tri_value *inputs,
                       const double *settings, tri_value *outputs);

typedef struct tri_op_check_options {
    const double *settings;
    double low, high; // where the numbers of the inputs lie; both 0: from -1 to 1
    int64_t integers; // integers are drawn from 0 to this - 1; 0 means 2
    double tolerance; // how far gradients may differ, relative to 1 or more; 0 means 1e-6
    uint64_t seed;
} tri_op_check_options;

// The element of an input at which `gradient` and finite differences are furthest apart.
typedef struct tri_op_worst {
    int input;
    int64_t element;
    double gradient, difference, error;
} tri_op_worst;

// Checks a registered op at random inputs of these shapes, in F64: that `compute` writes finite
// numbers to all elements, the same ones each time, and leaves its inputs alone, and that
// `gradient` is what central finite differences say. *worst, if it is not NULL, is the worst
// element; without a gradient nothing is written there. TRI_BAD_INPUT: a line about what is wrong
// (tri_error_message). It calls `compute` twice for each element of the inputs, so small shapes do.
tri_status tri_op_check(const char *name, const tri_shape *inputs, tri_op_check_options options,
                        tri_op_worst *worst);

TRI_API_END

#endif
