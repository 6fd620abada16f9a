static tri_status TYPED(embedding)(const ref_node *node, const tri_kernel_args *args) {
    const int64_t *ids = args->in[0];
    const REAL *weight = args->in[1];
    REAL *y = args->out[0];
    int64_t rows = node->s.in[1].dims[0], width = node->s.in[1].dims[1];
    const tri_embedding_attr *a = (const void *)node->attr;
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++) {
        TRI_TRY(ref_check_token(ids[i], i, a->total ? a->total : rows));
        int64_t row = ids[i] - a->first;
        if (row >= 0 && row < rows)
            memcpy(y + i * width, weight + row * width, (size_t)width * sizeof *y);
        else
            memset(y + i * width, 0, (size_t)width * sizeof *y);
    }
    return TRI_OK;
}

// Column by column, so that one column of sums in double is enough.
static tri_status TYPED(embedding_grad_weight)(const ref_node *node, const tri_kernel_args *args) {
    const int64_t *ids = args->in[0];
    const REAL *dy = args->in[1];
    REAL *dweight = args->out[0];
    double *column = args->workspace;
    int64_t rows = node->s.out[0].dims[0], width = node->s.out[0].dims[1];
    int64_t count = ref_count(&node->s.in[0]);
    const tri_embedding_attr *a =
        &((const tri_embedding_grad_attr *)(const void *)node->attr)->rows;
    for (int64_t i = 0; i < count; i++)
        TRI_TRY(ref_check_token(ids[i], i, a->total ? a->total : rows));
    for (int64_t d = 0; d < width; d++) {
        for (int64_t r = 0; r < rows; r++) column[r] = 0;
        for (int64_t i = 0; i < count; i++) {
            int64_t row = ids[i] - a->first;
            if (row >= 0 && row < rows) column[row] += (double)dy[i * width + d];
        }
        for (int64_t r = 0; r < rows; r++) dweight[r * width + d] = (REAL)column[r];
    }
    return TRI_OK;
}

static tri_status TYPED(rotary)(const ref_node *node, const tri_kernel_args *args) {
    const tri_rotary_attr *a = (const void *)node->attr;
    const int64_t *xd = node->s.in[0].dims;
    int64_t heads = xd[2], half = xd[3] / 2;
    for (int64_t row = 0; row < xd[0] * xd[1] * heads; row++) {
        const REAL *x = (const REAL *)args->in[0] + row * 2 * half;
        REAL *y = (REAL *)args->out[0] + row * 2 * half;
        double position = (double)(a->first + row / heads % xd[1]);
        for (int64_t i = 0; i < half; i++) {
            double angle = position * pow(a->theta, -(double)i / (double)half);
            double c = cos(angle), s = a->inverse ? -sin(angle) : sin(angle);
            double low = (double)x[i], high = (double)x[i + half];
            y[i] = (REAL)(low * c - high * s);
            y[i + half] = (REAL)(high * c + low * s);
        }
    }
    return TRI_OK;
}
