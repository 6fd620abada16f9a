// The place of the first maximum of the window at (i, j), NaN counting as the largest, and its
// value.
static int TYPED(pool_place)(const tri_max_pool2d_attr *a, const REAL *image, int64_t height,
                             int64_t width, int64_t i, int64_t j, REAL *out) {
    int best = -1;
    for (int64_t kh = 0; kh < a->kernel[0]; kh++)
        for (int64_t kw = 0; kw < a->kernel[1]; kw++) {
            int64_t h = i * a->stride[0] + kh - a->padding[0];
            int64_t w = j * a->stride[1] + kw - a->padding[1];
            if (h < 0 || h >= height || w < 0 || w >= width) continue;
            REAL value = image[h * width + w];
            if (best >= 0 && !(value > *out) && !(isnan(value) && !isnan(*out))) continue;
            best = (int)(kh * a->kernel[1] + kw);
            *out = value;
        }
    return best;
}

static tri_status TYPED(max_pool2d)(const ref_node *node, const tri_kernel_args *args) {
    const tri_max_pool2d_attr *a = (const void *)node->attr;
    const REAL *x = args->in[0];
    const int64_t *xd = node->s.in[0].dims, *yd = node->s.out[0].dims;
    REAL *y = args->out[0];
    uint8_t *index = args->out[1];
    ref_mask mask = ref_mask_of(a->dropout, a->key, args->in[1]);
    for (int64_t n = 0; n < yd[0]; n++)
        for (int64_t e = 0; e < yd[1] * yd[2] * yd[3]; e++) {
            int64_t c = e / (yd[2] * yd[3]), i = e / yd[3] % yd[2], j = e % yd[3];
            REAL value = 0;
            const REAL *image = x + (n * xd[1] + c) * xd[2] * xd[3];
            int place = TYPED(pool_place)(a, image, xd[2], xd[3], i, j, &value);
            double factor = ref_mask_at(&mask, n, e);
            bool cut = (a->relu && value <= 0) || factor == 0;
            int64_t at = n * yd[1] * yd[2] * yd[3] + e;
            y[at] = cut ? 0 : (REAL)((double)value * factor);
            index[at] = (uint8_t)(cut ? TRI_POOL_NO_GRADIENT : place);
        }
    return TRI_OK;
}

static tri_status TYPED(max_pool2d_grad)(const ref_node *node, const tri_kernel_args *args) {
    const tri_max_pool2d_attr *a = (const void *)node->attr;
    const uint8_t *index = args->in[0];
    const REAL *dy = args->in[1];
    const int64_t *yd = node->s.in[0].dims, *xd = node->s.out[0].dims;
    REAL *dx = args->out[0];
    double scale = a->dropout < 1 ? 1 / (1 - a->dropout) : 0;
    memset(dx, 0, (size_t)ref_count(&node->s.out[0]) * sizeof *dx);
    for (int64_t at = 0, count = ref_count(&node->s.in[0]); at < count; at++) {
        if (index[at] == TRI_POOL_NO_GRADIENT) continue;
        int64_t j = at % yd[3], i = at / yd[3] % yd[2], image = at / yd[3] / yd[2];
        int64_t h = i * a->stride[0] + index[at] / a->kernel[1] - a->padding[0];
        int64_t w = j * a->stride[1] + index[at] % a->kernel[1] - a->padding[1];
        dx[(image * xd[2] + h) * xd[3] + w] += (REAL)((double)dy[at] * scale);
    }
    return TRI_OK;
}
