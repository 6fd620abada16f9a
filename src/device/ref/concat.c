// Joins tensors along an axis. The gradient copies the elements of one of these tensors out of the
// joined tensor's gradient.
#include "device/ref/node.h"

// The product of the sizes of axes `first` to `end` - 1.
static int64_t elements(const tri_shape *shape, int64_t first, int64_t end) {
    int64_t count = 1;
    for (int64_t i = first; i < end; i++) count *= shape->dims[i];
    return count;
}

REF_BODY tri_status concat_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    int64_t dim = ((const tri_concat_attr *)(const void *)node->attr)->dim, first = 0;
    const tri_shape *whole = &node->s.out[0];
    int64_t outer = elements(whole, 0, dim), row = elements(whole, dim, whole->rank);
    ref_array y = ref_output(args, 0, f64);
    for (int k = 0; k < node->s.input_count; k++) {
        if (!node->s.present[k]) continue;
        ref_array x = ref_input(args, k, f64);
        int64_t run = elements(&node->s.in[k], dim, whole->rank);
        for (int64_t i = 0; i < outer * run; i++)
            put(y, i / run * row + first + i % run, get(x, i));
        first += run;
    }
    return TRI_OK;
}

REF_BODY tri_status concat_grad_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_concat_grad_attr *a = (const void *)node->attr;
    const tri_shape *whole = &node->s.in[0];
    int64_t inner = elements(whole, a->dim + 1, whole->rank), run = a->size * inner;
    int64_t row = elements(whole, a->dim, whole->rank);
    ref_array dy = ref_input(args, 0, f64), dx = ref_output(args, 0, f64);
    for (int64_t i = 0, count = ref_count(&node->s.out[0]); i < count; i++)
        put(dx, i, get(dy, i / run * row + a->first * inner + i % run));
    return TRI_OK;
}

REF_KERNEL(concat)
REF_KERNEL(concat_grad)
