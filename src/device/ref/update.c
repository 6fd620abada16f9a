// The ops at the end of a step: optimizer updates; the running averages of batch norm; the step
// scalars (numbers that updates read: learning rate, factor of the gradients, number of the update,
// and whether to skip it); and the sums from which the step scalars are computed, such as sums of
// squares of gradients.
#include "device/ref/node.h"

#include "ops/step_rule.h"

#include <math.h>

// Adds the weight decay to a gradient. Without weight decay, a parameter that is not finite leaves
// the gradient as it is.
REF_BODY double decayed(double gradient, double decay, double param) {
    return decay == 0 ? gradient : gradient + decay * param;
}

REF_BODY tri_status sgd_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_sgd_attr *a = (const void *)node->attr;
    ref_array param = ref_input(args, 0, f64), buffer = ref_input(args, 3, f64);
    ref_array grad = ref_input(args, 1, f64);
    const double *step = args->in[2];
    if (step[TRI_STEP_SKIP] != 0) return TRI_OK;
    bool first = step[TRI_STEP_UPDATE] <= 1;
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++) {
        double g =
            decayed(get(grad, i) * step[TRI_STEP_GRADIENT_SCALE], a->weight_decay, get(param, i));
        if (buffer.at) {
            double b = first ? g : a->momentum * get(buffer, i) + (1 - a->dampening) * g;
            put(buffer, i, b);
            g = a->nesterov ? g + a->momentum * b : b;
        }
        put(param, i, get(param, i) - step[TRI_STEP_LR] * a->lr_factor * g);
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
    double lr = step[TRI_STEP_LR] * a->lr_factor;
    double correction1 = 1 - pow(a->beta1, step[TRI_STEP_UPDATE]);
    double correction2 = sqrt(1 - pow(a->beta2, step[TRI_STEP_UPDATE]));
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++) {
        double g = get(grad, i) * step[TRI_STEP_GRADIENT_SCALE], p = get(param, i);
        if (a->decoupled)
            p *= 1 - lr * a->weight_decay;
        else
            g = decayed(g, a->weight_decay, p);
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
        double g =
            decayed(get(grad, i) * step[TRI_STEP_GRADIENT_SCALE], a->weight_decay, get(param, i));
        double square = a->rho * get(square_avg, i) + (1 - a->rho) * g * g;
        double delta = sqrt(get(acc_delta, i) + a->eps) / sqrt(square + a->eps) * g;
        put(square_avg, i, square);
        put(acc_delta, i, a->rho * get(acc_delta, i) + (1 - a->rho) * delta * delta);
        put(param, i, get(param, i) - step[TRI_STEP_LR] * a->lr_factor * delta);
    }
    return TRI_OK;
}

REF_BODY tri_status map_update_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_map_update_attr *a = (const void *)node->attr;
    const tri_formula *f = &a->formula;
    const double *step = args->in[2];
    double values[UINT8_MAX + 1];
    ref_array arrays[TRI_FORMULA_OUTPUTS] = {ref_input(args, 0, f64)};
    ref_array grad = ref_input(args, 1, f64);
    for (int k = 1; k < f->output_count; k++) arrays[k] = ref_input(args, 2 + k, f64);
    for (int k = 0; k < f->constant_count; k++) values[TRI_OPERAND_CONSTANT + k] = f->constants[k];
    double *in = values + TRI_OPERAND_INPUT;
    in[TRI_UPDATE_SCALE] = step[TRI_STEP_GRADIENT_SCALE];
    in[TRI_UPDATE_LR] = step[TRI_STEP_LR] * a->lr_factor;
    if (tri_map_update_count(f)) in[tri_map_update_count(f)] = step[TRI_STEP_UPDATE];
    if (step[TRI_STEP_SKIP] != 0) return TRI_OK;
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++) {
        in[TRI_UPDATE_PARAMETER] = get(arrays[0], i);
        in[TRI_UPDATE_GRADIENT] = get(grad, i);
        for (int k = 1; k < f->output_count; k++) in[TRI_UPDATE_STATES + k - 1] = get(arrays[k], i);
        for (int t = 0; t < f->step_count; t++) {
            const tri_formula_step *s = &f->steps[t];
            values[t] =
                tri_step_value((tri_step_kind)s->kind, values[s->a], values[s->b], values[s->c]);
        }
        for (int k = 0; k < f->output_count; k++) put(arrays[k], i, values[f->outputs[k]]);
    }
    return TRI_OK;
}

REF_BODY tri_status moving_average_body(const ref_node *node, const tri_kernel_args *args,
                                        bool f64) {
    const tri_moving_average_attr *a = (const void *)node->attr;
    ref_array statistic = ref_input(args, 0, f64);
    ref_array grad = ref_input(args, 1, f64);
    const double *step = args->in[2];
    double momentum = a->momentum > 0 ? a->momentum : 1 / step[TRI_STEP_UPDATE];
    if (step[TRI_STEP_SKIP] != 0) return TRI_OK;
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++)
        put(statistic, i,
            (1 - momentum) * get(statistic, i) +
                momentum * get(grad, i) * step[TRI_STEP_STATISTIC_SCALE]);
    return TRI_OK;
}

REF_BODY tri_status average_weights_body(const ref_node *node, const tri_kernel_args *args,
                                         bool f64) {
    ref_array average = ref_input(args, 0, f64), param = ref_input(args, 1, f64);
    double weight = ((const double *)args->in[2])[TRI_STEP_AVERAGE];
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count && weight != 0; i++) {
        double from = weight == 1 ? get(param, i) : get(average, i);
        put(average, i, from + weight * (get(param, i) - from));
    }
    return TRI_OK;
}

REF_BODY tri_status sum_of_squares_body(const ref_node *node, const tri_kernel_args *args,
                                        bool f64) {
    const tri_sum_of_squares_attr *a = (const void *)node->attr;
    ref_array x = ref_input(args, 0, f64);
    double *sums = args->out[0];
    int64_t count = ref_count(&node->s.in[0]), chunk = a->chunk ? a->chunk : count;
    sums[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        if (i % chunk == 0) sums[i / chunk] = 0;
        sums[i / chunk] += get(x, i) * get(x, i);
    }
    return TRI_OK;
}

static tri_status sum_rows_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const ref_node *node = kernel->state;
    const double *x = args->in[0];
    double *y = args->out[0];
    int64_t rows = node->s.in[0].dims[0], width = node->s.in[0].dims[1];
    for (int64_t i = 0; i < width; i++) y[i] = rows > 0 ? 0 + x[i] : 0;
    for (int64_t r = 1; r < rows; r++)
        for (int64_t i = 0; i < width; i++) y[i] += x[r * width + i];
    return TRI_OK;
}

static tri_status step_numbers_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const ref_node *node = kernel->state;
    step_rule((const void *)node->attr, args->in[0], args->in[1], args->in[2], args->in[3],
              args->out[0], args->out[1]);
    return TRI_OK;
}

static bool is_finite(ref_array x, int64_t first, int64_t end) {
    for (int64_t i = first; i < end; i++)
        if (!isfinite(get(x, i))) return false;
    return true;
}

REF_BODY tri_status first_not_finite_body(const ref_node *node, const tri_kernel_args *args,
                                          bool f64) {
    ref_array x = ref_input(args, 0, f64);
    const int64_t *ranges = args->in[1], count = node->s.in[1].dims[0];
    const double *step = args->in[2];
    double *found = args->out[0];
    int64_t i = 0;
    *found = 0;
    if (step[TRI_STEP_HALTS] == 0) return TRI_OK;
    while (i < count && is_finite(x, ranges[2 * i], ranges[2 * i + 1])) i++;
    if (i < count) *found = (double)(i + 1);
    return TRI_OK;
}

static tri_status loss_seeds_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const ref_node *node = kernel->state;
    const double *losses = args->in[1];
    float *seeds = args->out[0];
    for (int64_t i = 0; i < node->s.out[0].dims[0]; i++)
        seeds[i] = step_rule_seed(args->in[0], &losses[2 * i]);
    return TRI_OK;
}

const tri_kernel_def ref_sum_rows = {.op = &tri_op_sum_rows,
                                     .name = "ref",
                                     .prepare = ref_prepare,
                                     .run = sum_rows_run,
                                     .release = ref_release};
const tri_kernel_def ref_step_numbers = {.op = &tri_op_step_numbers,
                                         .name = "ref",
                                         .prepare = ref_prepare,
                                         .run = step_numbers_run,
                                         .release = ref_release};
const tri_kernel_def ref_loss_seeds = {.op = &tri_op_loss_seeds,
                                       .name = "ref",
                                       .prepare = ref_prepare,
                                       .run = loss_seeds_run,
                                       .release = ref_release};
REF_KERNEL(first_not_finite)
REF_KERNEL(sum_of_squares)
REF_KERNEL(sgd)
REF_KERNEL(adam)
REF_KERNEL(adadelta)
REF_KERNEL(map_update)
REF_KERNEL(moving_average)
REF_KERNEL(average_weights)
