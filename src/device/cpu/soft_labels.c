// The negative log-likelihood of soft labels, and its gradient. The rows are divided among the
// threads; each row is summed by itself, so the bits do not depend on their number.
#include "device/cpu/scalar.h"

#include <stdlib.h>

typedef struct soft_state {
    const cpu_device *device;
    int64_t rows, classes;
    float share, rest; // of a label, and what each class gets besides: label smoothing
    bool seed_f64;
} soft_state;

typedef struct soft_job {
    const soft_state *state;
    const float *y, *labels; // y: log-probabilities
    float *gradient, seed;
    double *terms; // by row: what it adds to the loss, and 1 if it counts
} soft_job;

static inline __attribute__((always_inline)) bool has_labels(const float *labels, int64_t classes) {
    int others = 0;
    for (int64_t k = 0; k < classes; k++) others |= labels[k] != 0;
    return others;
}

CPU_BODY loss_body(void *context, int64_t begin, int64_t end) {
    enum { LANES = 8 };
    const soft_job *job = context;
    int64_t classes = job->state->classes;
    float share = job->state->share, rest = job->state->rest;
    for (int64_t n = begin; n < end; n++) {
        const float *y = job->y + n * classes, *labels = job->labels + n * classes;
        double lane[LANES] = {0}, sum = 0;
        int64_t k = 0;
        for (; k + LANES <= classes; k += LANES)
            for (int i = 0; i < LANES; i++)
                lane[i] += (double)(share * labels[k + i] + rest) * (double)y[k + i];
        for (; k < classes; k++) sum += (double)(share * labels[k] + rest) * (double)y[k];
        for (int i = 0; i < LANES; i++) sum += lane[i];
        bool counts = has_labels(labels, classes);
        job->terms[2 * n] = counts ? -sum : 0;
        job->terms[2 * n + 1] = counts;
    }
}
CPU_RANGES(loss)

CPU_BODY gradient_body(void *context, int64_t begin, int64_t end) {
    const soft_job *job = context;
    int64_t classes = job->state->classes;
    for (int64_t n = begin; n < end; n++) {
        const float *labels = job->labels + n * classes;
        float *out = job->gradient + n * classes;
        bool counts = has_labels(labels, classes);
        float share = counts ? -job->seed * job->state->share : 0;
        float rest = counts ? -job->seed * job->state->rest : 0;
        for (int64_t k = 0; k < classes; k++) out[k] = share * labels[k] + rest;
    }
}
CPU_RANGES(gradient)

// The smallest number of rows that is worth a thread of its own.
static int64_t grain_of(const soft_state *state) { return 1 + 16384 / state->classes; }

static tri_status soft_workspace(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node, size_t *out) {
    const tri_shape *shape = cpu_in_shape(graph, node, 0);
    int64_t rows = tri_shape_count(shape) / shape->dims[shape->rank - 1];
    if (node->op->flags & TRI_OP_LOSS) *out = (size_t)rows * 2 * sizeof(double);
    return TRI_OK;
}

static tri_status soft_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                               tri_kernel *kernel) {
    const tri_shape *shape = cpu_in_shape(graph, node, 0);
    double smoothing = ((const tri_soft_labels_attr *)node->attr)->smoothing;
    soft_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a loss");
    *state = (soft_state){.device = cpu_of(device),
                          .classes = shape->dims[shape->rank - 1],
                          .share = (float)(1 - smoothing)};
    state->rows = tri_shape_count(shape) / state->classes;
    state->rest = (float)(smoothing / (double)state->classes);
    state->seed_f64 = tri_value_get(graph, node->inputs[1])->dtype == TRI_F64;
    kernel->state = state;
    return TRI_OK;
}

static tri_status loss_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const soft_state *state = kernel->state;
    soft_job job = {
        .state = state, .y = args->in[0], .labels = args->in[1], .terms = args->workspace};
    double *out = args->out[0];
    cpu_parallel(state->device, state->rows, grain_of(state), loss_range(state->device), &job);
    out[0] = out[1] = 0;
    for (int64_t n = 0; n < state->rows; n++) {
        out[0] += job.terms[2 * n];
        out[1] += job.terms[2 * n + 1];
    }
    return TRI_OK;
}

static tri_status gradient_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const soft_state *state = kernel->state;
    const void *seed = args->in[1];
    soft_job job = {.state = state,
                    .labels = args->in[0],
                    .gradient = args->out[0],
                    .seed = state->seed_f64 ? (float)*(const double *)seed : *(const float *)seed};
    cpu_parallel(state->device, state->rows, grain_of(state), gradient_range(state->device), &job);
    return TRI_OK;
}

static void soft_release(tri_kernel *kernel) { free(kernel->state); }

#define SOFT_KERNEL(opname, run_function)                                                          \
    const tri_kernel_def cpu_##opname##_rows = {                                                   \
        .op = &tri_op_##opname,                                                                    \
        .name = "rows",                                                                            \
        .supports = cpu_is_f32,                                                                    \
        .workspace = soft_workspace,                                                               \
        .prepare = soft_prepare,                                                                   \
        .run = run_function,                                                                       \
        .release = soft_release,                                                                   \
    };
SOFT_KERNEL(soft_nll_loss, loss_run)
SOFT_KERNEL(soft_nll_loss_grad, gradient_run)
