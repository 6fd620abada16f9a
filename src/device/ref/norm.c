// Layer norm, RMS norm and group norm, and their gradients. A row is the elements along the last
// axis of x; in group norm, those of a group of channels of one sample. For the gradient, a row's
// mean and 1 / its standard deviation (of RMS norm: 1 / its root mean square) are stored in the
// type of x, F32 or F64.
#include "device/ref/node.h"

#include <math.h>

REF_BODY tri_status rms_norm_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_norm_attr *a = (const void *)node->attr;
    ref_array x = ref_input(args, 0, f64), weight = ref_input(args, 1, f64);
    ref_array y = ref_output(args, 0, f64), inv_rms_out = ref_output(args, 1, f64);
    int64_t width = node->s.in[1].dims[0], rows = ref_count(&node->s.in[0]) / width;
    for (int64_t r = 0; r < rows; r++, x = ref_from(x, width), y = ref_from(y, width)) {
        double squares = 0;
        for (int64_t i = 0; i < width; i++) squares += get(x, i) * get(x, i);
        double inv_rms = 1 / sqrt(squares / (double)width + a->eps);
        for (int64_t i = 0; i < width; i++) put(y, i, get(x, i) * inv_rms * get(weight, i));
        put(inv_rms_out, r, inv_rms);
    }
    return TRI_OK;
}

// Adds the optional input `sum` to dx. A fusion sets this input where x is also read by a residual
// connection: `sum` is then the gradient that comes from there (pass/fusions.c).
REF_BODY void add_sum(const ref_node *node, const tri_kernel_args *args, int input, bool f64) {
    ref_array sum = ref_input(args, input, f64), dx = ref_output(args, 0, f64);
    for (int64_t i = 0; sum.at && i < ref_count(&node->s.in[0]); i++)
        put(dx, i, get(sum, i) + get(dx, i));
}

REF_BODY tri_status rms_norm_grad_body(const ref_node *node, const tri_kernel_args *args,
                                       bool f64) {
    ref_array x = ref_input(args, 0, f64), dy = ref_input(args, 1, f64),
              weight = ref_input(args, 2, f64), inv_rms = ref_input(args, 3, f64);
    ref_array dx = ref_output(args, 0, f64), dweight = ref_output(args, 1, f64);
    double *sums = args->workspace;
    int64_t width = node->s.in[2].dims[0], rows = ref_count(&node->s.in[0]) / width;
    for (int64_t i = 0; i < width; i++) sums[i] = 0;
    for (int64_t r = 0; r < rows;
         r++, x = ref_from(x, width), dy = ref_from(dy, width), dx = ref_from(dx, width)) {
        double inv = get(inv_rms, r), mean = 0;
        for (int64_t i = 0; i < width; i++) {
            double h = get(x, i) * inv;
            sums[i] += get(dy, i) * h;
            mean += get(dy, i) * get(weight, i) * h / (double)width;
        }
        for (int64_t i = 0; i < width; i++)
            put(dx, i, inv * (get(dy, i) * get(weight, i) - get(x, i) * inv * mean));
    }
    for (int64_t i = 0; i < width; i++) put(dweight, i, sums[i]);
    add_sum(node, args, 4, f64);
    return TRI_OK;
}

REF_BODY tri_status layer_norm_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_norm_attr *a = (const void *)node->attr;
    const tri_shape *shape = &node->s.in[0];
    ref_array x = ref_input(args, 0, f64), weight = ref_input(args, 1, f64),
              bias = ref_input(args, 2, f64);
    ref_array y = ref_output(args, 0, f64), mean_out = ref_output(args, 1, f64),
              inv_std_out = ref_output(args, 2, f64);
    int64_t width = shape->dims[shape->rank - 1], rows = ref_count(shape) / width;
    for (int64_t r = 0; r < rows; r++, x = ref_from(x, width), y = ref_from(y, width)) {
        double mean = 0, squares = 0;
        for (int64_t i = 0; i < width; i++) mean += get(x, i) / (double)width;
        for (int64_t i = 0; i < width; i++) squares += (get(x, i) - mean) * (get(x, i) - mean);
        double inv_std = 1 / sqrt(squares / (double)width + a->eps);
        for (int64_t i = 0; i < width; i++) {
            double h = (get(x, i) - mean) * inv_std;
            put(y, i, weight.at ? h * get(weight, i) + get(bias, i) : h);
        }
        put(mean_out, r, mean);
        put(inv_std_out, r, inv_std);
    }
    return TRI_OK;
}

REF_BODY tri_status layer_norm_grad_body(const ref_node *node, const tri_kernel_args *args,
                                         bool f64) {
    const tri_shape *shape = &node->s.in[0];
    ref_array x = ref_input(args, 0, f64), dy = ref_input(args, 1, f64),
              mean = ref_input(args, 2, f64), inv_std = ref_input(args, 3, f64);
    ref_array weight = ref_input(args, 4, f64);
    ref_array dx = ref_output(args, 0, f64), dweight = ref_output(args, 1, f64),
              dbias = ref_output(args, 2, f64);
    int64_t width = shape->dims[shape->rank - 1], rows = ref_count(shape) / width;
    double *sums = args->workspace, *bias_sums = sums + width;
    for (int64_t i = 0; i < 2 * width; i++) sums[i] = 0;
    for (int64_t r = 0; r < rows;
         r++, x = ref_from(x, width), dy = ref_from(dy, width), dx = ref_from(dx, width)) {
        double center = get(mean, r), inv = get(inv_std, r), mean_g = 0, mean_gh = 0;
        for (int64_t i = 0; i < width; i++) {
            double d = get(dy, i), h = (get(x, i) - center) * inv;
            double g = weight.at ? d * get(weight, i) : d;
            sums[i] += d * h;
            bias_sums[i] += d;
            mean_g += g / (double)width;
            mean_gh += g * h / (double)width;
        }
        for (int64_t i = 0; i < width; i++) {
            double g = weight.at ? get(dy, i) * get(weight, i) : get(dy, i);
            put(dx, i, inv * (g - mean_g - (get(x, i) - center) * inv * mean_gh));
        }
    }
    for (int64_t i = 0; weight.at && i < width; i++) {
        put(dweight, i, sums[i]);
        put(dbias, i, bias_sums[i]);
    }
    add_sum(node, args, 5, f64);
    return TRI_OK;
}

// The elements of one group of one sample lie one after the other: `width` of them, `inner` of each
// channel.
typedef struct group_shape {
    int64_t samples, groups, width, inner;
} group_shape;

static group_shape groups_of(const ref_node *node) {
    const tri_group_norm_attr *a = (const void *)node->attr;
    const tri_shape *x = &node->s.in[0];
    group_shape s = {.samples = x->dims[0], .groups = a->groups, .inner = 1};
    for (int i = 2; i < x->rank; i++) s.inner *= x->dims[i];
    s.width = x->dims[1] / a->groups * s.inner;
    return s;
}

REF_BODY tri_status group_norm_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_group_norm_attr *a = (const void *)node->attr;
    group_shape s = groups_of(node);
    ref_array x = ref_input(args, 0, f64), y = ref_output(args, 0, f64);
    ref_array weight = ref_input(args, 1, f64), bias = ref_input(args, 2, f64);
    for (int64_t r = 0; r < s.samples * s.groups;
         r++, x = ref_from(x, s.width), y = ref_from(y, s.width)) {
        double mean = 0, squares = 0;
        int64_t channel = r % s.groups * (s.width / s.inner);
        for (int64_t i = 0; i < s.width; i++) mean += get(x, i) / (double)s.width;
        for (int64_t i = 0; i < s.width; i++) squares += (get(x, i) - mean) * (get(x, i) - mean);
        double inv_std = 1 / sqrt(squares / (double)s.width + a->norm.eps);
        for (int64_t i = 0; i < s.width; i++) {
            double h = (get(x, i) - mean) * inv_std;
            int64_t c = channel + i / s.inner;
            put(y, i, weight.at ? h * get(weight, c) + get(bias, c) : h);
        }
        put(ref_output(args, 1, f64), r, mean);
        put(ref_output(args, 2, f64), r, inv_std);
    }
    return TRI_OK;
}

REF_BODY tri_status group_norm_grad_body(const ref_node *node, const tri_kernel_args *args,
                                         bool f64) {
    group_shape s = groups_of(node);
    ref_array x = ref_input(args, 0, f64), dy = ref_input(args, 1, f64);
    ref_array dx = ref_output(args, 0, f64), weight = ref_input(args, 4, f64);
    int64_t channels = node->s.in[0].dims[1];
    double *sums = args->workspace, *bias_sums = sums + channels;
    for (int64_t c = 0; c < 2 * channels; c++) sums[c] = 0;
    for (int64_t r = 0; r < s.samples * s.groups;
         r++, x = ref_from(x, s.width), dy = ref_from(dy, s.width), dx = ref_from(dx, s.width)) {
        double center = get(ref_input(args, 2, f64), r), inv = get(ref_input(args, 3, f64), r);
        double mean_g = 0, mean_gh = 0;
        int64_t channel = r % s.groups * (s.width / s.inner);
        for (int64_t i = 0; i < s.width; i++) {
            int64_t c = channel + i / s.inner;
            double d = get(dy, i), h = (get(x, i) - center) * inv;
            double g = weight.at ? d * get(weight, c) : d;
            sums[c] += d * h;
            bias_sums[c] += d;
            mean_g += g / (double)s.width;
            mean_gh += g * h / (double)s.width;
        }
        for (int64_t i = 0; i < s.width; i++) {
            double g = get(dy, i) * (weight.at ? get(weight, channel + i / s.inner) : 1);
            put(dx, i, inv * (g - mean_g - (get(x, i) - center) * inv * mean_gh));
        }
    }
    for (int64_t c = 0; weight.at && c < channels; c++) {
        put(ref_output(args, 1, f64), c, sums[c]);
        put(ref_output(args, 2, f64), c, bias_sums[c]);
    }
    return TRI_OK;
}

REF_KERNEL(rms_norm)
REF_SUMMING_KERNEL(rms_norm_grad, s->in[2].dims[0])
REF_KERNEL(layer_norm)
REF_SUMMING_KERNEL(layer_norm_grad, 2 * s->in[0].dims[s->in[0].rank - 1])
REF_KERNEL(group_norm)
REF_SUMMING_KERNEL(group_norm_grad, 2 * s->in[0].dims[1])
