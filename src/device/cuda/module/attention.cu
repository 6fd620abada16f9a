// Our own kernels of attention and its gradient, for what cuDNN does not compute
// (dnn_attention.cu). They work in tiles, so that the matrix of all scores never exists (Dao et
// al., "FlashAttention", 2022). Everything is computed in F32.
//
// The scores form a matrix. In the forward kernel and in the gradient of q, its rows are queries
// and its columns keys; in the gradient of k and v, rows are keys and columns queries. A block of
// threads computes the results of one tile of rows. It goes through the columns, one tile after the
// other. A tile has R * 16 rows or columns (`sizes` below). The 256 threads of a block form a
// square of 16 x 16: each has R neighbouring rows of a tile, and every 16th column.
//
// One kernel makes the gradient of q, and another one those of k and v, although both then have to
// compute the probabilities. In return, each result is summed by one block alone, which goes
// through all columns: no sum needs atomics, and the order of each sum depends on shapes alone.
//
// Bytes, where an element has e = 4 bytes (2 in F16 or BF16): for each pair of a tile of rows and
// one of columns, forward reads 2 · e · width for each row of a tile (k and v); the gradient of q
// reads 5 · e · width (q, dy, v and twice k), and so does the gradient of k and v (k, v, dy and
// twice q). All but the first reads come from the L2 cache. Each result is written once: e · width
// bytes for each row, and forward also 4 bytes for each query (log_sum_exp).
#include "device/cuda/module/attention.h"
#include "device/cuda/module/pack.h"
#include "device/cuda/module/vendor.h"

namespace {

enum { SIDE = 16, THREADS = SIDE * SIDE };

// The sizes of a tile for heads of up to D elements. With these sizes, all that a block keeps in
// shared memory fits into 48 kB.
template <int D> struct sizes {
    static const int R = D > 128 ? 1 : 2; // a thread computes R rows by R columns of a tile
    static const int tile = SIDE * R;     // rows of a tile, and also its columns
    // Floats from one row of a tile to the next: D + 1, so that neighbours in a column lie in
    // different banks.
    static const int stride = D + 1;
    static const int own = D / SIDE; // how many elements of a row of the result one thread computes
};

GPU_DEVICE int own_row() { return (int)threadIdx.x / SIDE; }
GPU_DEVICE int own_column() { return (int)threadIdx.x % SIDE; }

// Computes the sum, or the maximum, over the 16 threads that share a row; all of them get the
// result.
GPU_DEVICE float row_sum(float value) {
    for (int mask = SIDE / 2; mask; mask /= 2) value += gpu_shuffle_xor(value, mask);
    return value;
}

GPU_DEVICE float row_max(float value) {
    for (int mask = SIDE / 2; mask; mask /= 2)
        value = gpu_larger(value, gpu_shuffle_xor(value, mask));
    return value;
}

// Copies rows `row` to row + tile - 1 of x to a tile in shared memory, as floats; rows beyond the
// last are 0.
template <typename T, int D>
GPU_DEVICE void load(float *tile, const head_rows &x, int64_t row, int64_t width) {
    constexpr int n = gpu_lot<T>::count;
    const T *from = (const T *)x.at + x.first + row * x.step;
    bool lots = width % n == 0 && (uintptr_t)x.at % 16 == 0;
    for (int i = (int)threadIdx.x; i < sizes<D>::tile * (D / n); i += THREADS) {
        int r = i / (D / n), d = i % (D / n) * n;
        bool there = row + r < x.length;
        float at[n] = {};
        if (there && lots && d < width) gpu_read(from + r * x.step + d, at);
        for (int k = 0; k < n; k++) {
            if (there && !lots && d + k < width) at[k] = gpu_get(from[r * x.step + d + k]);
            tile[r * sizes<D>::stride + d + k] = at[k];
        }
    }
}

// Computes the scalar products of R rows of tile a with R rows of tile b: those of a are this
// thread's rows of the matrix of scores, those of b its columns.
template <int D, int R>
GPU_DEVICE void multiply(const float *a, const float *b, int64_t width, float (&out)[R][R]) {
    const float *rows = a + own_row() * R * sizes<D>::stride;
    const float *columns = b + own_column() * sizes<D>::stride;
    for (int i = 0; i < R; i++)
        for (int j = 0; j < R; j++) out[i][j] = 0;
    for (int d = 0; d < (int)width; d++) {
        float x[R], y[R];
        for (int i = 0; i < R; i++) x[i] = rows[i * sizes<D>::stride + d];
        for (int j = 0; j < R; j++) y[j] = columns[j * SIDE * sizes<D>::stride + d];
        for (int i = 0; i < R; i++)
            for (int j = 0; j < R; j++) out[i][j] += x[i] * y[j];
    }
}

// sums += weights [rows, columns] · tile [columns, width], for this thread's rows: row j of the
// tile belongs to column j of the weights.
template <int D, int R, int N>
GPU_DEVICE void accumulate(const float *weights, const float *tile, float (&sums)[R][N]) {
    const float *rows = weights + own_row() * R * (sizes<D>::tile + 1);
    for (int j = 0; j < sizes<D>::tile; j++) {
        float w[R];
        for (int i = 0; i < R; i++) w[i] = rows[i * (sizes<D>::tile + 1) + j];
        for (int c = 0; c < N; c++) {
            float x = tile[j * sizes<D>::stride + own_column() + c * SIDE];
            for (int i = 0; i < R; i++) sums[i][c] += w[i] * x;
        }
    }
}

// Copies this thread's R x R probabilities, or gradients of scores, to shared memory, because other
// threads multiply rows of a tile by them (accumulate).
template <int D, int R> GPU_DEVICE void store_weights(float *weights, const float (&own)[R][R]) {
    for (int i = 0; i < R; i++)
        for (int j = 0; j < R; j++)
            weights[(own_row() * R + i) * (sizes<D>::tile + 1) + own_column() + j * SIDE] =
                own[i][j];
}

// Writes this thread's elements of a result: R rows, and every 16th element of each.
template <typename T, int R, int N>
GPU_DEVICE void store(void *to, const head_rows &x, int64_t row, int64_t width,
                      const float (&sums)[R][N]) {
    for (int i = 0; i < R; i++) {
        int64_t r = row + own_row() * R + i;
        for (int c = 0; r < x.length && c < N; c++) {
            int d = own_column() + c * SIDE;
            if (d < width) gpu_put((T *)to + x.first + r * x.step + d, sums[i][c]);
        }
    }
}

// Turns the scores of a tile of keys into e^(score - largest), where `largest` is the query's
// largest score so far, and adds them to `sum`. If this tile has a larger score, the earlier `sum`
// and `out` are scaled down to it (online softmax).
template <int R, int N>
GPU_DEVICE void soften(const cuda_attention &p, int64_t query, int64_t key, float (&scores)[R][R],
                       float (&largest)[R], float (&sum)[R], float (&out)[R][N]) {
    for (int i = 0; i < R; i++) {
        int64_t seen = seen_by(p, query + own_row() * R + i);
        float best = largest[i], more = 0;
        for (int j = 0; j < R; j++) {
            bool sees = key + own_column() + j * SIDE < seen;
            scores[i][j] = sees ? scores[i][j] * p.scale : -INFINITY;
            best = gpu_larger(scores[i][j], best);
        }
        best = row_max(best);
        float shrink = best == -INFINITY ? 1 : expf(largest[i] - best);
        for (int j = 0; j < R; j++) {
            scores[i][j] = scores[i][j] == -INFINITY ? 0 : expf(scores[i][j] - best);
            more += scores[i][j];
        }
        sum[i] = sum[i] * shrink + row_sum(more);
        for (int c = 0; c < N; c++) out[i][c] *= shrink;
        largest[i] = best;
    }
}

// The forward kernel: computes y and log_sum_exp. The tiles of queries with the most keys start
// first, so that none of them still runs alone when all others are done.
template <typename T, int D> GPU_KERNEL attention(cuda_attention p) {
    constexpr int R = sizes<D>::R, tile = sizes<D>::tile;
    GPU_SHARED(float, a, tile *sizes<D>::stride);
    GPU_SHARED(float, b, tile *sizes<D>::stride);
    GPU_SHARED(float, weights, tile *(tile + 1));
    int64_t tiles = (p.queries + tile - 1) / tile, heads = p.samples * p.heads;
    for (int64_t item = blockIdx.x; item < tiles * heads; item += gridDim.x) {
        int64_t n = item % heads / p.heads, head = item % p.heads;
        int64_t query = (tiles - 1 - item / heads) * tile, kv_head = head / (p.heads / p.kv_heads);
        head_rows q = queries_of(p, p.q, n, head);
        float out[R][sizes<D>::own] = {}, scores[R][R], largest[R], sum[R] = {};
        for (int i = 0; i < R; i++) largest[i] = -INFINITY;
        gpu_barrier();
        load<T, D>(a, q, query, p.width);
        for (int64_t key = 0, end = seen_by_tile(p, query, tile); key < end; key += tile) {
            load<T, D>(b, keys_of(p, p.k, n, kv_head), key, p.width);
            gpu_barrier();
            multiply<D>(a, b, p.width, scores);
            soften(p, query, key, scores, largest, sum, out);
            store_weights<D>(weights, scores);
            gpu_barrier();
            load<T, D>(b, keys_of(p, p.v, n, kv_head), key, p.width);
            gpu_barrier();
            accumulate<D>(weights, b, out);
            gpu_barrier();
        }
        for (int i = 0; i < R; i++) {
            int64_t t = query + own_row() * R + i;
            for (int c = 0; c < sizes<D>::own; c++) out[i][c] /= sum[i];
            if (own_column() == 0 && t < p.queries)
                p.log_sum_exp[(n * p.heads + head) * p.queries + t] = largest[i] + logf(sum[i]);
        }
        store<T>(p.y, q, query, p.width, out);
    }
}

// Where the number of row r of q, in the order [samples, queries, heads], lies in `dots`, which is
// ordered [samples, heads, queries]. Divides numbers of type I.
template <typename I> GPU_DEVICE int64_t dot_at(const cuda_attention &f, int64_t row) {
    I r = (I)row, heads = (I)f.heads, queries = (I)f.queries, token = r / heads;
    return ((int64_t)(token / queries) * heads + r % heads) * queries + token % queries;
}

// Computes dots[query] = the scalar product of the query's rows of dy and y. The gradient of
// softmax subtracts it. `lanes` lanes (threads) of a warp take a row together, each n neighbouring
// elements at a time. Reads 2 · e · width bytes and writes 4 for each query (e as above).
template <typename T, typename A, int lanes> GPU_KERNEL row_dots(cuda_attention_grad p) {
    constexpr int n = A::count;
    const cuda_attention &f = p.forward;
    int64_t rows = f.samples * f.queries * f.heads, step = gpu_threads() / lanes;
    int lane = (int)threadIdx.x % lanes, width = (int)f.width;
    // All lanes of a warp stay in the loop, because all of them have to call gpu_shuffle_xor.
    for (int64_t r = gpu_thread() / lanes; r - r % (GPU_WARP / lanes) < rows; r += step) {
        const T *y = (const T *)f.y + r * width, *dy = (const T *)p.dy + r * width;
        float sum = 0;
        for (int d = lane * n; r < rows && d < width; d += lanes * n) {
            float a[n], b[n];
            A::read(y + d, a);
            A::read(dy + d, b);
            for (int k = 0; k < n; k++) sum += a[k] * b[k];
        }
        for (int mask = lanes / 2; mask; mask /= 2) sum += gpu_shuffle_xor(sum, mask);
        if (lane != 0 || r >= rows) continue;
        // A division of 32 bits is faster, and enough for most tensors.
        p.dots[rows >> 32 ? dot_at<int64_t>(f, r) : dot_at<uint32_t>(f, r)] = sum;
    }
}

// The probability with which query t attends to a key, from `product`, the scalar product of the
// two.
GPU_DEVICE float probability(const cuda_attention &p, float product, int64_t t, int64_t key,
                             float log_sum_exp) {
    return key < seen_by(p, t) ? expf(product * p.scale - log_sum_exp) : 0;
}

// Computes dq, the gradient of the queries. The rows of a thread block are queries and its columns
// keys. One thread block goes over all keys, so it alone adds up the gradients of its queries.
template <typename T, int D> GPU_KERNEL grad_q(cuda_attention_grad p) {
    constexpr int R = sizes<D>::R, tile = sizes<D>::tile;
    GPU_SHARED(float, a, tile *sizes<D>::stride);
    GPU_SHARED(float, b, tile *sizes<D>::stride);
    GPU_SHARED(float, weights, tile *(tile + 1));
    const cuda_attention &f = p.forward;
    int64_t tiles = (f.queries + tile - 1) / tile, heads = f.samples * f.heads;
    for (int64_t item = blockIdx.x; item < tiles * heads; item += gridDim.x) {
        int64_t n = item % heads / f.heads, head = item % f.heads;
        int64_t query = (tiles - 1 - item / heads) * tile, kv_head = head / (f.heads / f.kv_heads);
        head_rows q = queries_of(f, f.q, n, head), k = keys_of(f, f.k, n, kv_head);
        float dq[R][sizes<D>::own] = {}, scores[R][R], ds[R][R];
        for (int64_t key = 0, end = seen_by_tile(f, query, tile); key < end; key += tile) {
            gpu_barrier();
            load<T, D>(a, q, query, f.width);
            load<T, D>(b, k, key, f.width);
            gpu_barrier();
            multiply<D>(a, b, f.width, scores);
            gpu_barrier();
            load<T, D>(a, queries_of(f, p.dy, n, head), query, f.width);
            load<T, D>(b, keys_of(f, f.v, n, kv_head), key, f.width);
            gpu_barrier();
            multiply<D>(a, b, f.width, ds);
            for (int i = 0; i < R; i++) {
                int64_t t = query + own_row() * R + i, row = (n * f.heads + head) * f.queries + t;
                float log_sum_exp = t < f.queries ? f.log_sum_exp[row] : 0;
                float dot = t < f.queries ? p.dots[row] : 0;
                for (int j = 0; j < R; j++)
                    ds[i][j] =
                        f.scale * (ds[i][j] - dot) *
                        probability(f, scores[i][j], t, key + own_column() + j * SIDE, log_sum_exp);
            }
            store_weights<D>(weights, ds);
            gpu_barrier();
            load<T, D>(b, k, key, f.width);
            gpu_barrier();
            accumulate<D>(weights, b, dq);
        }
        store<T>(p.dq, q, query, f.width, dq);
    }
}

// Computes dk and dv, the gradients of keys and values. Rows are keys, and columns are the queries
// of all heads that read these keys, so one thread block alone adds up the gradients of its keys.
template <typename T, int D> GPU_KERNEL grad_kv(cuda_attention_grad p) {
    constexpr int R = sizes<D>::R, tile = sizes<D>::tile;
    GPU_SHARED(float, a, tile *sizes<D>::stride);
    GPU_SHARED(float, b, tile *sizes<D>::stride);
    GPU_SHARED(float, weights, tile *(tile + 1));
    const cuda_attention &f = p.forward;
    int64_t tiles = (f.keys + tile - 1) / tile, heads = f.samples * f.kv_heads;
    int64_t group = f.heads / f.kv_heads, steps = (f.queries + tile - 1) / tile;
    for (int64_t item = blockIdx.x; item < tiles * heads; item += gridDim.x) {
        int64_t n = item % heads / f.kv_heads, kv_head = item % f.kv_heads;
        int64_t key = item / heads * tile, skipped = tiles_before(f, key, tile);
        head_rows k = keys_of(f, f.k, n, kv_head), v = keys_of(f, f.v, n, kv_head);
        float dk[R][sizes<D>::own] = {}, dv[R][sizes<D>::own] = {}, scores[R][R], ds[R][R];
        for (int64_t step = 0; step < group * (steps - skipped); step++) {
            int64_t head = kv_head * group + step / (steps - skipped);
            int64_t query = (skipped + step % (steps - skipped)) * tile;
            head_rows q = queries_of(f, f.q, n, head), dy = queries_of(f, p.dy, n, head);
            gpu_barrier();
            load<T, D>(a, k, key, f.width);
            load<T, D>(b, q, query, f.width);
            gpu_barrier();
            multiply<D>(a, b, f.width, scores);
            gpu_barrier();
            load<T, D>(a, v, key, f.width);
            load<T, D>(b, dy, query, f.width);
            gpu_barrier();
            multiply<D>(a, b, f.width, ds);
            for (int j = 0; j < R; j++) {
                int64_t t = query + own_column() + j * SIDE;
                int64_t row = (n * f.heads + head) * f.queries + t;
                float log_sum_exp = t < f.queries ? f.log_sum_exp[row] : 0;
                float dot = t < f.queries ? p.dots[row] : 0;
                for (int i = 0; i < R; i++) {
                    scores[i][j] =
                        probability(f, scores[i][j], t, key + own_row() * R + i, log_sum_exp);
                    ds[i][j] = f.scale * scores[i][j] * (ds[i][j] - dot);
                }
            }
            store_weights<D>(weights, scores);
            gpu_barrier();
            accumulate<D>(weights, b, dv);
            gpu_barrier();
            store_weights<D>(weights, ds);
            load<T, D>(b, q, query, f.width);
            gpu_barrier();
            accumulate<D>(weights, b, dk);
        }
        store<T>(p.dk, k, key, f.width, dk);
        store<T>(p.dv, v, key, f.width, dv);
    }
}

template <typename T, int D>
tri_status launch_wide(cuda_stream *stream, const cuda_attention *p, char *why) {
    if (attention_has_matrix(p)) return attention_by_matrix(stream, p, why);
    int64_t tiles = (p->queries + sizes<D>::tile - 1) / sizes<D>::tile;
    int64_t blocks = gpu_at_most(tiles * p->samples * p->heads);
    return gpu_launch(stream, attention<T, D>, blocks, THREADS, *p, why);
}

// Launches row_dots with 8, 16 or 32 lanes for a row: as few as take the whole row at once, or all
// lanes of a warp if the row is longer.
template <typename T>
tri_status launch_dots(cuda_stream *stream, const cuda_attention_grad *p, int64_t rows, char *why) {
    constexpr int n = gpu_lot<T>::count;
    int64_t width = p->forward.width;
    uintptr_t addresses = (uintptr_t)p->forward.y | (uintptr_t)p->dy;
    return gpu_with_access<n>(width, addresses, [=](auto access) {
        typedef decltype(access) A;
        int lanes = width <= 8 * A::count ? 8 : width <= 16 * A::count ? 16 : GPU_WARP;
        int64_t blocks = gpu_blocks(stream, rows, GPU_BLOCK / lanes);
        auto kernel = lanes == 8    ? row_dots<T, A, 8>
                      : lanes == 16 ? row_dots<T, A, 16>
                                    : row_dots<T, A, GPU_WARP>;
        return gpu_launch(stream, kernel, blocks, GPU_BLOCK, *p, why);
    });
}

template <typename T, int D>
tri_status launch_wide(cuda_stream *stream, const cuda_attention_grad *p, char *why) {
    const cuda_attention *f = &p->forward;
    int64_t tile = sizes<D>::tile, rows = f->samples * f->queries * f->heads;
    int64_t queries = (f->queries + tile - 1) / tile, keys = (f->keys + tile - 1) / tile;
    tri_status status = launch_dots<T>(stream, p, rows, why);
    if (status != TRI_OK) return status;
    if (attention_has_matrix(p)) return attention_grad_by_matrix(stream, p, why);
    status = gpu_launch(stream, grad_q<T, D>, gpu_at_most(queries * f->samples * f->heads), THREADS,
                        *p, why);
    if (status != TRI_OK) return status;
    return gpu_launch(stream, grad_kv<T, D>, gpu_at_most(keys * f->samples * f->kv_heads), THREADS,
                      *p, why);
}

template <typename T, typename P>
tri_status launch_as(cuda_stream *stream, T *, const P *p, int64_t width, char *why) {
    if (width <= 64) return launch_wide<T, 64>(stream, p, why);
    if (width <= 128) return launch_wide<T, 128>(stream, p, why);
    return launch_wide<T, CUDA_ATTENTION_MAX_WIDTH>(stream, p, why);
}

} // namespace

extern "C" tri_status cuda_launch_attention(cuda_stream *stream, const cuda_attention *p,
                                            char *why) {
    tri_status status;
    if (vendor_attention(stream, p, &status, why)) return status;
    return gpu_with_real(p->type,
                         [=](auto *type) { return launch_as(stream, type, p, p->width, why); });
}

extern "C" tri_status cuda_launch_attention_grad(cuda_stream *stream, const cuda_attention_grad *p,
                                                 char *why) {
    tri_status status;
    if (vendor_attention_grad(stream, p, &status, why)) return status;
    return gpu_with_real(p->forward.type, [=](auto *type) {
        return launch_as(stream, type, p, p->forward.width, why);
    });
}
