// Activations that need an exponential (gelu and silu(gate) · up) and their gradients.
#include "device/cpu/functions.h"

#include <stdlib.h>

enum { GATED_GRAIN = 1 << 13 };

typedef struct gated_state {
    const cpu_device *device;
    int64_t count;
    bool bf16, tanh;
} gated_state;

typedef struct gated_job {
    // Inputs of the ops. gelu reads only a = x. The gradient of gelu reads a = x and b = dy.
    // silu_mul reads a = gate and b = up; its gradient also reads dy.
    const void *a, *b, *dy;
    void *out, *out2;
    bool tanh;
} gated_job;

CPU_BODY silu_mul_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const gated_job job = *(const gated_job *)context;
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) {
        float gate = cpu_get(job.a, bf16, i);
        cpu_put(job.out, bf16, i, gate * cpu_sigmoid_scalar(gate) * cpu_get(job.b, bf16, i));
    }
}
CPU_TYPED_RANGES(silu_mul)

CPU_BODY silu_mul_grad_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const gated_job job = *(const gated_job *)context;
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) {
        float gate = cpu_get(job.a, bf16, i), up = cpu_get(job.b, bf16, i);
        float dy = cpu_get(job.dy, bf16, i), s = cpu_sigmoid_scalar(gate);
        cpu_put(job.out, bf16, i, dy * up * s * (1 + gate * (1 - s)));
        cpu_put(job.out2, bf16, i, dy * gate * s);
    }
}
CPU_TYPED_RANGES(silu_mul_grad)

// Computes Φ(x), the cumulative distribution function of the normal distribution, from erf, which
// formula 7.1.26 of Abramowitz and Stegun approximates with an error of at most 1.5e-7.
CPU_SCALAR float normal_cdf(float x) {
    float z = (x < 0 ? -x : x) * 0.707106781f, t = 1 / (1 + 0.3275911f * z);
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    float tail = 0.5f * p * t * cpu_exp_scalar(-z * z);
    return x < 0 ? tail : 1 - tail;
}

// Gelu by tanh is x · (1 + tanh(v)) / 2. It is computed as x · sigmoid(u) with u = 2 v, because
// 1 + tanh(v) is 2 · sigmoid(2 v). These two functions are u(x) and its derivative.
CPU_SCALAR float tanh_inner(float x) { return 1.595769122f * (x + 0.044715f * x * x * x); }
CPU_SCALAR float tanh_inner_slope(float x) { return 1.595769122f * (1 + 0.134145f * x * x); }

CPU_BODY gelu_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const gated_job job = *(const gated_job *)context;
    if (job.tanh) {
#pragma GCC ivdep
        for (int64_t i = begin; i < end; i++) {
            float x = cpu_get(job.a, bf16, i);
            cpu_put(job.out, bf16, i, x * cpu_sigmoid_scalar(tanh_inner(x)));
        }
        return;
    }
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) {
        float x = cpu_get(job.a, bf16, i);
        cpu_put(job.out, bf16, i, x * normal_cdf(x));
    }
}
CPU_TYPED_RANGES(gelu)

CPU_BODY gelu_grad_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const gated_job job = *(const gated_job *)context;
    if (job.tanh) {
#pragma GCC ivdep
        for (int64_t i = begin; i < end; i++) {
            float x = cpu_get(job.a, bf16, i), s = cpu_sigmoid_scalar(tanh_inner(x));
            float slope = s + x * s * (1 - s) * tanh_inner_slope(x);
            cpu_put(job.out, bf16, i, cpu_get(job.b, bf16, i) * slope);
        }
        return;
    }
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) {
        float x = cpu_get(job.a, bf16, i);
        float slope = normal_cdf(x) + x * 0.398942280f * cpu_exp_scalar(-0.5f * x * x);
        cpu_put(job.out, bf16, i, cpu_get(job.b, bf16, i) * slope);
    }
}
CPU_TYPED_RANGES(gelu_grad)

static tri_status gated_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                tri_kernel *kernel) {
    gated_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for an activation");
    const tri_value_info *x = tri_value_get(graph, node->inputs[0]);
    bool gelu = node->op == &tri_op_gelu || node->op == &tri_op_gelu_grad;
    *state = (gated_state){.device = cpu_of(device),
                           .count = tri_layout_elements(&x->layout, &x->shape),
                           .bf16 = cpu_is_bf16(graph, node),
                           .tanh = gelu && ((const tri_gelu_attr *)node->attr)->tanh};
    kernel->state = state;
    return TRI_OK;
}

static void gated_release(tri_kernel *kernel) { free(kernel->state); }

#define GATED_KERNEL(opname, inputs, outputs)                                                      \
    static tri_status opname##_run(const tri_kernel *kernel, const tri_kernel_args *args) {        \
        const gated_state *s = kernel->state;                                                      \
        gated_job job = {.a = args->in[0], .out = args->out[0], .tanh = s->tanh};                  \
        if (inputs > 1) job.b = args->in[inputs > 1];                                              \
        if (inputs > 2) job.dy = args->in[inputs > 2 ? 2 : 0];                                     \
        if (outputs > 1) job.out2 = args->out[outputs > 1];                                        \
        cpu_parallel(s->device, s->count, GATED_GRAIN, opname##_range(s->device, s->bf16), &job);  \
        return TRI_OK;                                                                             \
    }                                                                                              \
    const tri_kernel_def cpu_##opname##_flat = {                                                   \
        .op = &tri_op_##opname,                                                                    \
        .name = "flat",                                                                            \
        .supports = cpu_is_float,                                                                  \
        .layouts = cpu_layouts_of_first,                                                           \
        .prepare = gated_prepare,                                                                  \
        .run = opname##_run,                                                                       \
        .release = gated_release,                                                                  \
    };
GATED_KERNEL(silu_mul, 2, 1)
GATED_KERNEL(silu_mul_grad, 3, 2)
GATED_KERNEL(gelu, 1, 1)
GATED_KERNEL(gelu_grad, 2, 1)
