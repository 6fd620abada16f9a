// The gradient of attention of BF16 by AMX. Recomputes the scores of 128 keys by 128 queries at a
// time. Operands are packed in chunks of 32 × 32 values (amx.h), so blocks are counted in 32 keys,
// 32 queries or 32 columns (of the head's width).
//
// Scores are computed transposed, one row for each key, so that the probabilities p and the
// gradients of the scores ds come out as left operands of dv = pᵀ·dy and dk = dsᵀ·q. One thread
// computes a head of k and v with all heads of q that read it, so that the terms of a sum
// are added in the same order whatever the number of threads.
#include "device/cpu/amx.h"
#include "device/cpu/attention.h"
#include "device/cpu/tile.h"

#include <string.h>

enum { GRAD_BLOCKS = 4 }; // how many blocks of 32 keys, and of 32 queries, are computed at a time

// The buffers of one thread, in chunks of 32 × 32 elements.
typedef struct grad_space {
    // Left operands of products, in BF16.
    uint16_t *k, *v;        // [key block][width block]
    uint16_t *k_transposed; // [width block][key block]
    uint16_t *p, *ds;       // [key block][query block]
    // Right operands of products, in BF16.
    uint16_t *q, *dy;           // transposed: [query block][width block]
    uint16_t *q_rows, *dy_rows; // [width block][query block]
    uint16_t *ds_pairs;         // ds as a right operand: [query block][key block]
    // Sums, in F32.
    float *dk, *dv;     // [key block][width block]
    float *dq;          // transposed: [query block][width block]
    float *scores, *dp; // one chunk each; dp is the gradient of the probabilities, v · dy
    float *y_dy;        // [query]: the scalar product of the query's rows of y and dy
} grad_space;

static int64_t at_most(int64_t value, int64_t limit) { return value < limit ? value : limit; }

// Places the buffers one after the other, from `base` on, and returns how many bytes they take.
// With `base` NULL it only computes the size.
static size_t space_at(const attention_state *s, char *base, grad_space *z) {
    int64_t keys = cpu_amx_blocks(s->keys), queries = cpu_amx_blocks(s->queries),
            width = cpu_amx_blocks(s->width);
    int64_t square = GRAD_BLOCKS * GRAD_BLOCKS;
    struct {
        void *buffer;
        int64_t chunks;
        size_t element_bytes;
    } buffers[] = {{&z->k, keys * width, 2},
                   {&z->v, keys * width, 2},
                   {&z->k_transposed, keys * width, 2},
                   {&z->q, queries * width, 2},
                   {&z->dy, queries * width, 2},
                   {&z->q_rows, queries * width, 2},
                   {&z->dy_rows, queries * width, 2},
                   {&z->p, square, 2},
                   {&z->ds, square, 2},
                   {&z->ds_pairs, square, 2},
                   {&z->dk, keys * width, 4},
                   {&z->dv, keys * width, 4},
                   {&z->dq, queries * width, 4},
                   {&z->scores, 1, 4},
                   {&z->dp, 1, 4},
                   {&z->y_dy, cpu_amx_blocks(queries), 4}};
    size_t total = 0;
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        char *at = base ? base + total : NULL;
        memcpy(buffers[i].buffer, &at, sizeof at);
        total += (size_t)buffers[i].chunks * CPU_AMX_CHUNK * buffers[i].element_bytes;
    }
    return total;
}

static tri_status grad_workspace(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node, size_t *out) {
    attention_state state = attention_state_of(device, graph, node);
    grad_space z;
    *out = space_at(&state, NULL, &z) * (size_t)device->threads;
    return TRI_OK;
}

// What one thread computes at present: blocks of keys [key, end_key) and of queries [query,
// end_query) of head `head`, which reads head `kv_head` of k and v.
typedef struct grad_head {
    const attention_grad_job *job;
    const attention_state *s;
    grad_space z;
    int64_t n, kv_head, head;
    int64_t width, all_keys, all_queries;   // sizes, counted in blocks of 32
    int64_t key, end_key, query, end_query; // positions, counted in blocks of 32
} grad_head;

static void pack_keys(const grad_head *g) {
    const attention_state *s = g->s;
    int64_t stride = s->kv_heads * s->width, at = attention_key(s, g->n, 0, g->kv_head);
    const uint16_t *k = (const uint16_t *)g->job->call.k + at;
    cpu_amx_pack_a_rows(k, stride, s->keys, s->width, g->z.k);
    cpu_amx_pack_a_rows((const uint16_t *)g->job->call.v + at, stride, s->keys, s->width, g->z.v);
    cpu_amx_pack_a_columns(k, stride, s->width, s->keys, g->z.k_transposed);
}

static void pack_queries(const grad_head *g) {
    const attention_state *s = g->s;
    int64_t stride = s->heads * s->width, at = attention_query(s, g->n, 0, g->head);
    const uint16_t *q = (const uint16_t *)g->job->call.q + at;
    const uint16_t *dy = (const uint16_t *)g->job->call.dy + at;
    cpu_amx_pack_b_rows(q, stride, s->width, s->queries, g->z.q);
    cpu_amx_pack_b_rows(dy, stride, s->width, s->queries, g->z.dy);
    cpu_amx_pack_b_plain(q, stride, s->queries, s->width, g->z.q_rows);
    cpu_amx_pack_b_plain(dy, stride, s->queries, s->width, g->z.dy_rows);
    attention_dot_y_dy(g->job, g->n, g->head, g->z.y_dy);
}

// Computes p and ds of one block of keys and one block of queries as BF16, from the transposed
// scores and dp. `key` and `query` are the blocks' numbers. `pairs` gets a second copy of ds, in
// the order of a right operand.
static CPU_AVX512 void differentiate(const grad_head *g, int64_t key, int64_t query, uint16_t *p,
                                     uint16_t *ds, uint16_t *pairs) {
    const attention_state *s = g->s;
    const float *log_sum_exp = g->job->call.log_sum_exp + (g->n * s->heads + g->head) * s->queries;
    __m512 scale = _mm512_set1_ps(s->scale);
    for (int64_t half = 0; half < CPU_AMX_SIDE; half += 16) {
        int64_t t = query * CPU_AMX_SIDE + half;
        __mmask16 here = t < s->queries ? cpu_first_lanes(s->queries - t) : 0;
        __m512 log_sum_exp_lanes = _mm512_maskz_loadu_ps(here, log_sum_exp + t);
        __m512 y_dy_lanes = _mm512_maskz_loadu_ps(here, g->z.y_dy + t);
        __m512i even = _mm512_setzero_si512();
        for (int64_t i = 0; i < CPU_AMX_SIDE; i++) {
            int64_t row = key * CPU_AMX_SIDE + i, at = i * CPU_AMX_SIDE + half;
            // How many vector lanes have queries before the first one that attends to this key.
            int64_t before = attention_first_query(s, row) - t;
            __mmask16 visible = row < s->keys ? here : 0;
            if (before > 0) visible &= before < 16 ? (__mmask16)(0xFFFFu << before) : 0;
            __m512 x = _mm512_loadu_ps(g->z.scores + at), slope = _mm512_loadu_ps(g->z.dp + at);
            __m512 probability =
                _mm512_maskz_mov_ps(visible, cpu_exp(_mm512_fmsub_ps(x, scale, log_sum_exp_lanes)));
            slope = _mm512_maskz_mul_ps(visible, _mm512_mul_ps(probability, scale),
                                        _mm512_sub_ps(slope, y_dy_lanes));
            __m256i narrow = cpu_narrow(slope);
            _mm256_storeu_si256((void *)(p + at), cpu_narrow(probability));
            _mm256_storeu_si256((void *)(ds + at), narrow);
            __m512i wide = _mm512_cvtepu16_epi32(narrow);
            if (i % 2 == 0)
                even = wide;
            else
                _mm512_storeu_si512(pairs + (half + i / 2) * CPU_AMX_SIDE,
                                    _mm512_or_si512(even, _mm512_slli_epi32(wide, 16)));
        }
    }
}

// Finds the first of the current blocks of queries in which a query attends to a key of block
// `key`. The blocks before it are skipped, because the causal mask makes all their probabilities 0.
static int64_t first_query(const grad_head *g, int64_t key) {
    int64_t first = attention_first_query(g->s, key * CPU_AMX_SIDE) / CPU_AMX_SIDE;
    return first > g->query ? first : g->query;
}

static void compute_probabilities(const grad_head *g) {
    const grad_space *z = &g->z;
    int64_t step = g->width * CPU_AMX_CHUNK;
    for (int64_t key = g->key; key < g->end_key; key++) {
        cpu_amx_rows k = cpu_amx_packed(z->k + key * step), v = cpu_amx_packed(z->v + key * step);
        for (int64_t query = first_query(g, key); query < g->end_query; query++) {
            int64_t row = key - g->key, column = query - g->query;
            int64_t at = (row * GRAD_BLOCKS + column) * CPU_AMX_CHUNK;
            int64_t transposed = (column * GRAD_BLOCKS + row) * CPU_AMX_CHUNK;
            cpu_amx_block(&k, z->q + query * step, g->width, z->scores, CPU_AMX_OVERWRITE,
                          CPU_AMX_SIDE, CPU_AMX_SIDE);
            cpu_amx_block(&v, z->dy + query * step, g->width, z->dp, CPU_AMX_OVERWRITE,
                          CPU_AMX_SIDE, CPU_AMX_SIDE);
            differentiate(g, key, query, z->p + at, z->ds + at, z->ds_pairs + transposed);
        }
    }
}

// Adds what the current blocks (grad_head) contribute to the gradients of keys and values:
// dk += dsᵀ·q and dv += pᵀ·dy.
static void add_to_keys(const grad_head *g) {
    const grad_space *z = &g->z;
    for (int64_t key = g->key; key < g->end_key; key++) {
        int64_t first = first_query(g, key), chunks = g->end_query - first;
        if (chunks <= 0) continue;
        int64_t at = ((key - g->key) * GRAD_BLOCKS + first - g->query) * CPU_AMX_CHUNK;
        cpu_amx_rows ds = cpu_amx_packed(z->ds + at), p = cpu_amx_packed(z->p + at);
        for (int64_t w = 0; w < g->width; w++) {
            int64_t from = (w * g->all_queries + first) * CPU_AMX_CHUNK;
            int64_t to = (key * g->width + w) * CPU_AMX_CHUNK;
            cpu_amx_block(&ds, z->q_rows + from, chunks, z->dk + to, CPU_AMX_ACCUMULATE,
                          CPU_AMX_SIDE, CPU_AMX_SIDE);
            cpu_amx_block(&p, z->dy_rows + from, chunks, z->dv + to, CPU_AMX_ACCUMULATE,
                          CPU_AMX_SIDE, CPU_AMX_SIDE);
        }
    }
}

// Adds what the current blocks (grad_head) contribute to the gradient of the queries:
// dqᵀ += kᵀ·dsᵀ.
static void add_to_queries(const grad_head *g) {
    const grad_space *z = &g->z;
    for (int64_t query = g->query; query < g->end_query; query++) {
        int64_t chunks = 0; // number of key blocks with a key to which one of these queries attends
        while (g->key + chunks < g->end_key && first_query(g, g->key + chunks) <= query) chunks++;
        if (chunks == 0) continue;
        const uint16_t *ds = z->ds_pairs + (query - g->query) * GRAD_BLOCKS * CPU_AMX_CHUNK;
        for (int64_t w = 0; w < g->width; w++) {
            cpu_amx_rows k =
                cpu_amx_packed(z->k_transposed + (w * g->all_keys + g->key) * CPU_AMX_CHUNK);
            cpu_amx_block(&k, ds, chunks, z->dq + (query * g->width + w) * CPU_AMX_CHUNK,
                          CPU_AMX_ACCUMULATE, CPU_AMX_SIDE, CPU_AMX_SIDE);
        }
    }
}

// Stores blocks of sums [row block][width block] as rows of a BF16 tensor. Transposes each block
// first if `transposed` is set.
static CPU_AVX512 void unpack(const grad_head *g, float *sums, bool transposed, int64_t rows,
                              uint16_t *to, int64_t stride) {
    float block[CPU_AMX_CHUNK];
    for (int64_t b = 0; b < cpu_amx_blocks(rows); b++)
        for (int64_t w = 0; w < g->width; w++) {
            const float *from = sums + (b * g->width + w) * CPU_AMX_CHUNK;
            if (transposed) {
                cpu_transpose(from, CPU_AMX_SIDE, CPU_AMX_SIDE, CPU_AMX_SIDE, NULL, block,
                              CPU_AMX_SIDE);
                from = block;
            }
            for (int64_t i = 0; i < at_most(rows - b * CPU_AMX_SIDE, CPU_AMX_SIDE); i++)
                for (int64_t k = 0; k < CPU_AMX_SIDE; k += 16) {
                    int64_t column = w * CPU_AMX_SIDE + k, left = g->s->width - column;
                    cpu_store(to, true, (b * CPU_AMX_SIDE + i) * stride + column,
                              left > 0 ? cpu_first_lanes(left) : 0,
                              _mm512_loadu_ps(from + i * CPU_AMX_SIDE + k));
                }
        }
}

static void add_head(grad_head *g) {
    const attention_state *s = g->s;
    pack_queries(g);
    memset(g->z.dq, 0, (size_t)(g->all_queries * g->width * CPU_AMX_CHUNK) * sizeof *g->z.dq);
    for (g->key = 0; g->key < g->all_keys; g->key = g->end_key) {
        g->end_key = at_most(g->key + GRAD_BLOCKS, g->all_keys);
        g->query = attention_first_query(s, g->key * CPU_AMX_SIDE) / CPU_AMX_SIDE;
        for (; g->query < g->all_queries; g->query = g->end_query) {
            g->end_query = at_most(g->query + GRAD_BLOCKS, g->all_queries);
            compute_probabilities(g);
            add_to_keys(g);
            add_to_queries(g);
        }
    }
    unpack(g, g->z.dq, true, s->queries,
           (uint16_t *)g->job->call.out + attention_query(s, g->n, 0, g->head),
           s->heads * s->width);
}

static void grad_range(void *context, int64_t begin, int64_t end, int thread) {
    const attention_grad_job *job = context;
    const attention_state *s = job->state;
    grad_head g = {.job = job,
                   .s = s,
                   .width = cpu_amx_blocks(s->width),
                   .all_keys = cpu_amx_blocks(s->keys),
                   .all_queries = cpu_amx_blocks(s->queries)};
    size_t each = space_at(s, NULL, &g.z), sums;
    space_at(s, (char *)job->call.workspace + (size_t)thread * each, &g.z);
    sums = (size_t)(g.all_keys * g.width * CPU_AMX_CHUNK) * sizeof *g.z.dk;
    cpu_amx_begin();
    for (int64_t i = begin; i < end; i++) {
        g.n = i / s->kv_heads;
        g.kv_head = i % s->kv_heads;
        pack_keys(&g);
        memset(g.z.dk, 0, sums);
        memset(g.z.dv, 0, sums);
        for (g.head = g.kv_head * s->group; g.head < (g.kv_head + 1) * s->group; g.head++)
            add_head(&g);
        int64_t at = attention_key(s, g.n, 0, g.kv_head), stride = s->kv_heads * s->width;
        unpack(&g, g.z.dk, false, s->keys, (uint16_t *)job->call.dk + at, stride);
        unpack(&g, g.z.dv, false, s->keys, (uint16_t *)job->call.dv + at, stride);
    }
    cpu_amx_end();
}

static tri_status grad_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    return attention_run_gradient(kernel, args, grad_range);
}

const tri_kernel_def cpu_attention_amx_grad = {
    .op = &tri_op_attention_grad,
    .name = "amx",
    .supports = attention_amx_supports,
    .workspace = grad_workspace,
    .prepare = attention_prepare,
    .run = grad_run,
    .release = attention_release,
};
