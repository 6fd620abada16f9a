// The mean squared error and its gradient on plain tensors. (The losses over classes are small:
// `ref` computes them.)
#include "device/cpu/internal.h"

#include <stdlib.h>

enum {
    LOSS_CHUNK = 1 << 12, // elements summed in one piece, so that the bits do not depend on threads
    LOSS_GRAIN = 1 << 14,
};

typedef struct loss_state {
    const cpu_device *device;
    int64_t count;
} loss_state;

typedef struct loss_job {
    const float *prediction, *target;
    float *gradient;
    float factor;
    int64_t count;
    double *sums; // of each chunk
} loss_job;

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

static int64_t chunks_of(int64_t count) { return (count + LOSS_CHUNK - 1) / LOSS_CHUNK; }

static tri_status loss_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                               tri_kernel *kernel) {
    loss_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a loss");
    *state = (loss_state){.device = cpu_of(device),
                          .count = tri_shape_count(cpu_in_shape(graph, node, 0))};
    kernel->state = state;
    if (node->op == &tri_op_mse_loss)
        kernel->workspace_bytes = (size_t)chunks_of(state->count) * sizeof(double);
    return TRI_OK;
}

static tri_status sum_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const loss_state *state = kernel->state;
    double *out = args->out[0];
    loss_job job = {.prediction = args->in[0],
                    .target = args->in[1],
                    .count = state->count,
                    .sums = args->workspace};
    int64_t chunks = chunks_of(state->count);
    cpu_parallel(state->device, chunks, LOSS_GRAIN / LOSS_CHUNK, sum_range(state->device), &job);
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
                    .factor = 2 * *(const float *)args->in[2]};
    cpu_parallel(state->device, state->count, LOSS_GRAIN, gradient_range(state->device), &job);
    return TRI_OK;
}

static void loss_release(tri_kernel *kernel) { free(kernel->state); }

const tri_kernel_def cpu_mse_loss_flat = {
    .op = &tri_op_mse_loss,
    .name = "flat",
    .supports = cpu_is_f32,
    .prepare = loss_prepare,
    .run = sum_run,
    .release = loss_release,
};

const tri_kernel_def cpu_mse_loss_grad_flat = {
    .op = &tri_op_mse_loss_grad,
    .name = "flat",
    .supports = cpu_is_f32,
    .prepare = loss_prepare,
    .run = gradient_run,
    .release = loss_release,
};
