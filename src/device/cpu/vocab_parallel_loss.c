// Cross-entropy where each rank has the scores of a slice of the classes, and its gradient. Three
// ops compute them, and ranks exchange values in between:
// 1. row_max finds each row's largest score on a rank; `max` is the largest of all ranks.
// 2. vocab_parallel_softmax computes two terms of each row: the sum of exp(score − max), and the
// label's score − max, which is 0 if another rank has the label. The ranks' terms are added up.
// 3. The gradient is computed from `max` and from the two sums.
// The rows are divided among the threads.
#include "device/cpu/class_row.h"

#include "device/ref/node.h"

#include <stdlib.h>

typedef struct vocab_state {
    const cpu_device *device;
    tri_classes_attr slice; // which classes this rank has
    int64_t rows, width;    // width: number of classes in the slice
    bool bf16, seed_f64;    // types: the scores are BF16, the seed of the gradient is F64; else F32
} vocab_state;

typedef struct vocab_job {
    const vocab_state *state;
    const void *scores;
    const int64_t *labels;
    // By row: the largest score of all ranks; and two sums over all ranks, of exp(score − max) and
    // of the label's score − max, which only the label's rank has.
    const float *max, *sums;
    void *out;
    float seed; // the gradient is that of `seed` times the sum of the losses
} vocab_job;

CPU_BODY largest_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const vocab_job *job = context;
    int64_t width = job->state->width;
    for (int64_t r = begin; r < end; r++) {
        const void *row = cpu_row(job->scores, bf16, r * width);
        bool nan = cpu_row_has_nan(row, width, bf16);
        ((float *)job->out)[r] = nan ? NAN : cpu_largest_of_row(row, width, bf16);
    }
}
CPU_TYPED_RANGES(largest)

CPU_BODY softmax_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const vocab_job *job = context;
    int64_t width = job->state->width;
    float *sums = job->out;
    for (int64_t r = begin; r < end; r++) {
        const void *row = cpu_row(job->scores, bf16, r * width);
        int64_t at = job->labels[r] - job->state->slice.first;
        bool here = at >= 0 && at < width;
        sums[2 * r] = cpu_exp_sum_of_row(row, width, bf16, job->max[r], NULL);
        sums[2 * r + 1] = here ? cpu_get(row, bf16, at) - job->max[r] : 0;
    }
}
CPU_TYPED_RANGES(softmax)

CPU_BODY gradient_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const vocab_job *job = context;
    int64_t width = job->state->width;
    for (int64_t r = begin; r < end; r++) {
        const void *row = cpu_row(job->scores, bf16, r * width);
        void *out = (char *)job->out + r * width * (bf16 ? 2 : 4);
        int64_t at = job->labels[r] - job->state->slice.first;
        bool here = at >= 0 && at < width;
        float max = job->max[r], label = here ? cpu_get(row, bf16, at) : 0;
        if (job->labels[r] == TRI_IGNORED_LABEL) {
            for (int64_t k = 0; k < width; k++) cpu_put(out, bf16, k, 0);
            continue;
        }
        float factor = job->seed / job->sums[2 * r];
#pragma GCC ivdep
        for (int64_t k = 0; k < width; k++)
            cpu_put(out, bf16, k, factor * cpu_exp_scalar(cpu_get(row, bf16, k) - max));
        if (here) cpu_put(out, bf16, at, factor * cpu_exp_scalar(label - max) - job->seed);
    }
}
CPU_TYPED_RANGES(gradient)

static tri_status vocab_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                tri_kernel *kernel) {
    const tri_shape *scores = cpu_in_shape(graph, node, 0);
    vocab_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a loss");
    int64_t width = scores->dims[scores->rank - 1];
    *state = (vocab_state){.device = cpu_of(device),
                           .rows = tri_shape_count(scores) / width,
                           .width = width,
                           .bf16 = cpu_is_bf16(graph, node)};
    kernel->state = state;
    if (node->op->attr_bytes) state->slice = *(const tri_classes_attr *)node->attr;
    if (node->op == &tri_op_vocab_parallel_cross_entropy_grad)
        state->seed_f64 = tri_value_get(graph, node->inputs[4])->dtype == TRI_F64;
    return TRI_OK;
}

static tri_status run_rows(const vocab_state *s, cpu_range range, vocab_job *job) {
    cpu_parallel(s->device, s->rows, 1 + 4096 / s->width, range, job);
    return TRI_OK;
}

static tri_status largest_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const vocab_state *s = kernel->state;
    vocab_job job = {.state = s, .scores = args->in[0], .out = args->out[0]};
    return run_rows(s, largest_range(s->device, s->bf16), &job);
}

static tri_status softmax_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const vocab_state *s = kernel->state;
    vocab_job job = {.state = s,
                     .scores = args->in[0],
                     .labels = args->in[1],
                     .max = args->in[2],
                     .out = args->out[0]};
    for (int64_t r = 0; r < s->rows; r++)
        TRI_TRY(ref_check_label(job.labels[r], r, s->slice.classes));
    return run_rows(s, softmax_range(s->device, s->bf16), &job);
}

static tri_status gradient_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const vocab_state *s = kernel->state;
    const void *seed = args->in[4];
    vocab_job job = {.state = s,
                     .scores = args->in[0],
                     .labels = args->in[1],
                     .max = args->in[2],
                     .sums = args->in[3],
                     .out = args->out[0],
                     .seed = s->seed_f64 ? (float)*(const double *)seed : *(const float *)seed};
    return run_rows(s, gradient_range(s->device, s->bf16), &job);
}

static bool vocab_supports(const tri_device_description *device, const tri_graph *graph,
                           const tri_node *node) {
    return cpu_is_float(device, graph, node) && tri_shape_count(cpu_in_shape(graph, node, 0)) > 0;
}

static void vocab_release(tri_kernel *kernel) { free(kernel->state); }

#define VOCAB_KERNEL(opname, run_function)                                                         \
    const tri_kernel_def cpu_##opname##_rows = {                                                   \
        .op = &tri_op_##opname,                                                                    \
        .name = "rows",                                                                            \
        .supports = vocab_supports,                                                                \
        .prepare = vocab_prepare,                                                                  \
        .run = run_function,                                                                       \
        .release = vocab_release,                                                                  \
    };
VOCAB_KERNEL(row_max, largest_run)
VOCAB_KERNEL(vocab_parallel_softmax, softmax_run)
VOCAB_KERNEL(vocab_parallel_cross_entropy_grad, gradient_run)
