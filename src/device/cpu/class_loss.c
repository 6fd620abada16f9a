// Cross-entropy, its gradient and accuracy. The rows are divided among the threads. A row is read
// several times in succession, so that all but the first read find it in a cache.
#include "device/cpu/class_loss.h"

#include "device/cpu/class_row.h"
#include "device/ref/node.h"

#include <stdlib.h>

typedef struct class_job {
    const cpu_class_rows *rows;
    double *of_row; // by row: the row's loss; for accuracy, 1 if the prediction is right, else 0
    void *gradient;
    // [parts][classes]: for each range of rows, exp(score − the row's largest score) for the row
    // that is being computed. Used only if the gradient is BF16.
    float *terms;
    int64_t parts; // number of ranges into which the rows are divided
    float seed;    // the gradient is that of `seed` times the sum of the losses
} class_job;

// Computes the loss of a row from the row's largest score and its sum of exp(score − largest).
// Callers leave out rows whose label is ignored.
CPU_SCALAR double loss_of_row(float sum, float largest, float score_of_label) {
    return log((double)sum) + (double)largest - (double)score_of_label;
}

CPU_BODY loss_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const class_job *job = context;
    const cpu_class_rows *r = job->rows;
    for (int64_t n = begin; n < end; n++) {
        const void *row = cpu_row(r->scores, bf16, n * r->classes);
        job->of_row[n] = 0;
        if (r->labels[n] == TRI_IGNORED_LABEL) continue;
        float largest = cpu_largest_of_row(row, r->classes, bf16);
        float sum = cpu_exp_sum_of_row(row, r->classes, bf16, largest, NULL);
        job->of_row[n] = loss_of_row(sum, largest, cpu_get(row, bf16, r->labels[n]));
    }
}
CPU_TYPED_RANGES(loss)

// Computes the gradients of the rows in ranges number `begin` to `end` − 1, of the job's `parts`
// ranges. A row's exponentials are needed twice: first for their sum, and then to be divided by
// this sum. They are computed once and kept in the row of the gradient itself or, if that is BF16,
// in a row of `terms`.
CPU_BODY gradient_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const class_job *job = context;
    const cpu_class_rows *r = job->rows;
    int64_t classes = r->classes, rows = r->rows;
    for (int64_t n = rows * begin / job->parts; n < rows * end / job->parts; n++) {
        const void *row = cpu_row(r->scores, bf16, n * classes);
        void *out = (char *)job->gradient + n * classes * (bf16 ? 2 : 4);
        int64_t label = r->labels[n];
        if (job->of_row) job->of_row[n] = 0;
        if (label == TRI_IGNORED_LABEL) {
            for (int64_t k = 0; k < classes; k++) cpu_put(out, bf16, k, 0);
            continue;
        }
        float *terms = bf16 ? job->terms + begin * classes : out;
        float largest = cpu_largest_of_row(row, classes, bf16);
        // Read now, because `terms` may be the same memory as `row`.
        float score = cpu_get(row, bf16, label);
        float sum = cpu_exp_sum_of_row(row, classes, bf16, largest, terms);
        if (job->of_row) job->of_row[n] = loss_of_row(sum, largest, score);
        float factor = job->seed / sum;
        float label_term = factor * terms[label];
#pragma GCC ivdep
        for (int64_t k = 0; k < classes; k++) cpu_put(out, bf16, k, factor * terms[k]);
        cpu_put(out, bf16, label, label_term - job->seed);
    }
}
CPU_TYPED_RANGES(gradient)

// Sets of_row[n] to 1 if the prediction for row n is right, else to 0. It is right if the label has
// the first of the largest scores: none before it is as large and none after it is larger. If the
// first score is NaN, class 0 is predicted, because no comparison with NaN is true.
CPU_BODY hits_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const class_job *job = context;
    const cpu_class_rows *r = job->rows;
    int64_t classes = r->classes;
    for (int64_t n = begin; n < end; n++) {
        const void *row = cpu_row(r->scores, bf16, n * classes);
        int64_t label = r->labels[n];
        int larger = 0;
        job->of_row[n] = 0;
        if (label == TRI_IGNORED_LABEL) continue;
        float score = cpu_get(row, bf16, label);
        for (int64_t k = 0; k < label; k++) larger += cpu_get(row, bf16, k) >= score;
        for (int64_t k = label + 1; k < classes; k++) larger += cpu_get(row, bf16, k) > score;
        float first = cpu_get(row, bf16, 0);
        bool hit = score == score && larger == 0;
        job->of_row[n] = first == first ? hit : label == 0;
    }
}
CPU_TYPED_RANGES(hits)

tri_status cpu_class_check_labels(const cpu_class_rows *rows) {
    for (int64_t n = 0; n < rows->rows; n++)
        TRI_TRY(ref_check_label(rows->labels[n], n, rows->classes));
    return TRI_OK;
}

// The smallest number of rows that is worth a thread of its own: those with about 4096 scores.
static int64_t grain_of(const cpu_class_rows *rows) { return 1 + 4096 / rows->classes; }

void cpu_class_losses(const cpu_device *device, const cpu_class_rows *rows, double *losses) {
    class_job job = {.rows = rows, .of_row = losses};
    cpu_parallel(device, rows->rows, grain_of(rows), loss_range(device, rows->bf16), &job);
}

void cpu_class_hits(const cpu_device *device, const cpu_class_rows *rows, double *hits) {
    class_job job = {.rows = rows, .of_row = hits};
    cpu_parallel(device, rows->rows, grain_of(rows), hits_range(device, rows->bf16), &job);
}

int64_t cpu_class_terms(const tri_device_description *device, int64_t classes, bool bf16) {
    return bf16 ? classes * device->threads : 0;
}

void cpu_class_gradient(const cpu_device *device, const cpu_class_rows *rows, float seed,
                        float *terms, void *gradient, double *losses) {
    bool small = rows->rows < 2 * grain_of(rows);
    class_job job = {.rows = rows,
                     .of_row = losses,
                     .gradient = gradient,
                     .terms = terms,
                     .parts = small ? 1 : device->head.description.threads,
                     .seed = seed};
    cpu_parallel(device, job.parts, 1, gradient_range(device, rows->bf16), &job);
}

void cpu_class_sum(const cpu_class_rows *rows, const double *of_row, double *pair) {
    pair[0] = pair[1] = 0;
    for (int64_t n = 0; n < rows->rows; n++) {
        pair[0] += of_row[n];
        pair[1] += rows->labels[n] != TRI_IGNORED_LABEL;
    }
}

typedef struct class_state {
    const cpu_device *device;
    cpu_class_rows rows; // sizes and type; each run fills in the addresses of scores and labels
    bool seed_f64;
} class_state;

static int64_t rows_of(const tri_shape *scores) {
    return tri_shape_count(scores) / scores->dims[scores->rank - 1];
}

static tri_status class_workspace(const tri_device_description *device, const tri_graph *graph,
                                  const tri_node *node, size_t *out) {
    const tri_shape *scores = cpu_in_shape(graph, node, 0);
    int64_t classes = scores->dims[scores->rank - 1];
    if (node->op != &tri_op_cross_entropy_grad)
        *out = (size_t)rows_of(scores) * sizeof(double);
    else
        *out = (size_t)cpu_class_terms(device, classes, cpu_is_bf16(graph, node)) * sizeof(float);
    return TRI_OK;
}

static tri_status class_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                tri_kernel *kernel) {
    const tri_shape *scores = cpu_in_shape(graph, node, 0);
    class_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a loss");
    *state = (class_state){.device = cpu_of(device),
                           .rows = {.rows = rows_of(scores),
                                    .classes = scores->dims[scores->rank - 1],
                                    .bf16 = cpu_is_bf16(graph, node)}};
    kernel->state = state;
    if (node->op == &tri_op_cross_entropy_grad)
        state->seed_f64 = tri_value_get(graph, node->inputs[2])->dtype == TRI_F64;
    return TRI_OK;
}

// Sets *rows to the rows of this call, after checking their labels.
static tri_status open_rows(const class_state *s, const tri_kernel_args *args,
                            cpu_class_rows *rows) {
    *rows = s->rows;
    rows->scores = args->in[0];
    rows->labels = args->in[1];
    return cpu_class_check_labels(rows);
}

static tri_status loss_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const class_state *s = kernel->state;
    cpu_class_rows rows;
    TRI_TRY(open_rows(s, args, &rows));
    cpu_class_losses(s->device, &rows, args->workspace);
    cpu_class_sum(&rows, args->workspace, args->out[0]);
    return TRI_OK;
}

static tri_status hits_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const class_state *s = kernel->state;
    cpu_class_rows rows;
    TRI_TRY(open_rows(s, args, &rows));
    cpu_class_hits(s->device, &rows, args->workspace);
    cpu_class_sum(&rows, args->workspace, args->out[0]);
    return TRI_OK;
}

static tri_status gradient_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const class_state *s = kernel->state;
    const void *seed = args->in[2];
    cpu_class_rows rows;
    TRI_TRY(open_rows(s, args, &rows));
    cpu_class_gradient(s->device, &rows,
                       s->seed_f64 ? (float)*(const double *)seed : *(const float *)seed,
                       args->workspace, args->out[0], NULL);
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
