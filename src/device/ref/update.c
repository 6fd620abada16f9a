// Optimizer updates, and updates of batch norm's running averages.
#include "device/ref/node.h"

#include <math.h>

REF_BODY tri_status sgd_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_sgd_attr *a = (const void *)node->attr;
    ref_array param = ref_input(args, 0, f64), buffer = ref_input(args, 3, f64);
    ref_array grad = ref_input(args, 1, f64);
    const double *step = args->in[2];
    if (step[TRI_STEP_SKIP] != 0) return TRI_OK;
    bool first = step[TRI_STEP_UPDATE] <= 1;
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++) {
        double g = get(grad, i) * step[TRI_STEP_GRADIENT_SCALE];
        g += a->weight_decay * get(param, i);
        if (buffer.at) {
            double b = first ? g : a->momentum * get(buffer, i) + (1 - a->dampening) * g;
            put(buffer, i, b);
            g = a->nesterov ? g + a->momentum * b : b;
        }
        put(param, i, get(param, i) - step[TRI_STEP_LR] * g);
    }
    return TRI_OK;
}

REF_BODY tri_status adam_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_adam_attr *a = (const void *)node->attr;
    ref_array param = ref_input(args, 0, f64), exp_avg = ref_input(args, 3, f64),
              exp_avg_sq = ref_input(args, 4, f64);
    ref_array grad = ref_input(args, 1, f64);
    const double *step = args->in[2];
    if (step[TRI_STEP_SKIP] != 0) return TRI_OK;
    double lr = step[TRI_STEP_LR];
    double correction1 = 1 - pow(a->beta1, step[TRI_STEP_UPDATE]);
    double correction2 = sqrt(1 - pow(a->beta2, step[TRI_STEP_UPDATE]));
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++) {
        double g = get(grad, i) * step[TRI_STEP_GRADIENT_SCALE], p = get(param, i);
        if (a->decoupled)
            p *= 1 - lr * a->weight_decay;
        else
            g += a->weight_decay * p;
        double m = a->beta1 * get(exp_avg, i) + (1 - a->beta1) * g;
        double v = a->beta2 * get(exp_avg_sq, i) + (1 - a->beta2) * g * g;
        put(exp_avg, i, m);
        put(exp_avg_sq, i, v);
        put(param, i, p - lr / correction1 * m / (sqrt(v) / correction2 + a->eps));
    }
    return TRI_OK;
}

REF_BODY tri_status adadelta_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_adadelta_attr *a = (const void *)node->attr;
    ref_array param = ref_input(args, 0, f64), square_avg = ref_input(args, 3, f64),
              acc_delta = ref_input(args, 4, f64);
    ref_array grad = ref_input(args, 1, f64);
    const double *step = args->in[2];
    if (step[TRI_STEP_SKIP] != 0) return TRI_OK;
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++) {
        double g = get(grad, i) * step[TRI_STEP_GRADIENT_SCALE];
        g += a->weight_decay * get(param, i);
        double square = a->rho * get(square_avg, i) + (1 - a->rho) * g * g;
        double delta = sqrt(get(acc_delta, i) + a->eps) / sqrt(square + a->eps) * g;
        put(square_avg, i, square);
        put(acc_delta, i, a->rho * get(acc_delta, i) + (1 - a->rho) * delta * delta);
        put(param, i, get(param, i) - step[TRI_STEP_LR] * delta);
    }
    return TRI_OK;
}

REF_BODY tri_status moving_average_body(const ref_node *node, const tri_kernel_args *args,
                                        bool f64) {
    const tri_moving_average_attr *a = (const void *)node->attr;
    ref_array statistic = ref_input(args, 0, f64);
    ref_array grad = ref_input(args, 1, f64);
    const double *step = args->in[2];
    if (step[TRI_STEP_SKIP] != 0) return TRI_OK;
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++)
        put(statistic, i,
            (1 - a->momentum) * get(statistic, i) +
                a->momentum * get(grad, i) * step[TRI_STEP_STATISTIC_SCALE]);
    return TRI_OK;
}

REF_KERNEL(sgd)
REF_KERNEL(adam)
REF_KERNEL(adadelta)
REF_KERNEL(moving_average)
