// Batch norm in stages. Each channel is cut into slices of a fixed size. A thread block sums one
// slice, and then the sums of the slices are joined in their order, so that the results have the
// same bits in every run. Training reads x three times (the second time from the caches) and writes
// y once; the gradient reads x, dy and, with a fused ReLU, y twice, and writes dx.
#include "device/cuda/module/pack.h"
#include "device/cuda/module/walk.h"
#include "device/moments.h"

namespace {

// The slice of a channel that a block sums: where its elements begin, and how many there are.
struct slice {
    int64_t channel, first, count;
};

GPU_DEVICE slice slice_of(const cuda_batch_norm &p) {
    int64_t slices = cuda_norm_slices(&p), all = p.samples * p.inner;
    slice s = {blockIdx.x / slices, blockIdx.x % slices * CUDA_NORM_SLICE, CUDA_NORM_SLICE};
    if (s.first + s.count > all) s.count = all - s.first;
    return s;
}

GPU_DEVICE int64_t place_of(const cuda_batch_norm &p, const slice &s, const gpu_walk &at) {
    return (at.outer * p.channels + s.channel) * p.inner + at.inner;
}

// Computes the mean of a slice, and the sum of squared deviations from it.
template <typename X> GPU_KERNEL moments(cuda_batch_norm p) {
    GPU_SHARED(float, scratch, GPU_BLOCK / GPU_WARP);
    slice s = slice_of(p);
    gpu_walk start = gpu_walk_from(s.first + threadIdx.x, p.inner), at = start;
    const X *x = (const X *)p.x;
    float sum = 0, squares = 0;
    for (int64_t i = threadIdx.x; i < s.count; i += GPU_BLOCK, gpu_walk_on(&at, p.inner))
        sum += gpu_get(x[place_of(p, s, at)]);
    float mean = gpu_block_sum(sum, scratch) / (float)s.count;
    at = start;
    for (int64_t i = threadIdx.x; i < s.count; i += GPU_BLOCK, gpu_walk_on(&at, p.inner)) {
        float d = gpu_get(x[place_of(p, s, at)]) - mean;
        squares += d * d;
    }
    squares = gpu_block_sum(squares, scratch);
    if (threadIdx.x == 0) {
        p.parts[2 * (int64_t)blockIdx.x] = mean;
        p.parts[2 * (int64_t)blockIdx.x + 1] = squares;
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

// Joins the moments of a channel's slices, one warp for each channel. Each lane joins neighbouring
// slices and lane 0 joins the lanes' results, so that the order is fixed.
GPU_KERNEL join_parts(cuda_batch_norm p) {
    GPU_SHARED(tri_moments, lanes, GPU_WARP);
    int64_t slices = cuda_norm_slices(&p), c = blockIdx.x, all = p.samples * p.inner;
    int64_t each = (slices + GPU_WARP - 1) / GPU_WARP, first = threadIdx.x * each;
    const int64_t slice_size = CUDA_NORM_SLICE;
    tri_moments m = {0, 0, 0};
    for (int64_t i = first; i < first + each && i < slices; i++) {
        int64_t left = all - i * CUDA_NORM_SLICE;
        const double *part = &p.parts[2 * (c * slices + i)];
        tri_moments next = {(double)(left < slice_size ? left : slice_size), part[0], part[1]};
        m = tri_moments_join(m, next);
    }
    lanes[threadIdx.x] = m;
    gpu_barrier();
    if (threadIdx.x != 0) return;
    for (int i = 1; i < GPU_WARP; i++)
        if (lanes[i].count > 0) m = tri_moments_join(m, lanes[i]);
    write_moments(p, c, m);
}

// Joins the moments that the replicas sent.
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
    float sum, sum_h; // means over all values of the channel, with which dx is computed
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
    k.sum = (float)(p.sum[c] / values);
    k.sum_h = (float)(p.sum_h[c] / values);
    return k;
}

GPU_DEVICE float forward_one(const cuda_batch_norm &p, const channel &k, float x) {
    float y = (x - k.mean) * k.inv_std * k.weight + k.bias;
    return p.relu && y <= 0 ? 0 : y;
}

GPU_DEVICE float gradient_one(const cuda_batch_norm &p, const channel &k, float x, float y,
                              float dy) {
    float d = p.relu && !(y > 0) ? 0 : dy, h = (x - k.mean) * k.inv_std;
    return k.weight * k.inv_std * (d - (k.sum + h * k.sum_h));
}

// The channel of element `at`. `small`: 32 bits are enough to count the elements, and dividing them
// is faster.
GPU_DEVICE int64_t channel_at(const cuda_batch_norm &p, int64_t at, bool small) {
    return small ? (uint32_t)at / (uint32_t)p.inner % (uint32_t)p.channels
                 : at / p.inner % p.channels;
}

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
// 0, dy counts as 0.
template <typename X, typename Y> GPU_KERNEL gradient_sums(cuda_batch_norm p) {
    GPU_SHARED(float, scratch, GPU_BLOCK / GPU_WARP);
    slice s = slice_of(p);
    gpu_walk at = gpu_walk_from(s.first + threadIdx.x, p.inner);
    float mean = p.mean[s.channel], inv_std = p.inv_std[s.channel], sum = 0, sum_h = 0;
    for (int64_t i = threadIdx.x; i < s.count; i += GPU_BLOCK, gpu_walk_on(&at, p.inner)) {
        int64_t place = place_of(p, s, at);
        bool cut = p.relu && !(gpu_get(((const Y *)p.y)[place]) > 0);
        float d = cut ? 0 : gpu_get(((const Y *)p.dy)[place]);
        sum += d;
        sum_h += d * ((gpu_get(((const X *)p.x)[place]) - mean) * inv_std);
    }
    sum = gpu_block_sum(sum, scratch);
    sum_h = gpu_block_sum(sum_h, scratch);
    if (threadIdx.x == 0) {
        p.parts[2 * (int64_t)blockIdx.x] = sum;
        p.parts[2 * (int64_t)blockIdx.x + 1] = sum_h;
    }
}

// Adds up the sums of a channel's slices, one warp for each channel.
GPU_KERNEL join_sums(cuda_batch_norm p) {
    GPU_SHARED(double, scratch, 1);
    int64_t slices = cuda_norm_slices(&p), c = blockIdx.x;
    double sum = 0, sum_h = 0;
    for (int64_t i = threadIdx.x; i < slices; i += GPU_WARP) {
        sum += p.parts[2 * (c * slices + i)];
        sum_h += p.parts[2 * (c * slices + i) + 1];
    }
    sum = gpu_block_sum(sum, scratch);
    sum_h = gpu_block_sum(sum_h, scratch);
    if (threadIdx.x != 0) return;
    p.dbias[c] = (float)sum;
    p.dweight[c] = (float)sum_h;
    if (!p.sums) return;
    p.sums[c] = (float)sum_h;
    p.sums[p.channels + c] = (float)sum;
}

template <typename X, typename Y> GPU_KERNEL gradient(cuda_batch_norm p) {
    const X *x = (const X *)p.x;
    const Y *y = (const Y *)p.y, *dy = (const Y *)p.dy;
    int64_t count = p.samples * p.channels * p.inner;
    double values = (double)(p.samples * p.inner);
    bool small = count <= UINT32_MAX;
    if (p.all_moments) {
        values = 0;
        for (int64_t r = 0; r < p.replicas; r++)
            values += (double)p.all_moments[(r + 1) * (2 * p.channels + 1) - 1] * (double)p.inner;
    }
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

// Launches a stage whose kernel does not depend on a type.
tri_status launch_join(cuda_stream *stream, const cuda_batch_norm *p, unsigned stage, char *why) {
    if (!(p->stages & stage)) return TRI_OK;
    if (stage == CUDA_NORM_JOIN_PARTS)
        return gpu_launch(stream, join_parts, p->channels, GPU_WARP, *p, why);
    if (stage == CUDA_NORM_JOIN_SUMS)
        return gpu_launch(stream, join_sums, p->channels, GPU_WARP, *p, why);
    return gpu_launch(stream, join_all, gpu_blocks(stream, p->channels, GPU_BLOCK), GPU_BLOCK, *p,
                      why);
}

template <typename X, typename Y>
tri_status launch(cuda_stream *stream, const cuda_batch_norm *p, char *why) {
    static const struct {
        unsigned stage;
        void (*kernel)(cuda_batch_norm);
        bool by_slice;
    } rows[] = {{CUDA_NORM_MOMENTS, moments<X>, true},
                {CUDA_NORM_JOIN_PARTS, nullptr, false},
                {CUDA_NORM_JOIN_ALL, nullptr, false},
                {CUDA_NORM_APPLY, apply<X, Y>, false},
                {CUDA_NORM_GRAD_SUMS, gradient_sums<X, Y>, true},
                {CUDA_NORM_JOIN_SUMS, nullptr, false},
                {CUDA_NORM_GRAD_INPUT, gradient<X, Y>, false}};
    int64_t slices = p->channels * cuda_norm_slices(p);
    int64_t all = gpu_blocks(stream, p->samples * p->channels * p->inner / 4, GPU_BLOCK);
    for (const auto &row : rows) {
        tri_status status =
            !row.kernel ? launch_join(stream, p, row.stage, why)
            : !(p->stages & row.stage)
                ? TRI_OK
                : gpu_launch(stream, row.kernel, row.by_slice ? slices : all, GPU_BLOCK, *p, why);
        if (status != TRI_OK) return status;
    }
    return TRI_OK;
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
