// Row by row: each row of the result is summed in double in the workspace.

// y_row[j] += weight * x_row[j * stride + shift] for all j of `out` where that lies in [0, in).
static void TYPED(conv_row)(double *y_row, const REAL *x_row, double weight, int64_t out,
                            int64_t in, int64_t stride, int64_t shift) {
    int64_t begin = conv_begin(stride, shift), end = conv_end(out, in, stride, shift);
    if (stride == 1)
        for (int64_t j = begin; j < end; j++) y_row[j] += weight * (double)x_row[j + shift];
    else
        for (int64_t j = begin; j < end; j++)
            y_row[j] += weight * (double)x_row[j * stride + shift];
}

static tri_status TYPED(conv2d)(const ref_node *node, const tri_kernel_args *args) {
    const tri_conv2d_attr *a = (const void *)node->attr;
    const REAL *x = args->in[0], *weight = args->in[1], *bias = args->in[2];
    const int64_t *xd = node->s.in[0].dims, *wd = node->s.in[1].dims, *yd = node->s.out[0].dims;
    REAL *y = args->out[0];
    double *row = args->workspace;
    int64_t per_group = wd[0] / a->groups;
    for (int64_t n = 0; n < yd[0]; n++)
        for (int64_t o = 0; o < yd[1]; o++)
            for (int64_t i = 0; i < yd[2]; i++) {
                for (int64_t j = 0; j < yd[3]; j++) row[j] = bias ? (double)bias[o] : 0;
                for (int64_t c = 0; c < wd[1]; c++)
                    for (int64_t kh = 0; kh < wd[2]; kh++) {
                        int64_t h = i * a->stride[0] + kh * a->dilation[0] - a->padding[0];
                        if (h < 0 || h >= xd[2]) continue;
                        int64_t channel = o / per_group * wd[1] + c;
                        const REAL *x_row = x + ((n * xd[1] + channel) * xd[2] + h) * xd[3];
                        const REAL *w_row = weight + ((o * wd[1] + c) * wd[2] + kh) * wd[3];
                        for (int64_t kw = 0; kw < wd[3]; kw++) TYPED(conv_row)
                        (row, x_row, (double)w_row[kw], yd[3], xd[3], a->stride[1],
                         kw * a->dilation[1] - a->padding[1]);
                    }
                REAL *y_row = y + ((n * yd[1] + o) * yd[2] + i) * yd[3];
                for (int64_t j = 0; j < yd[3]; j++)
                    y_row[j] = (REAL)ref_activate(a->activation, a->slope, row[j]);
            }
    return TRI_OK;
}

// Adds to row h of channel c of dx[n] what filter o gave of it.
static void TYPED(conv_back)(const tri_conv2d_attr *a, const int64_t *yd, const int64_t *wd,
                             int64_t width, const REAL *dy_image, const REAL *filter, int64_t h,
                             double *row) {
    for (int64_t kh = 0; kh < wd[2]; kh++) {
        int64_t at = h + a->padding[0] - kh * a->dilation[0];
        if (at < 0 || at % a->stride[0] || at / a->stride[0] >= yd[2]) continue;
        const REAL *dy_row = dy_image + at / a->stride[0] * yd[3];
        for (int64_t kw = 0; kw < wd[3]; kw++) {
            int64_t shift = kw * a->dilation[1] - a->padding[1], stride = a->stride[1];
            int64_t end = conv_end(yd[3], width, stride, shift);
            double weight = (double)filter[kh * wd[3] + kw];
            for (int64_t j = conv_begin(stride, shift); j < end; j++)
                row[j * stride + shift] += weight * (double)dy_row[j];
        }
    }
}

static tri_status TYPED(conv2d_grad_input)(const ref_node *node, const tri_kernel_args *args) {
    const tri_conv2d_attr *a = &((const tri_conv2d_grad_attr *)(const void *)node->attr)->conv;
    const REAL *dy = args->in[0], *weight = args->in[1];
    const int64_t *yd = node->s.in[0].dims, *wd = node->s.in[1].dims, *xd = node->s.out[0].dims;
    REAL *dx = args->out[0];
    double *row = args->workspace;
    int64_t per_group = wd[0] / a->groups;
    for (int64_t n = 0; n < xd[0]; n++)
        for (int64_t c = 0; c < xd[1]; c++)
            for (int64_t h = 0; h < xd[2]; h++) {
                int64_t group = c / wd[1];
                for (int64_t w = 0; w < xd[3]; w++) row[w] = 0;
                for (int64_t o = group * per_group; o < (group + 1) * per_group; o++)
                    TYPED(conv_back)
                (a, yd, wd, xd[3], dy + (n * yd[1] + o) * yd[2] * yd[3],
                 weight + (o * wd[1] + c % wd[1]) * wd[2] * wd[3], h, row);
                REAL *dx_row = dx + ((n * xd[1] + c) * xd[2] + h) * xd[3];
                for (int64_t w = 0; w < xd[3]; w++) dx_row[w] = (REAL)row[w];
            }
    return TRI_OK;
}

// Sum over samples and places of dy times the x that the weight (kh, kw) met there.
static double TYPED(conv_meet)(const tri_conv2d_attr *a, const int64_t *xd, const int64_t *yd,
                               const REAL *x_channel, const REAL *dy_channel, int64_t kh,
                               int64_t kw) {
    int64_t shift = kw * a->dilation[1] - a->padding[1], stride = a->stride[1];
    int64_t begin = conv_begin(stride, shift), end = conv_end(yd[3], xd[3], stride, shift);
    double sum = 0;
    for (int64_t n = 0; n < xd[0]; n++)
        for (int64_t i = 0; i < yd[2]; i++) {
            int64_t h = i * a->stride[0] + kh * a->dilation[0] - a->padding[0];
            if (h < 0 || h >= xd[2]) continue;
            const REAL *x_row = x_channel + n * xd[1] * xd[2] * xd[3] + h * xd[3];
            const REAL *dy_row = dy_channel + n * yd[1] * yd[2] * yd[3] + i * yd[3];
#pragma omp simd reduction(+ : sum)
            for (int64_t j = begin; j < end; j++)
                sum += (double)dy_row[j] * (double)x_row[j * stride + shift];
        }
    return sum;
}

static tri_status TYPED(conv2d_grad_weight)(const ref_node *node, const tri_kernel_args *args) {
    const tri_conv2d_grad_attr *grad = (const void *)node->attr;
    const tri_conv2d_attr *a = &grad->conv;
    const REAL *x = args->in[0], *dy = args->in[1];
    const int64_t *xd = node->s.in[0].dims, *yd = node->s.in[1].dims, *wd = node->s.out[0].dims;
    REAL *dweight = args->out[0], *dbias = args->out[1];
    int64_t per_group = wd[0] / a->groups, image = yd[2] * yd[3];
    for (int64_t o = 0; o < wd[0]; o++) {
        const REAL *dy_channel = dy + o * image;
        for (int64_t c = 0; c < wd[1]; c++) {
            const REAL *x_channel = x + (o / per_group * wd[1] + c) * xd[2] * xd[3];
            for (int64_t kh = 0; kh < wd[2]; kh++)
                for (int64_t kw = 0; kw < wd[3]; kw++)
                    dweight[((o * wd[1] + c) * wd[2] + kh) * wd[3] + kw] =
                        (REAL)TYPED(conv_meet)(a, xd, yd, x_channel, dy_channel, kh, kw);
        }
        if (!grad->has_bias) continue;
        double sum = 0;
        for (int64_t n = 0; n < yd[0]; n++)
            for (int64_t i = 0; i < image; i++) sum += (double)dy_channel[n * yd[1] * image + i];
        dbias[o] = (REAL)sum;
    }
    return TRI_OK;
}
