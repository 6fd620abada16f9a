// Running sums, products and extremes along one axis, and their gradient.
#include "ops/scan_step.h"

#include "device/ref/node.h"
#include "tensor/half.h"

static tri_status scan_integers(const ref_node *node, const tri_kernel_args *args) {
    const tri_scan_attr *a = (const void *)node->attr;
    axis_cut cut = ops_axis_cut(&node->s.in[0], a->axis);
    int64_t *index = args->out[1];
    bool has_index = a->kind == TRI_SCAN_MAX || a->kind == TRI_SCAN_MIN;
    for (int64_t n = 0; n < cut.outer * cut.inner; n++) {
        scan_integer s = scan_integer_start(a->kind);
        for (int64_t step = 0; step < cut.size; step++) {
            int64_t k = a->reverse ? cut.size - 1 - step : step;
            int64_t at = (n / cut.inner * cut.size + k) * cut.inner + n % cut.inner;
            s = scan_integer_step(a->kind, s, ref_get_integer(node->s.in_type[0], args->in[0], at),
                                  k);
            ref_put_integer(node->s.out_type[0], args->out[0], at, s.value);
            if (has_index) index[at] = s.at;
        }
    }
    return TRI_OK;
}

REF_BODY tri_status scan_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_scan_attr *a = (const void *)node->attr;
    axis_cut cut = ops_axis_cut(&node->s.in[0], a->axis);
    if (!tri_dtype_is_float(node->s.in_type[0])) return scan_integers(node, args);
    ref_array x = ref_input(args, 0, f64), y = ref_output(args, 0, f64);
    int64_t *index = args->out[1];
    bool has_index = a->kind == TRI_SCAN_MAX || a->kind == TRI_SCAN_MIN;
    for (int64_t n = 0; n < cut.outer * cut.inner; n++) {
        scan_so_far s = scan_start(a->kind);
        for (int64_t step = 0; step < cut.size; step++) {
            int64_t k = a->reverse ? cut.size - 1 - step : step;
            int64_t at = (n / cut.inner * cut.size + k) * cut.inner + n % cut.inner;
            s = scan_step(a->kind, s, get(x, at), k);
            put(y, at, s.value);
            if (has_index) index[at] = s.at;
        }
    }
    return TRI_OK;
}

REF_BODY tri_status scan_grad_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_scan_attr *a = (const void *)node->attr;
    axis_cut cut = ops_axis_cut(&node->s.in[0], a->axis);
    ref_array x = ref_input(args, 0, f64), y = ref_input(args, 1, f64),
              dy = ref_input(args, 2, f64);
    ref_array dx = ref_output(args, 0, f64);
    for (int64_t n = 0; n < cut.outer * cut.inner; n++) {
        double sum = 0;
        for (int64_t k = cut.size - 1; k >= 0; k--) {
            int64_t at = (n / cut.inner * cut.size + k) * cut.inner + n % cut.inner;
            if (k + 1 < cut.size)
                sum *= scan_behind(a->kind, get(y, at), get(x, at + cut.inner),
                                   get(y, at + cut.inner));
            sum += get(dy, at);
            double before = k ? get(y, at - cut.inner) : 1;
            put(dx, at, sum * scan_own(a->kind, get(x, at), get(y, at), before));
        }
    }
    return TRI_OK;
}

REF_KERNEL(scan)
REF_KERNEL(scan_grad)
