// Attention and its gradient for CPUs without AVX-512. Computes a block of 64 queries at a time
// against all keys that they attend to: matrix products by oneDNN, softmax in plain C. The products
// need F32 matrices without gaps between rows, so queries, keys and values of a head are copied
// first.
#include "device/cpu/attention.h"
#include "device/cpu/class_row.h"

#include <omp.h>
#include <stdatomic.h>

enum { BLOCK_QUERIES = 64, BLOCK_LANES = 32 };

// The buffers of one thread. The forward kernel has only the buffers up to p.
typedef struct block_space {
    float *k, *v;   // [key][width]
    float *q, *out; // [query of the block][width]; out is y, then dq
    float *p;       // [query of the block][scores_stride]: scores, then probabilities
    float *dk, *dv; // [key][width]: sums over the heads of q that read this head of k and v
    float *dy;      // [query of the block][width]
    float *ds; // [query of the block][scores_stride]: dy · v, then the gradients of the scores
} block_space;

// The distance between rows of scores: a multiple of 16, and at least 16 more than the keys. If it
// were exactly the number of keys, often a power of two such as 1024, all elements of a column
// would compete for a few sets of the cache.
static int64_t scores_stride(const attention_state *s) { return (s->keys + 15) / 16 * 16 + 16; }

// Places the buffers one after the other, from `base` on, and returns how many floats they have.
// With `base` NULL it only computes the size.
static int64_t space_at(const attention_state *s, bool gradient, float *base, block_space *z) {
    int64_t rows = s->queries < BLOCK_QUERIES ? s->queries : BLOCK_QUERIES;
    int64_t keys = s->keys * s->width, queries = rows * s->width, scores = rows * scores_stride(s);
    struct {
        float **buffer;
        int64_t count;
    } buffers[] = {{&z->k, keys},      {&z->v, keys},     {&z->q, queries},
                   {&z->out, queries}, {&z->p, scores},   {&z->dk, keys},
                   {&z->dv, keys},     {&z->dy, queries}, {&z->ds, scores}};
    int64_t total = 0;
    for (int i = 0; i < (gradient ? 9 : 5); i++) {
        *buffers[i].buffer = base ? base + total : NULL;
        total += (buffers[i].count + 15) / 16 * 16;
    }
    return total;
}

typedef struct block_job {
    const attention_state *state;
    attention_call call;
    atomic_int failure; // the dnnl_status_t of an sgemm that has failed; else dnnl_success
} block_job;

// What one thread computes at present: queries [first, first + rows) of head `head` of sample n.
typedef struct block_work {
    block_job *job;
    const attention_state *s;
    block_space z;
    int64_t n, head, first, rows;
    int64_t visible; // how many keys the last of these queries attends to
    // By query of the block: 1 / the sum of its row of p. The forward kernel multiplies the query's
    // output by it instead of dividing the row.
    float factor[BLOCK_QUERIES];
} block_work;

// A copy from rows of a head in a tensor to a dense matrix of F32, which sgemm needs (gather), or
// back (scatter).
typedef struct row_copy {
    const void *from;
    void *to;
    const float *factor; // by row: scatter multiplies the row by it; NULL: rows are only copied
    int64_t width;       // elements of a row
    int64_t stride;      // distance in elements between the rows in the tensor
} row_copy;

CPU_BODY gather_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const row_copy c = *(const row_copy *)context;
    float *to = c.to;
    for (int64_t r = begin; r < end; r++)
#pragma GCC ivdep
        for (int64_t i = 0; i < c.width; i++)
            to[r * c.width + i] = cpu_get(c.from, bf16, r * c.stride + i);
}
CPU_TYPED_RANGES(gather)

CPU_BODY scatter_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const row_copy c = *(const row_copy *)context;
    const float *from = c.from;
    for (int64_t r = begin; r < end; r++) {
        float factor = c.factor ? c.factor[r] : 1;
#pragma GCC ivdep
        for (int64_t i = 0; i < c.width; i++)
            cpu_put(c.to, bf16, r * c.stride + i, from[r * c.width + i] * factor);
    }
}
CPU_TYPED_RANGES(scatter)

static void gather(const attention_state *s, const void *tensor, int64_t at, int64_t heads,
                   int64_t rows, float *to) {
    row_copy c = {attention_at(s, tensor, at), to, NULL, s->width, heads * s->width};
    gather_range(s->device, s->bf16)(&c, 0, rows, 0);
}

static void scatter(const attention_state *s, const float *from, const float *factor, int64_t rows,
                    void *tensor, int64_t at, int64_t heads) {
    row_copy c = {from, (void *)attention_at(s, tensor, at), factor, s->width, heads * s->width};
    scatter_range(s->device, s->bf16)(&c, 0, rows, 0);
}

static float *log_sum_exp_of(const block_work *b) {
    return b->job->call.log_sum_exp + (b->n * b->s->heads + b->head) * b->s->queries + b->first;
}

// Replaces each score of rows [begin, end) of p by exp(score − the row's largest score), or by 0 if
// the key is masked. Sets the rows' factor and log_sum_exp.
CPU_BODY softmax_body(void *context, int64_t begin, int64_t end) {
    block_work *b = context;
    float *log_sum_exp = log_sum_exp_of(b);
    for (int64_t r = begin; r < end; r++) {
        float *row = b->z.p + r * scores_stride(b->s);
        int64_t visible = attention_visible_keys(b->s, b->first + r);
        float largest = cpu_largest_of_row(row, visible, false);
        float sum = cpu_exp_sum_of_row(row, visible, false, largest, row);
        for (int64_t i = visible; i < b->visible; i++) row[i] = 0;
        b->factor[r] = 1 / sum;
        log_sum_exp[r] = largest + logf(sum);
    }
}
CPU_RANGES(softmax)

CPU_SCALAR float dot(const float *a, const float *b, int64_t count) {
    float lane[BLOCK_LANES] = {0}, sum = 0;
    int64_t whole = count / BLOCK_LANES * BLOCK_LANES;
    for (int64_t i = 0; i < whole; i += BLOCK_LANES)
        for (int k = 0; k < BLOCK_LANES; k++) lane[k] += a[i + k] * b[i + k];
    for (int64_t i = whole; i < count; i++) sum += a[i] * b[i];
    for (int k = 0; k < BLOCK_LANES; k++) sum += lane[k];
    return sum;
}

// Computes the probabilities p and ds, the gradient of the scores, for rows [begin, end) of the
// block. Before the call z.p holds the scaled scores, and z.ds holds dy · v.
CPU_BODY differentiate_body(void *context, int64_t begin, int64_t end) {
    const block_work *b = context;
    const float *log_sum_exp = log_sum_exp_of(b), scale = b->s->scale;
    int64_t width = b->s->width;
    for (int64_t r = begin; r < end; r++) {
        float *p = b->z.p + r * scores_stride(b->s), *ds = b->z.ds + r * scores_stride(b->s);
        int64_t visible = attention_visible_keys(b->s, b->first + r);
        float row_log_sum_exp = log_sum_exp[r];
        float y_dy = dot(b->z.out + r * width, b->z.dy + r * width, width);
#pragma GCC ivdep
        for (int64_t i = 0; i < visible; i++) {
            float probability = cpu_exp_scalar(p[i] - row_log_sum_exp);
            ds[i] = probability * scale * (ds[i] - y_dy);
            p[i] = probability;
        }
        for (int64_t i = visible; i < b->visible; i++) p[i] = ds[i] = 0;
    }
}
CPU_RANGES(differentiate)

typedef struct block_matrix {
    const float *data;
    int64_t stride;
    bool transposed;
} block_matrix;

static block_matrix matrix(const float *data, int64_t stride) {
    return (block_matrix){data, stride, false};
}

static block_matrix transposed(const float *data, int64_t stride) {
    return (block_matrix){data, stride, true};
}

// sgemm's beta: 0 overwrites c, 1 adds to it.
typedef enum block_beta { BLOCK_OVERWRITE, BLOCK_ACCUMULATE } block_beta;

// Computes c [m, n] = factor · left·right + beta · c.
static void product(const block_work *b, int64_t m, int64_t n, int64_t k, float factor,
                    block_matrix left, block_matrix right, block_beta beta, float *c,
                    int64_t stride) {
    dnnl_status_t status =
        dnnl_sgemm(left.transposed ? 'T' : 'N', right.transposed ? 'T' : 'N', m, n, k, factor,
                   left.data, left.stride, right.data, right.stride, beta, c, stride);
    if (status != dnnl_success) atomic_store(&b->job->failure, (int)status);
}

static void load_keys(const block_work *b) {
    const attention_state *s = b->s;
    int64_t at = attention_key(s, b->n, 0, b->head / s->group);
    gather(s, b->job->call.k, at, s->kv_heads, s->keys, b->z.k);
    gather(s, b->job->call.v, at, s->kv_heads, s->keys, b->z.v);
}

// Begins the block of queries from query number `first` on: computes the scaled scores of these
// queries for all keys to which the last of them attends.
static void load_scores(block_work *b, int64_t first) {
    const attention_state *s = b->s;
    int64_t left = s->queries - first;
    b->first = first;
    b->rows = left < BLOCK_QUERIES ? left : BLOCK_QUERIES;
    b->visible = attention_visible_keys(s, first + b->rows - 1);
    gather(s, b->job->call.q, attention_query(s, b->n, first, b->head), s->heads, b->rows, b->z.q);
    product(b, b->rows, b->visible, s->width, s->scale, matrix(b->z.q, s->width),
            transposed(b->z.k, s->width), BLOCK_OVERWRITE, b->z.p, scores_stride(s));
}

static void forward_block(block_work *b, int64_t first) {
    const attention_state *s = b->s;
    load_scores(b, first);
    softmax_range(s->device)(b, 0, b->rows, 0);
    product(b, b->rows, s->width, b->visible, 1, matrix(b->z.p, scores_stride(s)),
            matrix(b->z.v, s->width), BLOCK_OVERWRITE, b->z.out, s->width);
    scatter(s, b->z.out, b->factor, b->rows, b->job->call.out,
            attention_query(s, b->n, first, b->head), s->heads);
}

static void gradient_block(block_work *b, int64_t first) {
    const attention_state *s = b->s;
    const block_space *z = &b->z;
    int64_t stride = scores_stride(s), at = attention_query(s, b->n, first, b->head);
    load_scores(b, first);
    gather(s, b->job->call.y, at, s->heads, b->rows, z->out);
    gather(s, b->job->call.dy, at, s->heads, b->rows, z->dy);
    block_matrix q = matrix(z->q, s->width), dy = matrix(z->dy, s->width);
    product(b, b->rows, b->visible, s->width, 1, dy, transposed(z->v, s->width), BLOCK_OVERWRITE,
            z->ds, stride);
    differentiate_range(s->device)(b, 0, b->rows, 0);
    product(b, b->rows, s->width, b->visible, 1, matrix(z->ds, stride), matrix(z->k, s->width),
            BLOCK_OVERWRITE, z->out, s->width);
    product(b, b->visible, s->width, b->rows, 1, transposed(z->ds, stride), q, BLOCK_ACCUMULATE,
            z->dk, s->width);
    product(b, b->visible, s->width, b->rows, 1, transposed(z->p, stride), dy, BLOCK_ACCUMULATE,
            z->dv, s->width);
    scatter(s, z->out, NULL, b->rows, b->job->call.out, at, s->heads);
}

static block_work work_of(block_job *job, bool gradient, int thread) {
    block_work b = {.job = job, .s = job->state};
    int64_t each = space_at(b.s, gradient, NULL, &b.z);
    space_at(b.s, gradient, job->call.workspace + thread * each, &b.z);
    return b;
}

// Computes heads [begin, end) of q. Heads that read the same k and v come one after the other, so
// that k and v are copied once for all of them.
static void forward_heads(void *context, int64_t begin, int64_t end, int thread) {
    block_work b = work_of(context, false, thread);
    for (int64_t i = begin; i < end; i++) {
        b.n = i / b.s->heads;
        b.head = i % b.s->heads;
        if (i == begin || b.head % b.s->group == 0) load_keys(&b);
        for (int64_t t = 0; t < b.s->queries; t += BLOCK_QUERIES) forward_block(&b, t);
    }
}

// Computes the gradients of heads [begin, end) of k and v, and of all heads of q that read them.
// One thread does all that adds to a head's gradient, so that the terms are added in the same order
// whatever the number of threads.
static void gradient_heads(void *context, int64_t begin, int64_t end, int thread) {
    block_work b = work_of(context, true, thread);
    const attention_state *s = b.s;
    for (int64_t i = begin; i < end; i++) {
        int64_t kv_head = i % s->kv_heads, end_head = (kv_head + 1) * s->group;
        b.n = i / s->kv_heads;
        b.head = kv_head * s->group;
        load_keys(&b);
        for (int64_t k = 0; k < s->keys * s->width; k++) b.z.dk[k] = b.z.dv[k] = 0;
        for (; b.head < end_head; b.head++)
            for (int64_t t = 0; t < s->queries; t += BLOCK_QUERIES) gradient_block(&b, t);
        int64_t at = attention_key(s, b.n, 0, kv_head);
        scatter(s, b.z.dk, NULL, s->keys, b.job->call.dk, at, s->kv_heads);
        scatter(s, b.z.dv, NULL, s->keys, b.job->call.dv, at, s->kv_heads);
    }
}

static bool blocks_supports(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node) {
    return cpu_is_float(device, graph, node) && tri_shape_count(cpu_in_shape(graph, node, 0)) > 0;
}

static tri_status blocks_workspace(const tri_device_description *device, const tri_graph *graph,
                                   const tri_node *node, size_t *out) {
    attention_state state = attention_state_of(device, graph, node);
    block_space z;
    int64_t each = space_at(&state, node->op == &tri_op_attention_grad, NULL, &z);
    *out = (size_t)(each * device->threads) * sizeof(float);
    return TRI_OK;
}

static tri_status run_heads(block_job *job, int64_t heads, cpu_range range) {
    const attention_state *s = job->state;
    // Each sgemm runs on the one thread that calls it, even if there is only a single head, so that
    // results do not depend on the number of threads. cpu_parallel uses the device's threads in
    // spite of this setting.
    omp_set_num_threads(1);
    cpu_parallel(s->device, s->samples * heads, 1, range, job);
    cpu_use_threads(&s->device->head.description);
    int failure = atomic_load(&job->failure);
    if (failure == dnnl_success) return TRI_OK;
    return TRI_FAIL(TRI_INTERNAL, "oneDNN's sgemm failed with status %d in attention", failure);
}

static tri_status forward_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const attention_state *s = kernel->state;
    block_job job = {.state = s,
                     .call = {.q = args->in[0],
                              .k = args->in[1],
                              .v = args->in[2],
                              .out = args->out[0],
                              .log_sum_exp = args->out[1],
                              .workspace = args->workspace}};
    return run_heads(&job, s->heads, forward_heads);
}

static tri_status gradient_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const attention_state *s = kernel->state;
    block_job job = {.state = s, .call = attention_gradient_call(args)};
    return run_heads(&job, s->kv_heads, gradient_heads);
}

#define BLOCKS_KERNEL(identifier, opname, function)                                                \
    const tri_kernel_def cpu_##identifier = {                                                      \
        .op = &tri_op_##opname,                                                                    \
        .name = "blocks",                                                                          \
        .supports = blocks_supports,                                                               \
        .workspace = blocks_workspace,                                                             \
        .prepare = attention_prepare,                                                              \
        .run = function,                                                                           \
        .release = attention_release,                                                              \
    };
BLOCKS_KERNEL(attention_blocks, attention, forward_run)
BLOCKS_KERNEL(attention_grad_blocks, attention_grad, gradient_run)
