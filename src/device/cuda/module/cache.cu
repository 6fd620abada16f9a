// Caches: values that live from call to call (ops/cache.c). A call copies its tokens to their
// places in a cache; attention reads the tokens of a cache so far, and nothing beyond them.
//
// A block of threads takes one query of one head. It goes through the keys, as many at a time as it
// has threads: each thread computes the score of one key, and then one element of the result over
// all of these keys, from their probabilities in shared memory. All is computed in F32. Bytes: for
// each query, 2 · width elements for each key that it sees, of which those of neighbouring heads of
// a group come from the L2 cache.
#include "device/cuda/module/gpu.h"

#include "ops/span.h"

namespace {

GPU_KERNEL append(cuda_cache p) {
    for (int64_t i = gpu_thread(); i < p.samples * p.tokens * p.bytes; i += gpu_threads()) {
        int64_t byte = i % p.bytes, token = i / p.bytes, n = token / p.tokens, t = token % p.tokens;
        tri_span span = tri_span_of(p.spans, n, p.tokens, p.length);
        if (t < span.count)
            ((uint8_t *)p.y)[(n * p.length + span.first + t) * p.bytes + byte] =
                ((const uint8_t *)p.x)[i];
    }
}

// The sums of a query over its keys so far, of which a thread has one element of the result.
struct running {
    float largest, total, mean;
};

// Adds `count` keys, of which this thread has computed the score of its own.
template <typename T>
GPU_DEVICE void add_keys(const cuda_cached_attention &p, float score, int64_t at, int64_t count,
                         float *probabilities, float *scratch, running *r) {
    int d = (int)threadIdx.x;
    float most = gpu_larger(gpu_block_max(score, scratch), r->largest);
    float factor = r->largest == -INFINITY ? 0 : expf(r->largest - most);
    float probability = d < count ? expf(score - most) : 0;
    probabilities[d] = probability;
    r->total = r->total * factor + gpu_block_sum(probability, scratch); // waits for the block too
    r->mean *= factor;
    r->largest = most;
    const T *v = (const T *)p.v + at + d;
    for (int64_t s = 0; d < p.width && s < count; s++)
        r->mean += probabilities[s] * gpu_get(v[s * p.kv_heads * p.width]);
    gpu_barrier();
}

template <typename T> GPU_KERNEL cached_attention(cuda_cached_attention p) {
    GPU_SHARED(float, scratch, GPU_BLOCK / GPU_WARP);
    GPU_SHARED(float, probabilities, GPU_BLOCK);
    GPU_SHARED(float, query, CUDA_ATTENTION_MAX_WIDTH);
    int d = (int)threadIdx.x;
    int64_t step = p.kv_heads * p.width;
    for (int64_t row = blockIdx.x; row < p.samples * p.tokens * p.heads; row += gridDim.x) {
        int64_t n = row / p.heads / p.tokens, t = row / p.heads % p.tokens;
        tri_span span = tri_span_of(p.spans, n, p.tokens, p.length);
        T *y = (T *)p.y + row * p.width;
        if (t >= span.count) {
            if (d < p.width) gpu_put(&y[d], 0.0f);
            continue;
        }
        if (d < p.width) query[d] = gpu_get(((const T *)p.q)[row * p.width + d]) * p.scale;
        gpu_barrier();
        int64_t head = row % p.heads / (p.heads / p.kv_heads), end = span.first + t + 1;
        running r = {-INFINITY, 0, 0};
        for (int64_t first = tri_span_first_key(end - 1, p.window); first < end;
             first += GPU_BLOCK) {
            int64_t count = end - first < GPU_BLOCK ? end - first : (int64_t)GPU_BLOCK;
            int64_t at = (n * p.length + first) * step + head * p.width;
            const T *k = (const T *)p.k + at + d * step;
            float score = d < count ? 0 : -INFINITY;
            for (int64_t i = 0; d < count && i < p.width; i++) score += query[i] * gpu_get(k[i]);
            add_keys<T>(p, score, at, count, probabilities, scratch, &r);
        }
        if (d < p.width) gpu_put(&y[d], r.mean / r.total);
    }
}

template <typename T>
tri_status launch(cuda_stream *stream, T *, const cuda_cached_attention *p, char *why) {
    int64_t blocks = gpu_at_most(p->samples * p->tokens * p->heads);
    return gpu_launch(stream, cached_attention<T>, blocks, GPU_BLOCK, *p, why);
}

} // namespace

extern "C" tri_status cuda_launch_cache(cuda_stream *stream, const cuda_cache *p, char *why) {
    int64_t blocks = gpu_blocks(stream, p->samples * p->tokens * p->bytes, GPU_BLOCK);
    return gpu_launch(stream, append, blocks, GPU_BLOCK, *p, why);
}

extern "C" tri_status cuda_launch_cached_attention(cuda_stream *stream,
                                                   const cuda_cached_attention *p, char *why) {
    return gpu_with_real(p->type, [=](auto *type) { return launch(stream, type, p, why); });
}
