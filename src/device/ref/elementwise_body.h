static tri_status TYPED(relu)(const ref_node *node, const tri_kernel_args *args) {
    const REAL *x = args->in[0];
    REAL *y = args->out[0];
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++)
        y[i] = (REAL)ref_activate(TRI_ACTIVATION_RELU, 0, (double)x[i]);
    return TRI_OK;
}

static tri_status TYPED(leaky_relu)(const ref_node *node, const tri_kernel_args *args) {
    const tri_leaky_relu_attr *a = (const void *)node->attr;
    const REAL *x = args->in[0];
    REAL *y = args->out[0];
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++)
        y[i] = (REAL)ref_activate(TRI_ACTIVATION_LEAKY_RELU, a->slope, (double)x[i]);
    return TRI_OK;
}

static tri_status TYPED(activation_grad)(const ref_node *node, const tri_kernel_args *args) {
    const tri_activation_grad_attr *a = (const void *)node->attr;
    const REAL *y = args->in[0], *dy = args->in[1];
    REAL *dx = args->out[0];
    REAL slope = a->activation == TRI_ACTIVATION_NONE   ? 1
                 : a->activation == TRI_ACTIVATION_RELU ? 0
                                                        : (REAL)a->slope;
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++)
        dx[i] = y[i] > 0 ? dy[i] : slope == 0 ? 0 : dy[i] * slope;
    return TRI_OK;
}

static tri_status TYPED(add)(const ref_node *node, const tri_kernel_args *args) {
    const REAL *a = args->in[0], *b = args->in[1];
    REAL *y = args->out[0];
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++) y[i] = a[i] + b[i];
    return TRI_OK;
}

static tri_status TYPED(add_bias)(const ref_node *node, const tri_kernel_args *args) {
    const REAL *x = args->in[0], *bias = args->in[1];
    REAL *y = args->out[0];
    int64_t width = node->s.in[1].dims[0];
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++)
        y[i] = x[i] + bias[i % width];
    return TRI_OK;
}

static tri_status TYPED(add_bias_grad)(const ref_node *node, const tri_kernel_args *args) {
    const REAL *dy = args->in[0];
    REAL *dbias = args->out[0];
    int64_t width = node->s.out[0].dims[0], count = ref_count(&node->s.in[0]);
    double *row = args->workspace;
    for (int64_t k = 0; k < width; k++) row[k] = 0;
    for (int64_t i = 0; i < count; i++) row[i % width] += (double)dy[i];
    for (int64_t k = 0; k < width; k++) dbias[k] = (REAL)row[k];
    return TRI_OK;
}

// Of the values and of their gradients alike.
static tri_status TYPED(dropout)(const ref_node *node, const tri_kernel_args *args) {
    const tri_dropout_attr *a = (const void *)node->attr;
    const REAL *x = args->in[0];
    REAL *y = args->out[0];
    ref_mask mask = ref_mask_of(a->p, a->key, args->in[1]);
    int64_t samples = node->s.in[0].dims[0];
    int64_t elements = samples ? ref_count(&node->s.in[0]) / samples : 0;
    for (int64_t n = 0; n < samples; n++)
        for (int64_t e = 0; e < elements; e++) {
            int64_t whole = a->run ? e / a->run * a->stride + a->first + e % a->run : e;
            double factor = ref_mask_at(&mask, n, whole);
            y[n * elements + e] = factor == 0 ? 0 : (REAL)((double)x[n * elements + e] * factor);
        }
    return TRI_OK;
}

static tri_status TYPED(dropout_grad)(const ref_node *node, const tri_kernel_args *args) {
    return TYPED(dropout)(node, args);
}

static tri_status TYPED(gelu)(const ref_node *node, const tri_kernel_args *args) {
    const tri_gelu_attr *a = (const void *)node->attr;
    const REAL *x = args->in[0];
    REAL *y = args->out[0];
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++)
        y[i] = (REAL)((double)x[i] * gelu_share((double)x[i], a->tanh));
    return TRI_OK;
}

static tri_status TYPED(gelu_grad)(const ref_node *node, const tri_kernel_args *args) {
    const tri_gelu_attr *a = (const void *)node->attr;
    const REAL *x = args->in[0], *dy = args->in[1];
    REAL *dx = args->out[0];
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++)
        dx[i] = (REAL)((double)dy[i] * gelu_slope((double)x[i], a->tanh));
    return TRI_OK;
}

static tri_status TYPED(silu_mul)(const ref_node *node, const tri_kernel_args *args) {
    const REAL *gate = args->in[0], *up = args->in[1];
    REAL *y = args->out[0];
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++)
        y[i] = (REAL)((double)gate[i] / (1 + exp(-(double)gate[i])) * (double)up[i]);
    return TRI_OK;
}

static tri_status TYPED(silu_mul_grad)(const ref_node *node, const tri_kernel_args *args) {
    const REAL *gate = args->in[0], *up = args->in[1], *dy = args->in[2];
    REAL *dgate = args->out[0], *dup = args->out[1];
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++) {
        double g = (double)gate[i], d = (double)dy[i], s = 1 / (1 + exp(-g));
        dgate[i] = (REAL)(d * (double)up[i] * s * (1 + g * (1 - s)));
        dup[i] = (REAL)(d * g * s);
    }
    return TRI_OK;
}
