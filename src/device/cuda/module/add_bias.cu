// Adds a bias to each row of x, one warp for each row. For each element it reads and writes 4 bytes
// (2 in F16 or BF16) of memory; the bias comes from the cache.
#include "device/cuda/module/pack.h"

namespace {

template <typename T, int n> GPU_KERNEL add_bias(cuda_add_bias p) {
    for (int64_t r = gpu_thread() / GPU_WARP; r < p.rows; r += gpu_threads() / GPU_WARP) {
        for (int64_t i = threadIdx.x % GPU_WARP * n; i < p.width; i += GPU_WARP * n) {
            float at[n], bias[n];
            gpu_read((const T *)p.x + r * p.width + i, at);
            gpu_read((const T *)p.bias + i, bias);
            for (int k = 0; k < n; k++) at[k] += bias[k];
            gpu_write((T *)p.y + r * p.width + i, at);
        }
    }
}

template <typename T>
tri_status launch_as(cuda_stream *stream, T *, const cuda_add_bias *p, char *why) {
    constexpr int n = gpu_lot<T>::count;
    bool lots = gpu_in_lots(p->width, n, (uintptr_t)p->x | (uintptr_t)p->bias | (uintptr_t)p->y);
    int64_t blocks = gpu_blocks(stream, p->rows, GPU_BLOCK / GPU_WARP);
    return gpu_launch(stream, lots ? add_bias<T, n> : add_bias<T, 1>, blocks, GPU_BLOCK, *p, why);
}

} // namespace

extern "C" tri_status cuda_launch_add_bias(cuda_stream *stream, const cuda_add_bias *p, char *why) {
    return gpu_with_real(p->type, [=](auto *type) { return launch_as(stream, type, p, why); });
}
