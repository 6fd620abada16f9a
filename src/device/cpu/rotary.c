// Rotary position embedding. The sines and cosines of all positions are computed only once, when
// the kernel is prepared, because to compute them takes longer than to rotate. Where each sample
// begins at a position of its own (spans), they are computed for each call, once for all heads.
#include "device/cpu/scalar.h"

#include <math.h>
#include <stdlib.h>

typedef struct rotary_state {
    const cpu_device *device;
    // x is [samples, positions, heads, 2 · half]; rows is samples · positions.
    int64_t rows, positions, heads, half;
    bool bf16;
    // [position][2][half]: for each position its cosines, then its sines. NULL: they are computed
    // for each call, [sample][position][2][half] in its workspace.
    float *angles;
    tri_rotary_attr attr;
} rotary_state;

typedef struct rotary_job {
    const rotary_state *state;
    const void *x;
    void *y;
    const int64_t *spans; // NULL: there are none
    float *angles;        // of rows of x, or (without spans) of positions
} rotary_job;

CPU_BODY rotary_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const rotary_job job = *(const rotary_job *)context;
    const rotary_state *s = job.state;
    const int64_t half = s->half;
    for (int64_t row = begin; row < end; row++) {
        int64_t angles = job.spans ? row : row % s->positions;
        const float *cosine = job.angles + angles * 2 * half, *sine = cosine + half;
        for (int64_t h = 0; h < s->heads; h++) {
            int64_t at = (row * s->heads + h) * 2 * half;
#pragma GCC ivdep
            for (int64_t i = 0; i < half; i++) {
                float a = cpu_get(job.x, bf16, at + i), b = cpu_get(job.x, bf16, at + half + i);
                cpu_put(job.y, bf16, at + i, a * cosine[i] - b * sine[i]);
                cpu_put(job.y, bf16, at + half + i, b * cosine[i] + a * sine[i]);
            }
        }
    }
}
CPU_TYPED_RANGES(rotary)

static void compute_angles(const rotary_state *s, int64_t position, float *to) {
    for (int64_t i = 0; i < s->half; i++) {
        double rate = rotary_scaled(pow(s->attr.theta, -2 * (double)i / (double)(2 * s->half)),
                                    s->attr.scaling);
        double angle = (double)(s->attr.first + position) * rate;
        to[i] = (float)cos(angle);
        to[s->half + i] = (float)(s->attr.inverse ? -sin(angle) : sin(angle));
    }
}

static void span_angles(void *context, int64_t begin, int64_t end, int thread) {
    const rotary_job *job = context;
    const rotary_state *s = job->state;
    for (int64_t row = begin; row < end; row++)
        compute_angles(s, job->spans[2 * (row / s->positions)] + row % s->positions,
                       job->angles + row * 2 * s->half);
}

static bool has_spans(const tri_node *node) {
    return node->input_count > 1 && tri_value_is(node->inputs[1]);
}

static tri_status rotary_workspace(const tri_device_description *device, const tri_graph *graph,
                                   const tri_node *node, size_t *out) {
    const int64_t *x = cpu_in_shape(graph, node, 0)->dims;
    *out = has_spans(node) ? (size_t)(x[0] * x[1] * x[3]) * sizeof(float) : 0;
    return TRI_OK;
}

static tri_status rotary_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                 tri_kernel *kernel) {
    const tri_rotary_attr *attr = node->attr;
    const int64_t *x = cpu_in_shape(graph, node, 0)->dims;
    rotary_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for rotary positions");
    *state = (rotary_state){.device = cpu_of(device),
                            .rows = x[0] * x[1],
                            .positions = x[1],
                            .heads = x[2],
                            .half = x[3] / 2,
                            .attr = *attr,
                            .bf16 = cpu_is_bf16(graph, node)};
    kernel->state = state;
    if (has_spans(node)) return TRI_OK;
    state->angles = malloc((size_t)(x[1] * x[3] + 1) * sizeof(float));
    if (!state->angles) return TRI_FAIL(TRI_NO_MEMORY, "no memory for rotary positions");
    for (int64_t t = 0; t < x[1]; t++) compute_angles(state, t, state->angles + t * x[3]);
    return TRI_OK;
}

static tri_status rotary_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const rotary_state *s = kernel->state;
    rotary_job job = {.state = s, .x = args->in[0], .y = args->out[0], .angles = s->angles};
    int64_t grain = 1 + 8192 / (s->heads * 2 * s->half + 1);
    if (!s->angles) {
        job.spans = args->in[1];
        job.angles = args->workspace;
        cpu_parallel(s->device, s->rows, 1 + 256 / (s->half + 1), span_angles, &job);
    }
    cpu_parallel(s->device, s->rows, grain, rotary_range(s->device, s->bf16), &job);
    return TRI_OK;
}

static void rotary_release(tri_kernel *kernel) {
    rotary_state *state = kernel->state;
    if (!state) return;
    free(state->angles);
    free(state);
}

const tri_kernel_def cpu_rotary_rows = {
    .op = &tri_op_rotary,
    .name = "rows",
    .supports = cpu_is_float,
    .workspace = rotary_workspace,
    .prepare = rotary_prepare,
    .run = rotary_run,
    .release = rotary_release,
};
