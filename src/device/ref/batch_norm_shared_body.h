static tri_status TYPED(batch_norm_moments)(const ref_node *node, const tri_kernel_args *args) {
    const REAL *x = args->in[0];
    REAL *moments = args->out[0];
    int64_t samples = node->s.in[0].dims[0], channels = node->s.in[0].dims[1];
    int64_t inner = ref_count(&node->s.in[0]) / (samples * channels);
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0, squares = 0;
        for (int64_t n = 0; n < samples; n++)
            for (int64_t i = 0; i < inner; i++) sum += (double)x[(n * channels + c) * inner + i];
        double mean = sum / (double)(samples * inner);
        for (int64_t n = 0; n < samples; n++)
            for (int64_t i = 0; i < inner; i++) {
                double d = (double)x[(n * channels + c) * inner + i] - mean;
                squares += d * d;
            }
        moments[c] = (REAL)mean;
        moments[channels + c] = (REAL)squares;
    }
    moments[2 * channels] = (REAL)samples;
    return TRI_OK;
}

// Of channel c over all replicas.
static tri_moments TYPED(join_moments)(const REAL *moments, int64_t replicas, int64_t channels,
                                       int64_t inner, int64_t c) {
    tri_moments all = {0};
    for (int64_t r = 0; r < replicas; r++, moments += 2 * channels + 1)
        all =
            tri_moments_join(all, (tri_moments){(double)moments[2 * channels] * (double)inner,
                                                (double)moments[c], (double)moments[channels + c]});
    return all;
}

static tri_status TYPED(batch_norm_shared)(const ref_node *node, const tri_kernel_args *args) {
    const tri_batch_norm_shared_attr *a = (const void *)node->attr;
    const REAL *x = args->in[0], *weight = args->in[1], *bias = args->in[2];
    REAL *y = args->out[0], *mean_out = args->out[1], *inv_std_out = args->out[2];
    REAL *mean_sum = args->out[3], *var_sum = args->out[4];
    int64_t samples = node->s.in[0].dims[0], channels = node->s.in[0].dims[1];
    int64_t inner = ref_count(&node->s.in[0]) / (samples * channels);
    for (int64_t c = 0; c < channels; c++) {
        tri_moments m = TYPED(join_moments)(args->in[3], node->s.in[3].dims[0], channels, inner, c);
        double inv_std = 1 / sqrt(m.squares / m.count + a->norm.eps);
        for (int64_t n = 0; n < samples; n++)
            for (int64_t i = 0; i < inner; i++) {
                int64_t at = (n * channels + c) * inner + i;
                double v = ((double)x[at] - m.mean) * inv_std * (double)weight[c] + (double)bias[c];
                y[at] = (REAL)ref_activate(a->norm.relu ? TRI_ACTIVATION_RELU : 0, 0, v);
            }
        mean_out[c] = (REAL)m.mean;
        inv_std_out[c] = (REAL)inv_std;
        mean_sum[c] = (REAL)((double)samples * m.mean);
        var_sum[c] = (REAL)((double)samples * m.squares / (m.count - 1));
    }
    return TRI_OK;
}

static tri_status TYPED(batch_norm_sums)(const ref_node *node, const tri_kernel_args *args) {
    const tri_batch_norm_attr *a = (const void *)node->attr;
    const REAL *x = args->in[0], *y = args->in[1], *dy = args->in[2];
    const REAL *mean = args->in[3], *inv_std = args->in[4];
    REAL *dweight = args->out[0], *dbias = args->out[1], *sums = args->out[2];
    int64_t samples = node->s.in[0].dims[0], channels = node->s.in[0].dims[1];
    int64_t inner = ref_count(&node->s.in[0]) / (samples * channels);
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0, sum_h = 0;
        for (int64_t n = 0; n < samples; n++)
            for (int64_t i = 0; i < inner; i++) {
                int64_t at = (n * channels + c) * inner + i;
                double d = a->relu && !(y[at] > 0) ? 0 : (double)dy[at];
                sum += d;
                sum_h += d * ((double)x[at] - (double)mean[c]) * (double)inv_std[c];
            }
        dweight[c] = sums[c] = (REAL)sum_h;
        dbias[c] = sums[channels + c] = (REAL)sum;
    }
    return TRI_OK;
}

static tri_status TYPED(batch_norm_shared_grad)(const ref_node *node, const tri_kernel_args *args) {
    const tri_batch_norm_shared_attr *a = (const void *)node->attr;
    const REAL *x = args->in[0], *y = args->in[1], *dy = args->in[2], *weight = args->in[3];
    const REAL *mean = args->in[4], *inv_std = args->in[5], *sums = args->in[6];
    REAL *dx = args->out[0];
    int64_t samples = node->s.in[0].dims[0], channels = node->s.in[0].dims[1];
    int64_t inner = ref_count(&node->s.in[0]) / (samples * channels);
    for (int64_t c = 0; c < channels; c++) {
        double values =
            TYPED(join_moments)(args->in[7], node->s.in[7].dims[0], channels, inner, c).count;
        for (int64_t n = 0; n < samples; n++)
            for (int64_t i = 0; i < inner; i++) {
                int64_t at = (n * channels + c) * inner + i;
                double d = a->norm.relu && !(y[at] > 0) ? 0 : (double)dy[at];
                double h = ((double)x[at] - (double)mean[c]) * (double)inv_std[c];
                double rest = (double)sums[channels + c] + h * (double)sums[c];
                dx[at] = (REAL)((double)weight[c] * (double)inv_std[c] * (d - rest / values));
            }
    }
    return TRI_OK;
}
