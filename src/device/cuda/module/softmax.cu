// Softmax, its logarithm and their gradients over an axis that is not the last. A column is what is
// summed over: the elements of the axis for one index of all others. A thread takes a column, and
// neighbouring threads neighbouring columns, which lie side by side. The kernel reads x three times
// (y and dy twice) and writes y once: 16 (20) bytes for each element in F32.
#include "device/cuda/module/gpu.h"

namespace {

template <typename T> GPU_DEVICE void forward(const cuda_softmax_columns &p, int64_t first) {
    const T *x = (const T *)p.x + first;
    T *y = (T *)p.y + first;
    float largest = -INFINITY, sum = 0;
    for (int64_t k = 0; k < p.count; k++) largest = gpu_larger(gpu_get(x[k * p.inner]), largest);
    for (int64_t k = 0; k < p.count; k++) sum += expf(gpu_get(x[k * p.inner]) - largest);
    float less = logf(sum), factor = 1 / sum;
    for (int64_t k = 0; k < p.count; k++) {
        float at = gpu_get(x[k * p.inner]) - largest;
        gpu_put(&y[k * p.inner], p.is_log ? at - less : expf(at) * factor);
    }
}

template <typename T> GPU_DEVICE void gradient(const cuda_softmax_columns &p, int64_t first) {
    const T *y = (const T *)p.x + first, *dy = (const T *)p.dy + first;
    T *dx = (T *)p.y + first;
    float sum = 0;
    for (int64_t k = 0; k < p.count; k++)
        sum += gpu_get(dy[k * p.inner]) * (p.is_log ? 1 : gpu_get(y[k * p.inner]));
    for (int64_t k = 0; k < p.count; k++) {
        float at = gpu_get(y[k * p.inner]), d = gpu_get(dy[k * p.inner]);
        gpu_put(&dx[k * p.inner], p.is_log ? d - expf(at) * sum : at * (d - sum));
    }
}

template <typename T> GPU_KERNEL softmax_columns(cuda_softmax_columns p) {
    for (int64_t c = gpu_thread(); c < p.outer * p.inner; c += gpu_threads()) {
        int64_t first = c / p.inner * p.inner * p.count + c % p.inner;
        if (p.dy)
            gradient<T>(p, first);
        else
            forward<T>(p, first);
    }
}

template <typename T>
tri_status launch(cuda_stream *stream, T *, const cuda_softmax_columns *p, char *why) {
    int64_t blocks = gpu_blocks(stream, p->outer * p->inner, GPU_BLOCK);
    return gpu_launch(stream, softmax_columns<T>, blocks, GPU_BLOCK, *p, why);
}

} // namespace

extern "C" tri_status cuda_launch_softmax_columns(cuda_stream *stream,
                                                  const cuda_softmax_columns *p, char *why) {
    return gpu_with_real(p->type, [=](auto *type) { return launch(stream, type, p, why); });
}
