// On the GPU: adding a bias to each row of a tensor, and the gradient of that bias (sums of
// columns).
#include "device/cuda/internal.h"

static tri_status bias_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                               tri_kernel *kernel) {
    cuda_add_bias p = {.width = cuda_in_width(graph, node, 0),
                       .type = cuda_in_type(graph, node, 0)};
    p.rows = cuda_in_count(graph, node, 0) / p.width;
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status bias_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_add_bias p = *(const cuda_add_bias *)kernel->state;
    p.x = args->in[0];
    p.bias = args->in[1];
    p.y = args->out[0];
    CUDA_LAUNCH(args->queue, add_bias, p);
    return TRI_OK;
}

static cuda_column_sums sums_of(const tri_graph *graph, const tri_node *node) {
    int64_t width = cuda_in_width(graph, node, 0);
    return cuda_column_sums_of(cuda_in_count(graph, node, 0) / width, width,
                               cuda_in_type(graph, node, 0));
}

static tri_status bias_grad_workspace(const tri_device_description *device, const tri_graph *graph,
                                      const tri_node *node, size_t *out) {
    cuda_column_sums p = sums_of(graph, node);
    *out = cuda_column_sums_bytes(&p);
    return TRI_OK;
}

static tri_status bias_grad_prepare(tri_device *device, const tri_graph *graph,
                                    const tri_node *node, tri_kernel *kernel) {
    cuda_column_sums p = sums_of(graph, node);
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status bias_grad_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_column_sums p = *(const cuda_column_sums *)kernel->state;
    p.x = args->in[0];
    p.sums = args->out[0];
    p.room = args->workspace;
    CUDA_LAUNCH(args->queue, column_sums, p);
    return TRI_OK;
}

const tri_kernel_def cuda_kernel_add_bias = {.op = &tri_op_add_bias,
                                             .name = "add-bias",
                                             .supports = cuda_takes_real,
                                             .prepare = bias_prepare,
                                             .run = bias_run,
                                             .release = cuda_release};
const tri_kernel_def cuda_kernel_add_bias_grad = {.op = &tri_op_add_bias_grad,
                                                  .name = "column-sums",
                                                  .supports = cuda_takes_real,
                                                  .workspace = bias_grad_workspace,
                                                  .prepare = bias_grad_prepare,
                                                  .run = bias_grad_run,
                                                  .release = cuda_release};
