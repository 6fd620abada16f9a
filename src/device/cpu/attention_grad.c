// The gradient of attention with AVX-512. Recomputes the scores of 96 queries by 64 keys at a time.
// One thread computes a head of k and v with all heads of q that read it, so that the terms of a
// sum are added in the same order whatever the number of threads. A panel is 64 columns of a head;
// buffers hold a head panel by panel, as the products (tile.h) read it.
//
// With attention_state.pairs the products multiply pairs of BF16 values that are neighbours along
// the axis that is summed over (the head's width, keys or queries). Then the probabilities p and
// the gradients of the scores ds are rounded to BF16 before they enter the products dv = pᵀ·dy,
// dk = dsᵀ·q and dq = ds·k. All sums are F32.
#include "device/cpu/attention.h"

#include "device/cpu/simd.h"
#include "device/cpu/tile.h"

#include <math.h>

enum { GRAD_QUERIES = 96 };

// The scalar product of the rows of `a` and `b` that begin at element `at`. Prefetches the row of
// `a` that begins at element `next`, because a later call reads it.
static CPU_AVX512 float dot_rows(const attention_state *s, const void *a, const void *b, int64_t at,
                                 int64_t next) {
    __m512 sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < s->width; i += 16) {
        __builtin_prefetch(attention_at(s, a, next + i));
        __mmask16 inside = cpu_first_lanes(s->width - i);
        sum = _mm512_fmadd_ps(cpu_load(a, s->bf16, at + i, inside),
                              cpu_load(b, s->bf16, at + i, inside), sum);
    }
    return _mm512_reduce_add_ps(sum);
}

void attention_dot_y_dy(const attention_grad_job *job, int64_t n, int64_t head, float *out) {
    const attention_state *s = job->state;
    int64_t stride = s->heads * s->width, at = attention_query(s, n, 0, head);
    for (int64_t t = 0; t < s->queries; t++)
        out[t] = dot_rows(s, job->call.y, job->call.dy, at + t * stride, at + (t + 8) * stride);
}

tri_status attention_run_gradient(const tri_kernel *kernel, const tri_kernel_args *args,
                                  cpu_range range) {
    const attention_state *s = kernel->state;
    attention_grad_job job = {.state = s, .call = attention_gradient_call(args)};
    cpu_parallel(s->device, s->samples * s->kv_heads, 1, range, &job);
    return TRI_OK;
}

// The buffers of one thread. With pairs, each 4-byte element of the packed buffers is a pair, and
// the axis marked * has half as many elements (rounded up).
typedef struct grad_space {
    float *k_columns, *v_columns; // packed: [key block][width *][64 keys]: k and v, transposed
    float *k, *q, *dy;            // packed: [panel][key or query *][64 columns]
    float *dq, *dk, *dv;          // [panel][query or key][64 columns]: the gradients' sums so far
    float *p;                     // [96 queries][64 keys]: scores, then probabilities
    float *ds;   // [96 queries][64 keys]: dy · v, then the gradients of the scores
    float *y_dy; // [query]: the scalar product of the query's rows of y and dy
    // Only with pairs: p and ds as left operands of dv and dk, [48 pairs of queries][64 keys], and
    // ds as the left operand of dq, [96 queries][32 pairs of keys].
    float *p_pairs, *ds_pairs, *ds_rows;
} grad_space;

// Places the buffers one after the other, from `base` on, and returns how many floats they have.
// With `base` NULL it only computes the size.
static int64_t space_at(const attention_state *s, float *base, grad_space *z) {
    int64_t columns = s->key_blocks * attention_packed(s, s->width) * ATTENTION_KEYS;
    int64_t keys = s->panels * s->keys * CPU_TILE_COLUMNS;
    int64_t queries = s->panels * s->queries * CPU_TILE_COLUMNS;
    int64_t packed_keys = s->panels * attention_packed(s, s->keys) * CPU_TILE_COLUMNS;
    int64_t packed_queries = s->panels * attention_packed(s, s->queries) * CPU_TILE_COLUMNS;
    int64_t block = GRAD_QUERIES * ATTENTION_KEYS, block_pairs = s->pairs ? block / 2 : 0;
    struct {
        float **buffer;
        int64_t count;
    } buffers[] = {{&z->k_columns, columns},
                   {&z->v_columns, columns},
                   {&z->k, packed_keys},
                   {&z->q, packed_queries},
                   {&z->dy, packed_queries},
                   {&z->dk, keys},
                   {&z->dv, keys},
                   {&z->dq, queries},
                   {&z->p, block},
                   {&z->ds, block},
                   {&z->y_dy, s->queries},
                   {&z->p_pairs, block_pairs},
                   {&z->ds_pairs, block_pairs},
                   {&z->ds_rows, block_pairs}};
    int64_t total = 0;
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        *buffers[i].buffer = base ? base + total : NULL;
        total += (buffers[i].count + 15) / 16 * 16;
    }
    return total;
}

static tri_status grad_workspace(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node, size_t *out) {
    attention_state state = attention_state_of(device, graph, node);
    grad_space z;
    *out = (size_t)(space_at(&state, NULL, &z) * device->threads) * sizeof(float);
    return TRI_OK;
}

// What one thread computes at present: head `head` of q in sample n, which reads head `kv_head` of
// k and v.
typedef struct grad_head {
    const attention_grad_job *job;
    const attention_state *s;
    grad_space z;
    int64_t n, kv_head, head;
} grad_head;

// Packs `rows` rows of a head, which begin at element `at` of `tensor` and lie `stride` elements
// apart, into panels [panel][row][64], with pairs of rows if the products multiply pairs.
static CPU_AVX512 void pack_rows(const attention_state *s, const void *tensor, int64_t at,
                                 int64_t stride, int64_t rows, float *to) {
    int64_t panel = attention_packed(s, rows) * CPU_TILE_COLUMNS;
    if (!s->pairs) {
        cpu_pack_rows(attention_at(s, tensor, at), s->bf16, stride, rows, s->width, to, panel);
        return;
    }
    const uint16_t *from = (const uint16_t *)tensor + at;
    for (int64_t r = 0; r < rows; r += 2, from += 2 * stride, to += CPU_TILE_COLUMNS)
        for (int64_t i = 0; i < s->panels * CPU_TILE_COLUMNS; i += 16) {
            __builtin_prefetch(from + 16 * stride + i);
            __builtin_prefetch(from + 17 * stride + i);
            __mmask16 inside = i < s->width ? cpu_first_lanes(s->width - i) : 0;
            _mm512_storeu_si512(to + i / CPU_TILE_COLUMNS * panel + i % CPU_TILE_COLUMNS,
                                cpu_pairs_of_rows(from + i, stride, r + 1 < rows, inside));
        }
}

static void pack_keys(const grad_head *g) {
    const attention_state *s = g->s;
    int64_t stride = s->kv_heads * s->width;
    int64_t at = attention_key(s, g->n, 0, g->kv_head);
    for (int64_t b = 0; b < s->key_blocks; b++) {
        int64_t first = b * ATTENTION_KEYS, left = s->keys - first;
        int64_t count = left < ATTENTION_KEYS ? left : ATTENTION_KEYS;
        int64_t from = at + first * stride, to = first * attention_packed(s, s->width);
        attention_pack_columns(s, g->job->call.k, from, count, g->z.k_columns + to);
        attention_pack_columns(s, g->job->call.v, from, count, g->z.v_columns + to);
    }
    pack_rows(s, g->job->call.k, at, stride, s->keys, g->z.k);
}

static void pack_queries(const grad_head *g) {
    const attention_state *s = g->s;
    int64_t stride = s->heads * s->width, at = attention_query(s, g->n, 0, g->head);
    pack_rows(s, g->job->call.q, at, stride, s->queries, g->z.q);
    pack_rows(s, g->job->call.dy, at, stride, s->queries, g->z.dy);
    attention_dot_y_dy(g->job, g->n, g->head, g->z.y_dy);
}

// The left operand of a product with rows of q or dy, from query t on: the packed panels or, with
// pairs, the rows of the tensor itself.
static cpu_tile rows_of(const grad_head *g, const void *tensor, const float *panels, int64_t t) {
    const attention_state *s = g->s;
    if (!s->pairs)
        return (cpu_tile){.a = panels + t * CPU_TILE_COLUMNS, .a_row = CPU_TILE_COLUMNS, .a_k = 1};
    return (cpu_tile){.a = attention_at(s, tensor, attention_query(s, g->n, t, g->head)),
                      .a_row = s->heads * s->width / 2,
                      .a_k = 1,
                      .pairs = true};
}

// Multiplies rows t to t + rows − 1 of `tensor` (q or dy, which `panels` holds packed) by the first
// `visible` keys of key block number `block` in `columns` (k_columns or v_columns). out[i][key] is
// the scalar product of row t + i with that key's row of k or v; the rows of `out` are 64 floats
// long.
static void product_with_block(const grad_head *g, const void *tensor, const float *panels,
                               const float *columns, int64_t block, int64_t t, int64_t rows,
                               int64_t visible, float *out) {
    const attention_state *s = g->s;
    cpu_tile tile = rows_of(g, tensor, panels, t);
    tile.b = columns + block * attention_packed(s, s->width) * ATTENTION_KEYS;
    tile.c = out;
    tile.c_row = ATTENTION_KEYS;
    for (int64_t p = 0; p < s->panels; p++) {
        tile.k = attention_packed(s, attention_columns(s, p));
        tile.accumulate = p > 0;
        cpu_tile_multiply(&tile, rows, visible);
        tile.a += s->pairs ? CPU_TILE_COLUMNS / 2 : s->queries * CPU_TILE_COLUMNS;
        tile.b += tile.k * ATTENTION_KEYS;
    }
}

static int64_t at_most(int64_t value, int64_t limit) { return value < limit ? value : limit; }

// Computes the probabilities p and the scores' gradients ds of one query for a block of keys.
// Before the call p holds the query's scores without the scale, and ds holds dy · v. Both become 0
// from key number `visible` of the block on, because those keys are masked or do not exist.
static CPU_AVX512 void differentiate_row(const attention_state *s, float log_sum_exp, float y_dy,
                                         int64_t visible, float *p, float *ds) {
    __m512 scale = _mm512_set1_ps(s->scale), log_sum_exp_lanes = _mm512_set1_ps(log_sum_exp);
    __m512 y_dy_lanes = _mm512_set1_ps(y_dy);
    for (int64_t i = 0; i < ATTENTION_KEYS; i += 16) {
        if (i >= visible) {
            _mm512_storeu_ps(p + i, _mm512_setzero_ps());
            _mm512_storeu_ps(ds + i, _mm512_setzero_ps());
            continue;
        }
        __mmask16 inside = cpu_first_lanes(visible - i);
        __m512 probability =
            cpu_exp(_mm512_fmsub_ps(_mm512_loadu_ps(p + i), scale, log_sum_exp_lanes));
        probability = _mm512_maskz_mov_ps(inside, probability);
        __m512 slope = _mm512_sub_ps(_mm512_loadu_ps(ds + i), y_dy_lanes);
        _mm512_storeu_ps(p + i, probability);
        slope = _mm512_maskz_mul_ps(inside, _mm512_mul_ps(probability, scale), slope);
        _mm512_storeu_ps(ds + i, slope);
    }
}

// Queries [first, end) and the keys [key, key + keys) of a key block. The last query attends to at
// least one of these keys.
typedef struct grad_block {
    int64_t first, end, key, keys;
} grad_block;

// How many of the block's keys query t attends to.
static int64_t visible_in_block(const attention_state *s, const grad_block *b, int64_t t) {
    return at_most(attention_visible_keys(s, t) - b->key, b->keys);
}

// Rounds rows [row, row + rows) of p and ds to BF16 and stores them as the pairs that the products
// read. `row` is even; behind an odd number of rows there is a row of zeros.
static CPU_AVX512 void narrow_rows(const grad_space *z, int64_t row, int64_t rows) {
    for (int64_t r = row; r < row + rows; r += 2)
        for (int64_t i = 0; i < ATTENTION_KEYS; i += 16) {
            int64_t at = r * ATTENTION_KEYS + i, below = at + ATTENTION_KEYS;
            int64_t pair = r / 2 * ATTENTION_KEYS + i;
            bool both = r + 1 < row + rows;
            __m256i p_below = _mm256_setzero_si256(), ds_below = _mm256_setzero_si256();
            __m256i p = cpu_narrow(_mm512_loadu_ps(z->p + at));
            __m256i ds = cpu_narrow(_mm512_loadu_ps(z->ds + at));
            if (both) {
                p_below = cpu_narrow(_mm512_loadu_ps(z->p + below));
                ds_below = cpu_narrow(_mm512_loadu_ps(z->ds + below));
                _mm256_storeu_si256((void *)(z->ds_rows + below / 2), ds_below);
            }
            _mm256_storeu_si256((void *)(z->ds_rows + at / 2), ds);
            _mm512_storeu_si512(z->p_pairs + pair, cpu_pairs(p, p_below));
            _mm512_storeu_si512(z->ds_pairs + pair, cpu_pairs(ds, ds_below));
        }
}

static void compute_probabilities(const grad_head *g, const grad_block *b) {
    const attention_state *s = g->s;
    const grad_space *z = &g->z;
    const float *log_sum_exp = g->job->call.log_sum_exp + (g->n * s->heads + g->head) * s->queries;
    for (int64_t t = b->first; t < b->end; t += CPU_TILE_ROWS) {
        int64_t rows = at_most(b->end - t, CPU_TILE_ROWS), block = b->key / ATTENTION_KEYS;
        int64_t visible = visible_in_block(s, b, t + rows - 1);
        float *p = z->p + (t - b->first) * ATTENTION_KEYS;
        float *ds = z->ds + (t - b->first) * ATTENTION_KEYS;
        product_with_block(g, g->job->call.q, z->q, z->k_columns, block, t, rows, visible, p);
        product_with_block(g, g->job->call.dy, z->dy, z->v_columns, block, t, rows, visible, ds);
        for (int64_t i = 0; i < rows; i++)
            differentiate_row(s, log_sum_exp[t + i], z->y_dy[t + i], visible_in_block(s, b, t + i),
                              p + i * ATTENTION_KEYS, ds + i * ATTENTION_KEYS);
        if (s->pairs) narrow_rows(z, t - b->first, rows);
    }
}

static void add_to_queries(const grad_head *g, const grad_block *b, int64_t panel) {
    const attention_state *s = g->s;
    const float *ds = s->pairs ? g->z.ds_rows : g->z.ds;
    int64_t row = attention_packed(s, ATTENTION_KEYS),
            key = panel * attention_packed(s, s->keys) + attention_packed(s, b->key);
    for (int64_t t = b->first; t < b->end; t += CPU_TILE_ROWS) {
        int64_t rows = at_most(b->end - t, CPU_TILE_ROWS);
        cpu_tile tile = {.k = attention_packed(s, visible_in_block(s, b, t + rows - 1)),
                         .a = ds + (t - b->first) * row,
                         .a_row = row,
                         .a_k = 1,
                         .b = g->z.k + key * CPU_TILE_COLUMNS,
                         .c = g->z.dq + (panel * s->queries + t) * CPU_TILE_COLUMNS,
                         .c_row = CPU_TILE_COLUMNS,
                         .accumulate = true,
                         .pairs = s->pairs};
        cpu_tile_multiply(&tile, rows, CPU_TILE_COLUMNS);
    }
}

// Adds weightsᵀ · rows to `sums`, for one panel of columns. `weights` [query][key] is p or ds,
// `rows` is dy or q with a row for each query, and `sums` is dv or dk with a row for each key. With
// pairs, `weights` and `rows` consist of pairs of queries.
static void add_to_keys(const grad_head *g, const grad_block *b, int64_t panel,
                        const float *weights, const float *rows, float *sums) {
    const attention_state *s = g->s;
    int64_t first = s->pairs ? b->first / 2 : b->first, end = attention_packed(s, b->end);
    for (int64_t i = 0; i < b->keys; i += CPU_TILE_ROWS) {
        int64_t t = attention_first_query(s, b->key + i);
        if (t < b->first) t = b->first;
        if (t >= b->end) break;
        if (s->pairs) t /= 2;
        cpu_tile tile = {.k = end - t,
                         .a = weights + (t - first) * ATTENTION_KEYS + i,
                         .a_row = 1,
                         .a_k = ATTENTION_KEYS,
                         .b = rows +
                              (panel * attention_packed(s, s->queries) + t) * CPU_TILE_COLUMNS,
                         .c = sums + (panel * s->keys + b->key + i) * CPU_TILE_COLUMNS,
                         .c_row = CPU_TILE_COLUMNS,
                         .accumulate = true,
                         .pairs = s->pairs};
        cpu_tile_multiply(&tile, at_most(b->keys - i, CPU_TILE_ROWS), CPU_TILE_COLUMNS);
    }
}

// Stores panels [panel][row][64] as rows of the tensor `to`, from its element `at` on, with a
// distance of `stride` elements between rows.
static CPU_AVX512 void unpack(const attention_state *s, const float *from, int64_t rows, void *to,
                              int64_t at, int64_t stride) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < s->width; i += 16) {
            __builtin_prefetch(attention_at(s, to, at + (r + 8) * stride + i), 1);
            const float *row = from + (i / 64 * rows + r) * CPU_TILE_COLUMNS + i % 64;
            cpu_store(to, s->bf16, at + r * stride + i, cpu_first_lanes(s->width - i),
                      _mm512_loadu_ps(row));
        }
}

static void clear(const attention_state *s, float *sums, int64_t rows) {
    for (int64_t i = 0; i < s->panels * rows * CPU_TILE_COLUMNS; i++) sums[i] = 0;
}

static void add_head(const grad_head *g) {
    const attention_state *s = g->s;
    pack_queries(g);
    clear(s, g->z.dq, s->queries);
    for (int64_t block = 0; block < s->key_blocks; block++) {
        int64_t start = attention_first_query(s, block * ATTENTION_KEYS), end;
        if (s->pairs) start -= start % 2; // blocks begin with a whole pair of queries
        for (int64_t first = start; first < s->queries; first = end) {
            end = at_most(first + GRAD_QUERIES, s->queries);
            int64_t key = block * ATTENTION_KEYS;
            grad_block b = {first, end, key, at_most(s->keys - key, ATTENTION_KEYS)};
            compute_probabilities(g, &b);
            for (int64_t panel = 0; panel < s->panels; panel++) {
                add_to_queries(g, &b, panel);
                add_to_keys(g, &b, panel, s->pairs ? g->z.ds_pairs : g->z.ds, g->z.q, g->z.dk);
                add_to_keys(g, &b, panel, s->pairs ? g->z.p_pairs : g->z.p, g->z.dy, g->z.dv);
            }
        }
    }
    unpack(s, g->z.dq, s->queries, g->job->call.out, attention_query(s, g->n, 0, g->head),
           s->heads * s->width);
}

static void grad_range(void *context, int64_t begin, int64_t end, int thread) {
    const attention_grad_job *job = context;
    const attention_state *s = job->state;
    grad_head g = {.job = job, .s = s};
    int64_t each = space_at(s, NULL, &g.z);
    space_at(s, job->call.workspace + thread * each, &g.z);
    for (int64_t i = begin; i < end; i++) {
        g.n = i / s->kv_heads;
        g.kv_head = i % s->kv_heads;
        pack_keys(&g);
        clear(s, g.z.dk, s->keys);
        clear(s, g.z.dv, s->keys);
        for (g.head = g.kv_head * s->group; g.head < (g.kv_head + 1) * s->group; g.head++)
            add_head(&g);
        int64_t at = attention_key(s, g.n, 0, g.kv_head), stride = s->kv_heads * s->width;
        unpack(s, g.z.dk, s->keys, job->call.dk, at, stride);
        unpack(s, g.z.dv, s->keys, job->call.dv, at, stride);
    }
}

static tri_status grad_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    return attention_run_gradient(kernel, args, grad_range);
}

const tri_kernel_def cpu_attention_grad_tiles = {
    .op = &tri_op_attention_grad,
    .name = "avx512-tiles",
    .supports = attention_supports,
    .workspace = grad_workspace,
    .prepare = attention_prepare,
    .run = grad_run,
    .release = attention_release,
};
