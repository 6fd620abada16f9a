// Joins tensors along an axis. The gradient copies the elements of one of these tensors out of the
// joined tensor's gradient.
#include "device/ref/node.h"

#include <string.h>

// The product of the sizes of axes `first` to `end` - 1.
static int64_t elements(const tri_shape *shape, int64_t first, int64_t end) {
    int64_t count = 1;
    for (int64_t i = first; i < end; i++) count *= shape->dims[i];
    return count;
}

// The elements may have any type.
static tri_status concat_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const ref_node *node = kernel->state;
    int64_t dim = ((const tri_concat_attr *)(const void *)node->attr)->dim, first = 0;
    int64_t bytes = (int64_t)tri_dtype_bytes(node->s.in_type[0]);
    const tri_shape *whole = &node->s.out[0];
    int64_t outer = elements(whole, 0, dim), row = elements(whole, dim, whole->rank) * bytes;
    for (int k = 0; k < node->s.input_count; k++) {
        if (!node->s.present[k]) continue;
        int64_t run = elements(&node->s.in[k], dim, whole->rank) * bytes;
        for (int64_t i = 0; i < outer; i++)
            memcpy((char *)args->out[0] + i * row + first, (const char *)args->in[k] + i * run,
                   (size_t)run);
        first += run;
    }
    return TRI_OK;
}

const tri_kernel_def ref_concat = {.op = &tri_op_concat,
                                   .name = "ref",
                                   .supports = ref_supports,
                                   .prepare = ref_prepare,
                                   .run = concat_run,
                                   .release = ref_release};

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

REF_KERNEL(concat_grad)
