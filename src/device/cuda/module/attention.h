// What the kernels of attention (attention.cu, attention_matrix.cu) share: where the rows of a head
// are, and which keys a query attends to. A tile is a number of neighbouring queries, or keys, that
// a thread block takes together.
#ifndef TRIREME_DEVICE_CUDA_MODULE_ATTENTION_H
#define TRIREME_DEVICE_CUDA_MODULE_ATTENTION_H

#include "device/cuda/module/gpu.h"

// Where the rows of one head lie in a tensor [samples, length, heads, width]: a row is the `width`
// elements of one query or key.
struct head_rows {
    const void *at; // the tensor
    // Offset of element 0 of row 0; distance from row to row (both in elements); number of rows.
    int64_t first, step, length;
};

GPU_DEVICE head_rows queries_of(const cuda_attention &p, const void *x, int64_t n, int64_t head) {
    return {x, (n * p.queries * p.heads + head) * p.width, p.heads * p.width, p.queries};
}

GPU_DEVICE head_rows keys_of(const cuda_attention &p, const void *x, int64_t n, int64_t kv_head) {
    return {x, (n * p.keys * p.kv_heads + kv_head) * p.width, p.kv_heads * p.width, p.keys};
}

// How many keys query t attends to; 0 for a query beyond the last.
GPU_DEVICE int64_t seen_by(const cuda_attention &p, int64_t t) {
    if (t >= p.queries) return 0;
    return p.causal ? t + 1 + p.keys - p.queries : p.keys;
}

// How many keys, from key 0 on, the queries t to t + tile - 1 attend to at most: tiles of keys
// beyond these are skipped.
GPU_DEVICE int64_t seen_by_tile(const cuda_attention &p, int64_t t, int tile) {
    return seen_by(p, t + tile < p.queries ? t + tile - 1 : p.queries - 1);
}

// How many tiles of `tile` queries, counted from query 0, attend to none of the keys from `key` on.
// They are skipped.
GPU_DEVICE int64_t tiles_before(const cuda_attention &p, int64_t key, int tile) {
    int64_t blind = p.causal ? key - (p.keys - p.queries) : 0;
    return blind > 0 ? blind / tile : 0;
}

// Whether attention_matrix.cu has a kernel on tensor cores for this attention, or for its gradient.
// It has kernels for half types only. Before attention_grad_by_matrix, the caller computes p->dots:
// for each query, the scalar product of its rows of dy and y.
bool attention_has_matrix(const cuda_attention *p);
bool attention_has_matrix(const cuda_attention_grad *p);
tri_status attention_by_matrix(cuda_stream *stream, const cuda_attention *p, char *why);
tri_status attention_grad_by_matrix(cuda_stream *stream, const cuda_attention_grad *p, char *why);

#endif
