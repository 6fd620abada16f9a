// Convolutions in two dimensions and their gradients. Sums are in double, those of a row of y or dx
// in the workspace, so that results are exact enough to test other devices against them.
#include "device/ref/node.h"

// The range [begin, end) of outputs j whose input j * stride + shift lies in [0, in), so that the
// loops need not check each of them.
static int64_t conv_begin(int64_t stride, int64_t shift) {
    return shift < 0 ? (-shift + stride - 1) / stride : 0;
}
static int64_t conv_end(int64_t out, int64_t in, int64_t stride, int64_t shift) {
    if (shift >= in) return 0;
    int64_t end = (in - 1 - shift) / stride + 1;
    return end < out ? end : out;
}

// y_row[j] += weight * x_row[j * stride + shift] for all j < out whose input lies in [0, in).
REF_BODY void conv_row(double *y_row, ref_array x_row, double weight, int64_t out, int64_t in,
                       int64_t stride, int64_t shift) {
    int64_t begin = conv_begin(stride, shift), end = conv_end(out, in, stride, shift);
    if (stride == 1)
        for (int64_t j = begin; j < end; j++) y_row[j] += weight * get(x_row, j + shift);
    else
        for (int64_t j = begin; j < end; j++) y_row[j] += weight * get(x_row, j * stride + shift);
}

REF_BODY tri_status conv2d_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_conv2d_attr *a = (const void *)node->attr;
    ref_array x = ref_input(args, 0, f64), weight = ref_input(args, 1, f64),
              bias = ref_input(args, 2, f64);
    const int64_t *xd = node->s.in[0].dims, *wd = node->s.in[1].dims, *yd = node->s.out[0].dims;
    ref_array y = ref_output(args, 0, f64);
    double *row = args->workspace;
    int64_t per_group = wd[0] / a->groups;
    for (int64_t n = 0; n < yd[0]; n++)
        for (int64_t o = 0; o < yd[1]; o++)
            for (int64_t i = 0; i < yd[2]; i++) {
                for (int64_t j = 0; j < yd[3]; j++) row[j] = bias.at ? get(bias, o) : 0;
                for (int64_t c = 0; c < wd[1]; c++)
                    for (int64_t kh = 0; kh < wd[2]; kh++) {
                        int64_t h = i * a->stride[0] + kh * a->dilation[0] - a->padding[0];
                        if (h < 0 || h >= xd[2]) continue;
                        int64_t channel = o / per_group * wd[1] + c;
                        ref_array x_row = ref_from(x, ((n * xd[1] + channel) * xd[2] + h) * xd[3]);
                        ref_array w_row = ref_from(weight, ((o * wd[1] + c) * wd[2] + kh) * wd[3]);
                        for (int64_t kw = 0; kw < wd[3]; kw++)
                            conv_row(row, x_row, get(w_row, kw), yd[3], xd[3], a->stride[1],
                                     kw * a->dilation[1] - a->padding[1]);
                    }
                ref_array y_row = ref_from(y, ((n * yd[1] + o) * yd[2] + i) * yd[3]);
                for (int64_t j = 0; j < yd[3]; j++) put(y_row, j, row[j]);
            }
    return TRI_OK;
}

// Adds to `row`, which is row h of one channel of dx, the terms that come from one output channel:
// `dy_image` is that channel of dy, and `filter` has its weights for the input channel.
REF_BODY void conv_back(const tri_conv2d_attr *a, const int64_t *yd, const int64_t *wd,
                        int64_t width, ref_array dy_image, ref_array filter, int64_t h,
                        double *row) {
    for (int64_t kh = 0; kh < wd[2]; kh++) {
        int64_t at = h + a->padding[0] - kh * a->dilation[0];
        if (at < 0 || at % a->stride[0] || at / a->stride[0] >= yd[2]) continue;
        ref_array dy_row = ref_from(dy_image, at / a->stride[0] * yd[3]);
        for (int64_t kw = 0; kw < wd[3]; kw++) {
            int64_t shift = kw * a->dilation[1] - a->padding[1], stride = a->stride[1];
            int64_t end = conv_end(yd[3], width, stride, shift);
            double weight = get(filter, kh * wd[3] + kw);
            for (int64_t j = conv_begin(stride, shift); j < end; j++)
                row[j * stride + shift] += weight * get(dy_row, j);
        }
    }
}

REF_BODY tri_status conv2d_grad_input_body(const ref_node *node, const tri_kernel_args *args,
                                           bool f64) {
    const tri_conv2d_attr *a = &((const tri_conv2d_grad_attr *)(const void *)node->attr)->conv;
    ref_array dy = ref_input(args, 0, f64), weight = ref_input(args, 1, f64);
    const int64_t *yd = node->s.in[0].dims, *wd = node->s.in[1].dims, *xd = node->s.out[0].dims;
    ref_array dx = ref_output(args, 0, f64);
    double *row = args->workspace;
    int64_t per_group = wd[0] / a->groups;
    for (int64_t n = 0; n < xd[0]; n++)
        for (int64_t c = 0; c < xd[1]; c++)
            for (int64_t h = 0; h < xd[2]; h++) {
                int64_t group = c / wd[1];
                for (int64_t w = 0; w < xd[3]; w++) row[w] = 0;
                for (int64_t o = group * per_group; o < (group + 1) * per_group; o++)
                    conv_back(a, yd, wd, xd[3], ref_from(dy, (n * yd[1] + o) * yd[2] * yd[3]),
                              ref_from(weight, (o * wd[1] + c % wd[1]) * wd[2] * wd[3]), h, row);
                ref_array dx_row = ref_from(dx, ((n * xd[1] + c) * xd[2] + h) * xd[3]);
                for (int64_t w = 0; w < xd[3]; w++) put(dx_row, w, row[w]);
            }
    return TRI_OK;
}

// Computes the gradient of the weight (kh, kw): the sum over samples and output pixels of dy times
// the element of x by which this weight is multiplied there.
REF_BODY double conv_weight_sum(const tri_conv2d_attr *a, const int64_t *xd, const int64_t *yd,
                                ref_array x_channel, ref_array dy_channel, int64_t kh, int64_t kw) {
    int64_t shift = kw * a->dilation[1] - a->padding[1], stride = a->stride[1];
    int64_t begin = conv_begin(stride, shift), end = conv_end(yd[3], xd[3], stride, shift);
    double sum = 0;
    for (int64_t n = 0; n < xd[0]; n++)
        for (int64_t i = 0; i < yd[2]; i++) {
            int64_t h = i * a->stride[0] + kh * a->dilation[0] - a->padding[0];
            if (h < 0 || h >= xd[2]) continue;
            ref_array x_row = ref_from(x_channel, n * xd[1] * xd[2] * xd[3] + h * xd[3]);
            ref_array dy_row = ref_from(dy_channel, n * yd[1] * yd[2] * yd[3] + i * yd[3]);
#pragma omp simd reduction(+ : sum)
            for (int64_t j = begin; j < end; j++)
                sum += get(dy_row, j) * get(x_row, j * stride + shift);
        }
    return sum;
}

REF_BODY tri_status conv2d_grad_weight_body(const ref_node *node, const tri_kernel_args *args,
                                            bool f64) {
    const tri_conv2d_grad_attr *grad = (const void *)node->attr;
    const tri_conv2d_attr *a = &grad->conv;
    ref_array x = ref_input(args, 0, f64), dy = ref_input(args, 1, f64);
    const int64_t *xd = node->s.in[0].dims, *yd = node->s.in[1].dims, *wd = node->s.out[0].dims;
    ref_array dweight = ref_output(args, 0, f64), dbias = ref_output(args, 1, f64);
    int64_t per_group = wd[0] / a->groups, image = yd[2] * yd[3];
    for (int64_t o = 0; o < wd[0]; o++) {
        ref_array dy_channel = ref_from(dy, o * image);
        for (int64_t c = 0; c < wd[1]; c++) {
            ref_array x_channel = ref_from(x, (o / per_group * wd[1] + c) * xd[2] * xd[3]);
            for (int64_t kh = 0; kh < wd[2]; kh++)
                for (int64_t kw = 0; kw < wd[3]; kw++)
                    put(dweight, ((o * wd[1] + c) * wd[2] + kh) * wd[3] + kw,
                        conv_weight_sum(a, xd, yd, x_channel, dy_channel, kh, kw));
        }
        if (!grad->has_bias) continue;
        double sum = 0;
        for (int64_t n = 0; n < yd[0]; n++)
            for (int64_t i = 0; i < image; i++) sum += get(dy_channel, n * yd[1] * image + i);
        put(dbias, o, sum);
    }
    return TRI_OK;
}

REF_SUMMING_KERNEL(conv2d, s->out[0].dims[3])
REF_SUMMING_KERNEL(conv2d_grad_input, s->out[0].dims[3])
REF_KERNEL(conv2d_grad_weight)
