// Attention and its gradient on the GPU: which nodes of a graph the kernels of module/attention.cu
// can compute, and how they are launched.
#include "device/cuda/internal.h"

static bool supports(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *node) {
    return cuda_is_real(cuda_in_type(graph, node, 0)) &&
           cuda_in_shape(graph, node, 0)->dims[3] <= CUDA_ATTENTION_MAX_WIDTH;
}

static cuda_attention attention_of(const tri_graph *graph, const tri_node *node) {
    const tri_attention_attr *a = node->attr;
    const int64_t *q = cuda_in_shape(graph, node, 0)->dims;
    const int64_t *k = cuda_in_shape(graph, node, 1)->dims;
    return (cuda_attention){.samples = q[0],
                            .queries = q[1],
                            .keys = k[1],
                            .heads = q[2],
                            .kv_heads = k[2],
                            .width = q[3],
                            .scale = (float)a->scale,
                            .causal = a->causal,
                            .type = cuda_in_type(graph, node, 0)};
}

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel) {
    cuda_attention p = attention_of(graph, node);
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_attention p = *(const cuda_attention *)kernel->state;
    p.q = args->in[0];
    p.k = args->in[1];
    p.v = args->in[2];
    p.y = args->out[0];
    p.log_sum_exp = args->out[1];
    CUDA_LAUNCH(args->queue, attention, p);
    return TRI_OK;
}

static tri_status grad_workspace(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node, size_t *out) {
    cuda_attention p = attention_of(graph, node);
    *out = (size_t)(p.samples * p.heads * p.queries) * sizeof(float);
    return TRI_OK;
}

static tri_status grad_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                               tri_kernel *kernel) {
    cuda_attention_grad p = {.forward = attention_of(graph, node)};
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status grad_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_attention_grad p = *(const cuda_attention_grad *)kernel->state;
    p.forward.q = args->in[0];
    p.forward.k = args->in[1];
    p.forward.v = args->in[2];
    p.forward.y = args->in[3];
    p.dy = args->in[4];
    p.forward.log_sum_exp = args->in[5];
    p.dq = args->out[0];
    p.dk = args->out[1];
    p.dv = args->out[2];
    p.dots = args->workspace;
    CUDA_LAUNCH(args->queue, attention_grad, p);
    return TRI_OK;
}

const tri_kernel_def cuda_kernel_attention = {.op = &tri_op_attention,
                                              .name = "blocks",
                                              .supports = supports,
                                              .prepare = prepare,
                                              .run = run,
                                              .release = cuda_release};
const tri_kernel_def cuda_kernel_attention_grad = {.op = &tri_op_attention_grad,
                                                   .name = "blocks",
                                                   .supports = supports,
                                                   .workspace = grad_workspace,
                                                   .prepare = grad_prepare,
                                                   .run = grad_run,
                                                   .release = cuda_release};
