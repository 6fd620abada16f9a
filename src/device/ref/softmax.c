// Softmax and its logarithm over any axis. A column is what is summed over: the elements of the
// axis for one index of all others.
#include "device/ref/node.h"

#include <math.h>

typedef struct softmax_sizes {
    int64_t columns, count; // number of columns, and of elements in each
    int64_t inner;          // distance between the elements of a column
} softmax_sizes;

static softmax_sizes sizes_of(const ref_node *node) {
    const tri_softmax_attr *a = (const void *)node->attr;
    const tri_shape *x = &node->s.in[0];
    softmax_sizes z = {.count = x->dims[x->rank - 1 - a->behind], .inner = 1};
    for (int i = x->rank - (int)a->behind; i < x->rank; i++) z.inner *= x->dims[i];
    z.columns = ref_count(x) / z.count;
    return z;
}

// Where column c begins.
static int64_t column_at(const softmax_sizes *z, int64_t c) {
    return c / z->inner * z->inner * z->count + c % z->inner;
}

// How many elements of column c count.
static int64_t visible_of(const ref_node *node, const softmax_sizes *z, int64_t c) {
    const tri_softmax_attr *a = (const void *)node->attr;
    int64_t rows = a->causal ? node->s.in[0].dims[node->s.in[0].rank - 2] : 1;
    return a->causal ? c % rows + 1 + z->count - rows : z->count;
}

REF_BODY tri_status forward(const ref_node *node, const tri_kernel_args *args, bool f64,
                            bool is_log) {
    softmax_sizes z = sizes_of(node);
    for (int64_t c = 0; c < z.columns; c++) {
        ref_array x = ref_from(ref_input(args, 0, f64), column_at(&z, c));
        ref_array y = ref_from(ref_output(args, 0, f64), column_at(&z, c));
        double largest = get(x, 0), sum = 0;
        int64_t visible = visible_of(node, &z, c), empty = 0;
        for (int64_t k = 1; k < visible; k++)
            if (get(x, k * z.inner) > largest) largest = get(x, k * z.inner);
        for (int64_t k = 0; k < visible; k++) sum += exp(get(x, k * z.inner) - largest);
        for (int64_t k = 0; k < visible; k++) empty += get(x, k * z.inner) == -INFINITY;
        if (((const tri_softmax_attr *)(const void *)node->attr)->empty && empty == visible)
            visible = 0;
        for (int64_t k = visible; k < z.count; k++) put(y, k * z.inner, 0);
        for (int64_t k = 0; k < visible; k++) {
            double less = get(x, k * z.inner) - largest;
            put(y, k * z.inner, is_log ? less - log(sum) : exp(less) / sum);
        }
    }
    return TRI_OK;
}

REF_BODY tri_status gradient(const ref_node *node, const tri_kernel_args *args, bool f64,
                             bool is_log) {
    softmax_sizes z = sizes_of(node);
    for (int64_t c = 0; c < z.columns; c++) {
        ref_array y = ref_from(ref_input(args, 0, f64), column_at(&z, c));
        ref_array dy = ref_from(ref_input(args, 1, f64), column_at(&z, c));
        ref_array dx = ref_from(ref_output(args, 0, f64), column_at(&z, c));
        double sum = 0;
        for (int64_t k = 0; k < z.count; k++)
            sum += get(dy, k * z.inner) * (is_log ? 1 : get(y, k * z.inner));
        for (int64_t k = 0; k < z.count; k++) {
            double p = get(y, k * z.inner), d = get(dy, k * z.inner);
            put(dx, k * z.inner, is_log ? d - exp(p) * sum : p * (d - sum));
        }
    }
    return TRI_OK;
}

#define SOFTMAX(op_name, function, is_log)                                                         \
    REF_BODY tri_status op_name##_body(const ref_node *node, const tri_kernel_args *args,          \
                                       bool f64) {                                                 \
        return function(node, args, f64, is_log);                                                  \
    }                                                                                              \
    REF_KERNEL(op_name)
SOFTMAX(softmax, forward, false)
SOFTMAX(softmax_grad, gradient, false)
SOFTMAX(log_softmax, forward, true)
SOFTMAX(log_softmax_grad, gradient, true)
