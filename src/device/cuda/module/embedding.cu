// Embedding and its gradient, and the labels of a language model. A position is the index of a
// token in the micro-batch; it reads the row of the table that belongs to its token.
//
// The gradient of a table's row is the sum of dy over all positions that read the row. To add these
// in the order of positions without atomics, one thread block first sorts the positions by row (a
// radix sort, which takes little time compared with writing the gradient), and then a warp adds up
// each row, in ranges of columns. If many positions read a row, because its token is frequent, then
// warps first add up chunks of the sorted positions, so that no warp has much more to do than the
// others. The order of a sum follows from the tokens alone.
#include "device/cuda/module/pack.h"

namespace {

enum { SORTERS = 512, DIGITS = 1 << CUDA_DIGIT_BITS };

// The row of this rank's table that position i reads; t.rows if another rank has that row, or if
// the token is invalid, which is then reported.
GPU_DEVICE int64_t row_of(const cuda_tokens &t, int64_t i) {
    int64_t id = t.ids[i];
    if (id < 0 || id >= t.total) {
        gpu_refuse(t.fault, CUDA_FAULT_TOKEN, id, i, t.total);
        return t.rows;
    }
    return id < t.first || id - t.first >= t.rows ? t.rows : id - t.first;
}

// Copies rows of the table, one warp for each token. Reads 8 bytes for each token, and reads and
// writes 4 (2 in F16 or BF16) for each element of y.
template <typename T, int n> GPU_KERNEL embedding(cuda_embedding p) {
    for (int64_t i = gpu_thread() / GPU_WARP; i < p.tokens.count; i += gpu_threads() / GPU_WARP) {
        int64_t row = threadIdx.x % GPU_WARP == 0 ? row_of(p.tokens, i) : 0;
        row = gpu_warp_sum(row);
        for (int64_t d = threadIdx.x % GPU_WARP * n; d < p.width; d += GPU_WARP * n) {
            float at[n] = {};
            if (row < p.tokens.rows) gpu_read((const T *)p.table + row * p.width + d, at);
            gpu_write((T *)p.y + i * p.width + d, at);
        }
    }
}

// Replaces each of the counts [DIGITS][SORTERS] by the sum of all counts before it. counts[d][t]
// then is the index to which the sort moves the first of thread t's elements that have digit d.
// Each thread adds up DIGITS neighbouring counts.
GPU_DEVICE void sum_before(uint32_t *counts, uint32_t *sums) {
    int own = (int)threadIdx.x;
    uint32_t *mine = counts + own * DIGITS, sum = 0;
    for (int d = 0; d < DIGITS; d++) sum += mine[d];
    sums[own] = sum;
    gpu_barrier();
    for (int reach = 1; reach < SORTERS; reach *= 2) {
        uint32_t before = own >= reach ? sums[own - reach] : 0;
        gpu_barrier();
        sums[own] += before;
        gpu_barrier();
    }
    sum = sums[own] - sum;
    for (int d = 0; d < DIGITS; d++) {
        uint32_t count = mine[d];
        mine[d] = sum;
        sum += count;
    }
    gpu_barrier();
}

// Sorts positions by the numbers of their rows (the keys), in one thread block. Each thread has a
// range of consecutive positions, so that positions of the same row stay in order. For each
// position, reads 8 bytes (the token) and writes 8; then, for each digit, reads 12 and writes 8.
GPU_KERNEL token_order(cuda_token_order p) {
    GPU_SHARED(uint32_t, counts, DIGITS * SORTERS);
    GPU_SHARED(uint32_t, sums, SORTERS);
    int own = (int)threadIdx.x;
    int64_t count = p.tokens.count, range = (count + SORTERS - 1) / SORTERS;
    int64_t first = own * range, end = first + range < count ? first + range : count;
    for (int64_t i = own; i < count; i += SORTERS) {
        p.keys[0][i] = (int32_t)row_of(p.tokens, i);
        p.positions[0][i] = (int32_t)i;
    }
    gpu_barrier();
    for (int digit = 0; digit < p.digits; digit++) {
        const int32_t *keys = p.keys[digit % 2], *positions = p.positions[digit % 2];
        int32_t *to_keys = p.keys[(digit + 1) % 2], *to_positions = p.positions[(digit + 1) % 2];
        int shift = digit * CUDA_DIGIT_BITS;
        for (int d = 0; d < DIGITS; d++) counts[d * SORTERS + own] = 0;
        for (int64_t i = first; i < end; i++) counts[(keys[i] >> shift) % DIGITS * SORTERS + own]++;
        gpu_barrier();
        sum_before(counts, sums);
        for (int64_t i = first; i < end; i++) {
            uint32_t index = counts[(keys[i] >> shift) % DIGITS * SORTERS + own]++;
            to_keys[index] = keys[i];
            to_positions[index] = positions[i];
        }
        gpu_barrier();
    }
}

// Finds where each row starts among the sorted keys by bisection, one thread for each row. Reads
// about 4 · log2(number of keys) bytes for each row, mostly from caches, and writes 4.
GPU_KERNEL row_starts(cuda_row_starts p) {
    for (int64_t r = gpu_thread(); r <= p.rows; r += gpu_threads()) {
        int64_t low = 0, high = p.count;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (p.keys[middle] < r)
                low = middle + 1;
            else
                high = middle;
        }
        p.starts[r] = (int32_t)low;
    }
}

// Into how many ranges the columns are cut; a warp sums a range, and each lane n of its columns.
TRI_KERNEL_INLINE int64_t ranges_of(int64_t width, int n) {
    return (width + GPU_WARP * n - 1) / (GPU_WARP * n);
}

// Adds n columns of rows to `sums`, in the order of the rows: row(i) returns row i, for i from
// `first` to end - 1. Four loads are issued at a time.
template <int n, typename F>
GPU_DEVICE void add_rows(int32_t first, int32_t end, F row, float (&sums)[n]) {
    float at[4][n];
    int32_t i = first;
    for (; i + 4 <= end; i += 4) {
        GPU_UNROLL for (int j = 0; j < 4; j++) gpu_read(row(i + j), at[j]);
        GPU_UNROLL for (int j = 0; j < 4; j++) GPU_UNROLL for (int k = 0; k < n; k++) sums[k] +=
            at[j][k];
    }
    for (; i < end; i++) {
        gpu_read(row(i), at[0]);
        GPU_UNROLL for (int k = 0; k < n; k++) sums[k] += at[0][k];
    }
}

template <typename T, int n>
GPU_DEVICE void add_positions(const cuda_embedding_grad &p, int32_t first, int32_t end,
                              int64_t column, float (&sums)[n]) {
    const T *dy = (const T *)p.dy + column;
    add_rows(
        first, end, [&](int32_t i) { return dy + p.positions[i] * p.width; }, sums);
}

// Whether so many positions read row r that their sum is made of the sums of chunks.
GPU_DEVICE bool is_long(const cuda_embedding_grad &p, int64_t r) {
    return r < p.rows && p.starts[r + 1] - p.starts[r] > CUDA_TOKEN_CHUNK;
}

// Where the sum of chunk `chunk` of a long row lies. A chunk can have positions of two long rows:
// of one to which its first position belongs (which: 0), and of one that begins behind it (1).
GPU_DEVICE float *chunk_sum(const cuda_embedding_grad &p, int64_t chunk, int which) {
    return p.chunk_sums + (2 * chunk + which) * p.width;
}

// For the rows that many positions read, adds up the rows of dy of each chunk, one warp for each
// chunk and each range of columns. For a chunk without such rows, reads at most 24 bytes. Otherwise
// reads 4 bytes (2 in F16 or BF16) for each element of dy, and writes 4 for each column.
template <typename T, int n> GPU_KERNEL embedding_chunks(cuda_embedding_grad p) {
    int64_t ranges = ranges_of(p.width, n), items = cuda_token_chunks(p.count) * ranges;
    for (int64_t i = gpu_thread() / GPU_WARP; i < items; i += gpu_threads() / GPU_WARP) {
        int64_t chunk = i / ranges, column = i % ranges * GPU_WARP * n + threadIdx.x % GPU_WARP * n;
        int64_t first = chunk * CUDA_TOKEN_CHUNK, end = first + CUDA_TOKEN_CHUNK;
        if (end > p.count) end = p.count;
        if (column >= p.width) continue;
        int64_t row = p.keys[first], last = p.keys[end - 1];
        if (is_long(p, row)) {
            float sums[n] = {};
            int64_t row_end = p.starts[row + 1] < end ? p.starts[row + 1] : end;
            add_positions<T>(p, (int32_t)first, (int32_t)row_end, column, sums);
            gpu_write(chunk_sum(p, chunk, 0) + column, sums);
        }
        if (last != row && is_long(p, last)) {
            float sums[n] = {};
            add_positions<T>(p, p.starts[last], (int32_t)end, column, sums);
            gpu_write(chunk_sum(p, chunk, 1) + column, sums);
        }
    }
}

// Adds up those rows of dy, or those sums of chunks, that belong to a row of the table, one warp
// for each row and each range of columns. Reads 4 bytes (2 in F16 or BF16) for each element of dy
// that a row with few positions needs, 4 for each element of the sums of chunks, and writes 4 for
// each element of dtable. With `adds`, it leaves rows of dtable that no token has read as they are,
// and reads and writes 4 bytes for each element of the others.
template <typename T, int n> GPU_KERNEL embedding_grad(cuda_embedding_grad p) {
    int64_t ranges = ranges_of(p.width, n), items = p.rows * ranges;
    for (int64_t i = gpu_thread() / GPU_WARP; i < items; i += gpu_threads() / GPU_WARP) {
        int64_t r = i / ranges, column = i % ranges * GPU_WARP * n + threadIdx.x % GPU_WARP * n;
        int32_t first = p.starts[r], end = p.starts[r + 1];
        float sums[n] = {}, at[n];
        if (column >= p.width || (p.adds && first == end)) continue;
        if (is_long(p, r)) {
            int32_t chunk = first / CUDA_TOKEN_CHUNK, last = (end - 1) / CUDA_TOKEN_CHUNK;
            int which = first % CUDA_TOKEN_CHUNK != 0;
            add_rows(
                chunk, last + 1,
                [&](int32_t j) { return chunk_sum(p, j, j == chunk ? which : 0) + column; }, sums);
        } else {
            add_positions<T>(p, first, end, column, sums);
        }
        if (p.adds) {
            gpu_read(p.dtable + r * p.width + column, at);
            GPU_UNROLL for (int k = 0; k < n; k++) sums[k] += at[k];
        }
        gpu_write(p.dtable + r * p.width + column, sums);
    }
}

// Writes each token's successor as its label, one thread block for each sample. Reads and writes 8
// bytes for each token. The labels may be written over the tokens: in each iteration all threads
// read their tokens before any thread writes, and tokens that are read in later iterations lie
// behind all labels written so far.
GPU_KERNEL next_token(cuda_next_token p) {
    for (int64_t n = blockIdx.x; n < p.samples; n += gridDim.x) {
        for (int64_t begin = 0; begin < p.length; begin += GPU_BLOCK) {
            int64_t t = begin + threadIdx.x, label = p.ignored;
            if (t + 1 < p.length) label = p.ids[n * p.length + t + 1];
            gpu_barrier();
            if (t < p.length) p.labels[n * p.length + t] = label;
        }
    }
}

template <typename T>
tri_status launch_as(cuda_stream *stream, T *, const cuda_embedding *p, char *why) {
    constexpr int n = gpu_lot<T>::count;
    bool lots = gpu_in_lots(p->width, n, (uintptr_t)p->table | (uintptr_t)p->y);
    int64_t blocks = gpu_blocks(stream, p->tokens.count, GPU_BLOCK / GPU_WARP);
    return gpu_launch(stream, lots ? embedding<T, n> : embedding<T, 1>, blocks, GPU_BLOCK, *p, why);
}

template <typename T, int n>
tri_status launch_sums(cuda_stream *stream, const cuda_embedding_grad *p, char *why) {
    int64_t ranges = ranges_of(p->width, n), warps = GPU_BLOCK / GPU_WARP;
    int64_t chunk_blocks = gpu_blocks(stream, cuda_token_chunks(p->count) * ranges, warps);
    tri_status status =
        gpu_launch(stream, embedding_chunks<T, n>, chunk_blocks, GPU_BLOCK, *p, why);
    if (status != TRI_OK) return status;
    return gpu_launch(stream, embedding_grad<T, n>, gpu_blocks(stream, p->rows * ranges, warps),
                      GPU_BLOCK, *p, why);
}

template <typename T>
tri_status launch_as(cuda_stream *stream, T *, const cuda_embedding_grad *p, char *why) {
    constexpr int n = gpu_lot<T>::count;
    uintptr_t addresses = (uintptr_t)p->dy | (uintptr_t)p->dtable | (uintptr_t)p->chunk_sums;
    return gpu_in_lots(p->width, n, addresses) ? launch_sums<T, n>(stream, p, why)
                                               : launch_sums<T, 1>(stream, p, why);
}

} // namespace

extern "C" tri_status cuda_launch_embedding(cuda_stream *stream, const cuda_embedding *p,
                                            char *why) {
    return gpu_with_real(p->type, [=](auto *type) { return launch_as(stream, type, p, why); });
}

extern "C" tri_status cuda_launch_token_order(cuda_stream *stream, const cuda_token_order *p,
                                              char *why) {
    return gpu_launch(stream, token_order, 1, SORTERS, *p, why);
}

extern "C" tri_status cuda_launch_row_starts(cuda_stream *stream, const cuda_row_starts *p,
                                             char *why) {
    return gpu_launch(stream, row_starts, gpu_blocks(stream, p->rows + 1, GPU_BLOCK), GPU_BLOCK, *p,
                      why);
}

extern "C" tri_status cuda_launch_embedding_grad(cuda_stream *stream, const cuda_embedding_grad *p,
                                                 char *why) {
    return gpu_with_real(p->type, [=](auto *type) { return launch_as(stream, type, p, why); });
}

extern "C" tri_status cuda_launch_next_token(cuda_stream *stream, const cuda_next_token *p,
                                             char *why) {
    return gpu_launch(stream, next_token, gpu_blocks(stream, p->samples, 1), GPU_BLOCK, *p, why);
}
