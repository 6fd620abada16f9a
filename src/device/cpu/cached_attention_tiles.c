// Attention of many tokens of a call to those that caches hold, with AVX-512: as attention.c, six
// queries at a time against all keys that they attend to. A thread packs the keys and values of one
// head up to the last token so far, and not those for which the cache has room.
#include "device/cpu/attention.h"
#include "device/cpu/simd.h"
#include "device/cpu/tile.h"

#include "ops/span.h"

#include <stdlib.h>

typedef struct tiles_job {
    const attention_state *state; // `keys`: room of the caches
    int64_t window;
    const void *q, *k, *v;
    const int64_t *spans;
    void *y;
    float *workspace; // by thread: tiles_space
} tiles_job;

typedef struct tiles_state {
    attention_state attention;
    int64_t window;
} tiles_state;

// How many floats each buffer of a thread has: packed keys and values of one head, and of six
// queries their scores, their rows of q times the scale, and their outputs.
typedef struct tiles_space {
    int64_t k, v, scores, rows, out;
} tiles_space;

static tiles_space space_of(const attention_state *s) {
    int64_t keys = s->key_blocks * ATTENTION_KEYS;
    return (tiles_space){.k = keys * s->width,
                         .v = s->panels * keys * CPU_TILE_COLUMNS,
                         .scores = CPU_TILE_ROWS * keys,
                         .rows = CPU_TILE_ROWS * s->width,
                         .out = CPU_TILE_ROWS * s->panels * CPU_TILE_COLUMNS};
}

static int64_t floats_of(const tiles_space *z) {
    return z->k + z->v + z->scores + z->rows + z->out;
}

static bool tiles_supports(const tri_device_description *device, const tri_graph *graph,
                           const tri_node *node) {
    return cpu_has_avx512_float(device, graph, node) && cpu_in_shape(graph, node, 0)->dims[1] > 1;
}

static attention_state state_of(const tri_graph *graph, const tri_node *node) {
    attention_state s = attention_sizes_of(graph, node);
    s.scale = (float)((const tri_cached_attention_attr *)node->attr)->scale;
    return s;
}

static tri_status tiles_workspace(const tri_device_description *device, const tri_graph *graph,
                                  const tri_node *node, size_t *out) {
    attention_state state = state_of(graph, node);
    tiles_space z = space_of(&state);
    *out = (size_t)(floats_of(&z) * device->threads) * sizeof(float);
    return TRI_OK;
}

static tri_status tiles_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                tri_kernel *kernel) {
    tiles_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for attention");
    state->attention = state_of(graph, node);
    state->attention.device = cpu_of(device);
    state->window = ((const tri_cached_attention_attr *)node->attr)->window;
    kernel->state = state;
    return TRI_OK;
}

// Packs the keys from `start`, a multiple of 64, up to `end` of a head of k and v.
static void pack(const tiles_job *job, int64_t n, int64_t head, int64_t start, int64_t end,
                 float *k, float *v) {
    const attention_state *s = job->state;
    int64_t stride = s->kv_heads * s->width, panel = s->key_blocks * ATTENTION_KEYS;
    for (int64_t first = start; first < end; first += ATTENTION_KEYS) {
        int64_t count = end - first < ATTENTION_KEYS ? end - first : ATTENTION_KEYS;
        int64_t at = attention_key(s, n, first, head);
        cpu_pack_columns(attention_at(s, job->k, at), s->bf16, stride, s->width, count,
                         k + first * s->width);
        cpu_pack_rows(attention_at(s, job->v, at), s->bf16, stride, count, s->width,
                      v + first * CPU_TILE_COLUMNS, panel * CPU_TILE_COLUMNS);
    }
}

// Computes the outputs of tokens `first` … `first` + count − 1 of a head, at most six.
static void attend(const tiles_job *job, int64_t n, int64_t head, tri_span span, int64_t first,
                   int64_t count, float *workspace) {
    const attention_state *s = job->state;
    tiles_space z = space_of(s);
    float *k = workspace, *v = k + z.k, *scores = v + z.v, *rows = scores + z.scores;
    float *out = rows + z.rows, sums[CPU_TILE_ROWS];
    int64_t stride = s->key_blocks * ATTENTION_KEYS, visible = span.first + first + count;
    int64_t start =
        tri_span_first_key(span.first + first, job->window) / ATTENTION_KEYS * ATTENTION_KEYS;
    for (int64_t i = 0; i < count; i++)
        attention_scaled_row(attention_at(s, job->q, attention_query(s, n, first + i, head)),
                             s->bf16, s->width, s->scale, rows + i * s->width);
    for (int64_t key = start; key < visible; key += ATTENTION_KEYS)
        cpu_tile_multiply(&(cpu_tile){.k = s->width,
                                      .a = rows,
                                      .a_row = s->width,
                                      .a_k = 1,
                                      .b = k + key * s->width,
                                      .c = scores + key,
                                      .c_row = stride},
                          count, visible - key < ATTENTION_KEYS ? visible - key : ATTENTION_KEYS);
    for (int64_t i = 0; i < count; i++) {
        float largest;
        int64_t position = span.first + first + i;
        int64_t from = tri_span_first_key(position, job->window) - start;
        sums[i] = attention_softmax_row(scores + i * stride + start, 1, from, position + 1 - start,
                                        visible - start, &largest);
    }
    for (int64_t p = 0; p < s->panels; p++)
        cpu_tile_multiply(&(cpu_tile){.k = visible - start,
                                      .a = scores + start,
                                      .a_row = stride,
                                      .a_k = 1,
                                      .b = v + (p * stride + start) * CPU_TILE_COLUMNS,
                                      .c = out + p * CPU_TILE_COLUMNS,
                                      .c_row = s->panels * CPU_TILE_COLUMNS},
                          count, CPU_TILE_COLUMNS);
    for (int64_t i = 0; i < count; i++)
        attention_store_row(out + i * s->panels * CPU_TILE_COLUMNS, s->width, 1 / sums[i], job->y,
                            s->bf16, attention_query(s, n, first + i, head));
}

static void clear_rows(const tiles_job *job, int64_t n, int64_t head, int64_t first) {
    static const float zero;
    const attention_state *s = job->state;
    for (int64_t t = first; t < s->queries; t++)
        for (int64_t d = 0; d < s->width; d++)
            attention_store_row(&zero, 1, 0, job->y, s->bf16, attention_query(s, n, t, head) + d);
}

// Item i is a head of a sample. Heads that read the same k and v follow each other.
static void tiles_range(void *context, int64_t begin, int64_t end, int thread) {
    const tiles_job *job = context;
    const attention_state *s = job->state;
    tiles_space z = space_of(s);
    float *workspace = job->workspace + thread * floats_of(&z);
    for (int64_t i = begin; i < end; i++) {
        int64_t n = i / s->heads, head = i % s->heads;
        tri_span span = tri_span_of(job->spans, n, s->queries, s->keys);
        int64_t start =
            tri_span_first_key(span.first, job->window) / ATTENTION_KEYS * ATTENTION_KEYS;
        if (span.count > 0 && (i == begin || head % s->group == 0))
            pack(job, n, head / s->group, start, span.first + span.count, workspace,
                 workspace + z.k);
        for (int64_t t = 0; t < span.count; t += CPU_TILE_ROWS)
            attend(job, n, head, span, t,
                   span.count - t < CPU_TILE_ROWS ? span.count - t : CPU_TILE_ROWS, workspace);
        clear_rows(job, n, head, span.count);
    }
}

static tri_status tiles_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const tiles_state *state = kernel->state;
    const attention_state *s = &state->attention;
    tiles_job job = {.state = s,
                     .window = state->window,
                     .q = args->in[0],
                     .k = args->in[1],
                     .v = args->in[2],
                     .spans = args->in[3],
                     .y = args->out[0],
                     .workspace = args->workspace};
    cpu_parallel(s->device, s->samples * s->heads, 1, tiles_range, &job);
    return TRI_OK;
}

const tri_kernel_def cpu_cached_attention_tiles = {
    .op = &tri_op_cached_attention,
    .name = "avx512-tiles",
    .supports = tiles_supports,
    .workspace = tiles_workspace,
    .prepare = tiles_prepare,
    .run = tiles_run,
    .release = attention_release,
};
