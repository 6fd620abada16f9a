// Defines the ops of caches: values that live from call to call, to which each call appends its
// tokens, and attention to all tokens of a cache so far. They have no gradients, because programs
// that train have no caches.
#include "ops/rules.h"

static tri_status cache_shape(const void *attr, tri_op_signature *s) {
    const tri_cache_attr *a = attr;
    const tri_shape *x = &s->in[0];
    if (x->rank < 2)
        return TRI_FAIL(TRI_BAD_INPUT, "cache: x must be [N, T, ..], but has %d axes", x->rank);
    TRI_TRY(ops_want_spans("cache", s, 1));
    if (a->length < 1 || x->dims[1] > a->length)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "cache: a sequence has at most %" PRId64 " tokens, but x has %" PRId64,
                        a->length, x->dims[1]);
    ops_like_first(s);
    s->out[0].dims[1] = a->length;
    return TRI_OK;
}

static tri_cost cache_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 1);
}

// The tokens of a sequence stay together.
static bool cache_slice(int input, int dim, const tri_op_signature *full, void *attr,
                        tri_op_slices *slices) {
    return dim != 1;
}

static const tri_attr_field cache_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_cache_attr, length),
    {0},
};

const tri_op tri_op_cache = {
    .name = "cache",
    .doc = "x [N, T, ..], spans [N, 2] -> y [N, length, ..], which lives from call to call: for t "
           "below span[1], y[n, span[0] + t] = x[n, t]; all else stays",
    .input_count = 2,
    .output_count = 1,
    .flags = TRI_OP_KEPT,
    .precision = TRI_PRECISION_CARRY,
    .streams = 1,
    .axes = TRI_AXES_MIDDLE | TRI_AXES_LAST,
    .slice = cache_slice,
    .attr_bytes = sizeof(tri_cache_attr),
    .attr_fields = cache_fields,
    .shape = cache_shape,
    .cost = cache_cost,
};

static tri_status cached_attention_shape(const void *attr, tri_op_signature *s) {
    const char *op = "cached_attention";
    const tri_cached_attention_attr *a = attr;
    const int64_t *q = s->in[0].dims, *k = s->in[1].dims;
    TRI_TRY(ops_want_one_type(op, s, 0, 3));
    TRI_TRY(ops_want_rank(op, "q [N, T, H, D]", &s->in[0], 4));
    TRI_TRY(ops_want_rank(op, "k [N, L, K, D]", &s->in[1], 4));
    TRI_TRY(ops_want_shape(op, "k", &s->in[1], tri_shape_of(q[0], k[1], k[2], q[3])));
    TRI_TRY(ops_want_shape(op, "v", &s->in[2], s->in[1]));
    TRI_TRY(ops_want_spans(op, s, 3));
    if (k[2] < 1 || q[2] % k[2])
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: the %" PRId64 " heads of q must be a multiple of the %" PRId64
                        " of k and v",
                        op, q[2], k[2]);
    if (a->window < 0)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: the window must be at least 0, not %" PRId64, op,
                        a->window);
    ops_like_first(s);
    return TRI_OK;
}

// As if the caches were full, which is the most.
static tri_cost cached_attention_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 4 * (double)s->in[1].dims[1]);
}

static const tri_attr_field cached_attention_fields[] = {
    OPS_FIELD(TRI_ATTR_FLOAT, tri_cached_attention_attr, scale),
    OPS_FIELD(TRI_ATTR_INT, tri_cached_attention_attr, window),
    {0},
};

const tri_op tri_op_cached_attention = {
    .name = "cached_attention",
    .doc = "q [N, T, H, D], k, v [N, L, K, D] of caches, spans [N, 2] -> y [N, T, H, D]: y = "
           "softmax(scale * q * transposed k) * v, head h of q with head h / (H / K) of k and v; "
           "query t, at position p = span[0] + t, sees keys 0 to p, or the last `window` of them; "
           "y is 0 for t from span[1] on",
    .input_count = 4,
    .output_count = 1,
    .precision = TRI_PRECISION_HALF,
    .streams = 3,
    .attr_bytes = sizeof(tri_cached_attention_attr),
    .attr_fields = cached_attention_fields,
    .shape = cached_attention_shape,
    .cost = cached_attention_cost,
};
