// Operations on each element for itself, in whatever layout their tensors lie.
#include "device/cpu/internal.h"

#include <stdlib.h>

enum { ELEMENTWISE_GRAIN = 1 << 14 };

typedef struct elementwise_state {
    const cpu_device *device;
    int64_t count;
    float slope;
} elementwise_state;

typedef struct elementwise_job {
    const float *a, *b;
    float *out;
    float slope;
} elementwise_job;

CPU_BODY relu_body(void *context, int64_t begin, int64_t end) {
    const elementwise_job *job = context;
    const float *x = job->a;
    float *y = job->out;
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) y[i] = x[i] <= 0 ? 0 : x[i]; // NaN stays
}
CPU_RANGES(relu)

CPU_BODY leaky_relu_body(void *context, int64_t begin, int64_t end) {
    const elementwise_job *job = context;
    const float *x = job->a, slope = job->slope;
    float *y = job->out;
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) y[i] = x[i] > 0 ? x[i] : x[i] * slope;
}
CPU_RANGES(leaky_relu)

CPU_BODY activation_grad_body(void *context, int64_t begin, int64_t end) {
    const elementwise_job *job = context;
    const float *y = job->a, *dy = job->b, slope = job->slope;
    float *dx = job->out;
    if (slope == 0) {
#pragma GCC ivdep
        for (int64_t i = begin; i < end; i++) dx[i] = y[i] > 0 ? dy[i] : 0;
        return;
    }
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) dx[i] = y[i] > 0 ? dy[i] : dy[i] * slope;
}
CPU_RANGES(activation_grad)

CPU_BODY add_body(void *context, int64_t begin, int64_t end) {
    const elementwise_job *job = context;
    const float *a = job->a, *b = job->b;
    float *out = job->out;
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) out[i] = a[i] + b[i];
}
CPU_RANGES(add)

void cpu_leaky_relu(const cpu_device *device, float *values, double slope, int64_t count) {
    elementwise_job job = {.a = values, .out = values, .slope = (float)slope};
    cpu_parallel(device, count, ELEMENTWISE_GRAIN, leaky_relu_range(device), &job);
}

static tri_status elementwise_prepare(tri_device *device, const tri_graph *graph,
                                      const tri_node *node, tri_kernel *kernel) {
    elementwise_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for an elementwise operation");
    const tri_value_info *x = tri_value_get(graph, node->inputs[0]);
    *state = (elementwise_state){.device = cpu_of(device),
                                 .count = tri_layout_elements(&x->layout, &x->shape)};
    if (node->op == &tri_op_leaky_relu)
        state->slope = (float)((const tri_leaky_relu_attr *)node->attr)->slope;
    if (node->op == &tri_op_activation_grad) {
        const tri_activation_grad_attr *attr = node->attr;
        if (attr->activation == TRI_ACTIVATION_LEAKY_RELU) state->slope = (float)attr->slope;
    }
    kernel->state = state;
    return TRI_OK;
}

static void elementwise_run(const tri_kernel *kernel, const tri_kernel_args *args, int inputs,
                            cpu_range (*range)(const cpu_device *device)) {
    const elementwise_state *state = kernel->state;
    elementwise_job job = {.a = args->in[0], .out = args->out[0], .slope = state->slope};
    if (inputs > 1) job.b = args->in[1];
    cpu_parallel(state->device, state->count, ELEMENTWISE_GRAIN, range(state->device), &job);
}

static void elementwise_release(tri_kernel *kernel) { free(kernel->state); }

static bool activation_grad_supports(const tri_device *device, const tri_graph *graph,
                                     const tri_node *node) {
    const tri_activation_grad_attr *attr = node->attr;
    return cpu_is_f32(device, graph, node) && attr->activation != TRI_ACTIVATION_NONE;
}

#define ELEMENTWISE_KERNEL(opname, inputs, supports_function)                                      \
    static tri_status opname##_run(const tri_kernel *kernel, const tri_kernel_args *args) {        \
        elementwise_run(kernel, args, inputs, opname##_range);                                     \
        return TRI_OK;                                                                             \
    }                                                                                              \
    const tri_kernel_def cpu_##opname##_flat = {                                                   \
        .op = &tri_op_##opname,                                                                    \
        .name = "flat",                                                                            \
        .supports = supports_function,                                                             \
        .layouts = cpu_layouts_of_first,                                                           \
        .prepare = elementwise_prepare,                                                            \
        .run = opname##_run,                                                                       \
        .release = elementwise_release,                                                            \
    };
ELEMENTWISE_KERNEL(relu, 1, cpu_is_f32)
ELEMENTWISE_KERNEL(leaky_relu, 1, cpu_is_f32)
ELEMENTWISE_KERNEL(activation_grad, 2, activation_grad_supports)
ELEMENTWISE_KERNEL(add, 2, cpu_is_f32)
