static tri_status TYPED(sgd)(const ref_node *node, const tri_kernel_args *args) {
    const tri_sgd_attr *a = (const void *)node->attr;
    REAL *param = args->in[0], *buffer = args->in[3];
    const REAL *grad = args->in[1];
    const double *step = args->in[2];
    if (step[TRI_STEP_SKIP] != 0) return TRI_OK;
    bool first = step[TRI_STEP_UPDATE] <= 1;
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++) {
        double g = (double)grad[i] * step[TRI_STEP_GRADIENT_SCALE];
        g += a->weight_decay * (double)param[i];
        if (buffer) {
            double b = first ? g : a->momentum * (double)buffer[i] + (1 - a->dampening) * g;
            buffer[i] = (REAL)b;
            g = a->nesterov ? g + a->momentum * b : b;
        }
        param[i] = (REAL)((double)param[i] - step[TRI_STEP_LR] * g);
    }
    return TRI_OK;
}

static tri_status TYPED(adam)(const ref_node *node, const tri_kernel_args *args) {
    const tri_adam_attr *a = (const void *)node->attr;
    REAL *param = args->in[0], *exp_avg = args->in[3], *exp_avg_sq = args->in[4];
    const REAL *grad = args->in[1];
    const double *step = args->in[2];
    if (step[TRI_STEP_SKIP] != 0) return TRI_OK;
    double lr = step[TRI_STEP_LR];
    double correction1 = 1 - pow(a->beta1, step[TRI_STEP_UPDATE]);
    double correction2 = sqrt(1 - pow(a->beta2, step[TRI_STEP_UPDATE]));
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++) {
        double g = (double)grad[i] * step[TRI_STEP_GRADIENT_SCALE], p = (double)param[i];
        if (a->decoupled)
            p *= 1 - lr * a->weight_decay;
        else
            g += a->weight_decay * p;
        double m = a->beta1 * (double)exp_avg[i] + (1 - a->beta1) * g;
        double v = a->beta2 * (double)exp_avg_sq[i] + (1 - a->beta2) * g * g;
        exp_avg[i] = (REAL)m;
        exp_avg_sq[i] = (REAL)v;
        param[i] = (REAL)(p - lr / correction1 * m / (sqrt(v) / correction2 + a->eps));
    }
    return TRI_OK;
}

static tri_status TYPED(adadelta)(const ref_node *node, const tri_kernel_args *args) {
    const tri_adadelta_attr *a = (const void *)node->attr;
    REAL *param = args->in[0], *square_avg = args->in[3], *acc_delta = args->in[4];
    const REAL *grad = args->in[1];
    const double *step = args->in[2];
    if (step[TRI_STEP_SKIP] != 0) return TRI_OK;
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++) {
        double g = (double)grad[i] * step[TRI_STEP_GRADIENT_SCALE];
        g += a->weight_decay * (double)param[i];
        double square = a->rho * (double)square_avg[i] + (1 - a->rho) * g * g;
        double delta = sqrt((double)acc_delta[i] + a->eps) / sqrt(square + a->eps) * g;
        square_avg[i] = (REAL)square;
        acc_delta[i] = (REAL)(a->rho * (double)acc_delta[i] + (1 - a->rho) * delta * delta);
        param[i] = (REAL)((double)param[i] - step[TRI_STEP_LR] * delta);
    }
    return TRI_OK;
}

static tri_status TYPED(moving_average)(const ref_node *node, const tri_kernel_args *args) {
    const tri_moving_average_attr *a = (const void *)node->attr;
    REAL *statistic = args->in[0];
    const REAL *grad = args->in[1];
    const double *step = args->in[2];
    if (step[TRI_STEP_SKIP] != 0) return TRI_OK;
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++)
        statistic[i] = (REAL)((1 - a->momentum) * (double)statistic[i] +
                              a->momentum * (double)grad[i] * step[TRI_STEP_STATISTIC_SCALE]);
    return TRI_OK;
}
