// Attention of BF16 by AMX. Computes a block of 32 queries at a time against all keys that they
// attend to, so that the matrix of all scores never exists. Packs keys and values once for all
// queries: copies them in chunks of 32 × 32 values, as AMX reads them (amx.h).
//
// Each probability enters its product with v as the sum of two BF16 values, p and p_rest. A single
// one would make y less exact than probabilities in F32 do, and the gradient, which subtracts
// y · dy from the nearly equal v · dy, would amplify the error.
#include "device/cpu/amx.h"
#include "device/cpu/attention.h"

#include <math.h>

bool attention_amx_supports(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node) {
    return cpu_has(device, CPU_HAS_AMX) && cpu_is_bf16(graph, node) &&
           attention_supports(device, graph, node);
}

// How many elements each buffer in the workspace has. The workspace begins with the packed k and v
// of all heads; then each thread has one set of the other buffers. Buffers are BF16, but `scores`
// and `out` are F32.
typedef struct forward_space {
    int64_t k, v; // packed k, and packed v, of one head
    // Buffers of one thread (query_block); `p` is the size of query_block.p and p_rest together.
    int64_t q, p, scores, out;
} forward_space;

static forward_space space_of(const attention_state *s) {
    int64_t keys = cpu_amx_blocks(s->keys), width = cpu_amx_blocks(s->width);
    return (forward_space){.k = keys * width * CPU_AMX_CHUNK,
                           .v = keys * width * CPU_AMX_CHUNK,
                           .q = width * CPU_AMX_CHUNK,
                           .p = 2 * keys * CPU_AMX_CHUNK,
                           .scores = keys * CPU_AMX_CHUNK,
                           .out = width * CPU_AMX_CHUNK};
}

static size_t thread_bytes(const forward_space *z) {
    return (size_t)(z->q + z->p) * sizeof(uint16_t) + (size_t)(z->scores + z->out) * sizeof(float);
}

static tri_status forward_workspace(const tri_device_description *device, const tri_graph *graph,
                                    const tri_node *node, size_t *out) {
    attention_state state = attention_state_of(device, graph, node);
    forward_space z = space_of(&state);
    *out = (size_t)(state.samples * state.kv_heads * (z.k + z.v)) * sizeof(uint16_t) +
           thread_bytes(&z) * (size_t)device->threads;
    return TRI_OK;
}

typedef struct forward_job {
    const attention_state *state;
    forward_space space;
    attention_call call;
    uint16_t *k, *v;         // [sample][kv head]: packed keys, packed values
    char *thread_workspaces; // by thread: its buffers (query_block)
} forward_job;

// Queries [first, first + count) of one head, and the buffers of the thread that computes them.
typedef struct query_block {
    const forward_job *job;
    const uint16_t *k, *v; // packed keys and values of the head
    // q: packed queries. p, p_rest: each probability is the sum of its values in both.
    uint16_t *q, *p, *p_rest;
    // scores [block of keys][32 queries][32 keys], outputs [block of columns][32 queries][32
    // columns].
    float *scores, *out;
    int64_t n, head, first, count;
    int64_t blocks; // blocks of 32 keys, up to the last key to which any of the queries attends
} query_block;

static void pack_range(void *context, int64_t begin, int64_t end, int thread) {
    const forward_job *job = context;
    const attention_state *s = job->state;
    int64_t stride = s->kv_heads * s->width;
    for (int64_t i = begin; i < end; i++) {
        int64_t at = attention_key(s, i / s->kv_heads, 0, i % s->kv_heads);
        cpu_amx_pack_b_rows((const uint16_t *)job->call.k + at, stride, s->width, s->keys,
                            job->k + i * job->space.k);
        cpu_amx_pack_b_plain((const uint16_t *)job->call.v + at, stride, s->keys, s->width,
                             job->v + i * job->space.v);
    }
}

// Finds for each query the largest scaled score among the keys that it attends to. It is subtracted
// from all scores, so that no exponential overflows.
static CPU_AVX512 void compute_row_maxima(const query_block *f, float *largest) {
    const attention_state *s = f->job->state;
    __m512 most[CPU_AMX_SIDE], scale = _mm512_set1_ps(s->scale);
    for (int64_t i = 0; i < f->count; i++) most[i] = _mm512_set1_ps(-INFINITY);
    for (int64_t b = 0; b < f->blocks; b++)
        for (int64_t i = 0; i < f->count; i++) {
            const float *from = f->scores + b * CPU_AMX_CHUNK + i * CPU_AMX_SIDE;
            int64_t left = attention_visible_keys(s, f->first + i) - b * CPU_AMX_SIDE;
            for (int64_t k = 0; k < CPU_AMX_SIDE && k < left; k += 16)
                most[i] = _mm512_mask_max_ps(most[i], cpu_first_lanes(left - k), most[i],
                                             _mm512_mul_ps(_mm512_loadu_ps(from + k), scale));
        }
    for (int64_t i = 0; i < f->count; i++) largest[i] = _mm512_reduce_max_ps(most[i]);
}

// Stores exp(score − largest) as two BF16 values in p and p_rest, whose sum it is; both are 0 for
// masked keys. sums[i] becomes query i's sum of these exponentials.
static CPU_AVX512 void compute_probabilities(const query_block *f, const float *largest,
                                             float *sums) {
    const attention_state *s = f->job->state;
    __m512 sum[CPU_AMX_SIDE], scale = _mm512_set1_ps(s->scale);
    for (int64_t i = 0; i < f->count; i++) sum[i] = _mm512_setzero_ps();
    for (int64_t b = 0; b < f->blocks; b++)
        for (int64_t i = 0; i < f->count; i++) {
            int64_t at = b * CPU_AMX_CHUNK + i * CPU_AMX_SIDE;
            int64_t left = attention_visible_keys(s, f->first + i) - b * CPU_AMX_SIDE;
            __m512 most = _mm512_set1_ps(largest[i]);
            for (int64_t k = 0; k < CPU_AMX_SIDE; k += 16) {
                __mmask16 inside = k < left ? cpu_first_lanes(left - k) : 0;
                __m512 x = _mm512_loadu_ps(f->scores + at + k);
                __m512 p = _mm512_maskz_mov_ps(inside, cpu_exp(_mm512_fmsub_ps(x, scale, most)));
                sum[i] = _mm512_add_ps(sum[i], p);
                __m256i probability = cpu_narrow(p);
                __m512 rest = _mm512_sub_ps(p, cpu_widen(probability));
                _mm256_storeu_si256((void *)(f->p + at + k), probability);
                _mm256_storeu_si256((void *)(f->p_rest + at + k), cpu_narrow(rest));
            }
        }
    for (int64_t i = 0; i < f->count; i++) sums[i] = _mm512_reduce_add_ps(sum[i]);
}

static CPU_AVX512 void store_row(const query_block *f, int64_t row, float factor) {
    const attention_state *s = f->job->state;
    int64_t at = attention_query(s, f->n, f->first + row, f->head);
    __m512 by = _mm512_set1_ps(factor);
    for (int64_t i = 0; i < s->width; i += 16) {
        const float *from =
            f->out + i / CPU_AMX_SIDE * CPU_AMX_CHUNK + row * CPU_AMX_SIDE + i % CPU_AMX_SIDE;
        cpu_store(f->job->call.out, true, at + i, cpu_first_lanes(s->width - i),
                  _mm512_mul_ps(_mm512_loadu_ps(from), by));
    }
}

// Computes a block of queries. A head's last block may have fewer than 32 queries (`count`). Then
// the buffers' rows beyond `count` hold values of earlier calls. These affect only the same rows of
// the products, which nobody reads.
static void forward_rows(const query_block *f) {
    const attention_state *s = f->job->state;
    int64_t width = cpu_amx_blocks(s->width), all = cpu_amx_blocks(s->keys);
    int64_t at = attention_query(s, f->n, f->first, f->head);
    cpu_amx_pack_a_rows((const uint16_t *)f->job->call.q + at, s->heads * s->width, f->count,
                        s->width, f->q);
    cpu_amx_rows q = cpu_amx_packed(f->q), p = cpu_amx_packed(f->p);
    cpu_amx_rows p_rest = cpu_amx_packed(f->p_rest);
    for (int64_t b = 0; b < f->blocks; b++)
        cpu_amx_block(&q, f->k + b * width * CPU_AMX_CHUNK, width, f->scores + b * CPU_AMX_CHUNK,
                      CPU_AMX_OVERWRITE, f->count, CPU_AMX_SIDE);
    float largest[CPU_AMX_SIDE], sums[CPU_AMX_SIDE];
    float *log_sum_exp =
        f->job->call.log_sum_exp + (f->n * s->heads + f->head) * s->queries + f->first;
    compute_row_maxima(f, largest);
    compute_probabilities(f, largest, sums);
    for (int64_t i = 0; i < f->count; i++) log_sum_exp[i] = largest[i] + logf(sums[i]);
    for (int64_t b = 0; b < width; b++) {
        const uint16_t *v = f->v + b * all * CPU_AMX_CHUNK;
        float *out = f->out + b * CPU_AMX_CHUNK;
        cpu_amx_block(&p, v, f->blocks, out, CPU_AMX_OVERWRITE, f->count, CPU_AMX_SIDE);
        cpu_amx_block(&p_rest, v, f->blocks, out, CPU_AMX_ACCUMULATE, f->count, CPU_AMX_SIDE);
    }
    for (int64_t i = 0; i < f->count; i++) store_row(f, i, 1 / sums[i]);
}

// Computes blocks [begin, end) of 32 queries. Under a causal mask late queries attend to more keys.
// Early and late blocks of a head therefore alternate, so that every thread's range has about the
// same work.
static void forward_range(void *context, int64_t begin, int64_t end, int thread) {
    const forward_job *job = context;
    const attention_state *s = job->state;
    const forward_space *z = &job->space;
    query_block f = {.job = job,
                     .scores = (float *)(job->thread_workspaces + thread * thread_bytes(z))};
    f.out = f.scores + z->scores;
    f.q = (uint16_t *)(f.out + z->out);
    f.p = f.q + z->q;
    f.p_rest = f.p + z->p / 2;
    int64_t groups = cpu_amx_blocks(s->queries);
    cpu_amx_begin();
    for (int64_t i = begin; i < end; i++) {
        int64_t turn = i % groups;
        f.n = i / groups / s->heads;
        f.head = i / groups % s->heads;
        f.first = (turn % 2 ? groups - 1 - turn / 2 : turn / 2) * CPU_AMX_SIDE;
        f.count = s->queries - f.first < CPU_AMX_SIDE ? s->queries - f.first : CPU_AMX_SIDE;
        f.blocks = cpu_amx_blocks(attention_visible_keys(s, f.first + f.count - 1));
        int64_t pair = f.n * s->kv_heads + f.head / s->group;
        f.k = job->k + pair * z->k;
        f.v = job->v + pair * z->v;
        forward_rows(&f);
    }
    cpu_amx_end();
}

static tri_status forward_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const attention_state *s = kernel->state;
    int64_t pairs = s->samples * s->kv_heads;
    forward_job job = {.state = s,
                       .space = space_of(s),
                       .call = {.q = args->in[0],
                                .k = args->in[1],
                                .v = args->in[2],
                                .out = args->out[0],
                                .log_sum_exp = args->out[1]},
                       .k = args->workspace};
    job.v = job.k + pairs * job.space.k;
    job.thread_workspaces = (char *)(job.v + pairs * job.space.v);
    cpu_parallel(s->device, pairs, 1, pack_range, &job);
    cpu_parallel(s->device, s->samples * s->heads * cpu_amx_blocks(s->queries), 1, forward_range,
                 &job);
    return TRI_OK;
}

const tri_kernel_def cpu_attention_amx = {
    .op = &tri_op_attention,
    .name = "amx",
    .supports = attention_amx_supports,
    .workspace = forward_workspace,
    .prepare = attention_prepare,
    .run = forward_run,
    .release = attention_release,
};
