// Parameters of the attention kernels of the module `cuda` (runtime.h).
#ifndef TRIREME_DEVICE_CUDA_PARAMS_ATTENTION_H
#define TRIREME_DEVICE_CUDA_PARAMS_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>
#include <trireme/tensor.h>

#define CUDA_ATTENTION_KERNEL_LIST(X)                                                              \
    X(attention)                                                                                   \
    X(attention_grad)

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
} cuda_attention;

typedef struct cuda_attention_grad {
    cuda_attention forward; // its operands and results, which the gradient reads
    const void *dy;
    void *dq, *dk, *dv;
    float *dots; // room for [samples, heads, queries]: the scalar products of the rows of dy and y
} cuda_attention_grad;

#endif
