#include "device/ref/node.h"

#include <math.h>

typedef struct attention_sizes {
    int64_t samples, queries, keys, heads, width;
    int64_t group; // heads of q that share one of k and v
} attention_sizes;

static attention_sizes attention_sizes_of(const ref_node *node) {
    const int64_t *q = node->s.in[0].dims, *k = node->s.in[1].dims;
    return (attention_sizes){q[0], q[1], k[1], q[2], q[3], q[2] / k[2]};
}

// Where the row of query t, or of key s, of a head begins.
static int64_t attention_query(const attention_sizes *z, int64_t n, int64_t t, int64_t head) {
    return ((n * z->queries + t) * z->heads + head) * z->width;
}

static int64_t attention_key(const attention_sizes *z, int64_t n, int64_t s, int64_t head) {
    return ((n * z->keys + s) * (z->heads / z->group) + head) * z->width;
}

// Keys that query t sees: the first so many.
static int64_t attention_seen(const tri_attention_attr *a, const attention_sizes *z, int64_t t) {
    return a->causal ? t + 1 + z->keys - z->queries : z->keys;
}

#include "device/ref/f32.h"

#include "device/ref/attention_body.h"

#include "device/ref/f64.h"

#include "device/ref/attention_body.h"

REF_SUMMING_KERNEL(attention, s->in[1].dims[1])
REF_SUMMING_KERNEL(attention_grad, 2 * s->in[0].dims[3])
