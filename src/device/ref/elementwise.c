// Sums of tensors.
#include "device/ref/node.h"

REF_BODY tri_status add_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    ref_array a = ref_input(args, 0, f64), b = ref_input(args, 1, f64);
    ref_array y = ref_output(args, 0, f64);
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++)
        put(y, i, get(a, i) + get(b, i));
    return TRI_OK;
}

REF_BODY tri_status add_bias_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    ref_array x = ref_input(args, 0, f64), bias = ref_input(args, 1, f64);
    ref_array y = ref_output(args, 0, f64);
    int64_t width = node->s.in[1].dims[0];
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++)
        put(y, i, get(x, i) + get(bias, i % width));
    return TRI_OK;
}

REF_BODY tri_status add_bias_grad_body(const ref_node *node, const tri_kernel_args *args,
                                       bool f64) {
    ref_array dy = ref_input(args, 0, f64);
    ref_array dbias = ref_output(args, 0, f64);
    int64_t width = node->s.out[0].dims[0], count = ref_count(&node->s.in[0]);
    double *row = args->workspace;
    for (int64_t k = 0; k < width; k++) row[k] = 0;
    for (int64_t i = 0; i < count; i++) row[i % width] += get(dy, i);
    for (int64_t k = 0; k < width; k++) put(dbias, k, row[k]);
    return TRI_OK;
}

REF_KERNEL(add)
REF_KERNEL(add_bias)
REF_SUMMING_KERNEL(add_bias_grad, s->out[0].dims[0])
