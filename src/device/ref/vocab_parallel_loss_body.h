static tri_status TYPED(row_max)(const ref_node *node, const tri_kernel_args *args) {
    int64_t width = ref_classes(&node->s.in[0]), rows = ref_count(&node->s.out[0]);
    REAL *y = args->out[0];
    for (int64_t r = 0; r < rows; r++) {
        const REAL *x = (const REAL *)args->in[0] + r * width;
        y[r] = x[0];
        for (int64_t k = 1; k < width; k++)
            if (x[k] > y[r]) y[r] = x[k];
    }
    return TRI_OK;
}

static tri_status TYPED(vocab_parallel_softmax)(const ref_node *node, const tri_kernel_args *args) {
    const tri_classes_attr *a = (const void *)node->attr;
    int64_t width = ref_classes(&node->s.in[0]), rows = ref_count(&node->s.in[1]);
    const int64_t *labels = args->in[1];
    const REAL *max = args->in[2];
    REAL *sums = args->out[0];
    for (int64_t r = 0; r < rows; r++) {
        const REAL *x = (const REAL *)args->in[0] + r * width;
        double sum = 0;
        TRI_TRY(ref_check_label(labels[r], r, a->classes));
        for (int64_t k = 0; k < width; k++) sum += exp((double)x[k] - (double)max[r]);
        int64_t at = labels[r] - a->first;
        sums[2 * r] = (REAL)sum;
        sums[2 * r + 1] = at >= 0 && at < width ? (REAL)((double)x[at] - (double)max[r]) : 0;
    }
    return TRI_OK;
}

static tri_status TYPED(vocab_parallel_cross_entropy)(const ref_node *node,
                                                      const tri_kernel_args *args) {
    int64_t rows = ref_count(&node->s.in[1]);
    const int64_t *labels = args->in[1];
    const REAL *sums = args->in[3];
    double *loss = args->out[0];
    loss[0] = loss[1] = 0;
    for (int64_t r = 0; r < rows; r++) {
        if (labels[r] == TRI_IGNORED_LABEL) continue;
        loss[0] += log((double)sums[2 * r]) - (double)sums[2 * r + 1];
        loss[1] += 1;
    }
    return TRI_OK;
}

static tri_status TYPED(vocab_parallel_cross_entropy_grad)(const ref_node *node,
                                                           const tri_kernel_args *args) {
    const tri_classes_attr *a = (const void *)node->attr;
    int64_t width = ref_classes(&node->s.in[0]), rows = ref_count(&node->s.in[1]);
    const int64_t *labels = args->in[1];
    const REAL *max = args->in[2], *sums = args->in[3];
    double seed = TYPED(seed)(node, args, 4);
    for (int64_t r = 0; r < rows; r++) {
        const REAL *x = (const REAL *)args->in[0] + r * width;
        REAL *dx = (REAL *)args->out[0] + r * width;
        double factor = labels[r] == TRI_IGNORED_LABEL ? 0 : seed;
        for (int64_t k = 0; k < width; k++) {
            double p = exp((double)x[k] - (double)max[r]) / (double)sums[2 * r];
            dx[k] = factor == 0 ? 0 : (REAL)(factor * (p - (k == labels[r] - a->first)));
        }
    }
    return TRI_OK;
}

static tri_status TYPED(vocab_parallel_argmax)(const ref_node *node, const tri_kernel_args *args) {
    const tri_classes_attr *a = (const void *)node->attr;
    int64_t width = ref_classes(&node->s.in[0]), rows = ref_count(&node->s.out[0]);
    const REAL *max = args->in[1];
    REAL *y = args->out[0];
    for (int64_t r = 0; r < rows; r++) {
        const REAL *x = (const REAL *)args->in[0] + r * width;
        int64_t k = 0;
        while (k < width && x[k] != max[r]) k++;
        y[r] = -(REAL)(k < width ? a->first + k : a->classes);
    }
    return TRI_OK;
}

static tri_status TYPED(vocab_parallel_accuracy)(const ref_node *node,
                                                 const tri_kernel_args *args) {
    const tri_classes_attr *a = (const void *)node->attr;
    const REAL *best = args->in[0];
    const int64_t *labels = args->in[1];
    double *hits = args->out[0];
    hits[0] = hits[1] = 0;
    for (int64_t r = 0, rows = ref_count(&node->s.in[1]); r < rows; r++) {
        TRI_TRY(ref_check_label(labels[r], r, a->classes));
        if (labels[r] == TRI_IGNORED_LABEL) continue;
        hits[0] += -(double)best[r] == (double)labels[r];
        hits[1] += 1;
    }
    return TRI_OK;
}
