// Group norm and its gradient. A thread block takes a group of channels of a sample, whose elements
// lie one after the other. Sums are in F32. x (and, for the gradient, dy) is read again from the
// caches for the results; from memory, the forward pass reads sizeof(X) bytes and writes sizeof(Y)
// for each element, and the gradient reads sizeof(X) + sizeof(Y) and writes sizeof(X).
#include "device/cuda/module/gpu.h"

namespace {

template <typename X, typename Y> GPU_KERNEL group_norm(cuda_group_norm p) {
    GPU_SHARED(float, scratch, GPU_BLOCK / GPU_WARP);
    int64_t width = p.group * p.inner, groups = p.channels / p.group;
    for (int64_t r = blockIdx.x; r < p.samples * groups; r += gridDim.x) {
        const X *x = (const X *)p.x + r * width;
        Y *y = (Y *)p.y + r * width;
        float mean = 0, squares = 0;
        for (int64_t i = threadIdx.x; i < width; i += GPU_BLOCK) mean += gpu_get(x[i]);
        mean = gpu_block_sum(mean, scratch) / (float)width;
        for (int64_t i = threadIdx.x; i < width; i += GPU_BLOCK)
            squares += (gpu_get(x[i]) - mean) * (gpu_get(x[i]) - mean);
        float inv = 1 / sqrtf(gpu_block_sum(squares, scratch) / (float)width + p.eps);
        int64_t channel = r % groups * p.group;
        for (int64_t i = threadIdx.x; i < width; i += GPU_BLOCK) {
            float h = (gpu_get(x[i]) - mean) * inv;
            int64_t c = channel + i / p.inner;
            gpu_put(&y[i], p.weight ? h * p.weight[c] + p.bias[c] : h);
        }
        if (threadIdx.x != 0) continue;
        p.mean[r] = mean;
        p.inv[r] = inv;
    }
}

// The sums of a group's elements of dy · weight, and of these times the normalised x.
struct group_sums {
    float g, gh;
};

// Sums each channel of the group, by all threads of the block or, if there are channels for all
// warps, by one warp each; writes the sums to dweight and dbias and returns those of the group,
// of which each thread has a part.
template <typename X, typename Y>
GPU_DEVICE group_sums channel_sums(const cuda_group_norm_grad &p, int64_t r, float *scratch) {
    constexpr int warps = GPU_BLOCK / GPU_WARP;
    bool by_block = p.group < warps;
    int threads = by_block ? (int)GPU_BLOCK : (int)GPU_WARP;
    int64_t groups = p.channels / p.group, channel = r % groups * p.group;
    float mean = p.mean[r], inv = p.inv[r];
    group_sums all = {};
    for (int64_t c = by_block ? 0 : threadIdx.x / GPU_WARP; c < p.group;
         c += by_block ? 1 : warps) {
        int64_t first = (r * p.group + c) * p.inner;
        float dy_sum = 0, dy_h = 0;
        for (int64_t i = first + threadIdx.x % threads; i < first + p.inner; i += threads) {
            float dy = gpu_get(((const Y *)p.dy)[i]);
            dy_sum += dy;
            dy_h += dy * ((gpu_get(((const X *)p.x)[i]) - mean) * inv);
        }
        dy_sum = by_block ? gpu_block_sum(dy_sum, scratch) : gpu_warp_sum(dy_sum);
        dy_h = by_block ? gpu_block_sum(dy_h, scratch) : gpu_warp_sum(dy_h);
        if (threadIdx.x % threads != 0) continue;
        float weight = p.weight ? p.weight[channel + c] : 1;
        all.g += dy_sum * weight;
        all.gh += dy_h * weight;
        p.dweight[r / groups * p.channels + channel + c] = dy_h;
        p.dbias[r / groups * p.channels + channel + c] = dy_sum;
    }
    return all;
}

template <typename X, typename Y> GPU_KERNEL group_norm_grad(cuda_group_norm_grad p) {
    GPU_SHARED(float, scratch, GPU_BLOCK / GPU_WARP);
    int64_t width = p.group * p.inner, groups = p.channels / p.group;
    for (int64_t r = blockIdx.x; r < p.samples * groups; r += gridDim.x) {
        const X *x = (const X *)p.x + r * width;
        const Y *dy = (const Y *)p.dy + r * width;
        group_sums sums = channel_sums<X, Y>(p, r, scratch);
        float mean_g = gpu_block_sum(sums.g, scratch) / (float)width;
        float mean_gh = gpu_block_sum(sums.gh, scratch) / (float)width;
        float mean = p.mean[r], inv = p.inv[r];
        int64_t channel = r % groups * p.group;
        for (int64_t i = threadIdx.x; i < width; i += GPU_BLOCK) {
            float h = (gpu_get(x[i]) - mean) * inv, g = gpu_get(dy[i]);
            if (p.weight) g *= p.weight[channel + i / p.inner];
            gpu_put(&((X *)p.dx)[r * width + i], inv * (g - mean_g - h * mean_gh));
        }
    }
}

template <typename X, typename Y>
tri_status launch(cuda_stream *stream, const cuda_group_norm *p, char *why) {
    int64_t blocks = gpu_blocks(stream, p->samples * (p->channels / p->group), 1);
    return gpu_launch(stream, group_norm<X, Y>, blocks, GPU_BLOCK, *p, why);
}

template <typename X, typename Y>
tri_status launch(cuda_stream *stream, const cuda_group_norm_grad *p, char *why) {
    int64_t blocks = gpu_blocks(stream, p->samples * (p->channels / p->group), 1);
    return gpu_launch(stream, group_norm_grad<X, Y>, blocks, GPU_BLOCK, *p, why);
}

template <typename P> tri_status launch_any(cuda_stream *stream, const P *p, char *why) {
    if (p->samples == 0) return TRI_OK;
    if (p->x_type == TRI_F16) return launch<gpu_f16, gpu_f16>(stream, p, why);
    if (p->x_type == TRI_BF16) return launch<gpu_bf16, gpu_bf16>(stream, p, why);
    switch (p->y_type) {
    case TRI_F16:
        return launch<float, gpu_f16>(stream, p, why);
    case TRI_BF16:
        return launch<float, gpu_bf16>(stream, p, why);
    default:
        return launch<float, float>(stream, p, why);
    }
}

} // namespace

extern "C" tri_status cuda_launch_group_norm(cuda_stream *stream, const cuda_group_norm *p,
                                             char *why) {
    return launch_any(stream, p, why);
}

extern "C" tri_status cuda_launch_group_norm_grad(cuda_stream *stream,
                                                  const cuda_group_norm_grad *p, char *why) {
    return launch_any(stream, p, why);
}
