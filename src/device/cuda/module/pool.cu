// Pooling, dropout, and conversion of images' bytes, for row-major images (pool_last.cu: channels
// last). Each element of the input is read once from memory (pooling reads it again, from the
// caches, for each further window that contains it), and each element of the output is written
// once. Max pooling also writes a byte for each element of its output, which its gradient reads. In
// the comments below, sizeof(T) is 4 bytes in F32, and 2 in F16 and BF16.
#include "device/cuda/module/mask.h"
#include "device/cuda/module/pack.h"
#include "device/cuda/module/pool_last.h"

#include <type_traits>

namespace {

// Finds the first maximum of a pooling window, with NaN larger than any number. Returns its index
// in the window.
template <typename T>
GPU_DEVICE int window_maximum(const cuda_max_pool &p, const T *image, int i, int j, float *out) {
    int best = -1;
    for (int kh = 0; kh < p.sizes.kernel[0]; kh++)
        for (int kw = 0; kw < p.sizes.kernel[1]; kw++) {
            int h = i * p.sizes.stride[0] + kh - p.sizes.padding[0],
                w = j * p.sizes.stride[1] + kw - p.sizes.padding[1];
            if (h < 0 || h >= p.sizes.in[0] || w < 0 || w >= p.sizes.in[1]) continue;
            float value = gpu_get(image[(int64_t)h * p.sizes.in[1] + w]);
            if (best >= 0 && !(value > *out) && !(value != value && *out == *out)) continue;
            best = kh * p.sizes.kernel[1] + kw;
            *out = value;
        }
    return best;
}

// Computes max pooling. A thread computes 4 neighbouring elements of y, because dropout draws
// random numbers for four at a time. Reads sizeof(T) bytes for each element of x, and writes
// sizeof(T) + 1 for each element of y.
template <typename T> GPU_KERNEL max_pool(cuda_max_pool p) {
    int64_t area = (int64_t)p.sizes.out[0] * p.sizes.out[1], elements = p.channels * area;
    int64_t quads = (elements + 3) / 4;
    for (int64_t at = gpu_thread(); at < p.samples * quads; at += gpu_threads()) {
        int64_t n = at / quads, quad = at % quads;
        float factors[4];
        mask_quad(p.mask, n, quad, factors);
        for (int r = 0; r < 4 && quad * 4 + r < elements; r++) {
            uint32_t e = (uint32_t)(quad * 4 + r), rest = e % (uint32_t)area;
            int64_t image = n * p.channels + e / (uint32_t)area;
            float value = 0;
            int best = window_maximum(p, (const T *)p.x + image * p.sizes.in[0] * p.sizes.in[1],
                                      (int)(rest / (uint32_t)p.sizes.out[1]),
                                      (int)(rest % (uint32_t)p.sizes.out[1]), &value);
            bool cut = (p.relu && value <= 0) || factors[r] == 0;
            gpu_put(&((T *)p.y)[n * elements + e], cut ? 0 : value * factors[r]);
            p.index[n * elements + e] = (uint8_t)(cut ? TRI_POOL_NO_GRADIENT : best);
        }
    }
}

// Computes the gradient of max pooling. Each thread adds up what the gradient of one element of x
// gets from the windows that contain the element, in the order of the windows. So no two threads
// write the same element, and the sum is the same in every run. Reads 1 + sizeof(T) bytes for each
// element of y, and writes sizeof(T) for each element of x.
template <typename T> GPU_KERNEL max_pool_grad(cuda_max_pool_grad p) {
    int64_t area = (int64_t)p.sizes.in[0] * p.sizes.in[1],
            windows = (int64_t)p.sizes.out[0] * p.sizes.out[1];
    pool_axis axis[2] = {axis_of(p.sizes, 0), axis_of(p.sizes, 1)};
    for (int64_t at = gpu_thread(); at < p.samples * p.channels * area; at += gpu_threads()) {
        int64_t image = at / area, begin[2], end[2];
        uint32_t rest = (uint32_t)(at % area);
        int pixel[2] = {(int)(rest / (uint32_t)p.sizes.in[1]),
                        (int)(rest % (uint32_t)p.sizes.in[1])};
        float sum = 0;
        for (int d = 0; d < 2; d++)
            pool_windows_over(&axis[d], p.sizes.out[d], pixel[d], &begin[d], &end[d]);
        for (int64_t i = begin[0]; i < end[0]; i++)
            for (int64_t j = begin[1]; j < end[1]; j++) {
                int kh = pixel[0] + p.sizes.padding[0] - (int)i * p.sizes.stride[0];
                int kw = pixel[1] + p.sizes.padding[1] - (int)j * p.sizes.stride[1];
                int64_t window = image * windows + i * p.sizes.out[1] + j;
                if (p.index[window] == kh * p.sizes.kernel[1] + kw)
                    sum += gpu_get(((const T *)p.dy)[window]) * p.scale;
            }
        gpu_put(&((T *)p.dx)[at], sum);
    }
}

// Computes average pooling. Reads sizeof(T) bytes for each element of x, and writes sizeof(T) for
// each element of y.
template <typename T> GPU_KERNEL avg_pool(cuda_avg_pool p) {
    int64_t windows = p.windows[0] * p.windows[1], area = p.axis[0].in * p.axis[1].in;
    for (int64_t at = gpu_thread(); at < p.samples * p.channels * windows; at += gpu_threads()) {
        const T *x = (const T *)p.x + at / windows * area;
        uint32_t window = (uint32_t)(at % windows), across = (uint32_t)p.windows[1];
        int64_t begin[2], end[2];
        pool_window_at(&p.axis[0], window / across, &begin[0], &end[0]);
        pool_window_at(&p.axis[1], window % across, &begin[1], &end[1]);
        float sum = 0;
        for (int64_t h = begin[0]; h < end[0]; h++)
            for (int64_t w = begin[1]; w < end[1]; w++) sum += gpu_get(x[h * p.axis[1].in + w]);
        gpu_put(&((T *)p.y)[at], sum * factor_of(p, begin, end));
    }
}

// Computes the gradient of average pooling. Reads sizeof(T) bytes for each element of dy (p.x), and
// writes sizeof(T) for each element of dx (p.y).
template <typename T> GPU_KERNEL avg_pool_grad(cuda_avg_pool p) {
    int64_t windows = p.windows[0] * p.windows[1], area = p.axis[0].in * p.axis[1].in;
    for (int64_t at = gpu_thread(); at < p.samples * p.channels * area; at += gpu_threads()) {
        const T *dy = (const T *)p.x + at / area * windows;
        uint32_t pixel = (uint32_t)(at % area), across = (uint32_t)p.axis[1].in;
        int64_t h = pixel / across, w = pixel % across, over[2], to[2];
        pool_windows_over(&p.axis[0], p.windows[0], h, &over[0], &to[0]);
        pool_windows_over(&p.axis[1], p.windows[1], w, &over[1], &to[1]);
        float sum = 0;
        for (int64_t i = over[0]; i < to[0]; i++)
            for (int64_t j = over[1]; j < to[1]; j++) {
                int64_t begin[2], end[2];
                pool_window_at(&p.axis[0], i, &begin[0], &end[0]);
                pool_window_at(&p.axis[1], j, &begin[1], &end[1]);
                sum += gpu_get(dy[i * p.windows[1] + j]) * factor_of(p, begin, end);
            }
        gpu_put(&((T *)p.y)[at], sum);
    }
}

// Computes dropout. Reads and writes sizeof(T) bytes for each element. A thread takes a lot of n
// neighbouring elements, which are 16 bytes. All samples together have fewer than 2^32 lots, so
// that divisions have 32 bits, which is faster.
template <typename T, int n> GPU_KERNEL dropout_lots(cuda_dropout p) {
    uint32_t lots = (uint32_t)(p.elements / n);
    for (int64_t at = gpu_thread(); at < p.samples * lots; at += gpu_threads()) {
        uint32_t sample = (uint32_t)at / lots, lot = (uint32_t)at % lots;
        float values[n];
        gpu_read((const T *)p.x + at * n, values);
        GPU_UNROLL for (int first = 0; first < n; first += 4) {
            float factors[4];
            mask_quad(p.mask, sample, ((int64_t)lot * n + first) / 4, factors);
            GPU_UNROLL for (int i = 0; i < 4; i++) values[first + i] =
                factors[i] == 0 ? 0 : values[first + i] * factors[i];
        }
        gpu_write((T *)p.y + at * n, values);
    }
}

// As dropout_lots, where the addresses or the number of elements do not allow lots, and where x is
// a slice of a larger tensor. A thread takes 4 neighbouring elements, one by one.
template <typename T> GPU_KERNEL dropout(cuda_dropout p) {
    int64_t quads = (p.elements + 3) / 4;
    for (int64_t at = gpu_thread(); at < p.samples * quads; at += gpu_threads()) {
        int64_t n = at / quads, quad = at % quads, first = n * p.elements + quad * 4;
        float factors[4];
        if (!p.run) mask_quad(p.mask, n, quad, factors);
        GPU_UNROLL for (int i = 0; i < 4; i++) {
            if (quad * 4 + i >= p.elements) break;
            float factor = p.run ? mask_one(p.mask, n, whole_element(p, quad * 4 + i)) : factors[i];
            float value = gpu_get(((const T *)p.x)[first + i]);
            gpu_put(&((T *)p.y)[first + i], factor == 0 ? 0 : value * factor);
        }
    }
}

// For each pixel and channel, reads one byte and writes one F32: (byte / 255 - mean) / std of the
// channel. The result of each of the three operations is rounded to F32, as on every device, so
// that all devices get the same images.
GPU_KERNEL normalize_bytes(cuda_normalize_bytes p) {
    bool aligned = p.plane % 4 == 0 && gpu_is_aligned(p.y) && (uintptr_t)p.x % 4 == 0;
    int count = aligned ? 4 : 1;
    for (int64_t i = gpu_thread() * count; i < p.count; i += gpu_threads() * count) {
        int channel = (int)(i / p.plane % p.channels);
        gpu_pack<uint8_t, 4> bytes = {};
        gpu_pack<float, 4> values = {};
        if (aligned)
            bytes = *(const gpu_pack<uint8_t, 4> *)(p.x + i);
        else
            bytes.at[0] = p.x[i];
        for (int k = 0; k < 4; k++) {
            float value = (float)bytes.at[k] / 255.0f;
            value = value - p.mean[channel];
            values.at[k] = value / p.std[channel];
        }
        if (aligned)
            *(gpu_pack<float, 4> *)(p.y + i) = values;
        else
            p.y[i] = values.at[0];
    }
}

} // namespace

// Launches the kernel for elements of type `dtype`, with about `count` threads (fewer, if so many
// do not fit on the GPU: each then takes several items of work).
#define LAUNCH(name, dtype, count)                                                                 \
    return gpu_with_real(dtype, [=](auto *type) {                                                  \
        typedef typename std::remove_pointer<decltype(type)>::type T;                              \
        return gpu_launch(stream, name<T>, gpu_blocks(stream, count, GPU_BLOCK), GPU_BLOCK, *p,    \
                          why);                                                                    \
    });

extern "C" tri_status cuda_launch_max_pool(cuda_stream *stream, const cuda_max_pool *p, char *why) {
    if (p->channels_last) return pool_launch_last(stream, p, why);
    LAUNCH(max_pool, p->type, p->samples * p->channels * p->sizes.out[0] * p->sizes.out[1] / 4)
}

extern "C" tri_status cuda_launch_max_pool_grad(cuda_stream *stream, const cuda_max_pool_grad *p,
                                                char *why) {
    if (p->channels_last) return pool_launch_last(stream, p, why);
    LAUNCH(max_pool_grad, p->type, p->samples * p->channels * p->sizes.in[0] * p->sizes.in[1])
}

extern "C" tri_status cuda_launch_avg_pool(cuda_stream *stream, const cuda_avg_pool *p, char *why) {
    if (p->channels_last) return pool_launch_last(stream, p, false, why);
    LAUNCH(avg_pool, p->type, p->samples * p->channels * p->windows[0] * p->windows[1])
}

extern "C" tri_status cuda_launch_avg_pool_grad(cuda_stream *stream, const cuda_avg_pool *p,
                                                char *why) {
    if (p->channels_last) return pool_launch_last(stream, p, true, why);
    LAUNCH(avg_pool_grad, p->type, p->samples * p->channels * p->axis[0].in * p->axis[1].in)
}

extern "C" tri_status cuda_launch_dropout(cuda_stream *stream, const cuda_dropout *p, char *why) {
    if (p->channels > 0) return pool_launch_last(stream, p, why);
    return gpu_with_real(p->type, [=](auto *type) {
        typedef typename std::remove_pointer<decltype(type)>::type T;
        constexpr int n = gpu_lot<T>::count;
        int64_t count = p->samples * p->elements;
        bool lots = !p->run && gpu_in_lots(p->elements, n, (uintptr_t)p->x | (uintptr_t)p->y) &&
                    count / n <= UINT32_MAX;
        return gpu_launch(stream, lots ? dropout_lots<T, n> : dropout<T>,
                          gpu_blocks(stream, count / (lots ? n : 4), GPU_BLOCK), GPU_BLOCK, *p,
                          why);
    });
}

extern "C" tri_status cuda_launch_normalize_bytes(cuda_stream *stream,
                                                  const cuda_normalize_bytes *p, char *why) {
    if (p->channels_last) return pool_launch_last(stream, p, why);
    return gpu_launch(stream, normalize_bytes, gpu_blocks(stream, p->count / 4, GPU_BLOCK),
                      GPU_BLOCK, *p, why);
}
