// Softmax over an axis that is not the last: how the kernel of module/softmax.cu is launched. Over
// the last axis the kernels of rows compute it (loss.c).
#include "device/cuda/internal.h"

static bool supports(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *node) {
    return cuda_is_real(cuda_in_type(graph, node, 0));
}

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel) {
    const tri_shape *x = cuda_in_shape(graph, node, 0);
    int axis = x->rank - 1 - (int)((const tri_softmax_attr *)node->attr)->behind;
    cuda_softmax_columns p = {.is_log = node->op == &tri_op_log_softmax ||
                                        node->op == &tri_op_log_softmax_grad,
                              .type = cuda_in_type(graph, node, 0),
                              .outer = 1,
                              .count = x->dims[axis],
                              .inner = 1};
    for (int i = 0; i < axis; i++) p.outer *= x->dims[i];
    for (int i = axis + 1; i < x->rank; i++) p.inner *= x->dims[i];
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_softmax_columns p = *(const cuda_softmax_columns *)kernel->state;
    bool is_gradient =
        kernel->def->op == &tri_op_softmax_grad || kernel->def->op == &tri_op_log_softmax_grad;
    p.x = args->in[0];
    p.dy = is_gradient ? args->in[1] : NULL;
    p.y = args->out[0];
    CUDA_LAUNCH(args->queue, softmax_columns, p);
    return TRI_OK;
}

#define COLUMNS(identifier)                                                                        \
    const tri_kernel_def cuda_kernel_##identifier##_columns = {.op = &tri_op_##identifier,         \
                                                               .name = "columns",                  \
                                                               .supports = supports,               \
                                                               .prepare = prepare,                 \
                                                               .run = run,                         \
                                                               .release = cuda_release};
COLUMNS(softmax)
COLUMNS(softmax_grad)
COLUMNS(log_softmax)
COLUMNS(log_softmax_grad)
