// Sums of what the ranks send, in rank order. Reads each term once and writes each sum once (and
// reads it where it accumulates): (ranks + 1) elements for each sum.
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
tri_status launch_as(cuda_stream *stream, const cuda_ordered_sum *p, char *why) {
    if (p->count == 0) return TRI_OK;
    return gpu_launch(stream, ordered_sum<T, O>, gpu_blocks(stream, p->count, GPU_BLOCK), GPU_BLOCK,
                      *p, why);
}

} // namespace

extern "C" tri_status cuda_launch_ordered_sum(cuda_stream *stream, const cuda_ordered_sum *p,
                                              char *why) {
    bool same = p->out_type == p->term_type;
    switch (p->term_type) {
    case TRI_F32:
        return same ? launch_as<float, float>(stream, p, why) : TRI_UNSUPPORTED;
    case TRI_F64:
        return same ? launch_as<double, double>(stream, p, why) : TRI_UNSUPPORTED;
    case TRI_F16:
        return same ? launch_as<gpu_f16, gpu_f16>(stream, p, why)
                    : launch_as<gpu_f16, float>(stream, p, why);
    case TRI_BF16:
        return same ? launch_as<gpu_bf16, gpu_bf16>(stream, p, why)
                    : launch_as<gpu_bf16, float>(stream, p, why);
    default:
        return TRI_UNSUPPORTED;
    }
}
