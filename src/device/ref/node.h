// What every kernel of the reference device `ref` keeps of its node (one use of an op in a graph),
// how kernels are defined, and functions that several of them use.
#ifndef TRIREME_DEVICE_REF_NODE_H
#define TRIREME_DEVICE_REF_NODE_H

#include "device/ref/ref.h"
#include "device/widen.h"

typedef struct ref_node {
    tri_op_signature s; // shapes and types of inputs and outputs, and which of them are present
    // F32 or F64: the type of input 0 or, if that has integers, of output 0. Most floating-point
    // tensors of the node have this type. Sums of losses, loss seeds and step scalars may differ.
    tri_dtype dtype;
    tri_layout in_layout, out_layout; // layouts of input 0 and output 0
    _Alignas(16) char attr[];         // a copy of the node's attributes
} ref_node;

// Whether `ref` computes the node. It does not if one of the node's tensors is BF16 or F16, because
// `ref` computes only in F32 and F64; tri_kernel_widened computes such nodes.
bool ref_supports(const tri_device_description *device, const tri_graph *graph,
                  const tri_node *node);
tri_status ref_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                       tri_kernel *kernel);
void ref_release(tri_kernel *kernel);

// An array of F32 or F64. A kernel is written once, as a body that reads elements by get and writes
// them by put. REF_KERNEL calls the body with a constant f64, so that the compiler makes one
// function for each type, without branches in the loops.
typedef struct ref_array {
    void *at; // NULL: the optional input or output is missing
    bool f64;
} ref_array;

#define REF_BODY static inline __attribute__((always_inline))

REF_BODY ref_array ref_input(const tri_kernel_args *args, int i, bool f64) {
    return (ref_array){(void *)(uintptr_t)args->in[i], f64};
}

REF_BODY ref_array ref_output(const tri_kernel_args *args, int i, bool f64) {
    return (ref_array){args->out[i], f64};
}

// Makes the array that begins at element `index` of x.
REF_BODY ref_array ref_from(ref_array x, int64_t index) {
    return (ref_array){(char *)x.at + index * (x.f64 ? 8 : 4), x.f64};
}

REF_BODY double get(ref_array x, int64_t i) {
    return x.f64 ? ((const double *)x.at)[i] : (double)((const float *)x.at)[i];
}

REF_BODY void put(ref_array y, int64_t i, double number) {
    if (y.f64)
        ((double *)y.at)[i] = number;
    else
        ((float *)y.at)[i] = (float)number;
}

// Read and write an element of an integer type: I64, I32 or U8. What has no room wraps.
static inline int64_t ref_get_integer(tri_dtype dtype, const void *from, int64_t i) {
    if (dtype == TRI_I64) return ((const int64_t *)from)[i];
    return dtype == TRI_I32 ? ((const int32_t *)from)[i] : ((const uint8_t *)from)[i];
}

static inline void ref_put_integer(tri_dtype dtype, void *to, int64_t i, int64_t number) {
    if (dtype == TRI_I64)
        ((int64_t *)to)[i] = number;
    else if (dtype == TRI_I32)
        ((int32_t *)to)[i] = (int32_t)number;
    else
        ((uint8_t *)to)[i] = (uint8_t)number;
}

// Defines the kernel ref_<op> from the function <op>_body.
#define REF_KERNEL(op_name) REF_KERNEL_WITH(op_name, NULL)

// As REF_KERNEL, for a kernel that also needs a workspace of `doubles` doubles for sums. The
// expression `doubles` may use `s`, which points to the shapes and types of the node's inputs and
// outputs (tri_op_signature).
#define REF_SUMMING_KERNEL(op_name, doubles)                                                       \
    static tri_status op_name##_workspace(const tri_device_description *device,                    \
                                          const tri_graph *graph, const tri_node *node,            \
                                          size_t *out) {                                           \
        tri_op_signature signature = tri_node_signature(graph, node), *s = &signature;             \
        *out = (size_t)(doubles) * sizeof(double);                                                 \
        return TRI_OK;                                                                             \
    }                                                                                              \
    REF_KERNEL_WITH(op_name, op_name##_workspace)

#define REF_KERNEL_WITH(op_name, workspace_function)                                               \
    static tri_status op_name##_run(const tri_kernel *kernel, const tri_kernel_args *args) {       \
        const ref_node *node = kernel->state;                                                      \
        return node->dtype == TRI_F64 ? op_name##_body(node, args, true)                           \
                                      : op_name##_body(node, args, false);                         \
    }                                                                                              \
    const tri_kernel_def ref_##op_name = {.op = &tri_op_##op_name,                                 \
                                          .name = "ref",                                           \
                                          .supports = ref_supports,                                \
                                          .workspace = workspace_function,                         \
                                          .prepare = ref_prepare,                                  \
                                          .run = op_name##_run,                                    \
                                          .release = ref_release};

static inline int64_t ref_count(const tri_shape *shape) { return tri_shape_count(shape); }
static inline int64_t ref_classes(const tri_shape *shape) { return shape->dims[shape->rank - 1]; }

// What decides which elements of one micro-batch dropout keeps: an element is kept if its random
// word, drawn from key, step, sample and element, is at least `threshold`.
typedef struct ref_mask {
    uint64_t key, step;
    // first: position of the micro-batch's first sample in the step. threshold: 0 if every element
    // has the factor `scale`.
    uint32_t first, threshold;
    double scale; // factor of the elements that are kept; 0: all are dropped
} ref_mask;
// Makes the mask of a micro-batch. `p` is the probability of dropping, and `position` the node's
// input with the number of the step and the position of the micro-batch's first sample in the step;
// `position` may be NULL if p is 0.
ref_mask ref_mask_of(double p, uint64_t key, const int64_t *position);
// The factor by which dropout multiplies an element of a sample of the micro-batch: 0 or 1 / (1 -
// p).
double ref_mask_at(const ref_mask *mask, int64_t sample, int64_t element);

// Checks a label before it is used as an index. Returns TRI_BAD_INPUT if the label is neither
// TRI_IGNORED_LABEL nor one of 0 to `classes` - 1.
tri_status ref_check_label(int64_t label, int64_t sample, int64_t classes);

// Checks a token before it is used as an index. `index` is its position in the micro-batch. Returns
// TRI_BAD_INPUT if the token is not one of 0 to `tokens` - 1.
tri_status ref_check_token(int64_t token, int64_t index, int64_t tokens);

// Checks `count` indices before they are used. Returns TRI_BAD_INPUT if one of them is not one of 0
// to `size` - 1.
tri_status ref_check_indices(const int64_t *indices, int64_t count, int64_t size);
// The failure for an index that is none of 0 to `size` - 1.
tri_status ref_refuse_index(int64_t index, int64_t at, int64_t size);

#endif
