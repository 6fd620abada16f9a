// Attention of half types (F16, BF16) on tensor cores, in tiles that stay on chip (Dao,
// "FlashAttention-2", 2023). Sums are F32; probabilities and the gradients of scores are rounded to
// the half type before they are multiplied with v, k, q or dy.
//
// A warp computes 16 rows (32 in the forward kernel) with all their columns. So a sum over a row
// needs only the 4 lanes (threads) that share it, and the result of one product is the input of the
// next in the same registers (matrix.h). Tiles are copied to shared memory while the warps compute
// with other tiles. One kernel makes the gradient of q and another one those of k and v, as in
// attention.cu, so that no sum needs atomics.
//
// In the forward kernel and the gradient of q, a tile of queries goes through all its keys, tile by
// tile, and reads their k and v: 4 · width bytes for each key. In the gradient of k and v, a tile
// of keys goes through tiles of queries and reads their q and dy: 4 · width bytes for each query,
// and 8 bytes of log_sum_exp and `dots`. All but the first reads come from the L2 cache. The tile's
// own rows are read once, and each result is written once (2 bytes for each element).
#include "device/cuda/module/attention.h"
#include "device/cuda/module/matrix.h"
#include "device/cuda/module/pack.h"

#if defined(GPU_HAS_MATRIX)
namespace {

enum { WARPS = 4, THREADS = WARPS * GPU_WARP, WARP_ROWS = 16 };
constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

// The sizes of tiles for heads of up to D elements. Rows are queries, and columns keys; in the
// gradient of k and v, rows are keys, and columns queries. A row in shared memory has 8 extra
// elements, so that 8 neighbouring rows lie in different banks.
template <int D> struct shape {
    static const int row_tiles = 2; // a warp has this many times 16 rows in the forward kernel
    // Queries of a tile, and keys of a tile, in the forward kernel.
    static const int queries = WARPS * WARP_ROWS * row_tiles, keys = 64;
    // How many rows, and how many columns, of the matrix of scores a thread block computes at a
    // time in the gradient kernels.
    static const int rows = WARPS * WARP_ROWS, columns = D > 64 ? 32 : 64;
    static const int stride = D + 8; // elements from one row of a tile to the next
    // Bytes of shared memory: of the forward kernel, and of the gradient kernels.
    static const int bytes = (queries + 2 * keys) * stride * 2;
    static const int grad_bytes = (2 * rows + 4 * columns) * stride * 2 + 4 * columns * 4;
};

GPU_DEVICE int own_lane() { return (int)threadIdx.x % GPU_WARP; }
GPU_DEVICE int own_warp() { return (int)threadIdx.x / GPU_WARP; }

// Begins to copy `rows` rows of x, from `row` on, to a tile in shared memory; rows beyond the last
// become 0. A thread copies the same columns of every `step`th row, so that it computes its first
// addresses once and then adds constants.
template <typename T, int D, int rows>
GPU_DEVICE void copy_tile(T *tile, const head_rows &x, int64_t row, int64_t width) {
    constexpr int step = THREADS / (D / 8);
    int r = (int)threadIdx.x / (D / 8), d = (int)threadIdx.x % (D / 8) * 8;
    int64_t left = d < width ? x.length - row : 0;
    int count = (int)(left < rows ? left : rows) - r; // the rows from r on that exist
    const T *from = (const T *)x.at + x.first + (row + r) * x.step + d;
    T *to = &tile[r * shape<D>::stride + d];
    GPU_UNROLL
    for (int i = 0; i < rows; i += step, from += step * x.step)
        gpu_copy(to + i * shape<D>::stride, from, i < count);
}

// Loads elements [row to row + 16][k to k + 16] of a tile into registers.
template <int D, typename T> GPU_DEVICE gpu_matrix_a rows_of(const T *tile, int row, int k) {
    gpu_matrix_a a;
    int lane = own_lane();
    gpu_load_rows(a.at, &tile[(row + lane % 16) * shape<D>::stride + k + lane / 16 * 8]);
    return a;
}

// products [16 * row_tiles, 8 * n] = 16 * row_tiles rows of a matrix times the transpose of the
// first 8 * n rows of the tile b. A row has D elements. rows_at(i, k) returns elements k to k + 16
// of the 16 rows from row 16 * i on.
template <int D, typename T, int row_tiles, int n, typename F>
GPU_DEVICE void multiply(F rows_at, const T *b, gpu_matrix_c (&products)[row_tiles][n]) {
    int lane = own_lane();
    GPU_UNROLL
    for (int i = 0; i < row_tiles; i++) GPU_UNROLL
    for (int j = 0; j < n; j++) products[i][j] = {};
    GPU_UNROLL
    for (int k = 0; k < D; k += 16) {
        gpu_matrix_a left[row_tiles];
        GPU_UNROLL
        for (int i = 0; i < row_tiles; i++) left[i] = rows_at(i, k);
        GPU_UNROLL
        for (int j = 0; j < n; j += 2) {
            uint32_t right[4];
            int at = j * 8 + lane / 16 * 8 + lane % 8;
            gpu_load_rows(right, &b[at * shape<D>::stride + k + lane / 8 % 2 * 8]);
            GPU_UNROLL
            for (int i = 0; i < row_tiles; i++) {
                gpu_multiply<T>(products[i][j], left[i], {right[0], right[1]});
                gpu_multiply<T>(products[i][j + 1], left[i], {right[2], right[3]});
            }
        }
    }
}

// sums [16 * row_tiles, D] += weights [16 * row_tiles, 8 * n], rounded to T, times the rows of b.
template <int D, typename T, int row_tiles, int n>
GPU_DEVICE void accumulate(const gpu_matrix_c (&weights)[row_tiles][n], const T *b,
                           gpu_matrix_c (&sums)[row_tiles][D / 8]) {
    int lane = own_lane();
    GPU_UNROLL
    for (int k = 0; k < n; k += 2) {
        gpu_matrix_a left[row_tiles];
        GPU_UNROLL
        for (int i = 0; i < row_tiles; i++) GPU_UNROLL
        for (int h = 0; h < 4; h++)
            left[i].at[h] = gpu_pair<T>(weights[i][k + h / 2].at[h % 2 * 2],
                                        weights[i][k + h / 2].at[h % 2 * 2 + 1]);
        GPU_UNROLL
        for (int d = 0; d < D / 8; d += 2) {
            uint32_t right[4];
            gpu_load_columns(right,
                             &b[(k * 8 + lane % 16) * shape<D>::stride + d * 8 + lane / 16 * 8]);
            GPU_UNROLL
            for (int i = 0; i < row_tiles; i++) {
                gpu_multiply<T>(sums[i][d], left[i], {right[0], right[1]});
                gpu_multiply<T>(sums[i][d + 1], left[i], {right[2], right[3]});
            }
        }
    }
}

// Sums over the 4 lanes (threads) of a warp that share a row.
GPU_DEVICE float row_sum(float x) {
    x += gpu_shuffle_xor(x, 1);
    return x + gpu_shuffle_xor(x, 2);
}

GPU_DEVICE float row_max(float x) {
    x = fmaxf(x, gpu_shuffle_xor(x, 1));
    return fmaxf(x, gpu_shuffle_xor(x, 2));
}

// Row and column, in a warp's matrix [16, 8], of element number i of this lane (thread of the
// warp).
GPU_DEVICE int row_at(int i) { return own_lane() / 4 + i / 2 * 8; }
GPU_DEVICE int column_at(int i) { return own_lane() % 4 * 2 + i % 2; }

// Writes the warp's 16 rows of a result; rows 0 to 7 are multiplied by the lane's first scale, rows
// 8 to 15 by its second.
template <typename T, int n>
GPU_DEVICE void store(void *to, const head_rows &x, int64_t row, int64_t width,
                      const gpu_matrix_c (&sums)[n], const float (&scales)[2]) {
    GPU_UNROLL
    for (int h = 0; h < 2; h++) {
        int64_t r = row + row_at(2 * h);
        T *out = (T *)to + x.first + r * x.step;
        GPU_UNROLL
        for (int d = 0; r < x.length && d < n; d++) {
            if (d * 8 >= width) continue;
            uint32_t pair =
                gpu_pair<T>(sums[d].at[2 * h] * scales[h], sums[d].at[2 * h + 1] * scales[h]);
            memcpy(out + d * 8 + column_at(0), &pair, sizeof pair);
        }
    }
}

// Multiplies the scores of 16 queries by `factor`.
template <int n> GPU_DEVICE void scale_scores(float factor, gpu_matrix_c (&scores)[n]) {
    GPU_UNROLL
    for (int j = 0; j < n; j++) GPU_UNROLL
    for (int i = 0; i < 4; i++) scores[j].at[i] *= factor;
}

// Sets to `value` the scores of those keys of a tile to which a query must not attend. `query` is
// the first of 16 queries, and `key` the first key of the tile.
template <int n>
GPU_DEVICE void mask(const cuda_attention &p, int64_t query, int64_t key, float value,
                     gpu_matrix_c (&scores)[n]) {
    // The first query attends to the fewest keys. Queries beyond the last may attend to any keys,
    // because their results are not stored.
    if (key + 8 * n <= seen_by(p, query) || query >= p.queries) return;
    GPU_UNROLL
    for (int h = 0; h < 2; h++) {
        int64_t seen = seen_by(p, query + row_at(2 * h)) - key;
        // How many keys of the tile the query attends to.
        int keys = seen < 0 ? 0 : (int)(seen < 8 * n ? seen : 8 * n);
        GPU_UNROLL
        for (int i = 0; i < 2 * n; i++)
            if (i / 2 * 8 + column_at(i) >= keys) scores[i / 2].at[2 * h + i % 2] = value;
    }
}

// Turns the scores of 16 queries into 2^(factor * (score - largest)), where `largest` is the
// query's largest score so far, and adds them to `sum`, of which each lane has the part of its own
// columns. If this tile has a larger score, the earlier `sum` and `out` are scaled down to it. The
// maximum ignores NaN, but the power of NaN is NaN, and so are the sum and the query's results.
template <int n, int N>
GPU_DEVICE void soften(float factor, gpu_matrix_c (&scores)[n], float (&largest)[2],
                       float (&sum)[2], gpu_matrix_c (&out)[N]) {
    GPU_UNROLL
    for (int h = 0; h < 2; h++) {
        float best = largest[h], more = 0;
        GPU_UNROLL
        for (int i = 0; i < 2 * n; i++) best = fmaxf(best, scores[i / 2].at[2 * h + i % 2]);
        best = row_max(best);
        float base = best == -INFINITY ? 0 : -best * factor; // 0: it attends to no key so far
        float shrink = gpu_exp2(fmaf(largest[h], factor, base));
        GPU_UNROLL
        for (int i = 0; i < 2 * n; i++) {
            float &score = scores[i / 2].at[2 * h + i % 2];
            score = gpu_exp2(fmaf(score, factor, base));
            more += score;
        }
        sum[h] = sum[h] * shrink + more;
        largest[h] = best;
        GPU_UNROLL
        for (int d = 0; d < N; d++) {
            out[d].at[2 * h] *= shrink;
            out[d].at[2 * h + 1] *= shrink;
        }
    }
}

// The forward kernel: computes y and log_sum_exp. The tiles of queries with the most keys start
// first, so that none of them still runs alone when all others are done.
template <typename T, int D> GPU_KERNEL_FOR(THREADS, 1) attention(cuda_attention p) {
    using S = shape<D>;
    GPU_DYNAMIC_SHARED(T, q_tile);
    T *k_tile = q_tile + S::queries * S::stride, *v_tile = k_tile + S::keys * S::stride;
    int64_t tiles = (p.queries + S::queries - 1) / S::queries, heads = p.samples * p.heads;
    int own = own_warp() * S::row_tiles * WARP_ROWS;
    // With a positive scale, `scores` keep the scalar products of q and k, whose order is that of
    // the scores, and are multiplied by `factor` when the power of 2 is taken. Else they are
    // multiplied before, because the order would differ.
    float factor = p.scale > 0 ? p.scale * LOG2_E : 1;
    for (int64_t item = blockIdx.x; item < tiles * heads; item += gridDim.x) {
        int64_t n = item % heads / p.heads, head = item % p.heads;
        int64_t query = (tiles - 1 - item / heads) * S::queries;
        int64_t kv_head = head / (p.heads / p.kv_heads);
        int64_t end = seen_by_tile(p, query, S::queries);
        head_rows q = queries_of(p, p.q, n, head), k = keys_of(p, p.k, n, kv_head);
        head_rows v = keys_of(p, p.v, n, kv_head);
        gpu_matrix_c out[S::row_tiles][D / 8] = {}, scores[S::row_tiles][S::keys / 8];
        float largest[S::row_tiles][2], sum[S::row_tiles][2] = {};
        GPU_UNROLL
        for (int i = 0; i < S::row_tiles; i++) largest[i][0] = largest[i][1] = -INFINITY;
        gpu_barrier(); // all warps have read the tiles of the previous item
        copy_tile<T, D, S::queries>(q_tile, q, query, p.width);
        copy_tile<T, D, S::keys>(k_tile, k, 0, p.width);
        for (int64_t key = 0; key < end; key += S::keys) {
            gpu_copy_wait(); // the tile of k has arrived
            gpu_barrier();   // all warps see k, and have read the previous tile of v
            copy_tile<T, D, S::keys>(v_tile, v, key, p.width);
            auto q_rows = [=](int i, int d) { return rows_of<D>(q_tile, own + i * WARP_ROWS, d); };
            multiply<D>(q_rows, k_tile, scores);
            gpu_copy_wait(); // the tile of v has arrived
            gpu_barrier();   // all warps see v, and have read k
            if (key + S::keys < end) copy_tile<T, D, S::keys>(k_tile, k, key + S::keys, p.width);
            GPU_UNROLL
            for (int i = 0; i < S::row_tiles; i++) {
                if (!(p.scale > 0)) scale_scores(p.scale * LOG2_E, scores[i]);
                mask(p, query + own + i * WARP_ROWS, key, -INFINITY, scores[i]);
                soften(factor, scores[i], largest[i], sum[i], out[i]);
            }
            accumulate<D>(scores, v_tile, out);
        }
        gpu_copy_wait();
        GPU_UNROLL
        for (int i = 0; i < S::row_tiles; i++) {
            float scales[2];
            int64_t row = query + own + i * WARP_ROWS;
            GPU_UNROLL
            for (int h = 0; h < 2; h++) {
                float all = row_sum(sum[i][h]);
                scales[h] = 1 / all;
                if (own_lane() % 4 == 0 && row + row_at(2 * h) < p.queries)
                    p.log_sum_exp[(n * p.heads + head) * p.queries + row + row_at(2 * h)] =
                        largest[i][h] * factor * LN_2 + logf(all);
            }
            store<T>(p.y, q, row, p.width, out[i], scales);
        }
    }
}

// What the gradient of a query's scores is computed from, besides the products of q with k and of
// dy with v.
struct query_facts {
    float log_sum_exp; // of the query's scores
    float dot;         // the scalar product of the query's rows of dy and y
};

GPU_DEVICE query_facts facts_of(const cuda_attention_grad &p, int64_t head, int64_t t) {
    if (t >= p.forward.queries) return {0, 0};
    int64_t at = head * p.forward.queries + t;
    return {p.forward.log_sum_exp[at], p.dots[at]};
}

// Begins to copy the facts of `count` queries, from query t on, to shared memory: first all
// log_sum_exp, then all dots. They are 0 for queries beyond the last.
template <int count>
GPU_DEVICE void copy_facts(float *to, const cuda_attention_grad &p, int64_t head, int64_t t) {
    static_assert(2 * count <= THREADS, "a thread copies one number");
    int own = (int)threadIdx.x;
    if (own >= 2 * count) return;
    const float *from = own < count ? p.forward.log_sum_exp : p.dots;
    t += own % count;
    gpu_copy_float(to + own, from + head * p.forward.queries + t, t < p.forward.queries);
}

// Sets probabilities to 0 in a matrix whose 16 rows are keys, from `key` on, and whose columns are
// queries, from `query` on: those of queries that must not attend to the key, and of queries beyond
// the last. Keys beyond the last need no mask, because their results are not stored.
template <int n>
GPU_DEVICE void mask_queries(const cuda_attention &p, int64_t key, int64_t query,
                             gpu_matrix_c (&scores)[n]) {
    // there: how many queries exist from `query` on. begin: how many of the first of them must not
    // attend to the key of row 0; for each further row it is one more.
    int64_t there = p.queries - query, begin = p.causal ? key - (p.keys - p.queries) - query : -16;
    if (there >= 8 * n && begin + WARP_ROWS - 1 <= 0) return;
    int end = (int)(there < 8 * n ? there : 8 * n);
    int first = (int)(begin < -WARP_ROWS ? -WARP_ROWS : begin < 8 * n ? begin : 8 * n);
    GPU_UNROLL
    for (int j = 0; j < n; j++) GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        int at = j * 8 + column_at(i);
        if (at >= end || at < first + row_at(i)) scores[j].at[i] = 0;
    }
}

// Turns `scores` from scalar products of q with k into probabilities, and `ds` from those of dy
// with v into the gradients of scores, for the warp's 16 rows from `row` on, which are queries or,
// with `of_keys`, keys. A score is q · k · scale, so dq and dk have to be multiplied by `scale`
// too; the kernel does that when it stores them. facts(j, i) returns the query_facts for element i
// of the 8 columns number j.
template <bool of_keys, int n, typename F>
GPU_DEVICE void differentiate(const cuda_attention &p, F facts, int64_t row, int64_t column,
                              gpu_matrix_c (&scores)[n], gpu_matrix_c (&ds)[n]) {
    float factor = p.scale * LOG2_E;
    GPU_UNROLL
    for (int j = 0; j < n; j++) GPU_UNROLL
    for (int i = 0; i < 4; i++) {
        float &score = scores[j].at[i];
        score = gpu_exp2(fmaf(score, factor, -facts(j, i).log_sum_exp * LOG2_E));
        ds[j].at[i] -= facts(j, i).dot;
    }
    if (of_keys)
        mask_queries(p, row, column, scores);
    else
        mask(p, row, column, 0, scores);
    GPU_UNROLL
    for (int j = 0; j < n; j++) GPU_UNROLL
    for (int i = 0; i < 4; i++) ds[j].at[i] *= scores[j].at[i];
}

// Adds what one tile of columns contributes to the warp's 16 rows of a gradient: to those of dq or,
// with `of_keys`, of dk (both in `sums`, without the factor `scale`) and dv. `rows` is the tile of
// q and then that of dy (k and then v), `columns` that of k and then that of v (q and then dy).
template <int D, bool of_keys, typename T, typename F>
GPU_DEVICE void add_tile(const cuda_attention &p, const T *rows, const T *columns, F facts,
                         int64_t row, int64_t column, gpu_matrix_c (&sums)[1][D / 8],
                         gpu_matrix_c (&dv)[1][D / 8]) {
    using S = shape<D>;
    const T *v_or_dy = columns + S::columns * S::stride;
    int own = own_warp() * WARP_ROWS;
    gpu_matrix_c scores[1][S::columns / 8], ds[1][S::columns / 8];
    auto q_or_k_at = [=](int, int d) { return rows_of<D>(rows, own, d); };
    auto dy_or_v_at = [=](int, int d) { return rows_of<D>(rows, S::rows + own, d); };
    multiply<D>(q_or_k_at, columns, scores);
    multiply<D>(dy_or_v_at, v_or_dy, ds);
    differentiate<of_keys>(p, facts, row + own, column, scores[0], ds[0]);
    if (of_keys) accumulate<D>(scores, v_or_dy, dv);
    accumulate<D>(ds, columns, sums);
}

// Computes dq (rows are queries, columns keys) or, with `of_keys`, dk and dv (rows are keys,
// columns the queries of all heads that read them).
template <typename T, int D, bool of_keys>
GPU_KERNEL_FOR(THREADS, of_keys ? 1 : 3)
gradient(cuda_attention_grad p) {
    using S = shape<D>;
    enum { TILE = S::columns * S::stride };
    // Shared memory holds a tile of rows of q and one of dy (with `of_keys`: of k and v), then two
    // buffers for columns, each a tile of k and one of v (of q and dy, and the queries' facts). One
    // buffer is filled while the warps compute with the other.
    GPU_DYNAMIC_SHARED(T, q_or_k_rows);
    T *dy_or_v_rows = q_or_k_rows + S::rows * S::stride;
    T *column_buffers = dy_or_v_rows + S::rows * S::stride;
    float *fact_buffers = (float *)(column_buffers + 4 * TILE);
    const cuda_attention &f = p.forward;
    int64_t all = of_keys ? f.kv_heads : f.heads, heads = f.samples * all;
    int64_t tiles = ((of_keys ? f.keys : f.queries) + S::rows - 1) / S::rows;
    int64_t group = f.heads / f.kv_heads;
    int own = own_warp() * WARP_ROWS;
    for (int64_t item = blockIdx.x; item < tiles * heads; item += gridDim.x) {
        int64_t n = item % heads / all, own_head = item % all;
        int64_t row = (of_keys ? item / heads : tiles - 1 - item / heads) * S::rows;
        int64_t kv_head = of_keys ? own_head : own_head / group;
        int64_t first = of_keys ? tiles_before(f, row, S::columns) * S::columns : 0;
        int64_t end = of_keys ? f.queries : seen_by_tile(f, row, S::rows);
        int64_t head = of_keys ? kv_head * group : own_head; // the first head of the queries
        head_rows k = keys_of(f, f.k, n, kv_head), v = keys_of(f, f.v, n, kv_head);
        auto copy_columns = [&](int buffer, int64_t of_head, int64_t at) {
            T *to = column_buffers + buffer * 2 * TILE;
            head_rows k_or_q = of_keys ? queries_of(f, f.q, n, of_head) : k;
            head_rows v_or_dy = of_keys ? queries_of(f, p.dy, n, of_head) : v;
            copy_tile<T, D, S::columns>(to, k_or_q, at, f.width);
            copy_tile<T, D, S::columns>(to + TILE, v_or_dy, at, f.width);
            if (of_keys)
                copy_facts<S::columns>(fact_buffers + buffer * 2 * S::columns, p,
                                       n * f.heads + of_head, at);
        };
        gpu_matrix_c sums[1][D / 8] = {}, dv[1][D / 8] = {};
        query_facts rows[2] = {};
        for (int h = 0; !of_keys && h < 2; h++)
            rows[h] = facts_of(p, n * f.heads + head, row + own + row_at(2 * h));
        gpu_barrier(); // all warps have read the tiles of the previous item
        head_rows q = queries_of(f, f.q, n, head), dy = queries_of(f, p.dy, n, head);
        copy_tile<T, D, S::rows>(q_or_k_rows, of_keys ? k : q, row, f.width);
        copy_tile<T, D, S::rows>(dy_or_v_rows, of_keys ? v : dy, row, f.width);
        int64_t last_head = of_keys ? head + group - 1 : head, column = first;
        if (first < end) copy_columns(0, head, first);
        for (int buffer = 0; first < end && head <= last_head; buffer ^= 1) {
            int64_t next = column + S::columns, next_head = head;
            if (next >= end) next = first, next_head++;
            gpu_copy_wait();
            // After this barrier the tiles of this iteration have arrived, and all warps have read
            // those of the iteration before, so their buffer can be filled again.
            gpu_barrier();
            if (next_head <= last_head) copy_columns(buffer ^ 1, next_head, next);
            const T *k_or_q_columns = column_buffers + buffer * 2 * TILE;
            const float *facts = fact_buffers + buffer * 2 * S::columns;
            auto facts_at = [&](int j, int i) -> query_facts {
                int at = j * 8 + column_at(i);
                if (of_keys) return {facts[at], facts[S::columns + at]};
                return rows[i / 2];
            };
            add_tile<D, of_keys>(f, q_or_k_rows, k_or_q_columns, facts_at, row, column, sums, dv);
            column = next;
            head = next_head;
        }
        gpu_copy_wait();
        store<T>(of_keys ? p.dk : p.dq, of_keys ? k : q, row + own, f.width, sums[0],
                 {f.scale, f.scale});
        if (of_keys) store<T>(p.dv, v, row + own, f.width, dv[0], {1, 1});
    }
}

template <typename T, int D>
tri_status launch(cuda_stream *stream, const cuda_attention *p, char *why) {
    int64_t tiles = (p->queries + shape<D>::queries - 1) / shape<D>::queries;
    return gpu_launch(stream, attention<T, D>, gpu_at_most(tiles * p->samples * p->heads), THREADS,
                      *p, why, shape<D>::bytes);
}

template <typename T, int D>
tri_status launch(cuda_stream *stream, const cuda_attention_grad *p, char *why) {
    const cuda_attention *f = &p->forward;
    int64_t rows = shape<D>::rows, queries = (f->queries + rows - 1) / rows;
    int64_t keys = (f->keys + rows - 1) / rows;
    tri_status status =
        gpu_launch(stream, gradient<T, D, false>, gpu_at_most(queries * f->samples * f->heads),
                   THREADS, *p, why, shape<D>::grad_bytes);
    if (status != TRI_OK) return status;
    return gpu_launch(stream, gradient<T, D, true>, gpu_at_most(keys * f->samples * f->kv_heads),
                      THREADS, *p, why, shape<D>::grad_bytes);
}

template <typename P>
tri_status launch_as(cuda_stream *stream, tri_dtype type, int64_t width, const P *p, char *why) {
    if (type == TRI_BF16)
        return width <= 64 ? launch<gpu_bf16, 64>(stream, p, why)
                           : launch<gpu_bf16, 128>(stream, p, why);
    return width <= 64 ? launch<gpu_f16, 64>(stream, p, why) : launch<gpu_f16, 128>(stream, p, why);
}

} // namespace

// The copies move 16 bytes at a time, so addresses must be multiples of 16.
bool attention_has_matrix(const cuda_attention *p) {
    uintptr_t addresses = (uintptr_t)p->q | (uintptr_t)p->k | (uintptr_t)p->v | (uintptr_t)p->y;
    return (p->type == TRI_BF16 || p->type == TRI_F16) && p->width <= 128 &&
           gpu_in_lots(p->width, 8, addresses);
}

bool attention_has_matrix(const cuda_attention_grad *p) {
    uintptr_t addresses = (uintptr_t)p->dy | (uintptr_t)p->dq | (uintptr_t)p->dk | (uintptr_t)p->dv;
    return attention_has_matrix(&p->forward) && addresses % 16 == 0;
}

tri_status attention_by_matrix(cuda_stream *stream, const cuda_attention *p, char *why) {
    return launch_as(stream, p->type, p->width, p, why);
}

tri_status attention_grad_by_matrix(cuda_stream *stream, const cuda_attention_grad *p, char *why) {
    return launch_as(stream, p->forward.type, p->forward.width, p, why);
}
#else
bool attention_has_matrix(const cuda_attention *) { return false; }
bool attention_has_matrix(const cuda_attention_grad *) { return false; }
tri_status attention_by_matrix(cuda_stream *, const cuda_attention *, char *) {
    return TRI_UNSUPPORTED;
}
tri_status attention_grad_by_matrix(cuda_stream *, const cuda_attention_grad *, char *) {
    return TRI_UNSUPPORTED;
}
#endif
