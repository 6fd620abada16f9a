// Multi-head attention and its gradient. k and v may have fewer heads than q (grouped-query
// attention). Tensors are [sample][query or key][head][width].
#include "device/ref/node.h"

#include <math.h>

typedef struct attention_sizes {
    int64_t samples, queries, keys, heads, width;
    int64_t group; // how many heads of q read the same head of k and v
} attention_sizes;

static attention_sizes attention_sizes_of(const ref_node *node) {
    const int64_t *q = node->s.in[0].dims, *k = node->s.in[1].dims;
    return (attention_sizes){q[0], q[1], k[1], q[2], q[3], q[2] / k[2]};
}

// attention_query: the index in a tensor of q's shape (q, y and their gradients) of the first
// element of query t of head `head` in sample n. attention_key: the same for key s, in a tensor of
// k's shape (k, v and their gradients); `head` is then a head of k.
static int64_t attention_query(const attention_sizes *z, int64_t n, int64_t t, int64_t head) {
    return ((n * z->queries + t) * z->heads + head) * z->width;
}

static int64_t attention_key(const attention_sizes *z, int64_t n, int64_t s, int64_t head) {
    return ((n * z->keys + s) * (z->heads / z->group) + head) * z->width;
}

// How many keys query t attends to: all or, under a causal mask, those that are not later than the
// query, where the last query and the last key stand at the same position.
static int64_t attention_visible_keys(const tri_attention_attr *a, const attention_sizes *z,
                                      int64_t t) {
    return a->causal ? t + 1 + z->keys - z->queries : z->keys;
}

REF_BODY double dot(ref_array a, ref_array b, int64_t count) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) sum += get(a, i) * get(b, i);
    return sum;
}

REF_BODY tri_status attention_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_attention_attr *a = (const void *)node->attr;
    attention_sizes z = attention_sizes_of(node);
    ref_array q = ref_input(args, 0, f64), k = ref_input(args, 1, f64), v = ref_input(args, 2, f64);
    ref_array y = ref_output(args, 0, f64), log_sum_exp = ref_output(args, 1, f64);
    double *p = args->workspace;
    for (int64_t n = 0; n < z.samples; n++)
        for (int64_t h = 0; h < z.heads; h++)
            for (int64_t t = 0; t < z.queries; t++) {
                int64_t visible = attention_visible_keys(a, &z, t),
                        at = attention_query(&z, n, t, h);
                double largest = -INFINITY, sum = 0;
                for (int64_t s = 0; s < visible; s++) {
                    p[s] =
                        a->scale * dot(ref_from(q, at),
                                       ref_from(k, attention_key(&z, n, s, h / z.group)), z.width);
                    if (p[s] > largest) largest = p[s];
                }
                for (int64_t s = 0; s < visible; s++) sum += p[s] = exp(p[s] - largest);
                for (int64_t d = 0; d < z.width; d++) {
                    double mean = 0;
                    for (int64_t s = 0; s < visible; s++)
                        mean += p[s] * get(v, attention_key(&z, n, s, h / z.group) + d);
                    put(y, at + d, mean / sum);
                }
                put(log_sum_exp, (n * z.heads + h) * z.queries + t, largest + log(sum));
            }
    return TRI_OK;
}

// Computes two numbers for query t and key s: p, the probability with which t attends to s, and ds,
// the gradient of the loss with respect to q·k. From these follow the gradients: dq is the sum of
// ds · k over the keys; dk is the sum of ds · q over the queries, and dv that of p · dy.
REF_BODY void attention_pair(const ref_node *node, const tri_kernel_args *args, bool f64, int64_t n,
                             int64_t h, int64_t t, int64_t s, double *p, double *ds) {
    const tri_attention_attr *a = (const void *)node->attr;
    attention_sizes z = attention_sizes_of(node);
    ref_array q = ref_input(args, 0, f64), k = ref_input(args, 1, f64), v = ref_input(args, 2, f64),
              y = ref_input(args, 3, f64);
    ref_array dy = ref_input(args, 4, f64), log_sum_exp = ref_input(args, 5, f64);
    int64_t at = attention_query(&z, n, t, h), key = attention_key(&z, n, s, h / z.group);
    *p = exp(a->scale * dot(ref_from(q, at), ref_from(k, key), z.width) -
             get(log_sum_exp, (n * z.heads + h) * z.queries + t));
    *ds = a->scale * *p *
          (dot(ref_from(dy, at), ref_from(v, key), z.width) -
           dot(ref_from(dy, at), ref_from(y, at), z.width));
}

REF_BODY void attention_dq(const ref_node *node, const tri_kernel_args *args, bool f64, int64_t n,
                           int64_t h, int64_t t) {
    attention_sizes z = attention_sizes_of(node);
    ref_array k = ref_input(args, 1, f64);
    ref_array dq = ref_from(ref_output(args, 0, f64), attention_query(&z, n, t, h));
    double *row = args->workspace, p, ds;
    for (int64_t d = 0; d < z.width; d++) row[d] = 0;
    for (int64_t s = 0; s < attention_visible_keys((const void *)node->attr, &z, t); s++) {
        attention_pair(node, args, f64, n, h, t, s, &p, &ds);
        for (int64_t d = 0; d < z.width; d++)
            row[d] += ds * get(k, attention_key(&z, n, s, h / z.group) + d);
    }
    for (int64_t d = 0; d < z.width; d++) put(dq, d, row[d]);
}

REF_BODY void attention_dkv(const ref_node *node, const tri_kernel_args *args, bool f64, int64_t n,
                            int64_t s, int64_t kv_head) {
    attention_sizes z = attention_sizes_of(node);
    ref_array q = ref_input(args, 0, f64), dy = ref_input(args, 4, f64);
    int64_t key = attention_key(&z, n, s, kv_head);
    ref_array dk = ref_from(ref_output(args, 1, f64), key),
              dv = ref_from(ref_output(args, 2, f64), key);
    double *k_row = args->workspace, *v_row = k_row + z.width, p, ds;
    for (int64_t d = 0; d < 2 * z.width; d++) k_row[d] = 0;
    for (int64_t h = kv_head * z.group; h < (kv_head + 1) * z.group; h++)
        for (int64_t t = 0; t < z.queries; t++) {
            int64_t at = attention_query(&z, n, t, h);
            if (s >= attention_visible_keys((const void *)node->attr, &z, t)) continue;
            attention_pair(node, args, f64, n, h, t, s, &p, &ds);
            for (int64_t d = 0; d < z.width; d++) {
                k_row[d] += ds * get(q, at + d);
                v_row[d] += p * get(dy, at + d);
            }
        }
    for (int64_t d = 0; d < z.width; d++) {
        put(dk, d, k_row[d]);
        put(dv, d, v_row[d]);
    }
}

REF_BODY tri_status attention_grad_body(const ref_node *node, const tri_kernel_args *args,
                                        bool f64) {
    attention_sizes z = attention_sizes_of(node);
    for (int64_t n = 0; n < z.samples; n++) {
        for (int64_t h = 0; h < z.heads; h++)
            for (int64_t t = 0; t < z.queries; t++) attention_dq(node, args, f64, n, h, t);
        for (int64_t s = 0; s < z.keys; s++)
            for (int64_t h = 0; h < z.heads / z.group; h++) attention_dkv(node, args, f64, n, s, h);
    }
    return TRI_OK;
}

REF_SUMMING_KERNEL(attention, s->in[1].dims[1])
REF_SUMMING_KERNEL(attention_grad, 2 * s->in[0].dims[3])
