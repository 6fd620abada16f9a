static tri_status TYPED(linear)(const ref_node *node, const tri_kernel_args *args) {
    const tri_linear_attr *a = (const void *)node->attr;
    const REAL *x = args->in[0], *weight = args->in[1], *bias = args->in[2];
    int64_t features = node->s.in[1].dims[0], inputs = node->s.in[1].dims[1];
    int64_t rows = ref_count(&node->s.out[0]) / features;
    REAL *y = args->out[0];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t f = 0; f < features; f++) {
            double sum = bias ? (double)bias[f] : 0;
#pragma omp simd reduction(+ : sum)
            for (int64_t k = 0; k < inputs; k++)
                sum += (double)x[r * inputs + k] * (double)weight[f * inputs + k];
            y[r * features + f] = (REAL)ref_activate(a->activation, a->slope, sum);
        }
    return TRI_OK;
}

static tri_status TYPED(linear_grad_input)(const ref_node *node, const tri_kernel_args *args) {
    const REAL *dy = args->in[0], *weight = args->in[1];
    int64_t features = node->s.in[1].dims[0], inputs = node->s.in[1].dims[1];
    int64_t rows = ref_count(&node->s.in[0]) / features;
    REAL *dx = args->out[0];
    double *row = args->workspace;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t k = 0; k < inputs; k++) row[k] = 0;
        for (int64_t f = 0; f < features; f++) {
            double factor = (double)dy[r * features + f];
            for (int64_t k = 0; k < inputs; k++) row[k] += factor * (double)weight[f * inputs + k];
        }
        for (int64_t k = 0; k < inputs; k++) dx[r * inputs + k] = (REAL)row[k];
    }
    return TRI_OK;
}

static tri_status TYPED(linear_grad_weight)(const ref_node *node, const tri_kernel_args *args) {
    const tri_linear_grad_attr *a = (const void *)node->attr;
    const REAL *x = args->in[0], *dy = args->in[1];
    int64_t features = node->s.out[0].dims[0], inputs = node->s.out[0].dims[1];
    int64_t rows = ref_count(&node->s.in[1]) / features;
    REAL *dweight = args->out[0], *dbias = args->out[1];
    double *row = args->workspace;
    for (int64_t f = 0; f < features; f++) {
        double sum = 0;
        for (int64_t k = 0; k < inputs; k++) row[k] = 0;
        for (int64_t r = 0; r < rows; r++) {
            double factor = (double)dy[r * features + f];
            sum += factor;
            for (int64_t k = 0; k < inputs; k++) row[k] += factor * (double)x[r * inputs + k];
        }
        for (int64_t k = 0; k < inputs; k++) dweight[f * inputs + k] = (REAL)row[k];
        if (a->has_bias) dbias[f] = (REAL)sum;
    }
    return TRI_OK;
}
