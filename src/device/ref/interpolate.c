// Resizing of one axis, and its gradient.
#include "ops/interpolate_axis.h"

#include "device/ref/node.h"

// The elements behind the axis `axis` of a shape, which lie together.
static int64_t inner_of(const tri_shape *shape, int64_t axis) {
    int64_t inner = 1;
    for (int64_t i = axis + 1; i < shape->rank; i++) inner *= shape->dims[i];
    return inner;
}

REF_BODY tri_status interpolate_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_interpolate_attr *attr = (const void *)node->attr;
    ref_array x = ref_input(args, 0, f64), y = ref_output(args, 0, f64);
    interpolate_axis a = ops_interpolate_axis(attr, &node->s.in[0]);
    int64_t inner = inner_of(&node->s.in[0], attr->axis);
    for (int64_t i = 0, count = ref_count(&node->s.out[0]); i < count; i++) {
        interpolate_source s = interpolate_from(&a, i / inner % a.out);
        int64_t from = i / inner / a.out * a.in * inner + i % inner;
        double sum = 0, total = interpolate_total(&a, &s);
        for (int64_t k = s.first; k <= s.last; k++) {
            double share = interpolate_weight(&a, &s, k) / total;
            // What has no share is not read, so that it may be NaN.
            if (share != 0) sum += share * get(x, from + k * inner);
        }
        put(y, i, sum);
    }
    return TRI_OK;
}

REF_BODY tri_status interpolate_grad_body(const ref_node *node, const tri_kernel_args *args,
                                          bool f64) {
    const tri_interpolate_attr *attr = (const void *)node->attr;
    ref_array dy = ref_input(args, 0, f64), dx = ref_output(args, 0, f64);
    interpolate_axis a = ops_interpolate_axis(attr, &node->s.out[0]);
    int64_t inner = inner_of(&node->s.out[0], attr->axis);
    for (int64_t i = 0, count = ref_count(&node->s.out[0]); i < count; i++) {
        int64_t at = i / inner % a.in, from = i / inner / a.in * a.out * inner + i % inner;
        double sum = 0;
        for (int64_t j = interpolate_reader(&a, at); j < a.out; j++) {
            interpolate_source s = interpolate_from(&a, j);
            if (s.first > at) break;
            double share = interpolate_weight(&a, &s, at) / interpolate_total(&a, &s);
            if (share != 0) sum += share * get(dy, from + j * inner);
        }
        put(dx, i, sum);
    }
    return TRI_OK;
}

REF_KERNEL(interpolate)
REF_KERNEL(interpolate_grad)
