#include "device/ref/node.h"

// The outputs j, begin <= j < end, for which j * stride + shift lies in [0, in).
static int64_t conv_begin(int64_t stride, int64_t shift) {
    return shift < 0 ? (-shift + stride - 1) / stride : 0;
}
static int64_t conv_end(int64_t out, int64_t in, int64_t stride, int64_t shift) {
    if (shift >= in) return 0;
    int64_t end = (in - 1 - shift) / stride + 1;
    return end < out ? end : out;
}

#include "device/ref/f32.h"

#include "device/ref/conv2d_body.h"

#include "device/ref/f64.h"

#include "device/ref/conv2d_body.h"

REF_SUMMING_KERNEL(conv2d, s->out[0].dims[3])
REF_SUMMING_KERNEL(conv2d_grad_input, s->out[0].dims[3])
REF_KERNEL(conv2d_grad_weight)
