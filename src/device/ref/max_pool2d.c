// Max pooling with fused ReLU and dropout, and its gradient.
#include "device/ref/pool.h"

REF_BODY tri_status max_pool2d_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_max_pool2d_attr *a = (const void *)node->attr;
    ref_array x = ref_input(args, 0, f64);
    const int64_t *xd = node->s.in[0].dims, *yd = node->s.out[0].dims;
    ref_array y = ref_output(args, 0, f64);
    uint8_t *index = args->out[1];
    ref_mask mask = ref_mask_of(a->dropout, a->key, args->in[1]);
    for (int64_t n = 0; n < yd[0]; n++)
        for (int64_t e = 0; e < yd[1] * yd[2] * yd[3]; e++) {
            int64_t c = e / (yd[2] * yd[3]), i = e / yd[3] % yd[2], j = e % yd[3];
            double value = 0;
            ref_array image = ref_from(x, (n * xd[1] + c) * xd[2] * xd[3]);
            int best = ref_pool_maximum(a, image, xd[2], xd[3], i, j, &value);
            double factor = ref_mask_at(&mask, n, e);
            bool cut = (a->relu && value <= 0) || factor == 0;
            int64_t at = n * yd[1] * yd[2] * yd[3] + e;
            put(y, at, cut ? 0 : value * factor);
            index[at] = (uint8_t)(cut ? TRI_POOL_NO_GRADIENT : best);
        }
    return TRI_OK;
}

REF_BODY tri_status max_pool2d_grad_body(const ref_node *node, const tri_kernel_args *args,
                                         bool f64) {
    const tri_max_pool2d_attr *a = (const void *)node->attr;
    const uint8_t *index = args->in[0];
    ref_array dy = ref_input(args, 1, f64), dx = ref_output(args, 0, f64);
    const tri_shape *y = &node->s.in[0], *x = &node->s.out[0];
    int64_t x_plane = x->dims[2] * x->dims[3], y_plane = y->dims[2] * y->dims[3];
    double scale = a->dropout < 1 ? 1 / (1 - a->dropout) : 0;
    for (int64_t i = 0; i < x->dims[0] * x->dims[1]; i++)
        ref_pool_scatter(a, x, y, index + i * y_plane, ref_from(dy, i * y_plane), scale,
                         ref_from(dx, i * x_plane));
    return TRI_OK;
}

REF_KERNEL(max_pool2d)
REF_KERNEL(max_pool2d_grad)
