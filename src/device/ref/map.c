// The general ops: formulas on elements (map), sums and extremes over axes (reduce).
#include "device/ref/node.h"

#include <math.h>

// Counts through the elements of a shape in row-major order, and keeps the index of the element of
// a tensor that was broadcast to this shape.
typedef struct walk {
    const tri_shape *shape;
    int64_t at[TRI_MAX_RANK], strides[TRI_MAX_RANK], index;
} walk;

static walk walk_over(const tri_shape *shape, const tri_shape *tensor) {
    walk w = {.shape = shape};
    int64_t stride = 1;
    for (int i = tensor->rank - 1; i >= 0; i--) {
        w.strides[shape->rank - tensor->rank + i] = tensor->dims[i] == 1 ? 0 : stride;
        stride *= tensor->dims[i];
    }
    return w;
}

static void walk_on(walk *w) {
    for (int i = w->shape->rank - 1; i >= 0; i--) {
        w->index += w->strides[i];
        if (++w->at[i] < w->shape->dims[i]) return;
        w->index -= w->strides[i] * w->at[i];
        w->at[i] = 0;
    }
}

REF_BODY tri_status map_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_formula *p = &((const tri_map_attr *)(const void *)node->attr)->formula;
    const tri_shape *shape = &node->s.out[0];
    double values[UINT8_MAX + 1];
    walk walks[TRI_FORMULA_INPUTS];
    for (int k = 0; k < p->input_count; k++) walks[k] = walk_over(shape, &node->s.in[k]);
    for (int k = 0; k < p->constant_count; k++) values[TRI_OPERAND_CONSTANT + k] = p->constants[k];
    for (int64_t i = 0, count = ref_count(shape); i < count; i++) {
        for (int k = 0; k < p->input_count; k++) {
            values[TRI_OPERAND_INPUT + k] = get(ref_input(args, k, f64), walks[k].index);
            walk_on(&walks[k]);
        }
        for (int t = 0; t < p->step_count; t++) {
            const tri_formula_step *s = &p->steps[t];
            values[t] =
                tri_step_value((tri_step_kind)s->kind, values[s->a], values[s->b], values[s->c]);
        }
        for (int k = 0; k < p->output_count; k++)
            put(ref_output(args, k, f64), i, values[p->outputs[k]]);
    }
    return TRI_OK;
}

REF_BODY tri_status reduce_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_reduce_attr *a = (const void *)node->attr;
    const tri_shape *in = &node->s.in[0], *out = &node->s.out[0];
    ref_array x = ref_input(args, 0, f64), y = ref_output(args, 0, f64);
    double *sums = args->workspace;
    walk to = walk_over(in, out);
    double start = a->kind == TRI_REDUCTION_MAX   ? -INFINITY
                   : a->kind == TRI_REDUCTION_MIN ? INFINITY
                                                  : 0;
    for (int64_t i = 0, count = ref_count(out); i < count; i++) sums[i] = start;
    for (int64_t i = 0, count = ref_count(in); i < count; i++) {
        double value = get(x, i), *sum = &sums[to.index];
        tri_step_kind kind = a->kind == TRI_REDUCTION_MAX   ? TRI_STEP_max
                             : a->kind == TRI_REDUCTION_MIN ? TRI_STEP_min
                                                            : TRI_STEP_add;
        *sum = tri_step_value(kind, *sum, value, 0);
        walk_on(&to);
    }
    for (int64_t i = 0, count = ref_count(out); i < count; i++) put(y, i, sums[i]);
    return TRI_OK;
}

REF_KERNEL(map)
REF_SUMMING_KERNEL(reduce, tri_shape_count(&s->out[0]))
