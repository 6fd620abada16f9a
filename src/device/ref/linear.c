// Linear layers: y = x·Wᵀ + b and its gradients.
#include "device/ref/node.h"

REF_BODY tri_status linear_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    ref_array x = ref_input(args, 0, f64), weight = ref_input(args, 1, f64),
              bias = ref_input(args, 2, f64);
    int64_t features = node->s.in[1].dims[0], inputs = node->s.in[1].dims[1];
    int64_t rows = ref_count(&node->s.out[0]) / features;
    ref_array y = ref_output(args, 0, f64);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t f = 0; f < features; f++) {
            double sum = bias.at ? get(bias, f) : 0;
#pragma omp simd reduction(+ : sum)
            for (int64_t k = 0; k < inputs; k++)
                sum += get(x, r * inputs + k) * get(weight, f * inputs + k);
            put(y, r * features + f, sum);
        }
    return TRI_OK;
}

REF_BODY tri_status linear_grad_input_body(const ref_node *node, const tri_kernel_args *args,
                                           bool f64) {
    ref_array dy = ref_input(args, 0, f64), weight = ref_input(args, 1, f64);
    int64_t features = node->s.in[1].dims[0], inputs = node->s.in[1].dims[1];
    int64_t rows = ref_count(&node->s.in[0]) / features;
    ref_array dx = ref_output(args, 0, f64);
    double *row = args->workspace;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t k = 0; k < inputs; k++) row[k] = 0;
        for (int64_t f = 0; f < features; f++) {
            double factor = get(dy, r * features + f);
            for (int64_t k = 0; k < inputs; k++) row[k] += factor * get(weight, f * inputs + k);
        }
        for (int64_t k = 0; k < inputs; k++) put(dx, r * inputs + k, row[k]);
    }
    return TRI_OK;
}

REF_BODY tri_status linear_grad_weight_body(const ref_node *node, const tri_kernel_args *args,
                                            bool f64) {
    const tri_linear_grad_attr *a = (const void *)node->attr;
    ref_array x = ref_input(args, 0, f64), dy = ref_input(args, 1, f64);
    int64_t features = node->s.out[0].dims[0], inputs = node->s.out[0].dims[1];
    int64_t rows = ref_count(&node->s.in[1]) / features;
    ref_array dweight = ref_output(args, 0, f64), dbias = ref_output(args, 1, f64);
    double *row = args->workspace;
    for (int64_t f = 0; f < features; f++) {
        double sum = 0;
        for (int64_t k = 0; k < inputs; k++) row[k] = 0;
        for (int64_t r = 0; r < rows; r++) {
            double factor = get(dy, r * features + f);
            sum += factor;
            for (int64_t k = 0; k < inputs; k++) row[k] += factor * get(x, r * inputs + k);
        }
        for (int64_t k = 0; k < inputs; k++) put(dweight, f * inputs + k, row[k]);
        if (a->has_bias) put(dbias, f, sum);
    }
    return TRI_OK;
}

REF_KERNEL(linear)
REF_SUMMING_KERNEL(linear_grad_input, s->in[1].dims[1])
REF_SUMMING_KERNEL(linear_grad_weight, s->out[0].dims[1])
