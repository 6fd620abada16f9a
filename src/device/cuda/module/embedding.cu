// Embedding and its gradient, and the labels of a language model. A position is the index of a
// token in the micro-batch; it reads the row of the table that belongs to its token.
//
// The gradient of a table's row is the sum of dy over all positions that read the row. To add these
// in the order of positions without atomics, one thread block first sorts the positions by row (a
// radix sort, which takes little time compared with writing the gradient), and then a warp adds up
// each row.
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

// Adds up those rows of dy that belong to a row of the table, one warp for each row. Reads 4 bytes
// (2 in F16 or BF16) for each element of dy, and writes 4 for each element of dtable. With `adds`,
// it leaves rows of dtable that no token has read as they are, and reads and writes 4 bytes for
// each element of the others.
template <typename T, int n> GPU_KERNEL embedding_grad(cuda_embedding_grad p) {
    for (int64_t r = gpu_thread() / GPU_WARP; r < p.rows; r += gpu_threads() / GPU_WARP) {
        int32_t first = p.starts[r], end = p.starts[r + 1];
        if (p.adds && first == end) continue;
        for (int64_t d = threadIdx.x % GPU_WARP * n; d < p.width; d += GPU_WARP * n) {
            float sums[n] = {}, at[n];
            for (int32_t i = first; i < end; i++) {
                gpu_read((const T *)p.dy + p.positions[i] * p.width + d, at);
                for (int k = 0; k < n; k++) sums[k] += at[k];
            }
            if (p.adds) {
                gpu_read(p.dtable + r * p.width + d, at);
                for (int k = 0; k < n; k++) sums[k] += at[k];
            }
            gpu_write(p.dtable + r * p.width + d, sums);
        }
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

template <typename T>
tri_status launch_as(cuda_stream *stream, T *, const cuda_embedding_grad *p, char *why) {
    constexpr int n = gpu_lot<T>::count;
    bool lots = gpu_in_lots(p->width, n, (uintptr_t)p->dy | (uintptr_t)p->dtable);
    int64_t blocks = gpu_blocks(stream, p->rows, GPU_BLOCK / GPU_WARP);
    return gpu_launch(stream, lots ? embedding_grad<T, n> : embedding_grad<T, 1>, blocks, GPU_BLOCK,
                      *p, why);
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
