// Running sums, products and extremes along one axis, and their gradient. A thread goes along one
// axis, so neighbouring threads read neighbouring elements where something lies behind the axis. It
// reads and writes each element once; in the gradient it reads x and y twice, the second time from
// caches.
#include "device/cuda/module/gpu.h"
#include "ops/scan_step.h"

#include <type_traits>

namespace {

GPU_DEVICE int64_t column_of(const axis_cut &cut, int64_t n) {
    return n / cut.inner * cut.size * cut.inner + n % cut.inner;
}

// O: the type of y, which for sums and products of integers is I64.
template <typename T, typename O> GPU_KERNEL scan_integers(cuda_scan p) {
    for (int64_t n = gpu_thread(); n < p.cut.outer * p.cut.inner; n += gpu_threads()) {
        int64_t first = column_of(p.cut, n);
        scan_integer s = scan_integer_start(p.kind);
        for (int64_t step = 0; step < p.cut.size; step++) {
            int64_t k = p.reverse ? p.cut.size - 1 - step : step, at = first + k * p.cut.inner;
            s = scan_integer_step(p.kind, s, gpu_get(((const T *)p.x)[at]), k);
            gpu_put(&((O *)p.y)[at], s.value);
            if (p.index) p.index[at] = s.at;
        }
    }
}

template <typename T> GPU_KERNEL scan(cuda_scan p) {
    typedef typename gpu_wide<T>::type W;
    for (int64_t n = gpu_thread(); n < p.cut.outer * p.cut.inner; n += gpu_threads()) {
        int64_t first = column_of(p.cut, n);
        scan_so_far s = scan_start(p.kind);
        for (int64_t step = 0; step < p.cut.size; step++) {
            int64_t k = p.reverse ? p.cut.size - 1 - step : step, at = first + k * p.cut.inner;
            s = scan_step(p.kind, s, (double)gpu_get(((const T *)p.x)[at]), k);
            gpu_put(&((T *)p.y)[at], (W)s.value);
            if (p.index) p.index[at] = s.at;
        }
    }
}

template <typename T> GPU_KERNEL scan_grad(cuda_scan_grad p) {
    typedef typename gpu_wide<T>::type W;
    const T *x = (const T *)p.x, *y = (const T *)p.y, *dy = (const T *)p.dy;
    int64_t inner = p.cut.inner;
    for (int64_t n = gpu_thread(); n < p.cut.outer * inner; n += gpu_threads()) {
        int64_t first = column_of(p.cut, n);
        double sum = 0;
        for (int64_t k = p.cut.size - 1; k >= 0; k--) {
            int64_t at = first + k * inner;
            double here = (double)gpu_get(y[at]), before = k ? (double)gpu_get(y[at - inner]) : 1;
            if (k + 1 < p.cut.size)
                sum *= scan_behind(p.kind, here, (double)gpu_get(x[at + inner]),
                                   (double)gpu_get(y[at + inner]));
            sum += (double)gpu_get(dy[at]);
            double own = scan_own(p.kind, (double)gpu_get(x[at]), here, before);
            gpu_put(&((T *)p.dx)[at], (W)(sum * own));
        }
    }
}

} // namespace

extern "C" tri_status cuda_launch_scan(cuda_stream *stream, const cuda_scan *p, char *why) {
    int64_t columns = p->cut.outer * p->cut.inner;
    if (columns * p->cut.size == 0) return TRI_OK;
    return gpu_with_number(p->type, [=](auto *type) {
        typedef typename std::remove_pointer<decltype(type)>::type T;
        int64_t blocks = gpu_blocks(stream, columns, GPU_BLOCK);
        if constexpr (std::is_integral<T>::value) {
            typedef typename gpu_sum<T>::type S;
            return gpu_launch(stream, p->index ? scan_integers<T, T> : scan_integers<T, S>, blocks,
                              GPU_BLOCK, *p, why);
        } else
            return gpu_launch(stream, scan<T>, blocks, GPU_BLOCK, *p, why);
    });
}

extern "C" tri_status cuda_launch_scan_grad(cuda_stream *stream, const cuda_scan_grad *p,
                                            char *why) {
    int64_t columns = p->cut.outer * p->cut.inner;
    if (columns * p->cut.size == 0) return TRI_OK;
    return gpu_with_float(p->type, [=](auto *type) {
        typedef typename std::remove_pointer<decltype(type)>::type T;
        return gpu_launch(stream, scan_grad<T>, gpu_blocks(stream, columns, GPU_BLOCK), GPU_BLOCK,
                          *p, why);
    });
}
