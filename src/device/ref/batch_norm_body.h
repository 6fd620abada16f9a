static tri_status TYPED(batch_norm)(const ref_node *node, const tri_kernel_args *args) {
    const tri_batch_norm_attr *a = (const void *)node->attr;
    const REAL *x = args->in[0], *weight = args->in[1], *bias = args->in[2];
    REAL *y = args->out[0], *mean_out = args->out[1], *inv_std_out = args->out[2];
    REAL *mean_sum = args->out[3], *var_sum = args->out[4];
    int64_t samples = node->s.in[0].dims[0], channels = node->s.in[0].dims[1];
    int64_t inner = ref_count(&node->s.in[0]) / (samples * channels);
    double values = (double)(samples * inner);
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0, squares = 0;
        for (int64_t n = 0; n < samples; n++)
            for (int64_t i = 0; i < inner; i++) sum += (double)x[(n * channels + c) * inner + i];
        double mean = sum / values;
        for (int64_t n = 0; n < samples; n++)
            for (int64_t i = 0; i < inner; i++) {
                double d = (double)x[(n * channels + c) * inner + i] - mean;
                squares += d * d;
            }
        double inv_std = 1 / sqrt(squares / values + a->eps);
        for (int64_t n = 0; n < samples; n++)
            for (int64_t i = 0; i < inner; i++) {
                int64_t at = (n * channels + c) * inner + i;
                double v = ((double)x[at] - mean) * inv_std * (double)weight[c] + (double)bias[c];
                y[at] = (REAL)ref_activate(a->relu ? TRI_ACTIVATION_RELU : 0, 0, v);
            }
        mean_out[c] = (REAL)mean;
        inv_std_out[c] = (REAL)inv_std;
        mean_sum[c] = (REAL)((double)samples * mean);
        var_sum[c] = (REAL)((double)samples * squares / (values - 1));
    }
    return TRI_OK;
}

static tri_status TYPED(batch_norm_inference)(const ref_node *node, const tri_kernel_args *args) {
    const tri_batch_norm_attr *a = (const void *)node->attr;
    const REAL *x = args->in[0], *weight = args->in[1], *bias = args->in[2];
    const REAL *mean = args->in[3], *var = args->in[4];
    REAL *y = args->out[0];
    int64_t samples = node->s.in[0].dims[0], channels = node->s.in[0].dims[1];
    int64_t count = ref_count(&node->s.in[0]), inner = count ? count / (samples * channels) : 1;
    for (int64_t at = 0; at < count; at++) {
        int64_t c = at / inner % channels;
        double v = ((double)x[at] - (double)mean[c]) / sqrt((double)var[c] + a->eps);
        v = v * (double)weight[c] + (double)bias[c];
        y[at] = (REAL)ref_activate(a->relu ? TRI_ACTIVATION_RELU : 0, 0, v);
    }
    return TRI_OK;
}

static tri_status TYPED(batch_norm_grad)(const ref_node *node, const tri_kernel_args *args) {
    const tri_batch_norm_attr *a = (const void *)node->attr;
    const REAL *x = args->in[0], *y = args->in[1], *dy = args->in[2], *weight = args->in[3];
    const REAL *mean = args->in[4], *inv_std = args->in[5];
    REAL *dx = args->out[0], *dweight = args->out[1], *dbias = args->out[2];
    int64_t samples = node->s.in[0].dims[0], channels = node->s.in[0].dims[1];
    int64_t inner = ref_count(&node->s.in[0]) / (samples * channels);
    double values = (double)(samples * inner);
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0, sum_h = 0;
        for (int64_t n = 0; n < samples; n++)
            for (int64_t i = 0; i < inner; i++) {
                int64_t at = (n * channels + c) * inner + i;
                double d = a->relu && !(y[at] > 0) ? 0 : (double)dy[at];
                sum += d;
                sum_h += d * ((double)x[at] - (double)mean[c]) * (double)inv_std[c];
            }
        for (int64_t n = 0; n < samples; n++)
            for (int64_t i = 0; i < inner; i++) {
                int64_t at = (n * channels + c) * inner + i;
                double d = a->relu && !(y[at] > 0) ? 0 : (double)dy[at];
                double h = ((double)x[at] - (double)mean[c]) * (double)inv_std[c];
                dx[at] = (REAL)((double)weight[c] * (double)inv_std[c] *
                                (d - (sum + h * sum_h) / values));
            }
        dweight[c] = (REAL)sum_h;
        dbias[c] = (REAL)sum;
    }
    return TRI_OK;
}
