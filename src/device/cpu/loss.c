// The mean squared error and binary cross-entropy, and their gradients; the sum of a loss's terms.
#include "device/cpu/scalar.h"

#include <stdlib.h>

enum {
    // Number of elements that one thread sums as a chunk. It does not depend on the number of
    // threads, so that the result has the same bits with any number of them.
    LOSS_CHUNK = 1 << 12,
    LOSS_GRAIN = 1 << 14,
};

typedef struct loss_state {
    const cpu_device *device;
    cpu_range range;
    float factor;  // if the op is a gradient: the constant factor in its formula
    int64_t count; // number of elements
    int inputs;
} loss_state;

typedef struct loss_job {
    const float *prediction, *target;
    float *gradient;
    // loss_state.factor times the loss seed, which is the gradient of the whole loss with respect
    // to this op's sum.
    float factor;
    int64_t count;
    double *sums; // by chunk: the chunk's sum
} loss_job;

// The sum of the terms of a loss.
CPU_BODY terms_body(void *context, int64_t begin, int64_t end) {
    enum { LANES = 64 };
    const loss_job *job = context;
    for (int64_t c = begin; c < end; c++) {
        const float *x = job->prediction + c * LOSS_CHUNK;
        int64_t left = job->count - c * LOSS_CHUNK, count = left < LOSS_CHUNK ? left : LOSS_CHUNK;
        double lane[LANES] = {0}, sum = 0;
        int64_t i = 0;
        for (; i + LANES <= count; i += LANES)
            for (int k = 0; k < LANES; k++) lane[k] += (double)x[i + k];
        for (; i < count; i++) sum += (double)x[i];
        for (int k = 0; k < LANES; k++) sum += lane[k];
        job->sums[c] = sum;
    }
}
CPU_RANGES(terms)

static inline __attribute__((always_inline)) double chunk_sum(const float *a, const float *b,
                                                              int64_t count) {
    float lane[64] = {0};
    int64_t i = 0;
    for (; i + 64 <= count; i += 64)
        for (int k = 0; k < 64; k++) {
            float d = a[i + k] - b[i + k];
            lane[k] += d * d;
        }
    double sum = 0;
    for (; i < count; i++) sum += (double)(a[i] - b[i]) * (double)(a[i] - b[i]);
    for (int k = 0; k < 64; k++) sum += (double)lane[k];
    return sum;
}

CPU_BODY sum_body(void *context, int64_t begin, int64_t end) {
    const loss_job *job = context;
    for (int64_t c = begin; c < end; c++) {
        int64_t first = c * LOSS_CHUNK, left = job->count - first;
        job->sums[c] = chunk_sum(job->prediction + first, job->target + first,
                                 left < LOSS_CHUNK ? left : LOSS_CHUNK);
    }
}
CPU_RANGES(sum)

CPU_BODY gradient_body(void *context, int64_t begin, int64_t end) {
    const loss_job *job = context;
    const float *a = job->prediction, *b = job->target, factor = job->factor;
    float *out = job->gradient;
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) out[i] = factor * (a[i] - b[i]);
}
CPU_RANGES(gradient)

// Computes log(1 + e) for e in [0, 1] as 2 · artanh(e / (2 + e)). That argument is at most 1/3, so
// a few terms of the series are enough.
CPU_SCALAR float log_of_one_more(float e) {
    float s = e / (2 + e), z = s * s;
    float p = 1.0f / 13;
    p = p * z + 1.0f / 11;
    p = p * z + 1.0f / 9;
    p = p * z + 1.0f / 7;
    p = p * z + 1.0f / 5;
    p = p * z + 1.0f / 3;
    return 2 * s * (p * z + 1);
}

CPU_SCALAR float binary_entropy(float x, float target) {
    float size = x < 0 ? -x : x;
    return (x < 0 ? 0 : x) - x * target + log_of_one_more(cpu_exp_scalar(-size));
}

CPU_BODY binary_sum_body(void *context, int64_t begin, int64_t end) {
    enum { LANES = 64 };
    const loss_job *job = context;
    for (int64_t c = begin; c < end; c++) {
        const float *x = job->prediction + c * LOSS_CHUNK, *target = job->target + c * LOSS_CHUNK;
        int64_t left = job->count - c * LOSS_CHUNK, count = left < LOSS_CHUNK ? left : LOSS_CHUNK;
        float lane[LANES] = {0};
        double sum = 0;
        int64_t i = 0;
        for (; i + LANES <= count; i += LANES)
            for (int k = 0; k < LANES; k++) lane[k] += binary_entropy(x[i + k], target[i + k]);
        for (; i < count; i++) sum += (double)binary_entropy(x[i], target[i]);
        for (int k = 0; k < LANES; k++) sum += (double)lane[k];
        job->sums[c] = sum;
    }
}
CPU_RANGES(binary_sum)

CPU_BODY binary_gradient_body(void *context, int64_t begin, int64_t end) {
    const loss_job *job = context;
    const float *x = job->prediction, *target = job->target, seed = job->factor;
    float *out = job->gradient;
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++)
        out[i] = seed * (1 / (1 + cpu_exp_scalar(-x[i])) - target[i]);
}
CPU_RANGES(binary_gradient)

static int64_t chunks_of(int64_t count) { return (count + LOSS_CHUNK - 1) / LOSS_CHUNK; }

static const struct {
    const tri_op *op;
    cpu_range (*range)(const cpu_device *device);
    float factor; // as in loss_state; 0: the op is a loss and not a gradient
} rows[] = {
    {&tri_op_mean_loss, terms_range, 0},
    {&tri_op_mse_loss, sum_range, 0},
    {&tri_op_mse_loss_grad, gradient_range, 2},
    {&tri_op_binary_cross_entropy, binary_sum_range, 0},
    {&tri_op_binary_cross_entropy_grad, binary_gradient_range, 1},
};

static tri_status loss_workspace(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node, size_t *out) {
    int64_t count = tri_shape_count(cpu_in_shape(graph, node, 0));
    if (node->op->flags & TRI_OP_LOSS) *out = (size_t)chunks_of(count) * sizeof(double);
    return TRI_OK;
}

static tri_status loss_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                               tri_kernel *kernel) {
    loss_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a loss");
    *state = (loss_state){.device = cpu_of(device),
                          .count = tri_shape_count(cpu_in_shape(graph, node, 0)),
                          .inputs = node->input_count};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].op != node->op) continue;
        state->range = rows[i].range(state->device);
        state->factor = rows[i].factor;
    }
    kernel->state = state;
    return TRI_OK;
}

static tri_status sum_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const loss_state *state = kernel->state;
    double *out = args->out[0];
    loss_job job = {.prediction = args->in[0],
                    .target = state->inputs > 1 ? args->in[1] : NULL,
                    .count = state->count,
                    .sums = args->workspace};
    int64_t chunks = chunks_of(state->count);
    cpu_parallel(state->device, chunks, LOSS_GRAIN / LOSS_CHUNK, state->range, &job);
    out[0] = 0;
    for (int64_t c = 0; c < chunks; c++) out[0] += job.sums[c];
    out[1] = (double)state->count;
    return TRI_OK;
}

static tri_status gradient_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const loss_state *state = kernel->state;
    loss_job job = {.prediction = args->in[0],
                    .target = args->in[1],
                    .gradient = args->out[0],
                    .factor = state->factor * *(const float *)args->in[2]};
    cpu_parallel(state->device, state->count, LOSS_GRAIN, state->range, &job);
    return TRI_OK;
}

static void loss_release(tri_kernel *kernel) { free(kernel->state); }

#define LOSS_KERNEL(opname, run_function)                                                          \
    const tri_kernel_def cpu_##opname##_flat = {                                                   \
        .op = &tri_op_##opname,                                                                    \
        .name = "flat",                                                                            \
        .supports = cpu_is_f32,                                                                    \
        .workspace = loss_workspace,                                                               \
        .prepare = loss_prepare,                                                                   \
        .run = run_function,                                                                       \
        .release = loss_release,                                                                   \
    };
LOSS_KERNEL(mean_loss, sum_run)
LOSS_KERNEL(mse_loss, sum_run)
LOSS_KERNEL(mse_loss_grad, gradient_run)
LOSS_KERNEL(binary_cross_entropy, sum_run)
LOSS_KERNEL(binary_cross_entropy_grad, gradient_run)
