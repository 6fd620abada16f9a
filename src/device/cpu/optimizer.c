// Optimizer updates. Each is a single loop that reads parameter, gradient and states and writes
// parameter and states, because memory bandwidth limits its speed.
#include "device/cpu/internal.h"

#include <immintrin.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OPTIMIZER_GRAIN = 1 << 13 };

typedef struct update_state {
    const cpu_device *device;
    int64_t count;
    union {
        tri_sgd_attr sgd;
        tri_adam_attr adam;
        tri_adadelta_attr adadelta;
    } attr;
} update_state;

// The tensors of one update, and its constants in the precision in which they are used.
typedef struct update_job {
    cpu_range range; // the loop of this optimizer
    float *param;
    const float *grad;
    float *state1, *state2; // the optimizer's states; NULL: it has none, or only one
    // lr: the learning rate; for adam divided by 1 − beta1^t, where t is the number of the update.
    // This corrects the bias of m, the first state. scale: factor of the gradient. decay: how much
    // of the parameter is added to the gradient.
    float lr, scale, decay;
    float shrink;            // factor of the parameter: 1 − lr · weight decay for adamw, else 1
    float momentum, damping; // of sgd; damping is 1 − dampening
    // first: this is the first update, in which sgd's momentum starts as the gradient
    bool nesterov, first;
    // adam: rest1 = 1 − beta1, rest2 = 1 − beta2, and root = 1 / sqrt(1 − beta2^t) corrects the
    // bias of sqrt(v), where v is the second state. adadelta: beta1 = rho, rest1 = 1 − rho.
    float beta1, beta2, rest1, rest2, root, eps;
} update_job;

// The scaled gradient with weight decay. Without weight decay, a parameter that is not finite
// leaves the gradient as it is.
static inline __attribute__((always_inline)) float gradient_of(const update_job *job, float grad,
                                                               float param) {
    return job->decay == 0 ? job->scale * grad : job->scale * grad + job->decay * param;
}

CPU_BODY sgd_body(void *context, int64_t begin, int64_t end) {
    const update_job job = *(const update_job *)context;
    float *restrict p = job.param, *restrict b = job.state1;
    const float *restrict grad = job.grad;
    if (!b) {
        for (int64_t i = begin; i < end; i++) p[i] -= job.lr * gradient_of(&job, grad[i], p[i]);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        float g = gradient_of(&job, grad[i], p[i]);
        b[i] = job.first ? g : job.momentum * b[i] + job.damping * g;
        p[i] -= job.lr * (job.nesterov ? g + job.momentum * b[i] : b[i]);
    }
}
CPU_RANGES(sgd)

CPU_BODY adam_body(void *context, int64_t begin, int64_t end) {
    const update_job job = *(const update_job *)context;
    float *restrict p = job.param, *restrict m = job.state1, *restrict v = job.state2;
    const float *restrict grad = job.grad;
    for (int64_t i = begin; i < end; i++) {
        float g = gradient_of(&job, grad[i], p[i]);
        m[i] = job.beta1 * m[i] + job.rest1 * g;
        v[i] = job.beta2 * v[i] + job.rest2 * g * g;
        p[i] = job.shrink * p[i] - job.lr * m[i] / (sqrtf(v[i]) * job.root + job.eps);
    }
}
CPU_RANGES(adam)

CPU_BODY adadelta_body(void *context, int64_t begin, int64_t end) {
    const update_job job = *(const update_job *)context;
    float *restrict p = job.param, *restrict s = job.state1, *restrict a = job.state2;
    const float *restrict grad = job.grad;
    for (int64_t i = begin; i < end; i++) {
        float g = gradient_of(&job, grad[i], p[i]);
        s[i] = job.beta1 * s[i] + job.rest1 * g * g;
        float d = sqrtf((a[i] + job.eps) / (s[i] + job.eps)) * g;
        a[i] = job.beta1 * a[i] + job.rest1 * d * d;
        p[i] -= job.lr * d;
    }
}
CPU_RANGES(adadelta)

// The average is `param`, the weights are `grad`, and `scale` is how far the one moves to the
// other.
CPU_BODY average_body(void *context, int64_t begin, int64_t end) {
    const update_job job = *(const update_job *)context;
    float *restrict average = job.param;
    const float *restrict weights = job.grad;
    for (int64_t i = begin; i < end; i++) average[i] += job.scale * (weights[i] - average[i]);
}
CPU_RANGES(average)

static tri_status update_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                 tri_kernel *kernel) {
    update_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for an optimizer update");
    const tri_value_info *param = tri_value_get(graph, node->inputs[0]);
    *state = (update_state){.device = cpu_of(device),
                            .count = tri_layout_elements(&param->layout, &param->shape)};
    if (node->op->attr_bytes) memcpy(&state->attr, node->attr, node->op->attr_bytes);
    kernel->state = state;
    return TRI_OK;
}

static update_job job_of(const tri_kernel_args *args, int inputs, double lr_factor) {
    const double *step = args->in[2];
    return (update_job){.param = args->in[0],
                        .grad = args->in[1],
                        .state1 = inputs > 3 ? args->in[3] : NULL,
                        .state2 = inputs > 4 ? args->in[4] : NULL,
                        .lr = (float)(step[TRI_STEP_LR] * lr_factor),
                        .scale = (float)step[TRI_STEP_GRADIENT_SCALE],
                        .first = step[TRI_STEP_UPDATE] <= 1,
                        .shrink = 1};
}

// Runs the loop with subnormal numbers treated as zero. Where gradients are zero, states shrink by
// a factor each step until they are subnormal. Processors take about a hundred times longer for
// such numbers, which are far too small to change a parameter.
static void flushing_range(void *context, int64_t begin, int64_t end, int thread) {
    const update_job *job = context;
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON);
    job->range(context, begin, end, thread);
    _mm_setcsr(before);
}

static void update(const update_state *state, const tri_kernel_args *args, cpu_range range,
                   update_job *job) {
    const double *step = args->in[2];
    job->range = range;
    if (step[TRI_STEP_SKIP] == 0)
        cpu_parallel(state->device, state->count, OPTIMIZER_GRAIN, flushing_range, job);
}

static tri_status sgd_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const update_state *state = kernel->state;
    const tri_sgd_attr *attr = &state->attr.sgd;
    update_job job = job_of(args, 4, attr->lr_factor);
    job.decay = (float)attr->weight_decay;
    job.momentum = (float)attr->momentum;
    job.damping = (float)(1 - attr->dampening);
    job.nesterov = attr->nesterov;
    update(state, args, sgd_range(state->device), &job);
    return TRI_OK;
}

static tri_status adam_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const update_state *state = kernel->state;
    const tri_adam_attr *attr = &state->attr.adam;
    const double *step = args->in[2];
    double t = step[TRI_STEP_UPDATE], lr = step[TRI_STEP_LR] * attr->lr_factor;
    update_job job = job_of(args, 5, attr->lr_factor);
    if (attr->decoupled)
        job.shrink = (float)(1 - lr * attr->weight_decay);
    else
        job.decay = (float)attr->weight_decay;
    job.lr = (float)(lr / (1 - pow(attr->beta1, t)));
    job.root = (float)(1 / sqrt(1 - pow(attr->beta2, t)));
    job.beta1 = (float)attr->beta1;
    job.beta2 = (float)attr->beta2;
    job.rest1 = (float)(1 - attr->beta1);
    job.rest2 = (float)(1 - attr->beta2);
    job.eps = (float)attr->eps;
    update(state, args, adam_range(state->device), &job);
    return TRI_OK;
}

static tri_status adadelta_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const update_state *state = kernel->state;
    const tri_adadelta_attr *attr = &state->attr.adadelta;
    update_job job = job_of(args, 5, attr->lr_factor);
    job.decay = (float)attr->weight_decay;
    job.beta1 = (float)attr->rho;
    job.rest1 = (float)(1 - attr->rho);
    job.eps = (float)attr->eps;
    update(state, args, adadelta_range(state->device), &job);
    return TRI_OK;
}

static tri_status average_weights_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const update_state *state = kernel->state;
    double weight = ((const double *)args->in[2])[TRI_STEP_AVERAGE];
    update_job job = {.range = average_range(state->device),
                      .param = args->in[0],
                      .grad = args->in[1],
                      .scale = (float)weight};
    if (weight == 1)
        memcpy(job.param, job.grad, (size_t)state->count * sizeof *job.param);
    else if (weight != 0)
        cpu_parallel(state->device, state->count, OPTIMIZER_GRAIN, flushing_range, &job);
    return TRI_OK;
}

static void update_release(tri_kernel *kernel) { free(kernel->state); }

#define UPDATE_KERNEL(opname)                                                                      \
    const tri_kernel_def cpu_##opname##_flat = {                                                   \
        .op = &tri_op_##opname,                                                                    \
        .name = "flat",                                                                            \
        .supports = cpu_is_f32,                                                                    \
        .layouts = cpu_layouts_of_first,                                                           \
        .prepare = update_prepare,                                                                 \
        .run = opname##_run,                                                                       \
        .release = update_release,                                                                 \
    };
UPDATE_KERNEL(sgd)
UPDATE_KERNEL(adam)
UPDATE_KERNEL(adadelta)
UPDATE_KERNEL(average_weights)
