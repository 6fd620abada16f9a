// Pointwise ops on the GPU, which compute each element of their output from the same elements of
// their inputs: how module/pointwise.cu is launched. All tensors of such an op have the same
// layout, so it can be any layout.
#include "device/cuda/internal.h"

typedef struct pointwise_row {
    const tri_op *op;
    cuda_function function;
} pointwise_row;

static const pointwise_row rows[] = {
    {&tri_op_add, CUDA_ADD},
    {&tri_op_cast, CUDA_CAST},
};

static const pointwise_row *row_of(const tri_op *op) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == op) return &rows[i];
    return NULL;
}

static bool is_float(tri_dtype dtype) { return cuda_is_real(dtype) || dtype == TRI_F64; }

static bool supports(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *node) {
    tri_dtype a = cuda_in_type(graph, node, 0), out = cuda_out_type(graph, node, 0);
    tri_dtype b = node->input_count > 1 ? cuda_in_type(graph, node, 1) : a;
    if (!is_float(a) || !is_float(b) || !is_float(out)) return false;
    if (node->op == &tri_op_cast) return true;
    if (a == b) return out == a;
    // F32 and a half type may be added; the sum is F32.
    return node->op == &tri_op_add && out == TRI_F32 && (a == TRI_F32 || b == TRI_F32) &&
           a != TRI_F64 && b != TRI_F64;
}

// Gives all inputs and the output one layout. If the inputs have the same layout, it is theirs, so
// that nothing has to be reordered. If only one of them is plain (row-major), it is that of the
// other one (channels last), which was chosen for the convolutions before and after this op.
static void layouts(const tri_device_description *device, const tri_graph *graph,
                    const tri_node *node, tri_layout *in, tri_layout *out) {
    if (node->input_count > 1 && tri_layout_is_plain(&in[0])) in[0] = in[1];
    if (node->input_count > 1) in[1] = in[0];
    out[0] = in[0];
}

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel) {
    const tri_value_info *out = tri_value_get(graph, node->outputs[0]);
    cuda_pointwise p = {.function = row_of(node->op)->function,
                        .a_type = cuda_in_type(graph, node, 0),
                        .out_type = out->dtype,
                        .count = tri_layout_elements(&out->layout, &out->shape)};
    p.b_type = node->input_count > 1 ? cuda_in_type(graph, node, 1) : p.a_type;
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_pointwise p = *(const cuda_pointwise *)kernel->state;
    p.a = args->in[0];
    p.b = kernel->def->op->input_count > 1 ? args->in[1] : NULL;
    p.out = args->out[0];
    CUDA_LAUNCH(args->queue, pointwise, p);
    return TRI_OK;
}

#define POINTWISE(identifier)                                                                      \
    const tri_kernel_def cuda_kernel_##identifier = {.op = &tri_op_##identifier,                   \
                                                     .name = "pointwise",                          \
                                                     .supports = supports,                         \
                                                     .layouts = layouts,                           \
                                                     .prepare = prepare,                           \
                                                     .run = run,                                   \
                                                     .release = cuda_release};
POINTWISE(add)
POINTWISE(cast)
