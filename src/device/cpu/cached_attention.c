// Attention of the tokens of a call to those that caches hold. Goes through the keys of a sequence
// in place and in order, once for each query of a group of heads, and reads no key beyond the last
// one: so a step takes time in proportion to the tokens so far, and not to the room of the cache.
// The sum of exponentials is corrected whenever a larger score is found, so that no row of scores
// has to be kept.
#include "device/cpu/scalar.h"

#include "ops/span.h"

#include <math.h>
#include <stdlib.h>

enum { KEYS = 64, MAX_WIDTH = 1024 }; // keys whose scores are computed together; widest head

typedef struct cached_state {
    const cpu_device *device;
    int64_t samples, tokens, length, heads, kv_heads, width, window;
    float scale;
    bool bf16;
} cached_state;

typedef struct cached_job {
    const cached_state *state;
    const void *q, *k, *v;
    const int64_t *spans;
    void *y;
} cached_job;

// The products of `count` keys, whose rows begin at element `at` and are `step` apart, with a
// query.
CPU_SCALAR void products(const cached_job *job, const float *query, int64_t at, int64_t step,
                         int64_t count, bool bf16, float *scores) {
    int64_t width = job->state->width;
    for (int64_t s = 0; s < count; s++) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t d = 0; d < width; d++)
            sum += query[d] * cpu_get(job->k, bf16, at + s * step + d);
        scores[s] = sum;
    }
}

// Replaces the scores by e^(score - largest), and returns their sum.
CPU_SCALAR float weigh(float *scores, float largest, int64_t count) {
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t s = 0; s < count; s++) {
        scores[s] = cpu_exp_scalar(scores[s] - largest);
        total += scores[s];
    }
    return total;
}

// Adds the values of `count` keys, times their weights, to `sums`.
CPU_SCALAR void add_values(const cached_job *job, const float *weights, int64_t at, int64_t step,
                           int64_t count, bool bf16, float *sums) {
    int64_t width = job->state->width;
    for (int64_t s = 0; s < count; s++)
#pragma GCC ivdep
        for (int64_t d = 0; d < width; d++)
            sums[d] += weights[s] * cpu_get(job->v, bf16, at + s * step + d);
}

// One query, whose row of q and y begins at element `row`; its keys begin at element `at` of k.
CPU_SCALAR void attend(const cached_job *job, int64_t row, int64_t at, int64_t keys, bool bf16) {
    const cached_state *s = job->state;
    int64_t step = s->kv_heads * s->width, width = s->width;
    float query[MAX_WIDTH], sums[MAX_WIDTH], scores[KEYS], largest = -INFINITY, total = 0;
    for (int64_t d = 0; d < width; d++) {
        query[d] = cpu_get(job->q, bf16, row + d) * s->scale;
        sums[d] = 0;
    }
    for (int64_t first = 0; first < keys; first += KEYS) {
        int64_t count = keys - first < KEYS ? keys - first : KEYS;
        float most = largest;
        products(job, query, at + first * step, step, count, bf16, scores);
        for (int64_t i = 0; i < count; i++) // NaN stays
            most = scores[i] > most || scores[i] != scores[i] ? scores[i] : most;
        if (most != largest) {
            float factor = cpu_exp_scalar(largest - most);
            total *= factor;
            for (int64_t d = 0; d < width; d++) sums[d] *= factor;
            largest = most;
        }
        total += weigh(scores, largest, count);
        add_values(job, scores, at + first * step, step, count, bf16, sums);
    }
    for (int64_t d = 0; d < width; d++) cpu_put(job->y, bf16, row + d, sums[d] / total);
}

// Item i is one token, and the heads of q that read one head of k and v.
CPU_BODY cached_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const cached_job *job = context;
    const cached_state *s = job->state;
    int64_t group = s->heads / s->kv_heads;
    for (int64_t i = begin; i < end; i++) {
        int64_t kv_head = i % s->kv_heads, token = i / s->kv_heads;
        int64_t n = token / s->tokens, t = token % s->tokens;
        tri_span span = tri_span_of(job->spans, n, s->tokens, s->length);
        int64_t row = (token * s->heads + kv_head * group) * s->width;
        int64_t first = tri_span_first_key(span.first + t, s->window);
        int64_t at = ((n * s->length + first) * s->kv_heads + kv_head) * s->width;
        for (int64_t h = 0; h < group; h++, row += s->width) {
            if (t < span.count) attend(job, row, at, span.first + t + 1 - first, bf16);
            for (int64_t d = 0; d < s->width && t >= span.count; d++)
                cpu_put(job->y, bf16, row + d, 0);
        }
    }
}
CPU_TYPED_RANGES(cached)

static bool cached_supports(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node) {
    return cpu_is_float(device, graph, node) && cpu_in_shape(graph, node, 0)->dims[3] <= MAX_WIDTH;
}

static tri_status cached_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                 tri_kernel *kernel) {
    const tri_cached_attention_attr *attr = node->attr;
    const int64_t *q = cpu_in_shape(graph, node, 0)->dims, *k = cpu_in_shape(graph, node, 1)->dims;
    cached_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for attention");
    *state = (cached_state){.device = cpu_of(device),
                            .samples = q[0],
                            .tokens = q[1],
                            .length = k[1],
                            .heads = q[2],
                            .kv_heads = k[2],
                            .width = q[3],
                            .window = attr->window,
                            .scale = (float)attr->scale,
                            .bf16 = cpu_is_bf16(graph, node)};
    kernel->state = state;
    return TRI_OK;
}

static tri_status cached_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const cached_state *s = kernel->state;
    cached_job job = {.state = s,
                      .q = args->in[0],
                      .k = args->in[1],
                      .v = args->in[2],
                      .spans = args->in[3],
                      .y = args->out[0]};
    cpu_parallel(s->device, s->samples * s->tokens * s->kv_heads, 1,
                 cached_range(s->device, s->bf16), &job);
    return TRI_OK;
}

static void cached_release(tri_kernel *kernel) { free(kernel->state); }

const tri_kernel_def cpu_cached_attention_heads = {
    .op = &tri_op_cached_attention,
    .name = "heads",
    .supports = cached_supports,
    .prepare = cached_prepare,
    .run = cached_run,
    .release = cached_release,
};
