// Parameters of the attention kernels of the module `cuda` (runtime.h).
#ifndef TRIREME_DEVICE_CUDA_PARAMS_ATTENTION_H
#define TRIREME_DEVICE_CUDA_PARAMS_ATTENTION_H

#include "base/kernel_inline.h"

#include <stdbool.h>
#include <stdint.h>
#include <trireme/tensor.h>

#define CUDA_ATTENTION_KERNEL_LIST(X)                                                              \
    X(attention)                                                                                   \
    X(attention_grad)                                                                              \
    X(cache)                                                                                       \
    X(cached_attention)

enum { CUDA_ATTENTION_MAX_WIDTH = 256 }; // the largest size of a head

// Attention: y = softmax(scale · q · kᵀ) · v for each head of each sample. The shapes: q, y and
// their gradients are [samples, queries, heads, width]; k, v and their gradients are [samples,
// keys, kv_heads, width]. log_sum_exp [samples, heads, queries] is, for each query, the logarithm
// of the sum of e^score over its keys. A score is `scale` times the scalar product of query and
// key. Head h of q reads head h / (heads / kv_heads) of k and v. If attention is causal, query t
// sees keys 0 to t + keys - queries.
typedef struct cuda_attention {
    int64_t samples, queries, keys, heads, kv_heads, width;
    float scale;
    bool causal;
    tri_dtype type; // of all tensors but log_sum_exp, which is F32
    const void *q, *k, *v;
    void *y;
    float *log_sum_exp;
    void *workspace; // memory for cuDNN
    // 0: cuDNN is not to compute this attention. (For the gradient, `dq_sums` tells that.)
    int64_t workspace_bytes;
} cuda_attention;

typedef struct cuda_attention_grad {
    cuda_attention forward; // its operands and results, which the gradient reads
    const void *dy;
    void *dq, *dk, *dv;
    float *dots; // room for [samples, heads, queries]: the scalar products of the rows of dy and y
    // Room for [samples, heads, queries, width]: sums of cuDNN for dq. NULL: cuDNN is not to
    // compute this gradient.
    float *dq_sums;
} cuda_attention_grad;

// Appends the tokens of x [samples, tokens, bytes of a token] to a cache [samples, length, bytes],
// where the spans [samples, 2] say (ops/span.h).
typedef struct cuda_cache {
    int64_t samples, tokens, length, bytes;
    const void *x;
    const int64_t *spans;
    void *y;
} cuda_cache;

// Attention of q [samples, tokens, heads, width] to what caches [samples, length, kv_heads, width]
// hold, where the spans [samples, 2] say; y has the shape of q.
typedef struct cuda_cached_attention {
    int64_t samples, tokens, length, heads, kv_heads, width, window;
    float scale;
    tri_dtype type;
    const void *q, *k, *v;
    const int64_t *spans;
    void *y;
} cuda_cached_attention;

// How many bytes of workspace cuDNN may use: CUDA_ATTENTION_DNN_BYTES for attention. The gradient
// may also use copies of dk and dv for each head of q, if several heads of q share one of k and v,
// and sums of dq in F32, which cuDNN needs only below compute capability 9.0 but which are counted
// for every GPU.
enum { CUDA_ATTENTION_DNN_BYTES = 64 << 10 };
TRI_KERNEL_INLINE int64_t cuda_attention_grad_dnn_bytes(const cuda_attention *p) {
    int64_t rows = p->samples * p->heads, queries = (p->queries + 63) / 64 * 64;
    int64_t copies = p->heads == p->kv_heads ? 0 : 2 * 2 * rows * p->keys * p->width;
    return CUDA_ATTENTION_DNN_BYTES + copies + 4 * rows * queries * p->width;
}

#endif
