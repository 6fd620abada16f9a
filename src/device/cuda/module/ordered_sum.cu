// Adds up, in the order of ranks, what the ranks contribute to a sum (their terms). For each
// element of the result it reads one element of every rank's terms (and the old result, if it
// accumulates) and writes one. An element has 4 bytes (8 in F64, 2 in F16 and BF16).
#include "device/cuda/module/gpu.h"

namespace {

template <typename T, typename O> GPU_KERNEL ordered_sum(cuda_ordered_sum p) {
    typedef typename gpu_wide<T>::type W;
    const T *terms = (const T *)p.terms, *own = (const T *)p.own_term;
    O *out = (O *)p.out;
    for (int64_t i = gpu_thread(); i < p.count; i += gpu_threads()) {
        int first = p.accumulate ? 0 : 1;
        W sum = p.accumulate ? gpu_get(out[i]) : gpu_get(p.own == 0 ? own[i] : terms[i]);
        for (int r = first; r < p.ranks; r++)
            sum += gpu_get(r == p.own ? own[i] : terms[(int64_t)r * p.count + i]);
        gpu_put(&out[i], sum);
    }
}

template <typename T, typename O>
tri_status launch_as(cuda_stream *stream, T *, O *, const cuda_ordered_sum *p, char *why) {
    if (p->count == 0) return TRI_OK;
    return gpu_launch(stream, ordered_sum<T, O>, gpu_blocks(stream, p->count, GPU_BLOCK), GPU_BLOCK,
                      *p, why);
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
