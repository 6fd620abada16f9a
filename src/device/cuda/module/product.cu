// Matrix products by our own kernel, used where cuBLASLt is not installed or cannot compute the
// product. c [m, n] = a [m, k] · b [k, n]. A thread block computes 64 x 64 elements of c and a
// thread 4 x 4 of them; tiles of 64 x 16 of a and b pass through shared memory. Each sum is added
// in the order of k, so that it does not depend on m or n.
#include "device/cuda/module/pack.h"
#include "device/cuda/module/vendor.h"

namespace {

enum { TILE = 64, DEPTH = 16, OWN = 4, THREADS = (TILE / OWN) * (TILE / OWN) };
// How many elements apart the lines of a tile are in shared memory. Threads write neighbours in a
// row of `a`, or in a column of a transposed b, to neighbouring lines. Lines of TILE elements would
// all begin in the same bank. LINE is a multiple of 4, so that a thread reads its 4 elements by one
// instruction.
enum { LINE = TILE + 4 };

// Returns element (row, column) of the matrix x [rows, columns], which lies in memory row by row
// or, if `transposed`, column by column, in lines that are `line` elements apart; 0 outside of the
// matrix.
template <typename T>
GPU_DEVICE typename gpu_wide<T>::type element(const T *x, bool transposed, int64_t line,
                                              int64_t rows, int64_t columns, int64_t row,
                                              int64_t column) {
    if (row >= rows || column >= columns) return 0;
    return gpu_get(x[transposed ? column * line + row : row * line + column]);
}

// Computes the product. Writes sizeof(O) bytes for each element of c. Reads k / 32 elements of a
// and b (4 bytes in F32, 8 in F64, 2 in F16 and BF16) for each element of c, because a block reads
// 64 rows of a and 64 columns of b (128 · k elements) once for its 64 · 64 elements of c.
template <typename T, typename O> GPU_KERNEL product(cuda_product p) {
    typedef typename gpu_wide<T>::type W;
    GPU_SHARED(W, a_tile, DEPTH * LINE);
    GPU_SHARED(W, b_tile, DEPTH * LINE);
    int64_t columns = (p.n + TILE - 1) / TILE, blocks = (p.m + TILE - 1) / TILE * columns;
    int64_t item = blockIdx.x / blocks, block = blockIdx.x % blocks;
    int64_t row = block / columns * TILE, column = block % columns * TILE;
    const T *a = (const T *)p.a + item * p.a_step, *b = (const T *)p.b + item * p.b_step;
    int own_row = (int)threadIdx.x / (TILE / OWN) * OWN;
    int own_column = (int)threadIdx.x % (TILE / OWN) * OWN;
    W sums[OWN][OWN] = {};
    for (int64_t k = 0; k < p.k; k += DEPTH) {
        for (int i = (int)threadIdx.x; i < DEPTH * TILE; i += THREADS) {
            // Neighbouring threads read neighbouring elements, and the device joins such reads into
            // one access.
            int a_row = p.transpose_a ? i % TILE : i / DEPTH;
            int a_k = p.transpose_a ? i / TILE : i % DEPTH;
            int b_column = p.transpose_b ? i / DEPTH : i % TILE;
            int b_k = p.transpose_b ? i % DEPTH : i / TILE;
            a_tile[a_k * LINE + a_row] =
                element(a, p.transpose_a, p.a_row, p.m, p.k, row + a_row, k + a_k);
            b_tile[b_k * LINE + b_column] =
                element(b, p.transpose_b, p.b_row, p.k, p.n, k + b_k, column + b_column);
        }
        gpu_barrier();
        for (int d = 0; d < DEPTH; d++)
            for (int i = 0; i < OWN; i++)
                for (int j = 0; j < OWN; j++)
                    sums[i][j] +=
                        a_tile[d * LINE + own_row + i] * b_tile[d * LINE + own_column + j];
        gpu_barrier();
    }
    for (int i = 0; i < OWN; i++) {
        for (int j = 0; j < OWN; j++) {
            int64_t r = row + own_row + i, c = column + own_column + j;
            if (r >= p.m || c >= p.n) continue;
            O *at = &((O *)p.c)[item * p.c_step + r * p.c_row + c];
            W other = p.bias ? (W)gpu_get(((const T *)p.bias)[c]) : p.adds ? (W)gpu_get(*at) : (W)0;
            W sum = sums[i][j] + other;
            gpu_put(at, p.relu && sum <= 0 ? (W)0 : sum);
        }
    }
}

template <typename T, typename O>
tri_status launch(cuda_stream *stream, T *, O *, const cuda_product *p, char *why) {
    int64_t blocks = (p->m + TILE - 1) / TILE * ((p->n + TILE - 1) / TILE) * p->count;
    return gpu_launch(stream, product<T, O>, blocks, THREADS, *p, why);
}

// For the sums of columns, a thread takes 16 bytes of neighbouring columns or, where the number of
// columns does not allow that, one column. A thread block takes the columns of `lanes` neighbouring
// threads and one of the `slices` of the rows; each of its groups of `lanes` threads takes every
// `groups`-th of these rows. So x is read once, 128 bytes of a row at a time (one column of F16 or
// BF16 in a thread: 64 bytes): 4 bytes (2 in F16 or BF16) for each element. The kernel writes 4
// bytes for each column and slice.
template <int n> struct sums_of {
    static const int lanes = n == 1 ? 32 : 8, groups = GPU_BLOCK / lanes, columns = lanes * n;
};

template <typename T, typename access> GPU_KERNEL column_sums(cuda_column_sums p) {
    constexpr int n = access::count;
    typedef sums_of<n> block;
    // Sum k of thread t is sums[k * line + t]. The end of a line is unused, so that neighbouring
    // columns lie in different banks.
    constexpr int line = GPU_BLOCK + 32 / n, size = n * line;
    GPU_SHARED(float, sums, size);
    int group = (int)threadIdx.x / block::lanes, own = (int)threadIdx.x % block::lanes;
    int64_t blocks = (p.columns + block::columns - 1) / block::columns;
    int64_t rows = (p.rows + p.slices - 1) / p.slices;
    for (int64_t item = blockIdx.x; item < blocks * p.slices; item += gridDim.x) {
        int64_t first = item % blocks * block::columns, slice = item / blocks;
        int64_t column = first + own * n, end = (slice + 1) * rows;
        if (end > p.rows) end = p.rows;
        float sum[n] = {};
        for (int64_t r = slice * rows + group; column < p.columns && r < end; r += block::groups) {
            float x[n];
            access::read((const T *)p.x + r * p.columns + column, x);
            GPU_UNROLL for (int k = 0; k < n; k++) sum[k] += x[k];
        }
        GPU_UNROLL for (int k = 0; k < n; k++) sums[k * line + (int)threadIdx.x] = sum[k];
        gpu_barrier();
        int c = (int)threadIdx.x; // this thread adds up column first + c
        if (c < block::columns && first + c < p.columns) {
            const float *part = &sums[c % n * line + c / n];
            float all = part[0];
            GPU_UNROLL for (int g = 1; g < block::groups; g++) all += part[g * block::lanes];
            p.sums[slice * p.columns + first + c] = all;
        }
        gpu_barrier();
    }
}

template <typename T>
tri_status launch_sums(cuda_stream *stream, T *, const cuda_column_sums *p, char *why) {
    return gpu_with_access<gpu_lot<T>::count>(p->columns, (uintptr_t)p->x, [=](auto access) {
        constexpr int columns = sums_of<decltype(access)::count>::columns;
        int64_t blocks = (p->columns + columns - 1) / columns * p->slices;
        return gpu_launch(stream, column_sums<T, decltype(access)>, gpu_blocks(stream, blocks, 1),
                          GPU_BLOCK, *p, why);
    });
}

tri_status launch_sums(cuda_stream *stream, const cuda_column_sums *p, char *why) {
    return gpu_with_real(p->type, [=](auto *type) { return launch_sums(stream, type, p, why); });
}

} // namespace

extern "C" tri_status cuda_launch_column_sums(cuda_stream *stream, const cuda_column_sums *p,
                                              char *why) {
    cuda_column_sums slice = *p, all = *p;
    if (p->slices == 1) return launch_sums(stream, p, why);
    slice.sums = p->room;
    all.rows = p->slices;
    all.slices = 1;
    all.type = TRI_F32;
    all.x = p->room;
    tri_status status = launch_sums(stream, &slice, why);
    return status == TRI_OK ? launch_sums(stream, &all, why) : status;
}

extern "C" tri_status cuda_launch_product(cuda_stream *stream, const cuda_product *given,
                                          char *why) {
    bool sums_bias = false;
    tri_status status;
    cuda_product whole = *given;
    const cuda_product *p = &whole;
    if (whole.a_row == 0) whole.a_row = p->transpose_a ? p->m : p->k;
    if (whole.b_row == 0) whole.b_row = p->transpose_b ? p->k : p->n;
    if (whole.c_row == 0) whole.c_row = p->n;
    if (whole.count == 0) whole.count = 1;
    if (!vendor_product(stream, p, &sums_bias, &status, why))
        status = gpu_with_output(p->in_type, p->out_type, [=](auto *in, auto *out) {
            return launch(stream, in, out, p, why);
        });
    if (status != TRI_OK || sums_bias || !p->bias_grad.sums) return status;
    return cuda_launch_column_sums(stream, &p->bias_grad, why);
}
