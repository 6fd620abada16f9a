// Average pooling and its gradient. A plane is one channel of one sample.
#include "device/ref/node.h"

// Finds the elements of x in pooling window (i, j): [begin, end) along height and width. Returns
// the factor by which their sum is multiplied: 1 / the window's divisor.
static double window_at(const tri_avg_pool2d_attr *a, const int64_t *x_dims, int64_t i, int64_t j,
                        int64_t begin[2], int64_t end[2]) {
    ops_avg_window(a, 0, x_dims[2], i, &begin[0], &end[0]);
    ops_avg_window(a, 1, x_dims[3], j, &begin[1], &end[1]);
    return 1 / (double)ops_avg_divisor(a, begin, end);
}

REF_BODY tri_status avg_pool2d_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_avg_pool2d_attr *a = (const void *)node->attr;
    ref_array x = ref_input(args, 0, f64), y = ref_output(args, 0, f64);
    const int64_t *xd = node->s.in[0].dims, *yd = node->s.out[0].dims;
    int64_t begin[2], end[2];
    for (int64_t at = 0, count = ref_count(&node->s.out[0]); at < count; at++) {
        int64_t j = at % yd[3], i = at / yd[3] % yd[2], image = at / yd[3] / yd[2];
        double sum = 0, weight = window_at(a, xd, i, j, begin, end);
        for (int64_t h = begin[0]; h < end[0]; h++)
            for (int64_t w = begin[1]; w < end[1]; w++)
                sum += get(x, (image * xd[2] + h) * xd[3] + w);
        put(y, at, sum * weight);
    }
    return TRI_OK;
}

// Computes one plane after the other, so that the workspace holds the sums of one plane only.
REF_BODY tri_status avg_pool2d_grad_body(const ref_node *node, const tri_kernel_args *args,
                                         bool f64) {
    const tri_avg_pool2d_attr *a = (const void *)node->attr;
    ref_array dy = ref_input(args, 0, f64), dx = ref_output(args, 0, f64);
    const int64_t *yd = node->s.in[0].dims, *xd = node->s.out[0].dims;
    int64_t plane = xd[2] * xd[3], windows = yd[2] * yd[3], begin[2], end[2];
    double *sums = args->workspace;
    for (int64_t image = 0; image < xd[0] * xd[1]; image++) {
        for (int64_t e = 0; e < plane; e++) sums[e] = 0;
        for (int64_t at = 0; at < windows; at++) {
            double weight = window_at(a, xd, at / yd[3], at % yd[3], begin, end);
            for (int64_t h = begin[0]; h < end[0]; h++)
                for (int64_t w = begin[1]; w < end[1]; w++)
                    sums[h * xd[3] + w] += get(dy, image * windows + at) * weight;
        }
        for (int64_t e = 0; e < plane; e++) put(dx, image * plane + e, sums[e]);
    }
    return TRI_OK;
}

REF_KERNEL(avg_pool2d)
REF_SUMMING_KERNEL(avg_pool2d_grad, s->out[0].dims[2] * s->out[0].dims[3])
