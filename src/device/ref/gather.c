// Elements along an axis by their numbers: gather, and scatter, which puts them there.
#include "device/ref/node.h"

#include <string.h>

static bool is_later(const index_axis *a, const int64_t *index, int64_t o, int64_t k, int64_t i) {
    for (int64_t j = k + 1; j < a->count; j++)
        if (index[index_axis_at(a, o, j, i)] == index[index_axis_at(a, o, k, i)]) return true;
    return false;
}

static tri_status gather_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const ref_node *node = kernel->state;
    const tri_gather_attr *attr = (const void *)node->attr;
    index_axis a = ops_index_axis(attr->axis, &node->s.in[1], &node->s.in[0]);
    size_t bytes = tri_dtype_bytes(node->s.in_type[1]);
    const int64_t *index = args->in[0];
    const char *x = args->in[1];
    char *y = args->out[0];
    TRI_TRY(ref_check_indices(index, index_axis_indices(&a), a.cut.size));
    for (int64_t n = 0, count = ref_count(&node->s.out[0]); n < count; n++, y += bytes) {
        int64_t i = n % a.cut.inner, k = n / a.cut.inner % a.count, o = n / a.cut.inner / a.count;
        int64_t from = o * a.cut.size + index[index_axis_at(&a, o, k, i)];
        if (attr->last && is_later(&a, index, o, k, i))
            memset(y, 0, bytes);
        else
            memcpy(y, x + (size_t)(from * a.cut.inner + i) * bytes, bytes);
    }
    return TRI_OK;
}

const tri_kernel_def ref_gather = {.op = &tri_op_gather,
                                   .name = "ref",
                                   .supports = ref_supports,
                                   .prepare = ref_prepare,
                                   .run = gather_run,
                                   .release = ref_release};

REF_BODY tri_status scatter_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_scatter_attr *attr = (const void *)node->attr;
    index_axis a = ops_index_axis(attr->axis, &attr->shape, &node->s.in[0]);
    const int64_t *index = args->in[0];
    ref_array source = ref_input(args, 1, f64), base = ref_input(args, 2, f64);
    ref_array y = ref_output(args, 0, f64);
    double *sums = args->workspace;
    int64_t results = ref_count(&node->s.out[0]);
    TRI_TRY(ref_check_indices(index, index_axis_indices(&a), a.cut.size));
    for (int64_t n = 0; n < results; n++) sums[n] = base.at ? get(base, n) : 0;
    for (int64_t n = 0, count = ref_count(&node->s.in[1]); n < count; n++) {
        int64_t i = n % a.cut.inner, k = n / a.cut.inner % a.count, o = n / a.cut.inner / a.count;
        int64_t at = o * a.cut.size + index[index_axis_at(&a, o, k, i)];
        double value = get(source, n), *sum = &sums[at * a.cut.inner + i];
        if (attr->kind == TRI_SCATTER_SET) *sum = value;
        if (attr->kind == TRI_SCATTER_ADD) *sum += value;
        if (attr->kind == TRI_SCATTER_MAX && !(value <= *sum)) // NaN stays
            *sum = *sum != *sum ? *sum : value;
    }
    for (int64_t n = 0; n < results; n++) put(y, n, sums[n]);
    return TRI_OK;
}

REF_SUMMING_KERNEL(scatter, tri_shape_count(&s->out[0]))
