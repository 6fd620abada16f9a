// Resizing of one axis and its gradient. A thread computes one element; for the gradient it finds
// the readers of its element by halving, and adds them in their order, so that the sums have the
// same bits in every run.
#include "device/cuda/module/gpu.h"

namespace {

// The term of an element with this share; without a share it does not count, even if it is NaN.
template <typename T> GPU_DEVICE float term(double share, const T *x) {
    return share == 0 ? 0 : (float)share * gpu_get(*x);
}

template <typename T> GPU_KERNEL interpolate(cuda_interpolate p) {
    int64_t from = p.gradient ? p.axis.out : p.axis.in, to = p.gradient ? p.axis.in : p.axis.out;
    for (int64_t i = gpu_thread(); i < p.outer * to * p.inner; i += gpu_threads()) {
        int64_t at = i / p.inner % to;
        const T *x = (const T *)p.x + i / p.inner / to * from * p.inner + i % p.inner;
        float sum = 0;
        if (p.gradient) {
            for (int64_t j = interpolate_reader(&p.axis, at); j < from; j++) {
                interpolate_source s = interpolate_from(&p.axis, j);
                if (s.first > at) break;
                double total = interpolate_total(&p.axis, &s);
                sum += term(interpolate_weight(&p.axis, &s, at) / total, x + j * p.inner);
            }
        } else {
            interpolate_source s = interpolate_from(&p.axis, at);
            double total = interpolate_total(&p.axis, &s);
            for (int64_t k = s.first; k <= s.last; k++)
                sum += term(interpolate_weight(&p.axis, &s, k) / total, x + k * p.inner);
        }
        gpu_put(&((T *)p.y)[i], sum);
    }
}

} // namespace

extern "C" tri_status cuda_launch_interpolate(cuda_stream *stream, const cuda_interpolate *p,
                                              char *why) {
    int64_t count = p->outer * p->inner * (p->gradient ? p->axis.in : p->axis.out);
    if (count == 0) return TRI_OK;
    return gpu_with_real(p->type, [=](auto *type) {
        typedef typename std::remove_pointer<decltype(type)>::type T;
        return gpu_launch(stream, interpolate<T>, gpu_blocks(stream, count, GPU_BLOCK), GPU_BLOCK,
                          *p, why);
    });
}
