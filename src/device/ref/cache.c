// Caches, and attention to their tokens so far (ops/cache.c).
#include "device/ref/node.h"

#include "ops/span.h"

#include <math.h>
#include <string.h>

// Copies bytes, whatever the type.
static tri_status cache_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const ref_node *node = kernel->state;
    const int64_t *x = node->s.in[0].dims, length = node->s.out[0].dims[1];
    size_t row = tri_dtype_bytes(node->s.in_type[0]);
    for (int i = 2; i < node->s.in[0].rank; i++) row *= (size_t)x[i];
    for (int64_t n = 0; n < x[0]; n++) {
        tri_span span = tri_span_of(args->in[1], n, x[1], length);
        memcpy((char *)args->out[0] + (size_t)(n * length + span.first) * row,
               (const char *)args->in[0] + (size_t)(n * x[1]) * row, (size_t)span.count * row);
    }
    return TRI_OK;
}

const tri_kernel_def ref_cache = {.op = &tri_op_cache,
                                  .name = "ref",
                                  .prepare = ref_prepare,
                                  .run = cache_run,
                                  .release = ref_release};

// One query: q and y are its rows, k and v begin with the head's row of key `first`; the rows of
// keys are `step` apart.
REF_BODY void attend(ref_array q, ref_array k, ref_array v, ref_array y, double *p, double scale,
                     int64_t keys, int64_t step, int64_t width) {
    double largest = -INFINITY, sum = 0;
    for (int64_t s = 0; s < keys; s++) {
        p[s] = 0;
        for (int64_t d = 0; d < width; d++) p[s] += get(q, d) * get(k, s * step + d);
        p[s] *= scale;
        if (p[s] > largest) largest = p[s];
    }
    for (int64_t s = 0; s < keys; s++) sum += p[s] = exp(p[s] - largest);
    for (int64_t d = 0; d < width; d++) {
        double mean = 0;
        for (int64_t s = 0; s < keys; s++) mean += p[s] * get(v, s * step + d);
        put(y, d, mean / sum);
    }
}

REF_BODY tri_status cached_attention_body(const ref_node *node, const tri_kernel_args *args,
                                          bool f64) {
    const tri_cached_attention_attr *a = (const void *)node->attr;
    const int64_t *q = node->s.in[0].dims, *k = node->s.in[1].dims;
    int64_t tokens = q[1], heads = q[2], width = q[3], length = k[1], step = k[2] * width;
    for (int64_t row = 0; row < q[0] * tokens * heads; row++) {
        int64_t n = row / heads / tokens, t = row / heads % tokens;
        tri_span span = tri_span_of(args->in[3], n, tokens, length);
        ref_array y = ref_from(ref_output(args, 0, f64), row * width);
        for (int64_t d = 0; d < width && t >= span.count; d++) put(y, d, 0);
        if (t >= span.count) continue;
        int64_t first = tri_span_first_key(span.first + t, a->window);
        int64_t at = (n * length + first) * step + row % heads / (heads / k[2]) * width;
        attend(ref_from(ref_input(args, 0, f64), row * width),
               ref_from(ref_input(args, 1, f64), at), ref_from(ref_input(args, 2, f64), at), y,
               args->workspace, a->scale, span.first + t + 1 - first, step, width);
    }
    return TRI_OK;
}

REF_SUMMING_KERNEL(cached_attention, s->in[1].dims[1])
