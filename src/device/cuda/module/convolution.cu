// Convolutions as products of two matrices, where the second is not stored but read from the image
// element by element. Used where the vendor's library is not installed or cannot compute the
// convolution. A thread block computes 64 x 64 elements of the result and a thread 4 x 4 of them;
// tiles of 64 x 16 of both matrices pass through shared memory. From the device's memory a block
// reads its 64 rows of one matrix and its 64 columns of the other once. So if each element of the
// result is a sum of `depth` products, the kernel reads depth / 32 elements of 4 bytes (2 in F16 or
// BF16) for each element of the result. It writes each element of the result once.
//
//   forward      y  [features, pixels of y] = weight [features, taps] · x at (taps, pixels)
//   grad_input   dx [channels, pixels of x] = weight [channels, taps] · dy at (taps, pixels)
//   grad_weight  dw [features, taps]        = dy [features, pixels] · x at (pixels, taps)
//
// A tap is a channel of the group and a position in the kernel. Taps are numbered in the order in
// which the weight lies in memory.
#include "device/cuda/module/pack.h"
#include "device/cuda/module/vendor.h"
#include "device/cuda/module/walk.h"

namespace {

enum {
    TILE = CUDA_CONVOLUTION_TILE, // a thread block computes TILE x TILE elements of the result
    DEPTH = 16, // so many columns of the first matrix (rows of the second) are in a tile
    OWN = 4,    // a thread computes OWN x OWN elements of the result
    THREADS = (TILE / OWN) * (TILE / OWN),
    LOADS = TILE * DEPTH / THREADS, // how many elements of a tile a thread loads
    // Stride of a tile's rows in shared memory; 4 extra, so that columns lie in different banks.
    LINE = TILE + 4
};

// The sizes of one group's product: rows x columns, summed over `depth`.
struct product_shape {
    int64_t rows, columns, depth;
};

GPU_DEVICE product_shape product_shape_of(const cuda_convolution &p) {
    int64_t area = (int64_t)p.kernel[0] * p.kernel[1];
    int64_t channels = p.channels / p.groups, features = p.features / p.groups;
    int64_t in = p.samples * p.in[0] * p.in[1], out = p.samples * p.out[0] * p.out[1];
    if (p.kind == CUDA_FORWARD) return {features, out, channels * area};
    if (p.kind == CUDA_GRAD_INPUT) return {channels, in, features * area};
    return {features, channels * area, out};
}

// A pixel (sample, row, column), or a tap (channel, row, column). A number beyond the last pixel or
// tap has sample or channel -1.
struct position {
    int outer, row, column;
};

GPU_DEVICE position position_of(int64_t number, int64_t count, const int *size) {
    if (number >= count) return {-1, 0, 0};
    uint32_t n = (uint32_t)number, area = (uint32_t)(size[0] * size[1]), rest = n % area;
    return {(int)(n / area), (int)(rest / (uint32_t)size[1]), (int)(rest % (uint32_t)size[1])};
}

// Finds the tap with this number, as position_of does for a pixel. With channels last the channel
// runs fastest, else the column. `channels`: how many channels a group has.
GPU_DEVICE position tap_of(const cuda_convolution &p, int64_t number, int64_t count,
                           int64_t channels) {
    if (!p.channels_last || number >= count) return position_of(number, count, p.kernel);
    position tap = position_of(number / channels, count, p.kernel);
    tap.outer = (int)(number % channels);
    return tap;
}

// The offset, in elements, of an element of an image that has `channels` channels and size[0] rows
// of size[1] pixels.
GPU_DEVICE int64_t offset_of(const cuda_convolution &p, const int *size, int64_t channels,
                             int64_t sample, int64_t channel, int64_t row, int64_t column) {
    return p.channels_last ? ((sample * size[0] + row) * size[1] + column) * channels + channel
                           : ((sample * channels + channel) * size[0] + row) * size[1] + column;
}

// The element of x that a pixel of y reads through this tap; 0 in the padding.
template <typename T>
GPU_DEVICE float x_at(const cuda_convolution &p, const void *x, int64_t group, position pixel,
                      position tap) {
    int h = pixel.row * p.stride[0] + tap.row * p.dilation[0] - p.padding[0];
    int w = pixel.column * p.stride[1] + tap.column * p.dilation[1] - p.padding[1];
    bool inside =
        pixel.outer >= 0 && tap.outer >= 0 && h >= 0 && h < p.in[0] && w >= 0 && w < p.in[1];
    if (!inside) return 0;
    int64_t channel = group * (p.channels / p.groups) + tap.outer;
    return gpu_get(((const T *)x)[offset_of(p, p.in, p.channels, pixel.outer, channel, h, w)]);
}

// The gradient dy of that element of y which reads this pixel of x through the tap; 0 if there is
// no such element.
template <typename T>
GPU_DEVICE float dy_at(const cuda_convolution &p, const void *dy, int64_t group, position pixel,
                       position tap) {
    int h = pixel.row + p.padding[0] - tap.row * p.dilation[0];
    int w = pixel.column + p.padding[1] - tap.column * p.dilation[1];
    if (pixel.outer < 0 || tap.outer < 0 || h < 0 || w < 0) return 0;
    int i = h / p.stride[0], j = w / p.stride[1];
    if (i * p.stride[0] != h || j * p.stride[1] != w || i >= p.out[0] || j >= p.out[1]) return 0;
    int64_t feature = group * (p.features / p.groups) + tap.outer;
    return gpu_get(((const T *)dy)[offset_of(p, p.out, p.features, pixel.outer, feature, i, j)]);
}

// The weight in row `row` of the first matrix, at tap k.
template <int kind, typename T>
GPU_DEVICE float weight_at(const cuda_convolution &p, const product_shape &s, int64_t group,
                           int64_t row, int64_t k) {
    if (row >= s.rows || k >= s.depth) return 0;
    if (kind == CUDA_FORWARD)
        return gpu_get(((const T *)p.b)[(group * s.rows + row) * s.depth + k]);
    // For the gradient of x, a row is a channel of the weight, and a tap is a feature of the weight
    // and a position in the kernel.
    position tap = tap_of(p, k, s.depth, p.features / p.groups);
    int64_t feature = group * (p.features / p.groups) + tap.outer;
    return gpu_get(
        ((const T *)p.b)[offset_of(p, p.kernel, s.rows, feature, row, tap.row, tap.column)]);
}

// The elements of the result that a thread block computes: the group, the first row and the first
// column, and the range [begin, end) over which it sums. For the gradient of the weight, this range
// is one slice of the pixels.
struct block_tile {
    int64_t group, slice, row, column, begin, end;
};

GPU_DEVICE block_tile block_tile_of(const cuda_convolution &p, const product_shape &s) {
    int64_t rows = (s.rows + TILE - 1) / TILE, columns = (s.columns + TILE - 1) / TILE;
    int64_t at = blockIdx.x;
    block_tile tile = {};
    tile.row = at % rows * TILE; // thread blocks that run together read the same columns
    at /= rows;
    tile.column = at % columns * TILE;
    at /= columns;
    tile.group = at % p.groups;
    tile.slice = at / p.groups;
    tile.end = s.depth;
    if (p.kind == CUDA_GRAD_WEIGHT) {
        tile.begin = tile.slice * p.slice;
        if (tile.end > tile.begin + p.slice) tile.end = tile.begin + p.slice;
    }
    return tile;
}

// Finds the columns of the second matrix from which a thread loads in every tile: one pixel, in
// own[0], or, for the gradient of the weight, LOADS taps. This is done once, before the loop over
// the tiles, because it needs divisions, which are slow.
template <int kind>
GPU_DEVICE void find_own(const cuda_convolution &p, const product_shape &s, const block_tile &tile,
                         position *own) {
    int thread = (int)threadIdx.x;
    if constexpr (kind == CUDA_GRAD_WEIGHT)
        for (int i = 0; i < LOADS; i++)
            own[i] = tap_of(p, tile.column + thread / DEPTH + i * (THREADS / DEPTH), s.columns,
                            p.channels / p.groups);
    else
        own[0] = position_of(tile.column + thread % TILE, s.columns,
                             kind == CUDA_FORWARD ? p.out : p.in);
}

// Loads the tiles of both matrices for taps k to k + DEPTH - 1. Neighbouring threads read
// neighbouring memory: of weights along the taps, of images along the pixels.
template <int kind, typename T>
GPU_DEVICE void load_taps(const cuda_convolution &p, const product_shape &s, const block_tile &tile,
                          int64_t k, position own, float *left, float *right) {
    int thread = (int)threadIdx.x, depth = thread % DEPTH;
    for (int i = 0; i < LOADS; i++) {
        int row = thread / DEPTH + i * (THREADS / DEPTH);
        left[depth * LINE + row] = weight_at<kind, T>(p, s, tile.group, tile.row + row, k + depth);
    }
    for (int i = 0; i < LOADS; i++) {
        int number = thread / TILE + i * (THREADS / TILE);
        position tap = tap_of(p, k + number, s.depth,
                              (kind == CUDA_FORWARD ? p.channels : p.features) / p.groups);
        right[number * LINE + thread % TILE] = kind == CUDA_FORWARD
                                                   ? x_at<T>(p, p.a, tile.group, own, tap)
                                                   : dy_at<T>(p, p.a, tile.group, own, tap);
    }
}

// Loads the tiles of both matrices of the weight's gradient for pixels k to k + DEPTH - 1.
// Neighbouring threads read neighbouring pixels.
template <typename T>
GPU_DEVICE void load_pixels(const cuda_convolution &p, const product_shape &s,
                            const block_tile &tile, int64_t k, const position *own, float *left,
                            float *right) {
    int thread = (int)threadIdx.x, depth = thread % DEPTH;
    position pixel = position_of(k + depth, tile.end, p.out);
    for (int i = 0; i < LOADS; i++) {
        int row = thread / DEPTH + i * (THREADS / DEPTH);
        bool inside = pixel.outer >= 0 && tile.row + row < s.rows;
        left[depth * LINE + row] =
            inside ? gpu_get(((const T *)p.b)[offset_of(p, p.out, p.features, pixel.outer,
                                                        tile.group * s.rows + tile.row + row,
                                                        pixel.row, pixel.column)])
                   : 0;
        right[depth * LINE + row] = x_at<T>(p, p.a, tile.group, pixel, own[i]);
    }
}

template <int kind, typename T, typename O>
GPU_DEVICE void store(const cuda_convolution &p, const product_shape &s, const block_tile &tile,
                      int64_t row, int64_t column, float sum) {
    if (row >= s.rows || column >= s.columns) return;
    int64_t line = tile.group * s.rows + row;
    if (kind == CUDA_GRAD_WEIGHT) {
        int64_t at = line * s.columns + column;
        if (p.slice_sums)
            p.slice_sums[tile.slice * p.groups * s.rows * s.columns + at] = sum;
        else
            gpu_put(&((O *)p.c)[at], sum);
        return;
    }
    const int *size = kind == CUDA_FORWARD ? p.out : p.in;
    int64_t lines = p.groups * s.rows, area = (int64_t)size[0] * size[1];
    float bias = p.bias ? gpu_get(((const T *)p.bias)[line]) : 0;
    int64_t sample = (uint32_t)column / (uint32_t)area, inner = (uint32_t)column % (uint32_t)area;
    int64_t at = p.channels_last ? column * lines + line : (sample * lines + line) * area + inner;
    sum += bias;
    gpu_put(&((O *)p.c)[at], p.relu && sum <= 0 ? 0 : sum);
}

// Computes the convolution or one of its gradients. How many bytes it reads and writes: see the top
// of this file.
template <int kind, typename T, typename O> GPU_KERNEL convolution(cuda_convolution p) {
    GPU_SHARED(float, left, DEPTH *LINE);
    GPU_SHARED(float, right, DEPTH *LINE);
    product_shape s = product_shape_of(p);
    block_tile tile = block_tile_of(p, s);
    position own[LOADS];
    find_own<kind>(p, s, tile, own);
    int own_row = (int)threadIdx.x / (TILE / OWN) * OWN;
    int own_column = (int)threadIdx.x % (TILE / OWN) * OWN;
    float sums[OWN][OWN] = {};
    for (int64_t k = tile.begin; k < tile.end; k += DEPTH) {
        if (kind == CUDA_GRAD_WEIGHT)
            load_pixels<T>(p, s, tile, k, own, left, right);
        else
            load_taps<kind, T>(p, s, tile, k, own[0], left, right);
        gpu_barrier();
        for (int d = 0; d < DEPTH; d++)
            for (int i = 0; i < OWN; i++)
                for (int j = 0; j < OWN; j++)
                    sums[i][j] += left[d * LINE + own_row + i] * right[d * LINE + own_column + j];
        gpu_barrier();
    }
    for (int i = 0; i < OWN; i++)
        for (int j = 0; j < OWN; j++)
            store<kind, T, O>(p, s, tile, tile.row + own_row + i, tile.column + own_column + j,
                              sums[i][j]);
}

// Computes the gradient of each weight: adds up the sums over the slices of the pixels, in the
// order of the slices. Reads 4 bytes for each slice and weight, and writes 4 for each weight.
template <typename O> GPU_KERNEL join_slices(cuda_convolution p) {
    int64_t count = p.features * (p.channels / p.groups) * p.kernel[0] * p.kernel[1];
    for (int64_t i = gpu_thread(); i < count; i += gpu_threads()) {
        float sum = 0;
        for (int64_t k = 0; k < p.slices; k++) sum += p.slice_sums[k * count + i];
        gpu_put(&((O *)p.c)[i], sum);
    }
}

// Sums x over each channel. A thread block sums one channel after the other. Reads 4 bytes (2 in
// F16 or BF16) for each element, and writes 4 for each channel.
template <typename T> GPU_KERNEL channel_sums(cuda_channel_sums p) {
    GPU_SHARED(float, scratch, GPU_BLOCK / GPU_WARP);
    for (int64_t c = blockIdx.x; c < p.channels; c += gridDim.x) {
        float sum = 0;
        for (gpu_walk at = gpu_walk_from(threadIdx.x, p.inner); at.outer < p.samples;
             gpu_walk_on(&at, p.inner))
            sum += gpu_get(((const T *)p.x)[(at.outer * p.channels + c) * p.inner + at.inner]);
        sum = gpu_block_sum(sum, scratch);
        if (threadIdx.x == 0) p.sums[c] = sum;
    }
}

template <int kind, typename T, typename O>
tri_status launch(cuda_stream *stream, const cuda_convolution *p, char *why) {
    int64_t area = (int64_t)p->kernel[0] * p->kernel[1];
    int64_t channels = p->channels / p->groups, features = p->features / p->groups;
    int64_t in = p->samples * p->in[0] * p->in[1], out = p->samples * p->out[0] * p->out[1];
    int64_t rows = kind == CUDA_GRAD_INPUT ? channels : features;
    int64_t columns = kind == CUDA_FORWARD ? out : kind == CUDA_GRAD_INPUT ? in : channels * area;
    int64_t blocks = (rows + TILE - 1) / TILE * ((columns + TILE - 1) / TILE) * p->groups;
    if (kind == CUDA_GRAD_WEIGHT) blocks *= p->slices;
    tri_status status = gpu_launch(stream, convolution<kind, T, O>, blocks, THREADS, *p, why);
    if (status != TRI_OK || !p->slice_sums) return status;
    blocks = gpu_blocks(stream, p->features * channels * area, GPU_BLOCK);
    return gpu_launch(stream, join_slices<O>, blocks, GPU_BLOCK, *p, why);
}

template <typename T>
tri_status launch_kind(cuda_stream *stream, T *, const cuda_convolution *p, char *why) {
    switch (p->kind) {
    case CUDA_FORWARD:
        return launch<CUDA_FORWARD, T, T>(stream, p, why);
    case CUDA_GRAD_INPUT:
        return launch<CUDA_GRAD_INPUT, T, T>(stream, p, why);
    case CUDA_GRAD_WEIGHT:
        return launch<CUDA_GRAD_WEIGHT, T, float>(stream, p, why);
    }
    return TRI_UNSUPPORTED;
}

template <typename T>
tri_status launch_sums(cuda_stream *stream, T *, const cuda_channel_sums *p, char *why) {
    return gpu_launch(stream, channel_sums<T>, gpu_blocks(stream, p->channels, 1), GPU_BLOCK, *p,
                      why);
}

// Adds the bias to y, which cuDNN has computed without it, and applies ReLU. Reads and
// writes 4 bytes (2 in F16 or BF16) for each element.
template <typename T, int n> GPU_KERNEL finish_output(cuda_convolution p) {
    int64_t inner = (int64_t)p.out[0] * p.out[1], count = p.samples * p.features * inner;
    T *y = (T *)p.c;
    for (int64_t i = n * gpu_thread(); i < count; i += n * gpu_threads()) {
        int64_t feature = p.channels_last ? i % p.features : i / inner % p.features;
        float at[n];
        gpu_read(&y[i], at);
        for (int k = 0; k < n; k++) {
            const T *bias = (const T *)p.bias + feature + (p.channels_last ? k : 0);
            at[k] += p.bias ? gpu_get(*bias) : 0;
            at[k] = p.relu && at[k] <= 0 ? 0 : at[k];
        }
        gpu_write(&y[i], at);
    }
}

// A thread computes n neighbouring elements (16 bytes, a lot) at a time if these always lie in one
// channel of one sample or, with channels last, in one pixel. Otherwise, or if y is not aligned to
// 16 bytes, it computes one element at a time.
template <typename T>
tri_status launch_finish(cuda_stream *stream, T *, const cuda_convolution *p, char *why) {
    constexpr int n = gpu_lot<T>::count;
    int64_t alike = p->channels_last ? p->features : (int64_t)p->out[0] * p->out[1];
    bool lots = gpu_in_lots(alike, n, (uintptr_t)p->c);
    int64_t count = p->samples * p->features * p->out[0] * p->out[1] / (lots ? n : 1);
    return gpu_launch(stream, lots ? finish_output<T, n> : finish_output<T, 1>,
                      gpu_blocks(stream, count, GPU_BLOCK), GPU_BLOCK, *p, why);
}

// Copies the gradient of the weight from the workspace, where it has a half type (F16 or BF16), to
// p.c in F32. Reads 2 bytes and writes 4 for each element.
template <typename T, int n> GPU_KERNEL widen_gradient(cuda_convolution p) {
    int64_t count = p.features * (p.channels / p.groups) * p.kernel[0] * p.kernel[1];
    for (int64_t i = n * gpu_thread(); i < count; i += n * gpu_threads()) {
        float at[n];
        gpu_read((const T *)p.workspace + i, at);
        gpu_write((float *)p.c + i, at);
    }
}

template <typename T>
tri_status launch_widen(cuda_stream *stream, T *, const cuda_convolution *p, char *why) {
    constexpr int n = gpu_lot<T>::count;
    int64_t count = p->features * (p->channels / p->groups) * p->kernel[0] * p->kernel[1];
    bool lots = gpu_in_lots(count, n, (uintptr_t)p->workspace | (uintptr_t)p->c);
    return gpu_launch(stream, lots ? widen_gradient<T, n> : widen_gradient<T, 1>,
                      gpu_blocks(stream, lots ? count / n : count, GPU_BLOCK), GPU_BLOCK, *p, why);
}

// Launches the kernel for the work that cuDNN has left: bias and ReLU, or widening the
// gradient of the weight.
tri_status finish(cuda_stream *stream, const cuda_convolution *p, vendor_left left, char *why) {
    if (left == VENDOR_LEFT_NOTHING) return TRI_OK;
    return gpu_with_real(p->in_type, [=](auto *type) {
        return left == VENDOR_LEFT_WIDEN ? launch_widen(stream, type, p, why)
                                         : launch_finish(stream, type, p, why);
    });
}

} // namespace

extern "C" tri_status cuda_launch_convolution(cuda_stream *stream, const cuda_convolution *p,
                                              char *why) {
    tri_status status;
    vendor_left left;
    if (vendor_convolution(stream, p, &left, &status, why))
        return status == TRI_OK ? finish(stream, p, left, why) : status;
    return gpu_with_real(p->in_type, [=](auto *type) { return launch_kind(stream, type, p, why); });
}

extern "C" tri_status cuda_launch_channel_sums(cuda_stream *stream, const cuda_channel_sums *p,
                                               char *why) {
    return gpu_with_real(p->type, [=](auto *type) { return launch_sums(stream, type, p, why); });
}
