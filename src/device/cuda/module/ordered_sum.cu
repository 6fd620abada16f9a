// Adds up, in the order of ranks, what the ranks contribute to a sum (their terms). For each
// element of the result it reads one element of every rank's terms (and the old result, if it
// accumulates) and writes one. An element has 4 bytes (8 in F64, 2 in F16 and BF16). Where all
// addresses are multiples of 16 bytes, a thread reads and writes 16 bytes at a time; the bits of
// the sums are the same.
#include "device/cuda/module/pack.h"

namespace {

// Where the terms of rank r begin.
template <typename T> GPU_DEVICE const T *terms_of(const cuda_ordered_sum &p, int r) {
    return r == p.own ? (const T *)p.own_term : (const T *)p.terms + r * p.stride;
}

// Whether lots of all terms and of the result can be read and written at once.
template <typename T> GPU_DEVICE bool is_aligned(const cuda_ordered_sum &p) {
    return gpu_is_aligned(p.terms, p.own_term, p.out) && p.stride * (int64_t)sizeof(T) % 16 == 0;
}

template <typename T, typename O> GPU_KERNEL ordered_sum(cuda_ordered_sum p) {
    typedef typename gpu_wide<T>::type W;
    constexpr int n = gpu_lot<T, O>::count;
    O *out = (O *)p.out;
    int first = p.accumulate ? 0 : 1;
    int64_t lots = is_aligned<T>(p) ? p.count / n : 0;
    for (int64_t i = gpu_thread(); i < lots; i += gpu_threads()) {
        W sum[n], term[n];
        if (p.accumulate)
            gpu_read(out + i * n, sum);
        else
            gpu_read(terms_of<T>(p, 0) + i * n, sum);
        for (int r = first; r < p.ranks; r++) {
            gpu_read(terms_of<T>(p, r) + i * n, term);
            GPU_UNROLL
            for (int k = 0; k < n; k++) sum[k] += term[k];
        }
        gpu_write(out + i * n, sum);
    }
    for (int64_t i = lots * n + gpu_thread(); i < p.count; i += gpu_threads()) {
        W sum = p.accumulate ? gpu_get(out[i]) : gpu_get(terms_of<T>(p, 0)[i]);
        for (int r = first; r < p.ranks; r++) sum += gpu_get(terms_of<T>(p, r)[i]);
        gpu_put(&out[i], sum);
    }
}

template <typename T, typename O>
tri_status launch_as(cuda_stream *stream, T *, O *, const cuda_ordered_sum *p, char *why) {
    if (p->count == 0) return TRI_OK;
    int64_t blocks = gpu_blocks(stream, p->count / gpu_lot<T, O>::count + 1, GPU_BLOCK);
    return gpu_launch(stream, ordered_sum<T, O>, blocks, GPU_BLOCK, *p, why);
}

} // namespace

extern "C" tri_status cuda_launch_ordered_sum(cuda_stream *stream, const cuda_ordered_sum *p,
                                              char *why) {
    double *wide = nullptr;
    if (p->term_type == TRI_F64 && p->out_type == TRI_F64)
        return launch_as(stream, wide, wide, p, why);
    return gpu_with_output(p->term_type, p->out_type, [=](auto *term, auto *out) {
        return launch_as(stream, term, out, p, why);
    });
}
