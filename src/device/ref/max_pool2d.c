// Max pooling with fused ReLU and dropout, and its gradient.
#include "device/ref/node.h"

#include <math.h>

// Finds the first maximum of the window of output pixel (i, j). Returns its index in the window and
// stores its value in *out. NaN counts as larger than any number.
REF_BODY int pool_maximum(const tri_max_pool2d_attr *a, ref_array image, int64_t height,
                          int64_t width, int64_t i, int64_t j, double *out) {
    int best = -1;
    for (int64_t kh = 0; kh < a->kernel[0]; kh++)
        for (int64_t kw = 0; kw < a->kernel[1]; kw++) {
            int64_t h = i * a->stride[0] + kh - a->padding[0];
            int64_t w = j * a->stride[1] + kw - a->padding[1];
            if (h < 0 || h >= height || w < 0 || w >= width) continue;
            double value = get(image, h * width + w);
            if (best >= 0 && !(value > *out) && !(isnan(value) && !isnan(*out))) continue;
            best = (int)(kh * a->kernel[1] + kw);
            *out = value;
        }
    return best;
}

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
            int best = pool_maximum(a, image, xd[2], xd[3], i, j, &value);
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
    ref_array dy = ref_input(args, 1, f64);
    const int64_t *yd = node->s.in[0].dims, *xd = node->s.out[0].dims;
    ref_array dx = ref_output(args, 0, f64);
    double scale = a->dropout < 1 ? 1 / (1 - a->dropout) : 0;
    for (int64_t i = 0, count = ref_count(&node->s.out[0]); i < count; i++) put(dx, i, 0);
    for (int64_t at = 0, count = ref_count(&node->s.in[0]); at < count; at++) {
        if (index[at] == TRI_POOL_NO_GRADIENT) continue;
        int64_t j = at % yd[3], i = at / yd[3] % yd[2], image = at / yd[3] / yd[2];
        int64_t h = i * a->stride[0] + index[at] / a->kernel[1] - a->padding[0];
        int64_t w = j * a->stride[1] + index[at] % a->kernel[1] - a->padding[1];
        put(dx, (image * xd[2] + h) * xd[3] + w,
            get(dx, (image * xd[2] + h) * xd[3] + w) + get(dy, at) * scale);
    }
    return TRI_OK;
}

REF_KERNEL(max_pool2d)
REF_KERNEL(max_pool2d_grad)
