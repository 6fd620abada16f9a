// Pooling, dropout, and conversion of images' bytes, for images with channels last (NHWC). A thread
// computes one lot at a time: neighbouring channels that fill 16 bytes or, where the number of
// channels does not allow that, one channel. Neighbouring threads take neighbouring lots of a
// pixel. So whole lines of memory are read and written, and each kernel reads and writes as many
// bytes for an element as the kernel of the same name in pool.cu.
#include "device/cuda/module/mask.h"
#include "device/cuda/module/pack.h"
#include "device/cuda/module/pool_last.h"

#include <type_traits>

namespace {

// What a thread computes at a time: n neighbouring channels of one sample, at `each` neighbouring
// pixels (pixels_of).
struct lot {
    int64_t sample, pixel, channel; // its first pixel and channel
};

// Finds the lot (what a thread computes at a time: n channels at `each` pixels) with number `at`. A
// tensor's lots are numbered from 0: those of the first sample come first, in a sample those of the
// first `each` pixels, and among these those of the first n channels. `groups`: how many groups of
// `each` pixels cover a sample.
template <int n> GPU_DEVICE lot lot_of(int64_t at, int64_t channels, int64_t groups, int64_t each) {
    int64_t lots = channels / n;
    if (at <= UINT32_MAX && groups <= UINT32_MAX) { // divisions of 32 bits are faster
        uint32_t small = (uint32_t)at, group = small / (uint32_t)lots;
        return {group / (uint32_t)groups, group % (uint32_t)groups * each,
                small % (uint32_t)lots * n};
    }
    int64_t group = at / lots;
    return {group / groups, group % groups * each, at % lots * n};
}

// How many neighbouring pixels a lot (what a thread computes at a time) has. With dropout it has 4,
// because one block of the random generator gives the numbers for 4 neighbouring pixels of a
// channel.
GPU_DEVICE int64_t pixels_of(const cuda_mask &mask) { return mask.threshold ? 4 : 1; }

// Which elements of n channels and 4 pixels dropout keeps: bit 4 · k + r is for channel k and pixel
// r. Random numbers belong to elements in row-major order, whatever the layout, so that a mask is
// the same on every device.
template <int n> GPU_DEVICE uint32_t kept_bits(const cuda_mask &mask, const lot &at, int64_t area) {
    uint32_t bits = 0;
    if (mask.threshold == 0) return mask.scale == 0 ? 0 : ~0u;
    for (int k = 0; k < n; k++) {
        int64_t first = (at.channel + k) * area + at.pixel;
        int shift = (int)(first % 4);
        uint32_t four = mask_quad_bits(mask, at.sample, first / 4) >> shift;
        if (shift) four |= mask_quad_bits(mask, at.sample, first / 4 + 1) << (4 - shift);
        bits |= (four & 15) << 4 * k;
    }
    return bits;
}

// Finds the first maximum of a pooling window in each of n channels, with NaN larger than any
// number, and its index in the window.
template <int n, typename T>
GPU_DEVICE void window_maxima(const cuda_max_pool &p, const T *image, int i, int j,
                              float (&best)[n], int (&index)[n]) {
    const cuda_windows &w = p.sizes;
    GPU_UNROLL for (int k = 0; k < n; k++) index[k] = -1, best[k] = 0;
    for (int tap = 0; tap < w.kernel[0] * w.kernel[1]; tap++) {
        int row = i * w.stride[0] + tap / w.kernel[1] - w.padding[0];
        int column = j * w.stride[1] + tap % w.kernel[1] - w.padding[1];
        if (row < 0 || row >= w.in[0] || column < 0 || column >= w.in[1]) continue;
        float value[n];
        gpu_read(image + ((int64_t)row * w.in[1] + column) * p.channels, value);
        GPU_UNROLL for (int k = 0; k < n; k++) {
            bool is_nan = value[k] != value[k] && best[k] == best[k];
            if (index[k] >= 0 && !(value[k] > best[k]) && !is_nan) continue;
            best[k] = value[k];
            index[k] = tap;
        }
    }
}

template <typename T, int n> GPU_KERNEL max_pool(cuda_max_pool p) {
    const cuda_windows &w = p.sizes;
    int64_t area = (int64_t)w.out[0] * w.out[1], in_area = (int64_t)w.in[0] * w.in[1];
    int64_t each = pixels_of(p.mask), groups = (area + each - 1) / each;
    for (int64_t i = gpu_thread(); i < p.samples * groups * (p.channels / n); i += gpu_threads()) {
        lot at = lot_of<n>(i, p.channels, groups, each);
        const T *image = (const T *)p.x + at.sample * in_area * p.channels + at.channel;
        uint32_t kept = kept_bits<n>(p.mask, at, area);
        for (int r = 0; r < each && at.pixel + r < area; r++) {
            int pixel = (int)at.pixel + r, tap[n];
            float best[n];
            gpu_pack<uint8_t, n> index;
            window_maxima(p, image, pixel / w.out[1], pixel % w.out[1], best, tap);
            GPU_UNROLL for (int k = 0; k < n; k++) {
                bool cut = (p.relu && best[k] <= 0) || !(kept >> (4 * k + r) & 1);
                best[k] = cut ? 0 : best[k] * p.mask.scale;
                index.at[k] = (uint8_t)(cut ? TRI_POOL_NO_GRADIENT : tap[k]);
            }
            int64_t to = (at.sample * area + pixel) * p.channels + at.channel;
            gpu_write((T *)p.y + to, best);
            *(gpu_pack<uint8_t, n> *)(p.index + to) = index;
        }
    }
}

// As in pool.cu, a thread adds up the gradient of an element of x over the pooling windows that
// contain it, in the order of the windows.
template <typename T, int n> GPU_KERNEL max_pool_grad(cuda_max_pool_grad p) {
    const cuda_windows &w = p.sizes;
    int64_t area = (int64_t)w.in[0] * w.in[1], windows = (int64_t)w.out[0] * w.out[1];
    pool_axis axis[2] = {axis_of(w, 0), axis_of(w, 1)};
    for (int64_t i = gpu_thread(); i < p.samples * area * (p.channels / n); i += gpu_threads()) {
        lot at = lot_of<n>(i, p.channels, area, 1);
        int number = (int)at.pixel, pixel[2] = {number / w.in[1], number % w.in[1]};
        int64_t begin[2], end[2];
        float sum[n] = {};
        for (int d = 0; d < 2; d++)
            pool_windows_over(&axis[d], w.out[d], pixel[d], &begin[d], &end[d]);
        for (int64_t row = begin[0]; row < end[0]; row++)
            for (int64_t column = begin[1]; column < end[1]; column++) {
                int tap = (pixel[0] + w.padding[0] - (int)row * w.stride[0]) * w.kernel[1] +
                          pixel[1] + w.padding[1] - (int)column * w.stride[1];
                int64_t window = at.sample * windows + row * w.out[1] + column;
                int64_t from = window * p.channels + at.channel;
                gpu_pack<uint8_t, n> index = *(const gpu_pack<uint8_t, n> *)(p.index + from);
                float dy[n];
                gpu_read((const T *)p.dy + from, dy);
                GPU_UNROLL for (int k = 0; k < n; k++) if (index.at[k] == tap) sum[k] +=
                    dy[k] * p.scale;
            }
        gpu_write((T *)p.dx + (at.sample * area + at.pixel) * p.channels + at.channel, sum);
    }
}

template <typename T, int n> GPU_KERNEL avg_pool(cuda_avg_pool p) {
    int64_t windows = p.windows[0] * p.windows[1], area = p.axis[0].in * p.axis[1].in;
    for (int64_t i = gpu_thread(); i < p.samples * windows * (p.channels / n); i += gpu_threads()) {
        lot at = lot_of<n>(i, p.channels, windows, 1);
        const T *x = (const T *)p.x + at.sample * area * p.channels + at.channel;
        int64_t begin[2], end[2];
        float sum[n] = {}, value[n];
        uint32_t number = (uint32_t)at.pixel, across = (uint32_t)p.windows[1];
        pool_window_at(&p.axis[0], number / across, &begin[0], &end[0]);
        pool_window_at(&p.axis[1], number % across, &begin[1], &end[1]);
        for (int64_t h = begin[0]; h < end[0]; h++)
            for (int64_t w = begin[1]; w < end[1]; w++) {
                gpu_read(x + (h * p.axis[1].in + w) * p.channels, value);
                GPU_UNROLL for (int k = 0; k < n; k++) sum[k] += value[k];
            }
        float factor = factor_of(p, begin, end);
        GPU_UNROLL for (int k = 0; k < n; k++) sum[k] *= factor;
        gpu_write((T *)p.y + (at.sample * windows + at.pixel) * p.channels + at.channel, sum);
    }
}

template <typename T, int n> GPU_KERNEL avg_pool_grad(cuda_avg_pool p) {
    int64_t windows = p.windows[0] * p.windows[1], area = p.axis[0].in * p.axis[1].in;
    for (int64_t i = gpu_thread(); i < p.samples * area * (p.channels / n); i += gpu_threads()) {
        lot at = lot_of<n>(i, p.channels, area, 1);
        const T *dy = (const T *)p.x + at.sample * windows * p.channels + at.channel;
        int64_t over[2], to[2], begin[2], end[2];
        float sum[n] = {}, value[n];
        uint32_t number = (uint32_t)at.pixel, across = (uint32_t)p.axis[1].in;
        pool_windows_over(&p.axis[0], p.windows[0], number / across, &over[0], &to[0]);
        pool_windows_over(&p.axis[1], p.windows[1], number % across, &over[1], &to[1]);
        for (int64_t row = over[0]; row < to[0]; row++)
            for (int64_t column = over[1]; column < to[1]; column++) {
                pool_window_at(&p.axis[0], row, &begin[0], &end[0]);
                pool_window_at(&p.axis[1], column, &begin[1], &end[1]);
                gpu_read(dy + (row * p.windows[1] + column) * p.channels, value);
                float factor = factor_of(p, begin, end);
                GPU_UNROLL for (int k = 0; k < n; k++) sum[k] += value[k] * factor;
            }
        gpu_write((T *)p.y + (at.sample * area + at.pixel) * p.channels + at.channel, sum);
    }
}

// Does what kept_bits does, where the tensor is this rank's slice of each sample. The random number
// of an element depends on its number in the whole sample. Neighbours in the slice need not have
// neighbouring numbers, so the random numbers are drawn one by one.
template <int n>
GPU_DEVICE uint32_t kept_in_slice(const cuda_dropout &p, const lot &at, int64_t area) {
    uint32_t bits = 0;
    for (int i = 0; i < 4 * n; i++) {
        int64_t element = (at.channel + i / 4) * area + at.pixel + i % 4;
        bits |= (uint32_t)(mask_one(p.mask, at.sample, whole_element(p, element)) != 0) << i;
    }
    return bits;
}

template <typename T, int n> GPU_KERNEL dropout(cuda_dropout p) {
    int64_t area = p.elements / p.channels, each = pixels_of(p.mask);
    int64_t groups = (area + each - 1) / each;
    for (int64_t i = gpu_thread(); i < p.samples * groups * (p.channels / n); i += gpu_threads()) {
        lot at = lot_of<n>(i, p.channels, groups, each);
        uint32_t kept = p.run ? kept_in_slice<n>(p, at, area) : kept_bits<n>(p.mask, at, area);
        for (int r = 0; r < each && at.pixel + r < area; r++) {
            int64_t index = (at.sample * area + at.pixel + r) * p.channels + at.channel;
            float value[n];
            gpu_read((const T *)p.x + index, value);
            GPU_UNROLL for (int k = 0; k < n; k++) value[k] =
                kept >> (4 * k + r) & 1 ? value[k] * p.mask.scale : 0;
            gpu_write((T *)p.y + index, value);
        }
    }
}

// A thread writes n neighbouring numbers of y, which has its channels last. It reads their bytes
// one by one, because x is row-major: n neighbours in y are of several channels, which lie far
// apart in x.
template <int n> GPU_KERNEL normalize_bytes(cuda_normalize_bytes p) {
    for (int64_t i = gpu_thread() * n; i < p.count; i += gpu_threads() * n) {
        int64_t pixel = i / p.channels;
        int channel = (int)(i % p.channels);
        float value[n];
        GPU_UNROLL for (int k = 0; k < n; k++) {
            int64_t from = (pixel / p.plane * p.channels + channel) * p.plane + pixel % p.plane;
            value[k] = (float)p.x[from] / 255.0f;
            value[k] = value[k] - p.mean[channel];
            value[k] = value[k] / p.std[channel];
            if (++channel < p.channels) continue;
            channel = 0;
            pixel++;
        }
        gpu_write(p.y + i, value);
    }
}

// Launches a kernel whose threads take 16 bytes of channels at a time or, where the addresses or
// the number of channels do not allow that, one channel. `groups`: how many groups of neighbouring
// pixels (lot_of) all samples have together. `addresses`: those of all tensors, combined by |.
#define LAUNCH(name, groups, addresses)                                                            \
    return gpu_with_real(p->type, [=](auto *type) {                                                \
        typedef typename std::remove_pointer<decltype(type)>::type T;                              \
        constexpr int n = gpu_lot<T>::count;                                                       \
        bool lots = gpu_in_lots(p->channels, n, addresses);                                        \
        int64_t threads = (groups) * (p->channels / (lots ? n : 1));                               \
        return gpu_launch(stream, lots ? name<T, n> : name<T, 1>,                                  \
                          gpu_blocks(stream, threads, GPU_BLOCK), GPU_BLOCK, *p, why);             \
    });

// How many groups of neighbouring pixels cover an image of `area` pixels. A thread takes one group
// at a time: 4 pixels with dropout (mask.threshold is not 0), else 1 (pixels_of).
int64_t groups_of(const cuda_mask &mask, int64_t area) {
    return mask.threshold ? (area + 3) / 4 : area;
}

} // namespace

tri_status pool_launch_last(cuda_stream *stream, const cuda_max_pool *p, char *why) {
    int64_t area = (int64_t)p->sizes.out[0] * p->sizes.out[1];
    LAUNCH(max_pool, p->samples * groups_of(p->mask, area),
           (uintptr_t)p->x | (uintptr_t)p->y | (uintptr_t)p->index)
}

tri_status pool_launch_last(cuda_stream *stream, const cuda_max_pool_grad *p, char *why){
    LAUNCH(max_pool_grad, p->samples * p->sizes.in[0] * p->sizes.in[1],
           (uintptr_t)p->index | (uintptr_t)p->dy | (uintptr_t)p->dx)}

tri_status
    pool_launch_last(cuda_stream *stream, const cuda_avg_pool *p, bool is_gradient, char *why) {
    uintptr_t addresses = (uintptr_t)p->x | (uintptr_t)p->y;
    if (is_gradient) LAUNCH(avg_pool_grad, p->samples * p->axis[0].in * p->axis[1].in, addresses)
    LAUNCH(avg_pool, p->samples * p->windows[0] * p->windows[1], addresses)
}

tri_status pool_launch_last(cuda_stream *stream, const cuda_dropout *p, char *why){
    LAUNCH(dropout, p->samples *groups_of(p->mask, p->elements / p->channels),
           (uintptr_t)p->x | (uintptr_t)p->y)}

tri_status pool_launch_last(cuda_stream *stream, const cuda_normalize_bytes *p, char *why) {
    bool lots = gpu_in_lots(p->count, 4, (uintptr_t)p->y);
    return gpu_launch(stream, lots ? normalize_bytes<4> : normalize_bytes<1>,
                      gpu_blocks(stream, p->count / (lots ? 4 : 1), GPU_BLOCK), GPU_BLOCK, *p, why);
}
