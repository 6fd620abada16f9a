// Attention with AVX-512. Computes six queries at a time against all keys that they attend to, so
// that the matrix of all scores never exists. Packs keys and values once for all queries: copies
// them into the order in which the products (tile.h) read them. A panel is 64 columns of a packed
// head of v.
#include "device/cpu/attention.h"

#include "device/cpu/simd.h"
#include "device/cpu/tile.h"

#include <math.h>
#include <stdlib.h>

bool attention_supports(const tri_device_description *device, const tri_graph *graph,
                        const tri_node *node) {
    const tri_shape *q = cpu_in_shape(graph, node, 0);
    return cpu_has_avx512_float(device, graph, node) && tri_shape_count(q) > 0;
}

attention_state attention_sizes_of(const tri_graph *graph, const tri_node *node) {
    const int64_t *q = cpu_in_shape(graph, node, 0)->dims, *k = cpu_in_shape(graph, node, 1)->dims;
    return (attention_state){.samples = q[0],
                             .queries = q[1],
                             .keys = k[1],
                             .heads = q[2],
                             .width = q[3],
                             .group = q[2] / k[2],
                             .kv_heads = k[2],
                             .key_blocks = (k[1] + ATTENTION_KEYS - 1) / ATTENTION_KEYS,
                             .panels = (q[3] + CPU_TILE_COLUMNS - 1) / CPU_TILE_COLUMNS,
                             .bf16 = cpu_is_bf16(graph, node)};
}

attention_state attention_state_of(const tri_device_description *device, const tri_graph *graph,
                                   const tri_node *node) {
    const tri_attention_attr *attr = node->attr;
    attention_state s = attention_sizes_of(graph, node);
    s.scale = (float)attr->scale;
    s.causal = attr->causal;
    s.pairs = s.bf16 && cpu_has(device, CPU_HAS_BF16) && s.width % 2 == 0;
    return s;
}

tri_status attention_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                             tri_kernel *kernel) {
    attention_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for attention");
    *state = attention_state_of(&device->description, graph, node);
    state->device = cpu_of(device);
    kernel->state = state;
    return TRI_OK;
}

void attention_release(tri_kernel *kernel) { free(kernel->state); }

// How many floats each buffer in the workspace has. The packed k and v of all heads come first.
// Then each thread has buffers of its own for six queries: their scores, their rows of q times the
// scale, and their outputs.
typedef struct forward_space {
    int64_t k, v, scores, rows, out;
} forward_space;

static forward_space space_of(const attention_state *s) {
    int64_t pairs = s->samples * s->kv_heads;
    return (forward_space){.k = pairs * s->key_blocks * attention_packed(s, s->width) *
                                ATTENTION_KEYS,
                           .v = pairs * s->panels * s->keys * CPU_TILE_COLUMNS,
                           .scores = CPU_TILE_ROWS * s->key_blocks * ATTENTION_KEYS,
                           .rows = CPU_TILE_ROWS * s->width,
                           .out = CPU_TILE_ROWS * s->panels * CPU_TILE_COLUMNS};
}

static tri_status forward_workspace(const tri_device_description *device, const tri_graph *graph,
                                    const tri_node *node, size_t *out) {
    attention_state state = attention_state_of(device, graph, node);
    forward_space z = space_of(&state);
    int64_t each = z.scores + z.rows + z.out;
    *out = (size_t)(z.k + z.v + each * device->threads) * sizeof(float);
    return TRI_OK;
}

typedef struct forward_job {
    const attention_state *state;
    const void *q, *k, *v;
    void *y;
    float *log_sum_exp;
    float *packed_k;          // [sample][kv head][key block][width, or pairs of it][64 keys]
    float *packed_v;          // [sample][kv head][panel][key][64 columns]
    float *thread_workspaces; // by thread: its buffers (forward_space)
} forward_job;

void attention_pack_columns(const attention_state *s, const void *tensor, int64_t at, int64_t count,
                            float *to) {
    int64_t stride = s->kv_heads * s->width;
    if (s->pairs) // pairs are moved as floats
        cpu_pack_columns(attention_at(s, tensor, at), false, stride / 2, s->width / 2, count, to);
    else
        cpu_pack_columns(attention_at(s, tensor, at), s->bf16, stride, s->width, count, to);
}

static void pack_range(void *context, int64_t begin, int64_t end, int thread) {
    const forward_job *job = context;
    const attention_state *s = job->state;
    int64_t stride = s->kv_heads * s->width, block = attention_packed(s, s->width) * ATTENTION_KEYS;
    for (int64_t i = begin; i < end; i++) {
        int64_t pair = i / s->key_blocks, first = i % s->key_blocks * ATTENTION_KEYS;
        int64_t count = s->keys - first < ATTENTION_KEYS ? s->keys - first : ATTENTION_KEYS;
        int64_t at = attention_key(s, pair / s->kv_heads, first, pair % s->kv_heads);
        attention_pack_columns(s, job->k, at, count, job->packed_k + i * block);
        cpu_pack_rows(attention_at(s, job->v, at), s->bf16, stride, count, s->width,
                      job->packed_v + (pair * s->panels * s->keys + first) * CPU_TILE_COLUMNS,
                      s->keys * CPU_TILE_COLUMNS);
    }
}

CPU_AVX512 float attention_softmax_row(float *scores, float scale, int64_t from, int64_t visible,
                                       int64_t end, float *largest) {
    __m512 most = _mm512_set1_ps(-INFINITY), sum = _mm512_setzero_ps();
    const __m512 factor = _mm512_set1_ps(scale);
    int64_t begin = from / 16 * 16;
    __mmask16 first = (__mmask16)~cpu_first_lanes(from - begin);
    for (int64_t i = begin; i < visible; i += 16) {
        __mmask16 inside = cpu_first_lanes(visible - i) & (i == begin ? first : 0xFFFF);
        most = _mm512_mask_max_ps(most, inside, most,
                                  _mm512_mul_ps(_mm512_loadu_ps(scores + i), factor));
    }
    *largest = _mm512_reduce_max_ps(most);
    most = _mm512_set1_ps(*largest);
    for (int64_t i = 0; i < begin; i += 16) _mm512_storeu_ps(scores + i, _mm512_setzero_ps());
    for (int64_t i = begin; i < end; i += 16) {
        __mmask16 inside = i < visible ? cpu_first_lanes(visible - i) : 0;
        if (i == begin) inside &= first;
        __m512 p = cpu_exp(_mm512_fmsub_ps(_mm512_loadu_ps(scores + i), factor, most));
        p = _mm512_maskz_mov_ps(inside, p);
        sum = _mm512_add_ps(sum, p);
        _mm512_storeu_ps(scores + i, p);
    }
    return _mm512_reduce_add_ps(sum);
}

CPU_AVX512 void attention_scaled_row(const void *from, bool bf16, int64_t width, float factor,
                                     float *to) {
    __m512 f = _mm512_set1_ps(factor);
    for (int64_t i = 0; i < width; i += 16) {
        __mmask16 inside = cpu_first_lanes(width - i);
        _mm512_mask_storeu_ps(to + i, inside, _mm512_mul_ps(cpu_load(from, bf16, i, inside), f));
    }
}

CPU_AVX512 void attention_store_row(const float *from, int64_t width, float factor, void *to,
                                    bool bf16, int64_t at) {
    __m512 f = _mm512_set1_ps(factor);
    for (int64_t i = 0; i < width; i += 16) {
        __mmask16 inside = cpu_first_lanes(width - i);
        cpu_store(to, bf16, at + i, inside,
                  _mm512_mul_ps(_mm512_maskz_loadu_ps(inside, from + i), f));
    }
}

// Computes the outputs of CPU_TILE_ROWS queries of a head from `first` on, or of as many as are
// left.
static void forward_rows(const forward_job *job, int64_t n, int64_t head, int64_t first,
                         float *workspace) {
    const attention_state *s = job->state;
    forward_space z = space_of(s);
    float *scores = workspace, *rows = scores + z.scores, *out = rows + z.rows;
    int64_t count = s->queries - first < CPU_TILE_ROWS ? s->queries - first : CPU_TILE_ROWS;
    int64_t stride = s->key_blocks * ATTENTION_KEYS,
            visible = attention_visible_keys(s, first + count - 1);
    int64_t pair = n * s->kv_heads + head / s->group;
    int64_t block = attention_packed(s, s->width) * ATTENTION_KEYS;
    cpu_tile tile = {.k = attention_packed(s, s->width),
                     .a = rows,
                     .a_row = s->width,
                     .a_k = 1,
                     .b = job->packed_k + pair * s->key_blocks * block,
                     .c = scores,
                     .c_row = stride,
                     .pairs = s->pairs};
    if (s->pairs) { // rows of q as they lie: their pairs cannot be scaled without rounding
        tile.a = attention_at(s, job->q, attention_query(s, n, first, head));
        tile.a_row = s->heads * s->width / 2;
    }
    for (int64_t i = 0; i < count && !s->pairs; i++)
        attention_scaled_row(attention_at(s, job->q, attention_query(s, n, first + i, head)),
                             s->bf16, s->width, s->scale, rows + i * s->width);
    for (int64_t key = 0; key < visible; key += ATTENTION_KEYS) {
        cpu_tile_multiply(&tile, count,
                          visible - key < ATTENTION_KEYS ? visible - key : ATTENTION_KEYS);
        tile.b += block;
        tile.c += ATTENTION_KEYS;
    }
    float sums[CPU_TILE_ROWS];
    for (int64_t i = 0; i < count; i++) {
        float largest;
        int64_t row_visible = attention_visible_keys(s, first + i);
        sums[i] = attention_softmax_row(scores + i * stride, s->pairs ? s->scale : 1, 0,
                                        row_visible, visible, &largest);
        job->log_sum_exp[(n * s->heads + head) * s->queries + first + i] = largest + logf(sums[i]);
    }
    tile = (cpu_tile){.k = visible,
                      .a = scores,
                      .a_row = stride,
                      .a_k = 1,
                      .b = job->packed_v + pair * s->panels * s->keys * CPU_TILE_COLUMNS,
                      .c = out,
                      .c_row = s->panels * CPU_TILE_COLUMNS};
    for (int64_t p = 0; p < s->panels; p++) {
        cpu_tile_multiply(&tile, count, CPU_TILE_COLUMNS);
        tile.b += s->keys * CPU_TILE_COLUMNS;
        tile.c += CPU_TILE_COLUMNS;
    }
    for (int64_t i = 0; i < count; i++)
        attention_store_row(out + i * s->panels * CPU_TILE_COLUMNS, s->width, 1 / sums[i], job->y,
                            s->bf16, attention_query(s, n, first + i, head));
}

static int64_t row_groups(const attention_state *s) {
    return (s->queries + CPU_TILE_ROWS - 1) / CPU_TILE_ROWS;
}

// Gets the first query of group i; a group is six queries of a head. Under a causal mask late
// queries attend to more keys. The numbers i therefore alternate between early and late groups of a
// head, so that every thread's range of i has about the same work.
static int64_t first_row(const attention_state *s, int64_t i) {
    int64_t groups = row_groups(s), turn = i % groups;
    return (turn % 2 ? groups - 1 - turn / 2 : turn / 2) * CPU_TILE_ROWS;
}

// Prefetches the queries and the results of group i, so that their memory is in the cache when the
// group is computed.
static void prefetch_rows(const forward_job *job, int64_t i) {
    const attention_state *s = job->state;
    int64_t head = i / row_groups(s), bytes = s->width * (s->bf16 ? 2 : 4);
    int64_t at = attention_query(s, head / s->heads, first_row(s, i), head % s->heads);
    for (int64_t row = 0; row < CPU_TILE_ROWS; row++, at += s->heads * s->width)
        for (int64_t byte = 0; byte < bytes; byte += 64) {
            __builtin_prefetch((const char *)attention_at(s, job->q, at) + byte);
            __builtin_prefetch((const char *)attention_at(s, job->y, at) + byte, 1);
        }
}

static void forward_range(void *context, int64_t begin, int64_t end, int thread) {
    const forward_job *job = context;
    const attention_state *s = job->state;
    forward_space z = space_of(s);
    int64_t groups = row_groups(s);
    float *workspace = job->thread_workspaces + thread * (z.scores + z.rows + z.out);
    for (int64_t i = begin; i < end; i++) {
        int64_t head = i / groups;
        prefetch_rows(job, i + 1);
        forward_rows(job, head / s->heads, head % s->heads, first_row(s, i), workspace);
    }
}

static tri_status forward_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const attention_state *s = kernel->state;
    forward_space z = space_of(s);
    float *space = args->workspace;
    forward_job job = {.state = s,
                       .q = args->in[0],
                       .k = args->in[1],
                       .v = args->in[2],
                       .y = args->out[0],
                       .log_sum_exp = args->out[1],
                       .packed_k = space,
                       .packed_v = space + z.k,
                       .thread_workspaces = space + z.k + z.v};
    int64_t pairs = s->samples * s->kv_heads;
    cpu_parallel(s->device, pairs * s->key_blocks, 1, pack_range, &job);
    cpu_parallel(s->device, s->samples * s->heads * row_groups(s), 2, forward_range, &job);
    return TRI_OK;
}

const tri_kernel_def cpu_attention_tiles = {
    .op = &tri_op_attention,
    .name = "avx512-tiles",
    .supports = attention_supports,
    .workspace = forward_workspace,
    .prepare = attention_prepare,
    .run = forward_run,
    .release = attention_release,
};
