// Cross-entropy, its gradient and accuracy. Threads divide the rows. A row is read several times in
// succession, so that all but the first read find it in a cache.
#include "device/cpu/class_row.h"

#include "device/ref/node.h"

#include <stdlib.h>

typedef struct class_state {
    const cpu_device *device;
    int64_t rows, classes;
    bool bf16, seed_f64;
} class_state;

typedef struct class_job {
    const class_state *state;
    const void *scores;
    const int64_t *labels;
    double *losses; // by row: the row's loss; for accuracy, 1 if the prediction is right, else 0
    void *gradient;
    float *terms;  // [parts][classes]: exp(score − largest) of a row, if the gradient is BF16
    int64_t parts; // into how many ranges the rows are divided
    float seed;
} class_job;

// Finds the largest score of a row and returns the sum of exp(score − largest).
CPU_SCALAR float sum_of_row(const void *row, int64_t classes, bool bf16, float *largest) {
    *largest = cpu_largest_of_row(row, classes, bf16);
    return cpu_exp_sum_of_row(row, classes, bf16, *largest, NULL);
}

CPU_BODY loss_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const class_job *job = context;
    int64_t classes = job->state->classes;
    for (int64_t n = begin; n < end; n++) {
        const void *row = cpu_row(job->scores, bf16, n * classes);
        float largest;
        job->losses[n] = 0;
        if (job->labels[n] == TRI_IGNORED_LABEL) continue;
        double norm = log((double)sum_of_row(row, classes, bf16, &largest));
        job->losses[n] = norm + (double)largest - (double)cpu_get(row, bf16, job->labels[n]);
    }
}
CPU_TYPED_RANGES(loss)

// Computes the gradients of the rows of ranges [begin, end). A row's exponentials are needed twice:
// first for their sum, and then to be divided by this sum. They are computed once and kept in the
// row of the gradient itself or, if that is BF16, in a row of `terms`.
CPU_BODY gradient_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const class_job *job = context;
    int64_t classes = job->state->classes, rows = job->state->rows;
    for (int64_t n = rows * begin / job->parts; n < rows * end / job->parts; n++) {
        const void *row = cpu_row(job->scores, bf16, n * classes);
        void *out = (char *)job->gradient + n * classes * (bf16 ? 2 : 4);
        if (job->labels[n] == TRI_IGNORED_LABEL) {
            for (int64_t k = 0; k < classes; k++) cpu_put(out, bf16, k, 0);
            continue;
        }
        float *terms = bf16 ? job->terms + begin * classes : out;
        float largest = cpu_largest_of_row(row, classes, bf16);
        float factor = job->seed / cpu_exp_sum_of_row(row, classes, bf16, largest, terms);
        float share = factor * terms[job->labels[n]];
#pragma GCC ivdep
        for (int64_t k = 0; k < classes; k++) cpu_put(out, bf16, k, factor * terms[k]);
        cpu_put(out, bf16, job->labels[n], share - job->seed);
    }
}
CPU_TYPED_RANGES(gradient)

// A prediction is right if the label has the first of the largest scores: none before it is as
// large and none after it is larger. If the first score is NaN, class 0 is predicted, because no
// comparison with NaN is true.
CPU_BODY hits_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const class_job *job = context;
    int64_t classes = job->state->classes;
    for (int64_t n = begin; n < end; n++) {
        const void *row = cpu_row(job->scores, bf16, n * classes);
        int64_t label = job->labels[n];
        int larger = 0;
        job->losses[n] = 0;
        if (label == TRI_IGNORED_LABEL) continue;
        float score = cpu_get(row, bf16, label);
        for (int64_t k = 0; k < label; k++) larger += cpu_get(row, bf16, k) >= score;
        for (int64_t k = label + 1; k < classes; k++) larger += cpu_get(row, bf16, k) > score;
        float first = cpu_get(row, bf16, 0);
        bool hit = score == score && larger == 0;
        job->losses[n] = first == first ? hit : label == 0;
    }
}
CPU_TYPED_RANGES(hits)

static int64_t rows_of(const tri_shape *scores) {
    return tri_shape_count(scores) / scores->dims[scores->rank - 1];
}

static tri_status class_workspace(const tri_device_description *device, const tri_graph *graph,
                                  const tri_node *node, size_t *out) {
    const tri_shape *scores = cpu_in_shape(graph, node, 0);
    size_t classes = (size_t)scores->dims[scores->rank - 1];
    if (node->op != &tri_op_cross_entropy_grad)
        *out = (size_t)rows_of(scores) * sizeof(double);
    else if (cpu_is_bf16(graph, node))
        *out = classes * (size_t)device->threads * sizeof(float);
    return TRI_OK;
}

static tri_status class_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                tri_kernel *kernel) {
    const tri_shape *scores = cpu_in_shape(graph, node, 0);
    class_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a loss");
    *state = (class_state){.device = cpu_of(device),
                           .rows = rows_of(scores),
                           .classes = scores->dims[scores->rank - 1],
                           .bf16 = cpu_is_bf16(graph, node)};
    kernel->state = state;
    if (node->op == &tri_op_cross_entropy_grad)
        state->seed_f64 = tri_value_get(graph, node->inputs[2])->dtype == TRI_F64;
    return TRI_OK;
}

static tri_status check_labels(const class_state *s, const int64_t *labels) {
    for (int64_t n = 0; n < s->rows; n++) TRI_TRY(ref_check_label(labels[n], n, s->classes));
    return TRI_OK;
}

// out[0] = the sum over rows of what `range` computes; out[1] = the number of rows whose label is
// not ignored.
static tri_status sum_rows(const class_state *s, const tri_kernel_args *args, cpu_range range) {
    class_job job = {
        .state = s, .scores = args->in[0], .labels = args->in[1], .losses = args->workspace};
    double *loss = args->out[0];
    TRI_TRY(check_labels(s, job.labels));
    cpu_parallel(s->device, s->rows, 1 + 4096 / s->classes, range, &job);
    loss[0] = loss[1] = 0;
    for (int64_t n = 0; n < s->rows; n++) {
        loss[0] += job.losses[n];
        loss[1] += job.labels[n] != TRI_IGNORED_LABEL;
    }
    return TRI_OK;
}

static tri_status loss_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const class_state *s = kernel->state;
    return sum_rows(s, args, loss_range(s->device, s->bf16));
}

static tri_status hits_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const class_state *s = kernel->state;
    return sum_rows(s, args, hits_range(s->device, s->bf16));
}

static tri_status gradient_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const class_state *s = kernel->state;
    const void *seed = args->in[2];
    class_job job = {
        .state = s,
        .scores = args->in[0],
        .labels = args->in[1],
        .gradient = args->out[0],
        .terms = args->workspace,
        .parts = s->rows < 2 * (1 + 4096 / s->classes) ? 1 : s->device->head.description.threads,
        .seed = s->seed_f64 ? (float)*(const double *)seed : *(const float *)seed};
    TRI_TRY(check_labels(s, job.labels));
    cpu_parallel(s->device, job.parts, 1, gradient_range(s->device, s->bf16), &job);
    return TRI_OK;
}

static bool class_supports(const tri_device_description *device, const tri_graph *graph,
                           const tri_node *node) {
    return cpu_is_float(device, graph, node) && tri_shape_count(cpu_in_shape(graph, node, 0)) > 0;
}

static void class_release(tri_kernel *kernel) { free(kernel->state); }

#define CLASS_KERNEL(opname, run_function)                                                         \
    const tri_kernel_def cpu_##opname##_rows = {                                                   \
        .op = &tri_op_##opname,                                                                    \
        .name = "rows",                                                                            \
        .supports = class_supports,                                                                \
        .workspace = class_workspace,                                                              \
        .prepare = class_prepare,                                                                  \
        .run = run_function,                                                                       \
        .release = class_release,                                                                  \
    };
CLASS_KERNEL(cross_entropy, loss_run)
CLASS_KERNEL(cross_entropy_grad, gradient_run)
CLASS_KERNEL(accuracy, hits_run)
