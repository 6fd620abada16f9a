static double TYPED(dot)(const REAL *a, const REAL *b, int64_t count) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static tri_status TYPED(attention)(const ref_node *node, const tri_kernel_args *args) {
    const tri_attention_attr *a = (const void *)node->attr;
    attention_sizes z = attention_sizes_of(node);
    const REAL *q = args->in[0], *k = args->in[1], *v = args->in[2];
    REAL *y = args->out[0], *log_sum_exp = args->out[1];
    double *p = args->workspace;
    for (int64_t n = 0; n < z.samples; n++)
        for (int64_t h = 0; h < z.heads; h++)
            for (int64_t t = 0; t < z.queries; t++) {
                int64_t seen = attention_seen(a, &z, t), at = attention_query(&z, n, t, h);
                double largest = -INFINITY, sum = 0;
                for (int64_t s = 0; s < seen; s++) {
                    p[s] = a->scale *
                           TYPED(dot)(q + at, k + attention_key(&z, n, s, h / z.group), z.width);
                    if (p[s] > largest) largest = p[s];
                }
                for (int64_t s = 0; s < seen; s++) sum += p[s] = exp(p[s] - largest);
                for (int64_t d = 0; d < z.width; d++) {
                    double mean = 0;
                    for (int64_t s = 0; s < seen; s++)
                        mean += p[s] * (double)v[attention_key(&z, n, s, h / z.group) + d];
                    y[at + d] = (REAL)(mean / sum);
                }
                log_sum_exp[(n * z.heads + h) * z.queries + t] = (REAL)(largest + log(sum));
            }
    return TRI_OK;
}

// p, the share of key s in query t, and ds, the gradient of their unscaled product.
static void TYPED(attention_pair)(const ref_node *node, const tri_kernel_args *args, int64_t n,
                                  int64_t h, int64_t t, int64_t s, double *p, double *ds) {
    const tri_attention_attr *a = (const void *)node->attr;
    attention_sizes z = attention_sizes_of(node);
    const REAL *q = args->in[0], *k = args->in[1], *v = args->in[2], *y = args->in[3];
    const REAL *dy = args->in[4], *log_sum_exp = args->in[5];
    int64_t at = attention_query(&z, n, t, h), key = attention_key(&z, n, s, h / z.group);
    *p = exp(a->scale * TYPED(dot)(q + at, k + key, z.width) -
             (double)log_sum_exp[(n * z.heads + h) * z.queries + t]);
    *ds = a->scale * *p *
          (TYPED(dot)(dy + at, v + key, z.width) - TYPED(dot)(dy + at, y + at, z.width));
}

static void TYPED(attention_dq)(const ref_node *node, const tri_kernel_args *args, int64_t n,
                                int64_t h, int64_t t) {
    attention_sizes z = attention_sizes_of(node);
    const REAL *k = args->in[1];
    REAL *dq = (REAL *)args->out[0] + attention_query(&z, n, t, h);
    double *row = args->workspace, p, ds;
    for (int64_t d = 0; d < z.width; d++) row[d] = 0;
    for (int64_t s = 0; s < attention_seen((const void *)node->attr, &z, t); s++) {
        TYPED(attention_pair)(node, args, n, h, t, s, &p, &ds);
        for (int64_t d = 0; d < z.width; d++)
            row[d] += ds * (double)k[attention_key(&z, n, s, h / z.group) + d];
    }
    for (int64_t d = 0; d < z.width; d++) dq[d] = (REAL)row[d];
}

static void TYPED(attention_dkv)(const ref_node *node, const tri_kernel_args *args, int64_t n,
                                 int64_t s, int64_t kv_head) {
    attention_sizes z = attention_sizes_of(node);
    const REAL *q = args->in[0], *dy = args->in[4];
    int64_t key = attention_key(&z, n, s, kv_head);
    REAL *dk = (REAL *)args->out[1] + key, *dv = (REAL *)args->out[2] + key;
    double *k_row = args->workspace, *v_row = k_row + z.width, p, ds;
    for (int64_t d = 0; d < 2 * z.width; d++) k_row[d] = 0;
    for (int64_t h = kv_head * z.group; h < (kv_head + 1) * z.group; h++)
        for (int64_t t = 0; t < z.queries; t++) {
            int64_t at = attention_query(&z, n, t, h);
            if (s >= attention_seen((const void *)node->attr, &z, t)) continue;
            TYPED(attention_pair)(node, args, n, h, t, s, &p, &ds);
            for (int64_t d = 0; d < z.width; d++) {
                k_row[d] += ds * (double)q[at + d];
                v_row[d] += p * (double)dy[at + d];
            }
        }
    for (int64_t d = 0; d < z.width; d++) {
        dk[d] = (REAL)k_row[d];
        dv[d] = (REAL)v_row[d];
    }
}

static tri_status TYPED(attention_grad)(const ref_node *node, const tri_kernel_args *args) {
    attention_sizes z = attention_sizes_of(node);
    for (int64_t n = 0; n < z.samples; n++) {
        for (int64_t h = 0; h < z.heads; h++)
            for (int64_t t = 0; t < z.queries; t++) TYPED(attention_dq)(node, args, n, h, t);
        for (int64_t s = 0; s < z.keys; s++)
            for (int64_t h = 0; h < z.heads / z.group; h++)
                TYPED(attention_dkv)(node, args, n, s, h);
    }
    return TRI_OK;
}
