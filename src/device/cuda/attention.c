// Attention and its gradient on the GPU: by cuDNN, where it is installed and has a plan for the
// shape (module/dnn_attention.cu), else by our own kernels (module/attention.cu). This file decides
// which nodes of a graph they can compute, and how they are launched.
#include "device/cuda/internal.h"

#include "tensor/half.h"

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

enum {
    DNN_MAX_WIDTH = 128,    // the largest size of a head for which cuDNN is asked
    DNN_MAX_HEADS = 65535,  // the largest number of samples, and of heads
    DNN_KEYS_OF_TILE = 128, // keys that cuDNN takes together
};

// Whether cuDNN may compute this attention: of half types, on tensor cores. It reads 16 bytes of a
// head at a time. A causal attention has to have as many queries as keys. Attention of one query or
// one key is excluded, because the gradient of cuDNN is reported to fail for one query.
static bool may_use_dnn(const tri_device_description *device, const cuda_attention *p) {
    const unsigned needed = CUDA_HAS_DNN | CUDA_HAS_BF16;
    return (device->features & needed) == needed && tri_dtype_is_half(p->type) &&
           p->width % 8 == 0 && p->width <= DNN_MAX_WIDTH && p->queries > 1 && p->keys > 1 &&
           p->samples <= DNN_MAX_HEADS && p->heads <= DNN_MAX_HEADS &&
           (!p->causal || p->queries == p->keys);
}

// Whether cuDNN may compute the gradient too. It adds up the gradient of q in an order that differs
// from run to run, so a deterministic run does not use it. Versions up to 9.25 are reported to make
// NaN of it on an H100 if exactly half of the last tile of keys is empty, unless attention is
// causal.
static bool may_use_dnn_grad(const tri_device_description *device, const tri_graph *graph,
                             const cuda_attention *p) {
    return !graph->options.deterministic && may_use_dnn(device, p) &&
           (p->causal || p->keys % DNN_KEYS_OF_TILE != DNN_KEYS_OF_TILE / 2);
}

static tri_status workspace(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node, size_t *out) {
    cuda_attention p = attention_of(graph, node);
    *out = may_use_dnn(device, &p) ? CUDA_ATTENTION_DNN_BYTES : 0;
    return TRI_OK;
}

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel) {
    cuda_attention p = attention_of(graph, node);
    p.workspace_bytes = (int64_t)kernel->workspace_bytes;
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_attention p = *(const cuda_attention *)kernel->state;
    p.q = args->in[0];
    p.k = args->in[1];
    p.v = args->in[2];
    p.y = args->out[0];
    p.log_sum_exp = args->out[1];
    p.workspace = args->workspace;
    CUDA_LAUNCH(args->queue, attention, p);
    return TRI_OK;
}

// Where the parts of the gradient's workspace begin, in bytes: first lie the `dots`. If cuDNN may
// compute the gradient, its sums of dq and its own workspace follow.
typedef struct grad_offsets {
    bool uses_dnn;
    int64_t dq_sums, dnn, total;
} grad_offsets;

static grad_offsets offsets_of(const tri_device_description *device, const tri_graph *graph,
                               const cuda_attention *p) {
    enum { ALIGNMENT = 256 };
    int64_t rows = p->samples * p->heads * p->queries;
    grad_offsets offsets = {.total = rows * (int64_t)sizeof(float)};
    if (!may_use_dnn_grad(device, graph, p)) return offsets;
    offsets.uses_dnn = true;
    offsets.dq_sums = (offsets.total + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    offsets.dnn = offsets.dq_sums + rows * p->width * (int64_t)sizeof(float);
    offsets.dnn = (offsets.dnn + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    offsets.total = offsets.dnn + cuda_attention_grad_dnn_bytes(p);
    return offsets;
}

typedef struct grad_state {
    cuda_attention_grad grad;
    grad_offsets offsets;
} grad_state;

static tri_status grad_workspace(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node, size_t *out) {
    cuda_attention p = attention_of(graph, node);
    *out = (size_t)offsets_of(device, graph, &p).total;
    return TRI_OK;
}

static tri_status grad_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                               tri_kernel *kernel) {
    grad_state state = {.grad.forward = attention_of(graph, node)};
    state.offsets = offsets_of(&device->description, graph, &state.grad.forward);
    state.grad.forward.workspace_bytes = state.offsets.total - state.offsets.dnn;
    return cuda_prepare(kernel, &state, sizeof state);
}

static tri_status grad_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const grad_state *state = kernel->state;
    cuda_attention_grad p = state->grad;
    char *workspace = args->workspace;
    p.forward.q = args->in[0];
    p.forward.k = args->in[1];
    p.forward.v = args->in[2];
    p.forward.y = args->in[3];
    p.dy = args->in[4];
    p.forward.log_sum_exp = args->in[5];
    p.dq = args->out[0];
    p.dk = args->out[1];
    p.dv = args->out[2];
    p.dots = (float *)workspace;
    if (state->offsets.uses_dnn) {
        p.dq_sums = (float *)(workspace + state->offsets.dq_sums);
        p.forward.workspace = workspace + state->offsets.dnn;
    }
    CUDA_LAUNCH(args->queue, attention_grad, p);
    return TRI_OK;
}

const tri_kernel_def cuda_kernel_attention = {.op = &tri_op_attention,
                                              .name = "blocks",
                                              .supports = supports,
                                              .workspace = workspace,
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
