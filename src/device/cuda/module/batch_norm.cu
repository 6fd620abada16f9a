// Batch norm in stages. Each channel is cut into slices of one size. A thread block sums one slice,
// and then the sums of the slices are joined in their order, so that the results have the same bits
// in every run. The moments of some values are their mean and the sum of squared deviations from
// it. Training reads x twice and writes y once; the gradient reads x, dy and, with a fused ReLU, y
// twice, and writes dx. Images whose channels lie side by side (channels last) have kernels of
// their own, which read and write as often. Each kernel tells how many bytes it reads and writes:
// sizeof(X) is the size of an element of x and dx, sizeof(Y) that of y and dy (4 in F32, 2 in F16
// and BF16).
#include "device/cuda/module/pack.h"
#include "device/cuda/module/walk.h"
#include "device/moments.h"

namespace {

// The slice of a channel that a block sums: its channel, the number of its first element among
// those of the channel, and how many elements it has.
struct slice {
    int64_t channel, first, count;
};

GPU_DEVICE slice slice_of(const cuda_batch_norm &p) {
    int64_t slices = cuda_norm_slices(&p), all = p.samples * p.inner;
    int64_t count = cuda_norm_slice(&p);
    slice s = {blockIdx.x / slices, blockIdx.x % slices * count, count};
    if (s.first + s.count > all) s.count = all - s.first;
    return s;
}

// Goes through the elements of a slice that this thread takes, n neighbours (a lot) at a time. Lots
// do not go beyond a run of p.inner elements, which is a multiple of n.
template <int n> struct lot_walk {
    gpu_walk at; // the position, counted in lots
    int64_t channel;

    GPU_DEVICE lot_walk from(const cuda_batch_norm &p, const slice &s) {
        return {gpu_walk_from(s.first / n + threadIdx.x, p.inner / n), s.channel};
    }
    GPU_DEVICE int64_t index(const cuda_batch_norm &p, const lot_walk &w) {
        return (w.at.outer * p.channels + w.channel) * p.inner + w.at.inner * n;
    }
};

// Computes the mean of a slice, and the sum of squared deviations from it. A thread keeps its
// elements in registers. Reads sizeof(X) bytes for each element, and writes 16 for each slice.
template <typename X, typename access> GPU_KERNEL moments(cuda_batch_norm p) {
    constexpr int n = access::count, lots = CUDA_NORM_SLICE / GPU_BLOCK / n;
    GPU_SHARED(float, scratch, GPU_BLOCK / GPU_WARP);
    slice s = slice_of(p);
    lot_walk<n> walk = lot_walk<n>::from(p, s);
    int first = (int)threadIdx.x * n, count = (int)s.count;
    float at[lots][n] = {}, sum = 0, squares = 0;
    GPU_UNROLL for (int l = 0; l < lots; l++, gpu_walk_on(&walk.at, p.inner / n)) {
        if (first + l * GPU_BLOCK * n >= count) continue;
        access::read((const X *)p.x + lot_walk<n>::index(p, walk), at[l]);
    }
    GPU_UNROLL for (int l = 0; l < lots; l++) GPU_UNROLL for (int k = 0; k < n; k++) sum +=
        at[l][k];
    float mean = gpu_block_sum(sum, scratch) / (float)s.count;
    GPU_UNROLL for (int l = 0; l < lots; l++) {
        if (first + l * GPU_BLOCK * n >= count) continue;
        GPU_UNROLL for (int k = 0; k < n; k++) squares += (at[l][k] - mean) * (at[l][k] - mean);
    }
    squares = gpu_block_sum(squares, scratch);
    if (threadIdx.x == 0) {
        p.slice_results[2 * (int64_t)blockIdx.x] = mean;
        p.slice_results[2 * (int64_t)blockIdx.x + 1] = squares;
    }
}

// Writes those outputs of channel c that follow from the channel's moments.
GPU_DEVICE void write_moments(const cuda_batch_norm &p, int64_t c, tri_moments m) {
    if (p.mean) {
        p.mean[c] = (float)m.mean;
        p.inv_std[c] = (float)(1 / sqrt(m.squares / m.count + p.eps));
        p.mean_sum[c] = (float)((double)p.samples * m.mean);
        p.var_sum[c] = (float)((double)p.samples * m.squares / (m.count - 1));
    }
    if (p.moments) {
        p.moments[c] = (float)m.mean;
        p.moments[p.channels + c] = (float)m.squares;
        if (c == 0) p.moments[2 * p.channels] = (float)p.samples;
    }
}

// Joins the moments of `lower` and `upper`, which may both be empty.
GPU_DEVICE tri_moments join_any(tri_moments lower, tri_moments upper) {
    return upper.count > 0 ? tri_moments_join(lower, upper) : lower;
}

// Joins the moments of a channel's slices, one block for each channel. Each thread joins
// neighbouring slices, then neighbouring lanes of a warp are joined, and then the warps, so that
// the order is fixed. Reads 16 bytes for each slice, and writes at most 16 for each channel
// (write_moments).
GPU_KERNEL join_slices(cuda_batch_norm p) {
    GPU_SHARED(tri_moments, warps, GPU_BLOCK / GPU_WARP);
    int64_t slices = cuda_norm_slices(&p), c = blockIdx.x, all = p.samples * p.inner;
    int64_t each = (slices + GPU_BLOCK - 1) / GPU_BLOCK, first = threadIdx.x * each;
    const int64_t slice_size = cuda_norm_slice(&p);
    tri_moments m = {0, 0, 0};
    for (int64_t i = first; i < first + each && i < slices; i++) {
        int64_t left = all - i * slice_size;
        const double *result = &p.slice_results[2 * (c * slices + i)];
        tri_moments next = {(double)(left < slice_size ? left : slice_size), result[0], result[1]};
        m = tri_moments_join(m, next);
    }
    for (int mask = 1; mask < GPU_WARP; mask *= 2) {
        tri_moments other = {gpu_shuffle_xor(m.count, mask), gpu_shuffle_xor(m.mean, mask),
                             gpu_shuffle_xor(m.squares, mask)};
        bool is_upper = ((int)threadIdx.x & mask) != 0;
        m = is_upper ? join_any(other, m) : join_any(m, other);
    }
    if (threadIdx.x % GPU_WARP == 0) warps[threadIdx.x / GPU_WARP] = m;
    gpu_barrier();
    if (threadIdx.x != 0) return;
    for (int i = 1; i < GPU_BLOCK / GPU_WARP; i++) m = join_any(m, warps[i]);
    write_moments(p, c, m);
}

// Joins the moments that the replicas of the model have exchanged. For each channel, reads 12 bytes
// for each replica (4 of them from the cache), and writes 16.
GPU_KERNEL join_all(cuda_batch_norm p) {
    for (int64_t c = gpu_thread(); c < p.channels; c += gpu_threads()) {
        tri_moments m = {0, 0, 0};
        const float *all = p.all_moments;
        for (int64_t r = 0; r < p.replicas; r++, all += 2 * p.channels + 1) {
            tri_moments next = {(double)all[2 * p.channels] * (double)p.inner, all[c],
                                all[p.channels + c]};
            m = tri_moments_join(m, next);
        }
        write_moments(p, c, m);
    }
}

// The numbers of one channel from which y or dx is computed.
struct channel {
    float mean, inv_std, weight, bias; // factors and terms with which y is computed
    // Means of dy and of dy · h over all values of the channel, with which dx is computed; h is the
    // normalised x.
    float mean_dy, mean_dy_h;
};

GPU_DEVICE channel forward_channel(const cuda_batch_norm &p, int64_t c) {
    channel k = {};
    k.mean = p.running_mean ? p.running_mean[c] : p.mean[c];
    k.inv_std = p.running_var ? 1 / sqrtf(p.running_var[c] + (float)p.eps) : p.inv_std[c];
    k.weight = p.weight[c];
    k.bias = p.bias[c];
    return k;
}

GPU_DEVICE channel gradient_channel(const cuda_batch_norm &p, int64_t c, double values) {
    channel k = {};
    k.mean = p.mean[c];
    k.inv_std = p.inv_std[c];
    k.weight = p.weight[c];
    k.mean_dy = (float)(p.sum_dy[c] / values);
    k.mean_dy_h = (float)(p.sum_dy_h[c] / values);
    return k;
}

GPU_DEVICE float forward_one(const cuda_batch_norm &p, const channel &k, float x) {
    float y = (x - k.mean) * k.inv_std * k.weight + k.bias;
    return p.relu && y <= 0 ? 0 : y;
}

GPU_DEVICE float gradient_one(const cuda_batch_norm &p, const channel &k, float x, float y,
                              float dy) {
    float d = p.relu && y <= 0 ? 0 : dy, h = (x - k.mean) * k.inv_std;
    return k.weight * k.inv_std * (d - (k.mean_dy + h * k.mean_dy_h));
}

// The channel of element `at`. `small`: the tensor has so few elements that 32 bits can count them,
// and then faster divisions of 32 bits are used.
GPU_DEVICE int64_t channel_at(const cuda_batch_norm &p, int64_t at, bool small) {
    return small ? (uint32_t)at / (uint32_t)p.inner % (uint32_t)p.channels
                 : at / p.inner % p.channels;
}

// Computes y. Reads sizeof(X) and writes sizeof(Y) bytes for each element; the numbers of a channel
// come from the cache.
template <typename X, typename Y> GPU_KERNEL apply(cuda_batch_norm p) {
    typedef gpu_pack<X, 4> four_x;
    typedef gpu_pack<Y, 4> four_y;
    const X *x = (const X *)p.x;
    Y *y = (Y *)p.y;
    int64_t count = p.samples * p.channels * p.inner;
    bool small = count <= UINT32_MAX;
    if (p.inner % 4 == 0 && gpu_is_aligned(x, y)) {
        for (int64_t i = gpu_thread() * 4; i < count; i += gpu_threads() * 4) {
            channel k = forward_channel(p, channel_at(p, i, small));
            four_x in = *(const four_x *)(x + i);
            four_y out;
            for (int n = 0; n < 4; n++) gpu_put(&out.at[n], forward_one(p, k, gpu_get(in.at[n])));
            *(four_y *)(y + i) = out;
        }
        return;
    }
    for (int64_t i = gpu_thread(); i < count; i += gpu_threads())
        gpu_put(&y[i], forward_one(p, forward_channel(p, channel_at(p, i, small)), gpu_get(x[i])));
}

// Computes the sums of dy and of dy times the normalised x over a slice. Where a fused ReLU made y
// 0, dy counts as 0. Reads sizeof(X) + sizeof(Y) bytes for each element (with a fused ReLU, another
// sizeof(Y)), and writes 16 for each slice.
template <typename X, typename Y, typename access> GPU_KERNEL gradient_sums(cuda_batch_norm p) {
    constexpr int n = access::count;
    GPU_SHARED(float, scratch, GPU_BLOCK / GPU_WARP);
    slice s = slice_of(p);
    lot_walk<n> walk = lot_walk<n>::from(p, s);
    float mean = p.mean[s.channel], inv_std = p.inv_std[s.channel], sum_dy = 0, sum_dy_h = 0;
    for (int64_t i = (int64_t)threadIdx.x * n; i < s.count; i += GPU_BLOCK * n) {
        int64_t index = lot_walk<n>::index(p, walk);
        float x[n], y[n] = {}, dy[n];
        access::read((const X *)p.x + index, x);
        access::read((const Y *)p.dy + index, dy);
        if (p.relu) access::read((const Y *)p.y + index, y);
        gpu_walk_on(&walk.at, p.inner / n);
        GPU_UNROLL for (int k = 0; k < n; k++) {
            float d = p.relu && y[k] <= 0 ? 0 : dy[k];
            sum_dy += d;
            sum_dy_h += d * ((x[k] - mean) * inv_std);
        }
    }
    sum_dy = gpu_block_sum(sum_dy, scratch);
    sum_dy_h = gpu_block_sum(sum_dy_h, scratch);
    if (threadIdx.x == 0) {
        p.slice_results[2 * (int64_t)blockIdx.x] = sum_dy;
        p.slice_results[2 * (int64_t)blockIdx.x + 1] = sum_dy_h;
    }
}

// Adds up the sums of a channel's slices, one warp for each channel. Reads 16 bytes for each slice,
// and writes 8 for each channel (16 if the sums are also reduced over replicas).
GPU_KERNEL join_sums(cuda_batch_norm p) {
    GPU_SHARED(double, scratch, 1);
    int64_t slices = cuda_norm_slices(&p), c = blockIdx.x;
    double sum_dy = 0, sum_dy_h = 0;
    for (int64_t i = threadIdx.x; i < slices; i += GPU_WARP) {
        sum_dy += p.slice_results[2 * (c * slices + i)];
        sum_dy_h += p.slice_results[2 * (c * slices + i) + 1];
    }
    sum_dy = gpu_block_sum(sum_dy, scratch);
    sum_dy_h = gpu_block_sum(sum_dy_h, scratch);
    if (threadIdx.x != 0) return;
    p.dbias[c] = (float)sum_dy;
    p.dweight[c] = (float)sum_dy_h;
    if (!p.sums_out) return;
    p.sums_out[c] = (float)sum_dy_h;
    p.sums_out[p.channels + c] = (float)sum_dy;
}

// How many values a channel has, in all replicas together.
GPU_DEVICE double values_of(const cuda_batch_norm &p) {
    double values = 0;
    if (!p.all_moments) return (double)(p.samples * p.inner);
    for (int64_t r = 0; r < p.replicas; r++)
        values += (double)p.all_moments[(r + 1) * (2 * p.channels + 1) - 1] * (double)p.inner;
    return values;
}

// Computes dx. Reads sizeof(X) + sizeof(Y) bytes for each element (with a fused ReLU, another
// sizeof(Y)), and writes sizeof(X).
template <typename X, typename Y> GPU_KERNEL gradient(cuda_batch_norm p) {
    const X *x = (const X *)p.x;
    const Y *y = (const Y *)p.y, *dy = (const Y *)p.dy;
    int64_t count = p.samples * p.channels * p.inner;
    double values = values_of(p);
    bool small = count <= UINT32_MAX;
    if (p.inner % 4 == 0 && gpu_is_aligned(x, y, dy, p.dx)) {
        for (int64_t i = gpu_thread() * 4; i < count; i += gpu_threads() * 4) {
            channel k = gradient_channel(p, channel_at(p, i, small), values);
            gpu_pack<X, 4> in = *(const gpu_pack<X, 4> *)(x + i), out;
            gpu_pack<Y, 4> d = *(const gpu_pack<Y, 4> *)(dy + i), sign = d;
            if (p.relu) sign = *(const gpu_pack<Y, 4> *)(y + i);
            for (int n = 0; n < 4; n++)
                gpu_put(&out.at[n], gradient_one(p, k, gpu_get(in.at[n]), gpu_get(sign.at[n]),
                                                 gpu_get(d.at[n])));
            *(gpu_pack<X, 4> *)((X *)p.dx + i) = out;
        }
        return;
    }
    for (int64_t i = gpu_thread(); i < count; i += gpu_threads())
        gpu_put(&((X *)p.dx)[i],
                gradient_one(p, gradient_channel(p, channel_at(p, i, small), values), gpu_get(x[i]),
                             gpu_get(y[i]), gpu_get(dy[i])));
}

// Which elements a thread takes if x has channels last. x is then a matrix with a row for each
// pixel and a column for each channel. The threads of a block form a matrix of `rows` by `columns`.
// Each takes one lot, which is n neighbouring channels (as many as fill 16 bytes, or one), of every
// rows-th of the block's pixels. So the threads of one row read neighbouring memory.
struct panel {
    int64_t tile, slice;   // numbers of the block's range of channels and of its range of pixels
    int64_t channel;       // the first of the thread's n channels; below 0: it has none
    int columns, rows, at; // size of the matrix of threads; the row in which this thread is
};

// Returns the number of columns of threads: one for each lot (the neighbouring channels that one
// thread takes), rounded up to a power of two, but at most a warp. So the number of rows, GPU_BLOCK
// / columns, is a power of two as well, and sum_columns can halve it repeatedly.
TRI_KERNEL_INLINE int panel_columns(int64_t lots) {
    int columns = 1;
    while (columns < lots && columns < GPU_WARP) columns *= 2;
    return columns;
}

template <int n> GPU_DEVICE panel panel_of(const cuda_batch_norm &p) {
    panel a;
    int64_t lots = p.channels / n;
    a.columns = panel_columns(lots);
    a.rows = GPU_BLOCK / a.columns;
    int64_t tiles = (lots + a.columns - 1) / a.columns;
    a.tile = blockIdx.x % tiles;
    a.slice = blockIdx.x / tiles;
    a.at = (int)threadIdx.x / a.columns;
    int64_t own = a.tile * a.columns + threadIdx.x % a.columns;
    a.channel = own < lots ? own * n : -1;
    return a;
}

// Adds up, for each channel, the sums that the threads of one column have made, each over its own
// pixels. Every thread gets the totals of its n channels. `scratch` has n * GPU_BLOCK elements.
template <int n> GPU_DEVICE void sum_columns(const panel &a, float (&sum)[n], float *scratch) {
    int thread = (int)threadIdx.x;
    GPU_UNROLL for (int k = 0; k < n; k++) scratch[k * GPU_BLOCK + thread] = sum[k];
    gpu_barrier();
    for (int half = a.rows / 2; half; half /= 2) {
        for (int k = 0; a.at < half && k < n; k++)
            scratch[k * GPU_BLOCK + thread] += scratch[k * GPU_BLOCK + thread + half * a.columns];
        gpu_barrier();
    }
    GPU_UNROLL for (int k = 0; k < n; k++) sum[k] = scratch[k * GPU_BLOCK + thread % a.columns];
    gpu_barrier();
}

// Writes the two results of each channel over the block's slice of pixels: mean and sum of squared
// deviations, or the two sums of gradient_sums.
template <int n>
GPU_DEVICE void write_results(const cuda_batch_norm &p, const panel &a, const float (&first)[n],
                              const float (&second)[n]) {
    if (a.at > 0 || a.channel < 0) return;
    int64_t slices = cuda_norm_slices(&p);
    GPU_UNROLL for (int k = 0; k < n; k++) {
        double *result = &p.slice_results[2 * ((a.channel + k) * slices + a.slice)];
        result[0] = first[k];
        result[1] = second[k];
    }
}

// The moments of some pixels' values in n channels, in F32.
template <int n> struct lot_moments { float count, mean[n], squares[n]; };

// Joins the moments of other pixels to m, as tri_moments_join does.
template <int n> GPU_DEVICE void join_lots(lot_moments<n> &m, const lot_moments<n> &other) {
    if (other.count == 0) return;
    float fraction = other.count / (m.count + other.count), weight = m.count * fraction;
    m.count += other.count;
    GPU_UNROLL for (int k = 0; k < n; k++) {
        float delta = other.mean[k] - m.mean[k];
        m.mean[k] += delta * fraction;
        m.squares[k] += other.squares[k] + delta * delta * weight;
    }
}

// Reads, for `pixels` of the thread's pixels, beginning with pixel r, its n channels, and computes
// their moments. All loads are issued before the first sum.
template <typename X, int n, int pixels>
GPU_DEVICE lot_moments<n> moments_of(const cuda_batch_norm &p, const panel &a, int64_t r) {
    lot_moments<n> m = {(float)pixels, {}, {}};
    float at[pixels][n];
    GPU_UNROLL for (int j = 0; j < pixels; j++)
        gpu_read((const X *)p.x + (r + j * a.rows) * p.channels + a.channel, at[j]);
    GPU_UNROLL for (int k = 0; k < n; k++) {
        GPU_UNROLL for (int j = 0; j < pixels; j++) m.mean[k] += at[j][k];
        m.mean[k] /= (float)pixels;
        GPU_UNROLL for (int j = 0; j < pixels; j++) m.squares[k] +=
            (at[j][k] - m.mean[k]) * (at[j][k] - m.mean[k]);
    }
    return m;
}

// Joins the moments that the threads of one column have made, each of its own pixels, into those of
// the thread in row 0. `scratch` has 2 · n · GPU_BLOCK elements and `counts` has GPU_BLOCK.
template <int n>
GPU_DEVICE void join_columns(const panel &a, lot_moments<n> &m, float *scratch, float *counts) {
    for (int half = a.rows / 2; half; half /= 2) {
        int thread = (int)threadIdx.x, from = thread + half * a.columns;
        if (a.at >= half && a.at < 2 * half) {
            counts[thread] = m.count;
            GPU_UNROLL for (int k = 0; k < n; k++) {
                scratch[k * GPU_BLOCK + thread] = m.mean[k];
                scratch[(n + k) * GPU_BLOCK + thread] = m.squares[k];
            }
        }
        gpu_barrier();
        if (a.at < half) {
            lot_moments<n> other = {counts[from], {}, {}};
            GPU_UNROLL for (int k = 0; k < n; k++) {
                other.mean[k] = scratch[k * GPU_BLOCK + from];
                other.squares[k] = scratch[(n + k) * GPU_BLOCK + from];
            }
            join_lots(m, other);
        }
    }
}

// As `moments`, for channels last: reads as many bytes, and writes 16 for each channel of each
// slice.
template <typename X, int n> GPU_KERNEL moments_last(cuda_batch_norm p) {
    GPU_SHARED(float, scratch, 2 * n * GPU_BLOCK);
    GPU_SHARED(float, counts, GPU_BLOCK);
    panel a = panel_of<n>(p);
    int64_t size = cuda_norm_slice(&p), all = p.samples * p.inner, r = a.slice * size + a.at;
    int64_t end = (a.slice + 1) * size < all ? (a.slice + 1) * size : all;
    lot_moments<n> m = {};
    if (a.channel < 0) r = end;
    for (; r + 3 * a.rows < end; r += 4 * a.rows) join_lots(m, moments_of<X, n, 4>(p, a, r));
    for (; r < end; r += a.rows) join_lots(m, moments_of<X, n, 1>(p, a, r));
    join_columns(a, m, scratch, counts);
    write_results(p, a, m.mean, m.squares);
}

// Reads, for `pixels` of the thread's pixels, beginning with pixel r, its n channels, and adds what
// they contribute to the sums of gradient_sums. All loads are issued before the first sum.
template <typename X, typename Y, int n, int pixels>
GPU_DEVICE void add_pixels(const cuda_batch_norm &p, const panel &a, int64_t r,
                           const float (&mean)[n], const float (&inv_std)[n], float (&sum_dy)[n],
                           float (&sum_dy_h)[n]) {
    float x[pixels][n] = {}, y[pixels][n] = {}, dy[pixels][n] = {};
    GPU_UNROLL for (int j = 0; j < pixels; j++) {
        int64_t index = (r + j * a.rows) * p.channels + a.channel;
        gpu_read((const X *)p.x + index, x[j]);
        gpu_read((const Y *)p.dy + index, dy[j]);
        if (p.relu) gpu_read((const Y *)p.y + index, y[j]);
    }
    GPU_UNROLL for (int j = 0; j < pixels; j++) GPU_UNROLL for (int k = 0; k < n; k++) {
        float d = p.relu && y[j][k] <= 0 ? 0 : dy[j][k];
        sum_dy[k] += d;
        sum_dy_h[k] += d * ((x[j][k] - mean[k]) * inv_std[k]);
    }
}

// As gradient_sums, for channels last: reads as many bytes, and writes 16 for each channel of each
// slice.
template <typename X, typename Y, int n> GPU_KERNEL gradient_sums_last(cuda_batch_norm p) {
    GPU_SHARED(float, scratch, n *GPU_BLOCK);
    panel a = panel_of<n>(p);
    int64_t size = cuda_norm_slice(&p), all = p.samples * p.inner, r = a.slice * size + a.at;
    int64_t end = (a.slice + 1) * size < all ? (a.slice + 1) * size : all;
    float sum_dy[n] = {}, sum_dy_h[n] = {}, mean[n], inv_std[n];
    GPU_UNROLL for (int k = 0; k < n; k++) {
        mean[k] = a.channel < 0 ? 0 : p.mean[a.channel + k];
        inv_std[k] = a.channel < 0 ? 0 : p.inv_std[a.channel + k];
    }
    if (a.channel < 0) r = end;
    for (; r + a.rows < end; r += 2 * a.rows)
        add_pixels<X, Y, n, 2>(p, a, r, mean, inv_std, sum_dy, sum_dy_h);
    if (r < end) add_pixels<X, Y, n, 1>(p, a, r, mean, inv_std, sum_dy, sum_dy_h);
    sum_columns(a, sum_dy, scratch);
    sum_columns(a, sum_dy_h, scratch);
    write_results(p, a, sum_dy, sum_dy_h);
}

// As `apply` (computes y) or `gradient` (computes dx), for channels last: reads and writes as many
// bytes. The numbers of a thread's channels stay in registers while it goes over its pixels.
template <typename X, typename Y, int n, bool is_gradient>
GPU_KERNEL apply_last(cuda_batch_norm p) {
    panel a = panel_of<n>(p);
    int64_t tiles = (p.channels / n + a.columns - 1) / a.columns, all = p.samples * p.inner;
    channel own[n];
    if (a.channel < 0) return;
    double values = is_gradient ? values_of(p) : 0;
    GPU_UNROLL for (int k = 0; k < n; k++) own[k] = is_gradient
                                                        ? gradient_channel(p, a.channel + k, values)
                                                        : forward_channel(p, a.channel + k);
    for (int64_t r = a.slice * a.rows + a.at; r < all; r += gridDim.x / tiles * a.rows) {
        int64_t index = r * p.channels + a.channel;
        float x[n], y[n] = {}, dy[n];
        gpu_read((const X *)p.x + index, x);
        if (!is_gradient) {
            GPU_UNROLL for (int k = 0; k < n; k++) y[k] = forward_one(p, own[k], x[k]);
            gpu_write((Y *)p.y + index, y);
            continue;
        }
        gpu_read((const Y *)p.dy + index, dy);
        if (p.relu) gpu_read((const Y *)p.y + index, y);
        GPU_UNROLL for (int k = 0; k < n; k++) x[k] = gradient_one(p, own[k], x[k], y[k], dy[k]);
        gpu_write((X *)p.dx + index, x);
    }
}

// Launches a stage whose kernel does not depend on a type.
tri_status launch_join(cuda_stream *stream, const cuda_batch_norm *p, unsigned stage, char *why) {
    if (!(p->stages & stage)) return TRI_OK;
    if (stage == CUDA_NORM_JOIN_SLICES)
        return gpu_launch(stream, join_slices, p->channels, GPU_BLOCK, *p, why);
    if (stage == CUDA_NORM_JOIN_SUMS)
        return gpu_launch(stream, join_sums, p->channels, GPU_WARP, *p, why);
    return gpu_launch(stream, join_all, gpu_blocks(stream, p->channels, GPU_BLOCK), GPU_BLOCK, *p,
                      why);
}

// A stage's kernel, and by how many thread blocks it is computed. A stage whose kernel is NULL here
// is launched by launch_join.
struct stage_row {
    unsigned stage;
    void (*kernel)(cuda_batch_norm);
    int64_t blocks;
};

template <size_t count>
tri_status launch_rows(cuda_stream *stream, const cuda_batch_norm *p,
                       const stage_row (&rows)[count], char *why) {
    for (const stage_row &row : rows) {
        tri_status status = !row.kernel ? launch_join(stream, p, row.stage, why)
                            : !(p->stages & row.stage)
                                ? TRI_OK
                                : gpu_launch(stream, row.kernel, row.blocks, GPU_BLOCK, *p, why);
        if (status != TRI_OK) return status;
    }
    return TRI_OK;
}

template <typename X, typename Y, int n>
tri_status launch_last(cuda_stream *stream, const cuda_batch_norm *p, char *why) {
    int64_t lots = p->channels / n, columns = panel_columns(lots);
    int64_t tiles = (lots + columns - 1) / columns, slices = tiles * cuda_norm_slices(p);
    // `all`: the thread blocks that compute y or dx. There are so few that each thread computes at
    // least about 4 pixels, because it first has to read the mean, the weight and other numbers of
    // its channels.
    int64_t all = gpu_blocks(stream, p->samples * p->inner, GPU_BLOCK / columns * 4) / tiles;
    all = (all < 1 ? 1 : all) * tiles;
    return launch_rows(stream, p,
                       {{CUDA_NORM_MOMENTS, moments_last<X, n>, slices},
                        {CUDA_NORM_JOIN_SLICES, nullptr, 0},
                        {CUDA_NORM_JOIN_ALL, nullptr, 0},
                        {CUDA_NORM_APPLY, apply_last<X, Y, n, false>, all},
                        {CUDA_NORM_GRAD_SUMS, gradient_sums_last<X, Y, n>, slices},
                        {CUDA_NORM_JOIN_SUMS, nullptr, 0},
                        {CUDA_NORM_GRAD_INPUT, apply_last<X, Y, n, true>, all}},
                       why);
}

template <typename X, typename Y>
tri_status launch(cuda_stream *stream, const cuda_batch_norm *p, char *why) {
    constexpr int n = gpu_lot<X, Y>::count;
    uintptr_t addresses = (uintptr_t)p->x | (uintptr_t)p->y | (uintptr_t)p->dy | (uintptr_t)p->dx;
    int64_t slices = p->channels * cuda_norm_slices(p);
    int64_t all = gpu_blocks(stream, p->samples * p->channels * p->inner / 4, GPU_BLOCK);
    if (p->channels_last)
        return gpu_in_lots(p->channels, n, addresses) ? launch_last<X, Y, n>(stream, p, why)
                                                      : launch_last<X, Y, 1>(stream, p, why);
    return gpu_with_access<4>(p->inner, addresses, [=](auto access) {
        return launch_rows(stream, p,
                           {{CUDA_NORM_MOMENTS, moments<X, decltype(access)>, slices},
                            {CUDA_NORM_JOIN_SLICES, nullptr, 0},
                            {CUDA_NORM_JOIN_ALL, nullptr, 0},
                            {CUDA_NORM_APPLY, apply<X, Y>, all},
                            {CUDA_NORM_GRAD_SUMS, gradient_sums<X, Y, decltype(access)>, slices},
                            {CUDA_NORM_JOIN_SUMS, nullptr, 0},
                            {CUDA_NORM_GRAD_INPUT, gradient<X, Y>, all}},
                           why);
    });
}

} // namespace

// Launches all stages of an op, for the types of x and y. y has the type of x, or a half type where
// x is F32.
extern "C" tri_status cuda_launch_batch_norm(cuda_stream *stream, const cuda_batch_norm *p,
                                             char *why) {
    switch (p->x_type) {
    case TRI_F16:
        return launch<gpu_f16, gpu_f16>(stream, p, why);
    case TRI_BF16:
        return launch<gpu_bf16, gpu_bf16>(stream, p, why);
    case TRI_F32:
        if (p->y_type == TRI_F16) return launch<float, gpu_f16>(stream, p, why);
        if (p->y_type == TRI_BF16) return launch<float, gpu_bf16>(stream, p, why);
        return launch<float, float>(stream, p, why);
    default:
        return TRI_UNSUPPORTED;
    }
}
