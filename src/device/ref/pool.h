// Max pooling of one plane, the pixels of one channel of one sample, and its gradient. max_pool2d.c
// uses these functions, and so does batch_norm.c, because max pooling may be fused into batch norm.
#ifndef TRIREME_DEVICE_REF_POOL_H
#define TRIREME_DEVICE_REF_POOL_H

#include "device/ref/node.h"

#include <math.h>

// Finds the first maximum of the pooling window of output pixel (i, j). Returns its position in the
// window, kh · kernel width + kw, and stores its value in *out. NaN counts as larger than any
// number.
REF_BODY int ref_pool_maximum(const tri_max_pool2d_attr *a, ref_array plane, int64_t height,
                              int64_t width, int64_t i, int64_t j, double *out) {
    int best = -1;
    for (int64_t kh = 0; kh < a->kernel[0]; kh++)
        for (int64_t kw = 0; kw < a->kernel[1]; kw++) {
            int64_t h = i * a->stride[0] + kh - a->padding[0];
            int64_t w = j * a->stride[1] + kw - a->padding[1];
            if (h < 0 || h >= height || w < 0 || w >= width) continue;
            double value = get(plane, h * width + w);
            if (best >= 0 && !(value > *out) && !(isnan(value) && !isnan(*out))) continue;
            best = (int)(kh * a->kernel[1] + kw);
            *out = value;
        }
    return best;
}

// Computes the gradient `dx` of a plane: sets it to zero, then adds scale · dy at each window's
// maximum. `index` has the position of the maximum in each window, or TRI_POOL_NO_GRADIENT. `x` and
// `y` are the shapes of the pooling's input and output.
REF_BODY void ref_pool_scatter(const tri_max_pool2d_attr *a, const tri_shape *x, const tri_shape *y,
                               const uint8_t *index, ref_array dy, double scale, ref_array dx) {
    int64_t width = x->dims[3];
    for (int64_t i = 0; i < x->dims[2] * width; i++) put(dx, i, 0);
    for (int64_t at = 0; at < y->dims[2] * y->dims[3]; at++) {
        if (index[at] == TRI_POOL_NO_GRADIENT) continue;
        int64_t j = at % y->dims[3], i = at / y->dims[3];
        int64_t h = i * a->stride[0] + index[at] / a->kernel[1] - a->padding[0];
        int64_t w = j * a->stride[1] + index[at] % a->kernel[1] - a->padding[1];
        put(dx, h * width + w, get(dx, h * width + w) + get(dy, at) * scale);
    }
}

#endif
