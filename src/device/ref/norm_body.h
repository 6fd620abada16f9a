// Statistics are kept in REAL: what ops_accumulator_type says of it.

static tri_status TYPED(rms_norm)(const ref_node *node, const tri_kernel_args *args) {
    const tri_norm_attr *a = (const void *)node->attr;
    const REAL *x = args->in[0], *weight = args->in[1];
    REAL *y = args->out[0], *inv_rms_out = args->out[1];
    int64_t width = node->s.in[1].dims[0], rows = ref_count(&node->s.in[0]) / width;
    for (int64_t r = 0; r < rows; r++, x += width, y += width) {
        double squares = 0;
        for (int64_t i = 0; i < width; i++) squares += (double)x[i] * (double)x[i];
        double inv_rms = 1 / sqrt(squares / (double)width + a->eps);
        for (int64_t i = 0; i < width; i++)
            y[i] = (REAL)((double)x[i] * inv_rms * (double)weight[i]);
        inv_rms_out[r] = (REAL)inv_rms;
    }
    return TRI_OK;
}

static tri_status TYPED(rms_norm_grad)(const ref_node *node, const tri_kernel_args *args) {
    const REAL *x = args->in[0], *dy = args->in[1], *weight = args->in[2], *inv_rms = args->in[3];
    REAL *dx = args->out[0], *dweight = args->out[1];
    double *sums = args->workspace;
    int64_t width = node->s.in[2].dims[0], rows = ref_count(&node->s.in[0]) / width;
    for (int64_t i = 0; i < width; i++) sums[i] = 0;
    for (int64_t r = 0; r < rows; r++, x += width, dy += width, dx += width) {
        double inv = (double)inv_rms[r], mean = 0;
        for (int64_t i = 0; i < width; i++) {
            double h = (double)x[i] * inv;
            sums[i] += (double)dy[i] * h;
            mean += (double)dy[i] * (double)weight[i] * h / (double)width;
        }
        for (int64_t i = 0; i < width; i++)
            dx[i] = (REAL)(inv * ((double)dy[i] * (double)weight[i] - (double)x[i] * inv * mean));
    }
    for (int64_t i = 0; i < width; i++) dweight[i] = (REAL)sums[i];
    return TRI_OK;
}

static tri_status TYPED(layer_norm)(const ref_node *node, const tri_kernel_args *args) {
    const tri_norm_attr *a = (const void *)node->attr;
    const tri_shape *shape = &node->s.in[0];
    const REAL *x = args->in[0], *weight = args->in[1], *bias = args->in[2];
    REAL *y = args->out[0], *mean_out = args->out[1], *inv_std_out = args->out[2];
    int64_t width = shape->dims[shape->rank - 1], rows = ref_count(shape) / width;
    for (int64_t r = 0; r < rows; r++, x += width, y += width) {
        double mean = 0, squares = 0;
        for (int64_t i = 0; i < width; i++) mean += (double)x[i] / (double)width;
        for (int64_t i = 0; i < width; i++)
            squares += ((double)x[i] - mean) * ((double)x[i] - mean);
        double inv_std = 1 / sqrt(squares / (double)width + a->eps);
        for (int64_t i = 0; i < width; i++) {
            double h = ((double)x[i] - mean) * inv_std;
            y[i] = (REAL)(weight ? h * (double)weight[i] + (double)bias[i] : h);
        }
        mean_out[r] = (REAL)mean;
        inv_std_out[r] = (REAL)inv_std;
    }
    return TRI_OK;
}

static tri_status TYPED(layer_norm_grad)(const ref_node *node, const tri_kernel_args *args) {
    const tri_shape *shape = &node->s.in[0];
    const REAL *x = args->in[0], *dy = args->in[1], *mean = args->in[2], *inv_std = args->in[3];
    const REAL *weight = args->in[4];
    REAL *dx = args->out[0], *dweight = args->out[1], *dbias = args->out[2];
    int64_t width = shape->dims[shape->rank - 1], rows = ref_count(shape) / width;
    double *sums = args->workspace, *bias_sums = sums + width;
    for (int64_t i = 0; i < 2 * width; i++) sums[i] = 0;
    for (int64_t r = 0; r < rows; r++, x += width, dy += width, dx += width) {
        double center = (double)mean[r], inv = (double)inv_std[r], mean_g = 0, mean_gh = 0;
        for (int64_t i = 0; i < width; i++) {
            double d = (double)dy[i], h = ((double)x[i] - center) * inv;
            double g = weight ? d * (double)weight[i] : d;
            sums[i] += d * h;
            bias_sums[i] += d;
            mean_g += g / (double)width;
            mean_gh += g * h / (double)width;
        }
        for (int64_t i = 0; i < width; i++) {
            double g = weight ? (double)dy[i] * (double)weight[i] : (double)dy[i];
            dx[i] = (REAL)(inv * (g - mean_g - ((double)x[i] - center) * inv * mean_gh));
        }
    }
    for (int64_t i = 0; weight && i < width; i++) {
        dweight[i] = (REAL)sums[i];
        dbias[i] = (REAL)bias_sums[i];
    }
    return TRI_OK;
}
