static double TYPED(seed)(const ref_node *node, const tri_kernel_args *args, int input) {
    return node->s.in_type[input] == TRI_F64 ? *(const double *)args->in[input]
                                             : (double)*(const float *)args->in[input];
}

// log(sum of exp(x)) of one row.
static double TYPED(log_sum)(const REAL *x, int64_t count) {
    double largest = (double)x[0], sum = 0;
    for (int64_t k = 1; k < count; k++)
        if ((double)x[k] > largest) largest = (double)x[k];
    for (int64_t k = 0; k < count; k++) sum += exp((double)x[k] - largest);
    return largest + log(sum);
}

static tri_status TYPED(log_softmax)(const ref_node *node, const tri_kernel_args *args) {
    const tri_shape *shape = &node->s.in[0];
    int64_t classes = ref_classes(shape), rows = ref_count(shape) / classes;
    const REAL *x = args->in[0];
    REAL *y = args->out[0];
    for (int64_t r = 0; r < rows; r++, x += classes, y += classes) {
        double norm = TYPED(log_sum)(x, classes);
        for (int64_t k = 0; k < classes; k++) y[k] = (REAL)((double)x[k] - norm);
    }
    return TRI_OK;
}

static tri_status TYPED(log_softmax_grad)(const ref_node *node, const tri_kernel_args *args) {
    const tri_shape *shape = &node->s.in[0];
    int64_t classes = ref_classes(shape), rows = ref_count(shape) / classes;
    const REAL *y = args->in[0], *dy = args->in[1];
    REAL *dx = args->out[0];
    for (int64_t r = 0; r < rows; r++, y += classes, dy += classes, dx += classes) {
        double sum = 0;
        for (int64_t k = 0; k < classes; k++) sum += (double)dy[k];
        for (int64_t k = 0; k < classes; k++)
            dx[k] = (REAL)((double)dy[k] - exp((double)y[k]) * sum);
    }
    return TRI_OK;
}

static tri_status TYPED(nll_loss)(const ref_node *node, const tri_kernel_args *args) {
    int64_t classes = ref_classes(&node->s.in[0]);
    int64_t rows = ref_count(&node->s.in[0]) / classes;
    const REAL *scores = args->in[0];
    const int64_t *labels = args->in[1];
    double *loss = args->out[0];
    loss[0] = loss[1] = 0;
    for (int64_t n = 0; n < rows; n++) {
        TRI_TRY(ref_check_label(labels[n], n, classes));
        if (labels[n] == TRI_IGNORED_LABEL) continue;
        loss[0] -= (double)scores[n * classes + labels[n]];
        loss[1] += 1;
    }
    return TRI_OK;
}

static tri_status TYPED(nll_loss_grad)(const ref_node *node, const tri_kernel_args *args) {
    int64_t classes = ref_classes(&node->s.out[0]);
    int64_t rows = ref_count(&node->s.out[0]) / classes;
    const int64_t *labels = args->in[0];
    double seed = TYPED(seed)(node, args, 1);
    REAL *dx = args->out[0];
    memset(dx, 0, (size_t)(rows * classes) * sizeof *dx);
    for (int64_t n = 0; n < rows; n++) {
        TRI_TRY(ref_check_label(labels[n], n, classes));
        if (labels[n] != TRI_IGNORED_LABEL) dx[n * classes + labels[n]] = (REAL)-seed;
    }
    return TRI_OK;
}

static tri_status TYPED(cross_entropy)(const ref_node *node, const tri_kernel_args *args) {
    int64_t classes = ref_classes(&node->s.in[0]);
    int64_t rows = ref_count(&node->s.in[0]) / classes;
    const REAL *logits = args->in[0];
    const int64_t *labels = args->in[1];
    double *loss = args->out[0];
    loss[0] = loss[1] = 0;
    for (int64_t n = 0; n < rows; n++) {
        TRI_TRY(ref_check_label(labels[n], n, classes));
        if (labels[n] == TRI_IGNORED_LABEL) continue;
        const REAL *row = logits + n * classes;
        loss[0] += TYPED(log_sum)(row, classes) - (double)row[labels[n]];
        loss[1] += 1;
    }
    return TRI_OK;
}

static tri_status TYPED(cross_entropy_grad)(const ref_node *node, const tri_kernel_args *args) {
    int64_t classes = ref_classes(&node->s.in[0]);
    int64_t rows = ref_count(&node->s.in[0]) / classes;
    const REAL *logits = args->in[0];
    const int64_t *labels = args->in[1];
    double seed = TYPED(seed)(node, args, 2);
    for (int64_t n = 0; n < rows; n++) {
        const REAL *row = logits + n * classes;
        REAL *dx = (REAL *)args->out[0] + n * classes;
        TRI_TRY(ref_check_label(labels[n], n, classes));
        if (labels[n] == TRI_IGNORED_LABEL) {
            memset(dx, 0, (size_t)classes * sizeof *dx);
            continue;
        }
        double norm = TYPED(log_sum)(row, classes);
        for (int64_t k = 0; k < classes; k++)
            dx[k] = (REAL)(seed * (exp((double)row[k] - norm) - (k == labels[n])));
    }
    return TRI_OK;
}

static tri_status TYPED(mse_loss)(const ref_node *node, const tri_kernel_args *args) {
    const REAL *prediction = args->in[0], *target = args->in[1];
    int64_t count = ref_count(&node->s.in[0]);
    double *loss = args->out[0], sum = 0;
    for (int64_t i = 0; i < count; i++) {
        double d = (double)prediction[i] - (double)target[i];
        sum += d * d;
    }
    loss[0] = sum;
    loss[1] = (double)count;
    return TRI_OK;
}

static tri_status TYPED(mse_loss_grad)(const ref_node *node, const tri_kernel_args *args) {
    const REAL *prediction = args->in[0], *target = args->in[1];
    double seed = TYPED(seed)(node, args, 2);
    REAL *dx = args->out[0];
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++)
        dx[i] = (REAL)(2 * seed * ((double)prediction[i] - (double)target[i]));
    return TRI_OK;
}

// Norms of prediction - target and of target.
static void TYPED(norms)(const REAL *prediction, const REAL *target, int64_t count, double out[2]) {
    out[0] = out[1] = 0;
    for (int64_t i = 0; i < count; i++) {
        double t = (double)target[i], d = (double)prediction[i] - t;
        out[0] += d * d;
        out[1] += t * t;
    }
    out[0] = sqrt(out[0]);
    out[1] = sqrt(out[1]);
}

static tri_status TYPED(relative_l2_loss)(const ref_node *node, const tri_kernel_args *args) {
    const REAL *prediction = args->in[0], *target = args->in[1];
    int64_t samples = node->s.in[0].dims[0];
    int64_t count = samples ? ref_count(&node->s.in[0]) / samples : 0;
    double *loss = args->out[0], norm[2];
    loss[0] = 0;
    loss[1] = (double)samples;
    for (int64_t n = 0; n < samples; n++) {
        TYPED(norms)(prediction + n * count, target + n * count, count, norm);
        loss[0] += norm[0] / norm[1];
    }
    return TRI_OK;
}

static tri_status TYPED(relative_l2_loss_grad)(const ref_node *node, const tri_kernel_args *args) {
    int64_t samples = node->s.in[0].dims[0];
    int64_t count = samples ? ref_count(&node->s.in[0]) / samples : 0;
    double seed = TYPED(seed)(node, args, 2), norm[2];
    for (int64_t n = 0; n < samples; n++) {
        const REAL *prediction = (const REAL *)args->in[0] + n * count;
        const REAL *target = (const REAL *)args->in[1] + n * count;
        REAL *dx = (REAL *)args->out[0] + n * count;
        TYPED(norms)(prediction, target, count, norm);
        double factor = norm[0] == 0 ? 0 : seed / (norm[0] * norm[1]);
        for (int64_t i = 0; i < count; i++)
            dx[i] = (REAL)(factor * ((double)prediction[i] - (double)target[i]));
    }
    return TRI_OK;
}

static tri_status TYPED(accuracy)(const ref_node *node, const tri_kernel_args *args) {
    int64_t classes = ref_classes(&node->s.in[0]);
    int64_t rows = ref_count(&node->s.in[0]) / classes;
    const REAL *scores = args->in[0];
    const int64_t *labels = args->in[1];
    double *hits = args->out[0];
    hits[0] = hits[1] = 0;
    for (int64_t n = 0; n < rows; n++) {
        int64_t best = 0;
        const REAL *row = scores + n * classes;
        TRI_TRY(ref_check_label(labels[n], n, classes));
        if (labels[n] == TRI_IGNORED_LABEL) continue;
        for (int64_t k = 1; k < classes; k++)
            if (row[k] > row[best]) best = k;
        hits[0] += best == labels[n];
        hits[1] += 1;
    }
    return TRI_OK;
}
