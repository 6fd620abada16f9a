// Layer norm and RMS norm, and their gradients. Sums are in F32.
//
// Each tensor is read once from memory and written once, so memory bandwidth decides the time: a
// row of at most LONGEST elements stays in registers between its sums and its results. Longer rows,
// rows whose width is no multiple of a lot, and tensors that are not aligned are read again from
// the caches, by other kernels. These add in the same order, so that the results have the same bits
// at every address. The gradient also reads, if given, a tensor `sum` that is added to dx. An
// element has 4 bytes in F32, and 2 in F16 and BF16.
#include "device/cuda/module/pack.h"

namespace {

enum {
    LONGEST = 8192,     // the largest width of a row that is kept in registers
    WARP_WIDTH = 1024,  // forward, a warp takes a row of at most this width; a block a wider one
    FORWARD_OWN = 32,   // how many elements of a row a thread keeps, forward
    NARROW = 4096,      // for the gradient, a row of at most this width is narrow
    NARROW_OWN = 8,     // how many elements of a narrow row a thread keeps, for the gradient
    WIDE_OWN = 16,      // the same for a row that is not narrow
    GRAD_THREADS = 512, // the most threads that the gradient gives a row
    GRAD_WARPS = GRAD_THREADS / GPU_WARP,
    ROWS = 16, // how many rows row_norm_grad_any takes at a time
};

// Computes the sum over the threads that share a row: a warp, or (`by_block`) the block.
GPU_DEVICE float row_sum(float value, bool by_block, float *scratch) {
    return by_block ? gpu_block_sum(value, scratch) : gpu_warp_sum(value);
}

// Normalises n elements `at` and writes them to columns i to i + n - 1 of the row y.
template <typename access, typename Y, int n>
GPU_DEVICE void write_lot(const cuda_row_norm &p, float mean, float inv, int64_t i,
                          const float (&at)[n], Y *y) {
    float out[n], weight[n], bias[n];
    GPU_UNROLL for (int k = 0; k < n; k++) out[k] = (at[k] - mean) * inv;
    if (p.weight) {
        access::read(p.weight + i, weight);
        GPU_UNROLL for (int k = 0; k < n; k++) out[k] *= weight[k];
    }
    if (p.bias) {
        access::read(p.bias + i, bias);
        GPU_UNROLL for (int k = 0; k < n; k++) out[k] += bias[k];
    }
    access::write(y + i, out);
}

// Writes the numbers of a row that its gradient needs.
template <bool centred>
GPU_DEVICE void write_numbers(const cuda_row_norm &p, int64_t row, float mean, float inv) {
    if (centred) p.mean[row] = mean;
    p.inv[row] = inv;
}

// Computes y and, for the gradient, each row's `mean` (only if `centred`: layer norm) and `inv`,
// which is 1 / sqrt(variance + eps). A thread keeps `lots` lots of its row in registers. From
// memory, reads sizeof(X) bytes and writes sizeof(Y) for each element, and writes 8 (RMS norm: 4)
// for each row; weight and bias come from the cache.
template <bool centred, typename X, typename Y, bool by_block, int lots>
GPU_KERNEL row_norm(cuda_row_norm p) {
    constexpr int n = gpu_lot<X, Y>::count, threads = by_block ? (int)GPU_BLOCK : (int)GPU_WARP;
    GPU_SHARED(float, scratch, GPU_BLOCK / GPU_WARP);
    int first = (int)threadIdx.x % threads * n, width = (int)p.width;
    for (int64_t row = gpu_thread() / threads; row < p.rows; row += gpu_threads() / threads) {
        const X *x = (const X *)p.x + row * p.width;
        float at[lots][n] = {}, mean = 0, squares = 0;
        GPU_UNROLL for (int l = 0, i = first; l < lots; l++, i += threads * n) if (i < width)
            gpu_read(x + i, at[l]);
        GPU_UNROLL for (int l = 0, i = first; centred && l < lots; l++, i += threads * n)
            GPU_UNROLL for (int k = 0; i < width && k < n; k++) mean += at[l][k];
        if (centred) mean = row_sum(mean, by_block, scratch) / (float)p.width;
        GPU_UNROLL for (int l = 0, i = first; l < lots; l++, i += threads * n)
            GPU_UNROLL for (int k = 0; i < width && k < n; k++) squares +=
            (at[l][k] - mean) * (at[l][k] - mean);
        float inv = 1 / sqrtf(row_sum(squares, by_block, scratch) / (float)p.width + p.eps);
        GPU_UNROLL for (int l = 0, i = first; l < lots; l++, i += threads * n) if (i < width)
            write_lot<gpu_access<n, true>>(p, mean, inv, i, at[l], (Y *)p.y + row * p.width);
        if (threadIdx.x % threads == 0) write_numbers<centred>(p, row, mean, inv);
    }
}

// As row_norm, in the same order, for any width and any address. It reads x again from the caches.
template <bool centred, typename X, typename Y, typename access>
GPU_KERNEL row_norm_any(cuda_row_norm p) {
    constexpr int n = access::count;
    GPU_SHARED(float, scratch, GPU_BLOCK / GPU_WARP);
    bool by_block = p.width > WARP_WIDTH;
    int threads = by_block ? (int)GPU_BLOCK : (int)GPU_WARP;
    int64_t first = threadIdx.x % threads * n, step = threads * n;
    for (int64_t row = gpu_thread() / threads; row < p.rows; row += gpu_threads() / threads) {
        const X *x = (const X *)p.x + row * p.width;
        float at[n], mean = 0, squares = 0;
        for (int64_t i = first; centred && i < p.width; i += step) {
            access::read(x + i, at);
            for (int k = 0; k < n; k++) mean += at[k];
        }
        if (centred) mean = row_sum(mean, by_block, scratch) / (float)p.width;
        for (int64_t i = first; i < p.width; i += step) {
            access::read(x + i, at);
            for (int k = 0; k < n; k++) squares += (at[k] - mean) * (at[k] - mean);
        }
        float inv = 1 / sqrtf(row_sum(squares, by_block, scratch) / (float)p.width + p.eps);
        for (int64_t i = first; i < p.width; i += step) {
            access::read(x + i, at);
            write_lot<access>(p, mean, inv, i, at, (Y *)p.y + row * p.width);
        }
        if (threadIdx.x % threads == 0) write_numbers<centred>(p, row, mean, inv);
    }
}

// The numbers of a row from which its gradient follows: mean and inv, and, with h = (x - mean) *
// inv and g = dy * weight, the means of g and of g * h.
struct row_numbers {
    float mean, inv, mean_g, mean_gh;
};

template <bool centred>
GPU_DEVICE row_numbers numbers_before(const cuda_row_norm_grad &p, int64_t row) {
    return {centred ? p.mean[row] : 0, p.inv[row], 0, 0};
}

// Reads n weights; they are 1 if the norm has none.
template <typename access, int n>
GPU_DEVICE void read_weight(const cuda_row_norm_grad &p, int64_t i, float (&weight)[n]) {
    GPU_UNROLL for (int k = 0; k < n; k++) weight[k] = 1;
    if (p.weight) access::read(p.weight + i, weight);
}

// Adds n elements of a row to the sums of g and of g * h.
template <bool centred, int n>
GPU_DEVICE void add_lot(row_numbers &z, const float (&at)[n], const float (&dy)[n],
                        const float (&weight)[n]) {
    GPU_UNROLL for (int k = 0; k < n; k++) {
        float g = dy[k] * weight[k];
        if (centred) z.mean_g += g;
        z.mean_gh += g * ((at[k] - z.mean) * z.inv);
    }
}

// Makes means of the sums that the threads of the block have made; `inv_width` is 1 / width.
// `scratch` has 2 · GRAD_WARPS numbers. There is one barrier in it, so the next call must get other
// memory or come after another barrier.
template <bool centred>
GPU_DEVICE void join_numbers(row_numbers &z, float inv_width, float *scratch) {
    int warps = (int)blockDim.x / GPU_WARP, warp = (int)threadIdx.x / GPU_WARP;
    float g = centred ? gpu_warp_sum(z.mean_g) : 0, gh = gpu_warp_sum(z.mean_gh);
    if (threadIdx.x % GPU_WARP == 0) {
        scratch[warp] = g;
        scratch[GRAD_WARPS + warp] = gh;
    }
    gpu_barrier();
    z.mean_g = z.mean_gh = 0;
    for (int w = 0; w < warps; w++) {
        if (centred) z.mean_g += scratch[w];
        z.mean_gh += scratch[GRAD_WARPS + w];
    }
    z.mean_g *= inv_width;
    z.mean_gh *= inv_width;
}

// Writes n elements of dx from `index` on. Adds to `dweight` and `dbias` what they contribute to
// the gradients of weight and bias.
template <bool centred, typename X, typename access, int n>
GPU_DEVICE void write_lot(const cuda_row_norm_grad &p, const row_numbers &z, int64_t index,
                          const float (&at)[n], const float (&dy)[n], const float (&weight)[n],
                          float (&dweight)[n], float (&dbias)[n]) {
    float sum[n] = {};
    if (p.sum) access::read((const X *)p.sum + index, sum);
    GPU_UNROLL for (int k = 0; k < n; k++) {
        float h = (at[k] - z.mean) * z.inv, g = dy[k] * weight[k];
        dweight[k] += dy[k] * h;
        if (centred) dbias[k] += dy[k];
        sum[k] += z.inv * (g - z.mean_g - h * z.mean_gh);
    }
    access::write((X *)p.dx + index, sum);
}

// Computes the gradient with p.blocks thread blocks. Block b takes row b and every p.blocks-th row
// after it. A thread keeps `own` elements of x and dy of one row, and of the sums of all its rows
// for the gradients of weight and bias. From memory, reads sizeof(X) + sizeof(Y) bytes for each
// element (with `sum`, another sizeof(X)) and writes sizeof(X); for each block, writes 8 (RMS norm:
// 4) for each column.
template <bool centred, typename X, typename Y, int own>
GPU_KERNEL_FOR(GRAD_THREADS, own == NARROW_OWN ? 2 : 1)
row_norm_grad(cuda_row_norm_grad p) {
    constexpr int n = gpu_lot<X, Y>::count, lots = own / n;
    typedef gpu_access<n, true> access;
    GPU_SHARED(float, scratch, 4 * GRAD_WARPS);
    int first = (int)threadIdx.x * n, step = (int)blockDim.x * n, width = (int)p.width, half = 0;
    float weight[lots][n] = {}, dweight[lots][n] = {}, dbias[lots][n] = {};
    float inv_width = 1 / (float)p.width;
    GPU_UNROLL for (int l = 0, i = first; l < lots; l++, i += step) if (i < width)
        read_weight<access>(p, i, weight[l]);
    for (int64_t row = blockIdx.x; row < p.rows; row += p.blocks) {
        float at[lots][n] = {}, dy[lots][n] = {};
        row_numbers z = numbers_before<centred>(p, row);
        GPU_UNROLL for (int l = 0, i = first; l < lots; l++, i += step) {
            if (i >= width) continue;
            access::read((const X *)p.x + row * p.width + i, at[l]);
            access::read((const Y *)p.dy + row * p.width + i, dy[l]);
        }
        GPU_UNROLL for (int l = 0, i = first; l < lots; l++, i += step) if (i < width)
            add_lot<centred>(z, at[l], dy[l], weight[l]);
        join_numbers<centred>(z, inv_width, scratch + half * 2 * GRAD_WARPS);
        half = 1 - half;
        GPU_UNROLL for (int l = 0, i = first; l < lots; l++, i += step) if (i < width)
            write_lot<centred, X, access>(p, z, row * p.width + i, at[l], dy[l], weight[l],
                                          dweight[l], dbias[l]);
    }
    GPU_UNROLL for (int l = 0, i = first; l < lots; l++, i += step) {
        if (i >= width) continue;
        if (p.dweight) access::write(p.dweight + blockIdx.x * p.width + i, dweight[l]);
        if (centred && p.dbias) access::write(p.dbias + blockIdx.x * p.width + i, dbias[l]);
    }
}

// Computes, for row_norm_grad_any, the numbers of a row, by the whole block.
template <bool centred, typename X, typename Y, typename access>
GPU_DEVICE row_numbers numbers_of(const cuda_row_norm_grad &p, int64_t row, float *scratch) {
    constexpr int n = access::count;
    row_numbers z = numbers_before<centred>(p, row);
    for (int64_t i = (int64_t)threadIdx.x * n; i < p.width; i += blockDim.x * n) {
        float at[n], dy[n], weight[n];
        access::read((const X *)p.x + row * p.width + i, at);
        access::read((const Y *)p.dy + row * p.width + i, dy);
        read_weight<access>(p, i, weight);
        add_lot<centred>(z, at, dy, weight);
    }
    join_numbers<centred>(z, 1 / (float)p.width, scratch);
    return z;
}

// As row_norm_grad, in the same order, for any width and any address. A block takes ROWS of its
// rows at a time, so that it reads the weights, and reads and writes its sums over rows, once for
// all of them. It reads x and dy again from the caches.
template <bool centred, typename X, typename Y, typename access>
GPU_KERNEL row_norm_grad_any(cuda_row_norm_grad p) {
    constexpr int n = access::count;
    GPU_SHARED(row_numbers, numbers, ROWS);
    GPU_SHARED(float, scratch, 2 * GRAD_WARPS);
    for (int64_t row = blockIdx.x; row < p.rows; row += ROWS * p.blocks) {
        int64_t left = (p.rows - row + p.blocks - 1) / p.blocks,
                rows = left < ROWS ? left : (int64_t)ROWS;
        for (int64_t r = 0; r < rows; r++) {
            row_numbers z = numbers_of<centred, X, Y, access>(p, row + r * p.blocks, scratch);
            gpu_barrier(); // all threads have read `scratch`
            if (threadIdx.x == 0) numbers[r] = z;
        }
        gpu_barrier();
        for (int64_t i = (int64_t)threadIdx.x * n; i < p.width; i += blockDim.x * n) {
            int64_t sums = blockIdx.x * p.width + i;
            float weight[n], dweight[n] = {}, dbias[n] = {}, at[n], dy[n];
            read_weight<access>(p, i, weight);
            if (p.dweight && row >= p.blocks) access::read(p.dweight + sums, dweight);
            if (centred && p.dbias && row >= p.blocks) access::read(p.dbias + sums, dbias);
            for (int64_t r = 0; r < rows; r++) {
                int64_t index = (row + r * p.blocks) * p.width + i;
                access::read((const X *)p.x + index, at);
                access::read((const Y *)p.dy + index, dy);
                write_lot<centred, X, access>(p, numbers[r], index, at, dy, weight, dweight, dbias);
            }
            if (p.dweight) access::write(p.dweight + sums, dweight);
            if (centred && p.dbias) access::write(p.dbias + sums, dbias);
        }
        gpu_barrier();
    }
}

template <bool centred, typename X, typename Y, typename access>
tri_status launch(cuda_stream *stream, const cuda_row_norm *p, char *why) {
    constexpr int n = gpu_lot<X, Y>::count, lots = FORWARD_OWN / n;
    bool by_block = p->width > WARP_WIDTH;
    int64_t blocks = gpu_blocks(stream, p->rows, by_block ? 1 : GPU_BLOCK / GPU_WARP);
    void (*kernel)(cuda_row_norm) = row_norm_any<centred, X, Y, access>;
    if constexpr (access::is_whole && access::count == n) {
        if (!by_block)
            kernel = row_norm<centred, X, Y, false, lots>;
        else if (p->width <= GPU_BLOCK * n)
            kernel = row_norm<centred, X, Y, true, 1>;
        else if (p->width <= LONGEST)
            kernel = row_norm<centred, X, Y, true, lots>;
    }
    return gpu_launch(stream, kernel, blocks, GPU_BLOCK, *p, why);
}

template <bool centred, typename X, typename Y, typename access>
tri_status launch(cuda_stream *stream, const cuda_row_norm_grad *p, char *why) {
    constexpr int n = gpu_lot<X, Y>::count;
    int64_t own = p->width <= NARROW ? NARROW_OWN : WIDE_OWN, per_warp = own * GPU_WARP;
    int64_t threads = (p->width + per_warp - 1) / per_warp * GPU_WARP;
    if (threads > GRAD_THREADS) threads = GRAD_THREADS;
    void (*kernel)(cuda_row_norm_grad) = row_norm_grad_any<centred, X, Y, access>;
    if constexpr (access::is_whole && access::count == n) {
        if (p->width <= NARROW)
            kernel = row_norm_grad<centred, X, Y, NARROW_OWN>;
        else if (p->width <= LONGEST)
            kernel = row_norm_grad<centred, X, Y, WIDE_OWN>;
    }
    return gpu_launch(stream, kernel, p->blocks, (int)threads, *p, why);
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
