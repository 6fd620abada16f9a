// Layer norm and RMS norm, and their gradients. Sums are in F32.
//
// Forward, a warp takes a row: it reads x once from memory (then again from its cache) and writes
// y, so memory bandwidth decides its time. The gradient reads x, dy and, if given, a tensor `sum`
// that is added to dx, and writes dx; it reads x and dy a second time, from the caches. An element
// has 4 bytes in F32, and 2 in F16 and BF16. For the gradient, a thread block takes 16 rows at a
// time, so that it reads the weights, and writes its sums over rows (the gradients of weight and
// bias), once for 16 rows.
#include "device/cuda/module/pack.h"

namespace {

enum { ROWS = CUDA_NORM_ROWS };

// Computes y and, for the gradient, each row's `mean` (only if `centred`: layer norm) and `inv`,
// which is 1 / sqrt(variance + eps). From memory, reads sizeof(X) bytes and writes sizeof(Y) for
// each element, and writes 8 (RMS norm: 4) for each row; weight and bias come from the cache.
template <bool centred, typename X, typename Y, typename access>
GPU_KERNEL row_norm(cuda_row_norm p) {
    constexpr int n = access::count;
    int64_t first = threadIdx.x % GPU_WARP * n, step = GPU_WARP * n;
    int64_t warps = gpu_threads() / GPU_WARP;
    float width = (float)p.width;
    for (int64_t row = gpu_thread() / GPU_WARP; row < p.rows; row += warps) {
        const X *x = (const X *)p.x + row * p.width;
        Y *y = (Y *)p.y + row * p.width;
        float at[n], weight[n], bias[n], mean = 0, squares = 0;
        for (int64_t i = first; centred && i < p.width; i += step) {
            access::read(x + i, at);
            for (int k = 0; k < n; k++) mean += at[k];
        }
        if (centred) mean = gpu_warp_sum(mean) / width;
        for (int64_t i = first; i < p.width; i += step) {
            access::read(x + i, at);
            for (int k = 0; k < n; k++) squares += (at[k] - mean) * (at[k] - mean);
        }
        float inv = 1 / sqrtf(gpu_warp_sum(squares) / width + p.eps);
        for (int64_t i = first; i < p.width; i += step) {
            access::read(x + i, at);
            for (int k = 0; k < n; k++) at[k] = (at[k] - mean) * inv;
            if (p.weight) {
                access::read(p.weight + i, weight);
                for (int k = 0; k < n; k++) at[k] *= weight[k];
            }
            if (p.bias) {
                access::read(p.bias + i, bias);
                for (int k = 0; k < n; k++) at[k] += bias[k];
            }
            access::write(y + i, at);
        }
        if (threadIdx.x % GPU_WARP == 0) {
            if (centred) p.mean[row] = mean;
            p.inv[row] = inv;
        }
    }
}

// The numbers of a row from which its gradient follows: mean and inv, and, with h = (x - mean) *
// inv and g = dy * weight, the means of g and of g * h.
struct row_numbers {
    float mean, inv, mean_g, mean_gh;
};

// Computes the row_numbers of a row, by one warp.
template <bool centred, typename X, typename Y, typename access>
GPU_DEVICE row_numbers numbers_of(const cuda_row_norm_grad &p, int64_t row) {
    constexpr int n = access::count;
    const X *x = (const X *)p.x + row * p.width;
    const Y *dy = (const Y *)p.dy + row * p.width;
    row_numbers r = {centred ? p.mean[row] : 0, p.inv[row], 0, 0};
    for (int64_t i = threadIdx.x % GPU_WARP * n; i < p.width; i += GPU_WARP * n) {
        float at[n], g[n], weight[n];
        access::read(x + i, at);
        access::read(dy + i, g);
        if (p.weight) {
            access::read(p.weight + i, weight);
            for (int k = 0; k < n; k++) g[k] *= weight[k];
        }
        for (int k = 0; k < n; k++) {
            if (centred) r.mean_g += g[k];
            r.mean_gh += g[k] * ((at[k] - r.mean) * r.inv);
        }
    }
    if (centred) r.mean_g = gpu_warp_sum(r.mean_g) / (float)p.width;
    r.mean_gh = gpu_warp_sum(r.mean_gh) / (float)p.width;
    return r;
}

// Writes columns i to i + n - 1 of dx for `rows` rows from `row` on. Adds to `dweight` and `dbias`
// what these rows contribute to the gradients of weight and bias.
template <bool centred, typename X, typename Y, typename access, int n>
GPU_DEVICE void columns_of(const cuda_row_norm_grad &p, const row_numbers *numbers, int64_t row,
                           int64_t rows, int64_t i, float (&dweight)[n], float (&dbias)[n]) {
    float weight[n] = {};
    if (p.weight) access::read(p.weight + i, weight);
    for (int64_t r = 0; r < rows; r++) {
        int64_t index = (row + r) * p.width + i;
        row_numbers z = numbers[r];
        float at[n], dy[n], sum[n] = {};
        access::read((const X *)p.x + index, at);
        access::read((const Y *)p.dy + index, dy);
        if (p.sum) access::read((const X *)p.sum + index, sum);
        for (int k = 0; k < n; k++) {
            float h = (at[k] - z.mean) * z.inv, g = p.weight ? dy[k] * weight[k] : dy[k];
            dweight[k] += dy[k] * h;
            if (centred) dbias[k] += dy[k];
            at[k] = sum[k] + z.inv * (g - z.mean_g - h * z.mean_gh);
        }
        access::write((X *)p.dx + index, at);
    }
}

// Adds n numbers to `sums`; if `is_first`, overwrites `sums`, which has no values yet.
template <typename access, int n>
GPU_DEVICE void add_to(float *sums, const float (&numbers)[n], bool is_first) {
    float total[n];
    if (!is_first) access::read(sums, total);
    for (int k = 0; k < n; k++) total[k] = is_first ? numbers[k] : total[k] + numbers[k];
    access::write(sums, total);
}

// Computes the gradient with p.blocks thread blocks. Block b takes rows 16b to 16b + 15, then the
// 16 rows that come 16 * p.blocks rows later, and so on. From memory, reads sizeof(X) + sizeof(Y)
// bytes for each element (with `sum`, another sizeof(X)) and writes sizeof(X).
template <bool centred, typename X, typename Y, typename access>
GPU_KERNEL row_norm_grad(cuda_row_norm_grad p) {
    constexpr int n = access::count;
    GPU_SHARED(row_numbers, numbers, ROWS);
    int64_t block = blockIdx.x;
    for (int64_t row = block * ROWS; row < p.rows; row += p.blocks * ROWS) {
        int64_t rows = p.rows - row < ROWS ? p.rows - row : (int64_t)ROWS;
        for (int64_t r = threadIdx.x / GPU_WARP; r < rows; r += GPU_BLOCK / GPU_WARP) {
            row_numbers z = numbers_of<centred, X, Y, access>(p, row + r);
            if (threadIdx.x % GPU_WARP == 0) numbers[r] = z;
        }
        gpu_barrier();
        for (int64_t i = (int64_t)threadIdx.x * n; i < p.width; i += GPU_BLOCK * n) {
            float dweight[n] = {}, dbias[n] = {};
            columns_of<centred, X, Y, access>(p, numbers, row, rows, i, dweight, dbias);
            int64_t index = block * p.width + i;
            if (p.dweight) add_to<access>(p.dweight + index, dweight, row == block * ROWS);
            if (centred && p.dbias) add_to<access>(p.dbias + index, dbias, row == block * ROWS);
        }
        gpu_barrier();
    }
}

template <bool centred, typename X, typename Y, typename access>
tri_status launch(cuda_stream *stream, const cuda_row_norm *p, char *why) {
    int64_t blocks = gpu_blocks(stream, p->rows, GPU_BLOCK / GPU_WARP);
    return gpu_launch(stream, row_norm<centred, X, Y, access>, blocks, GPU_BLOCK, *p, why);
}

template <bool centred, typename X, typename Y, typename access>
tri_status launch(cuda_stream *stream, const cuda_row_norm_grad *p, char *why) {
    return gpu_launch(stream, row_norm_grad<centred, X, Y, access>, p->blocks, GPU_BLOCK, *p, why);
}

uintptr_t addresses(const cuda_row_norm *p) {
    return (uintptr_t)p->x | (uintptr_t)p->y | (uintptr_t)p->weight | (uintptr_t)p->bias;
}

uintptr_t addresses(const cuda_row_norm_grad *p) {
    return (uintptr_t)p->x | (uintptr_t)p->dy | (uintptr_t)p->sum | (uintptr_t)p->dx |
           (uintptr_t)p->weight | (uintptr_t)p->dweight | (uintptr_t)p->dbias;
}

template <typename X, typename Y, typename P>
tri_status launch_types(cuda_stream *stream, const P *p, char *why) {
    return gpu_with_access<gpu_lot<X, Y>::count>(p->width, addresses(p), [=](auto access) {
        return p->centred ? launch<true, X, Y, decltype(access)>(stream, p, why)
                          : launch<false, X, Y, decltype(access)>(stream, p, why);
    });
}

template <typename P> tri_status launch_any(cuda_stream *stream, const P *p, char *why) {
    if (p->rows == 0) return TRI_OK;
    if (p->x_type == TRI_F16) return launch_types<gpu_f16, gpu_f16>(stream, p, why);
    if (p->x_type == TRI_BF16) return launch_types<gpu_bf16, gpu_bf16>(stream, p, why);
    switch (p->y_type) {
    case TRI_F16:
        return launch_types<float, gpu_f16>(stream, p, why);
    case TRI_BF16:
        return launch_types<float, gpu_bf16>(stream, p, why);
    default:
        return launch_types<float, float>(stream, p, why);
    }
}

} // namespace

extern "C" tri_status cuda_launch_row_norm(cuda_stream *stream, const cuda_row_norm *p, char *why) {
    return launch_any(stream, p, why);
}

extern "C" tri_status cuda_launch_row_norm_grad(cuda_stream *stream, const cuda_row_norm_grad *p,
                                                char *why) {
    return launch_any(stream, p, why);
}
