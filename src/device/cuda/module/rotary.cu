// Rotary position embedding: rotates pairs of elements by an angle that depends on the token's
// position. Reads and writes 4 bytes (2 in F16 or BF16) for each element. A thread computes the
// angles of n pairs in double precision, since positions may be large, and rotates these pairs in
// up to 8 heads, because the angles are the same in all heads.
#include "device/cuda/module/pack.h"

namespace {

enum { HEADS = 8 }; // how many heads a thread takes

template <typename T, int n> GPU_KERNEL rotary(cuda_rotary p) {
    int64_t lots = p.half / n, head_groups = (p.heads + HEADS - 1) / HEADS;
    int64_t count = p.samples * p.length * head_groups * lots;
    for (int64_t i = gpu_thread(); i < count; i += gpu_threads()) {
        int64_t first = i % lots * n, index = i / lots;
        int64_t head = index % head_groups * HEADS, token = index / head_groups;
        int64_t end = head + HEADS < p.heads ? head + HEADS : p.heads;
        int64_t before = p.spans ? p.spans[2 * (token / p.length)] : 0;
        double position = (double)(p.first + before + token % p.length);
        float cosines[n], sines[n], low[n], high[n];
        for (int k = 0; k < n; k++) {
            double rate = exp2(-(double)(first + k) / (double)p.half * p.log_theta);
            double angle = position * rotary_scaled(rate, p.scaling);
            cosines[k] = (float)cos(angle);
            sines[k] = (float)(p.inverse ? -sin(angle) : sin(angle));
        }
        for (; head < end; head++) {
            int64_t at = (token * p.heads + head) * 2 * p.half + first;
            gpu_read((const T *)p.x + at, low);
            gpu_read((const T *)p.x + at + p.half, high);
            for (int k = 0; k < n; k++) {
                float turned = low[k] * cosines[k] - high[k] * sines[k];
                high[k] = high[k] * cosines[k] + low[k] * sines[k];
                low[k] = turned;
            }
            gpu_write((T *)p.y + at, low);
            gpu_write((T *)p.y + at + p.half, high);
        }
    }
}

template <typename T>
tri_status launch_as(cuda_stream *stream, T *, const cuda_rotary *p, char *why) {
    constexpr int n = gpu_lot<T>::count;
    bool in_lots = gpu_in_lots(p->half, n, (uintptr_t)p->x | (uintptr_t)p->y);
    int64_t threads = p->samples * p->length * ((p->heads + HEADS - 1) / HEADS) *
                      (in_lots ? p->half / n : p->half);
    return gpu_launch(stream, in_lots ? rotary<T, n> : rotary<T, 1>,
                      gpu_blocks(stream, threads, GPU_BLOCK), GPU_BLOCK, *p, why);
}

} // namespace

extern "C" tri_status cuda_launch_rotary(cuda_stream *stream, const cuda_rotary *p, char *why) {
    return gpu_with_real(p->type, [=](auto *type) { return launch_as(stream, type, p, why); });
}
