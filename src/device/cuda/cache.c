// Caches, and attention to their tokens so far: how the kernels of module/cache.cu are launched.
#include "device/cuda/internal.h"

static tri_status cache_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                tri_kernel *kernel) {
    const tri_shape *x = cuda_in_shape(graph, node, 0);
    cuda_cache p = {.samples = x->dims[0],
                    .tokens = x->dims[1],
                    .length = ((const tri_cache_attr *)node->attr)->length,
                    .bytes = (int64_t)tri_dtype_bytes(cuda_in_type(graph, node, 0))};
    for (int i = 2; i < x->rank; i++) p.bytes *= x->dims[i];
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status cache_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_cache p = *(const cuda_cache *)kernel->state;
    p.x = args->in[0];
    p.spans = args->in[1];
    p.y = args->out[0];
    CUDA_LAUNCH(args->queue, cache, p);
    return TRI_OK;
}

static bool attention_supports(const tri_device_description *device, const tri_graph *graph,
                               const tri_node *node) {
    return cuda_takes_real(device, graph, node) &&
           cuda_in_shape(graph, node, 0)->dims[3] <= CUDA_ATTENTION_MAX_WIDTH;
}

static tri_status attention_prepare(tri_device *device, const tri_graph *graph,
                                    const tri_node *node, tri_kernel *kernel) {
    const tri_cached_attention_attr *a = node->attr;
    const int64_t *q = cuda_in_shape(graph, node, 0)->dims;
    const int64_t *k = cuda_in_shape(graph, node, 1)->dims;
    cuda_cached_attention p = {.samples = q[0],
                               .tokens = q[1],
                               .length = k[1],
                               .heads = q[2],
                               .kv_heads = k[2],
                               .width = q[3],
                               .window = a->window,
                               .scale = (float)a->scale,
                               .type = cuda_in_type(graph, node, 0)};
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status attention_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_cached_attention p = *(const cuda_cached_attention *)kernel->state;
    p.q = args->in[0];
    p.k = args->in[1];
    p.v = args->in[2];
    p.spans = args->in[3];
    p.y = args->out[0];
    CUDA_LAUNCH(args->queue, cached_attention, p);
    return TRI_OK;
}

const tri_kernel_def cuda_kernel_cache = {.op = &tri_op_cache,
                                          .name = "cache",
                                          .prepare = cache_prepare,
                                          .run = cache_run,
                                          .release = cuda_release};
const tri_kernel_def cuda_kernel_cached_attention = {.op = &tri_op_cached_attention,
                                                     .name = "cached-attention",
                                                     .supports = attention_supports,
                                                     .prepare = attention_prepare,
                                                     .run = attention_run,
                                                     .release = cuda_release};
