// The general ops: formulas on elements (map), sums and extremes over axes (reduce).
#include "ops/formula_integer.h"

#include "device/reduce_pair.h"
#include "device/ref/node.h"
#include "tensor/half.h"

#include <math.h>

// Counts through the elements of the output in row-major order, and finds the element of an input
// that is read there.
typedef struct walk {
    const tri_shape *out, *in;
    tri_map_view view;
    int64_t at[TRI_MAX_RANK];
} walk;

static void walk_on(walk *w) {
    for (int i = w->out->rank - 1; i >= 0; i--) {
        if (++w->at[i] < w->out->dims[i]) return;
        w->at[i] = 0;
    }
}

// The index of the input's element; -1: it lies outside, where the input is 0.
static int64_t walk_index(const walk *w) {
    int64_t index = 0;
    for (int j = 0; j < w->in->rank; j++) {
        int axis = w->view.axis[j];
        int64_t along = w->view.start[j] + (axis < 0 ? 0 : w->view.sign[j] * w->at[axis]);
        if (along < 0 || along >= w->in->dims[j]) return -1;
        index = index * w->in->dims[j] + along;
    }
    return index;
}

static walk walk_of(const tri_map_attr *a, int k, const tri_shape *in, const tri_shape *out) {
    return (walk){.out = out, .in = in, .view = tri_map_view_of(a, k, in, out)};
}

static void make_walks(const ref_node *node, const tri_shape *out, walk *walks) {
    const tri_map_attr *a = (const void *)node->attr;
    for (int k = 0; k < a->formula.input_count; k++)
        walks[k] = walk_of(a, k, tri_map_read_shape(a, k, &node->s.in[k]), out);
}

static void put_integer(const ref_node *node, const tri_kernel_args *args, int k, int64_t i,
                        int64_t value) {
    bool is_mask = ((const tri_map_attr *)(const void *)node->attr)->mask;
    ref_put_integer(node->s.out_type[k], args->out[k], i, is_mask ? value != 0 : value);
}

static tri_status map_integers(const ref_node *node, const tri_kernel_args *args) {
    const tri_formula *p = &((const tri_map_attr *)(const void *)node->attr)->formula;
    int64_t values[UINT8_MAX + 1];
    walk walks[TRI_FORMULA_INPUTS];
    make_walks(node, &node->s.out[0], walks);
    for (int k = 0; k < p->constant_count; k++)
        values[TRI_OPERAND_CONSTANT + k] = (int64_t)p->constants[k];
    for (int64_t i = 0, count = ref_count(&node->s.out[0]); i < count; i++) {
        for (int k = 0; k < p->input_count; k++) {
            int64_t index = walk_index(&walks[k]);
            values[TRI_OPERAND_INPUT + k] =
                index < 0 ? 0 : ref_get_integer(node->s.in_type[k], args->in[k], index);
            walk_on(&walks[k]);
        }
        for (int t = 0; t < p->step_count; t++) {
            const tri_formula_step *s = &p->steps[t];
            values[t] = formula_integer_step(s->kind, values[s->a], values[s->b], values[s->c]);
        }
        for (int k = 0; k < p->output_count; k++)
            put_integer(node, args, k, i, values[p->outputs[k]]);
    }
    return TRI_OK;
}

// Reads a mask as numbers too, and draws random ones.
REF_BODY double get_number(const ref_node *node, const tri_kernel_args *args, int k, int64_t i,
                           bool f64) {
    const tri_map_attr *a = (const void *)node->attr;
    if (a->drawn >> k & 1) {
        tri_draw_stream draws = tri_map_stream_of(&a->draws[k]);
        return tri_draw_at(&draws, args->in[k], i);
    }
    if (node->s.in_type[k] == TRI_U8) return ((const uint8_t *)args->in[k])[i];
    return get(ref_input(args, k, f64), i);
}

// Computes the formula at the next element of the walks. values: by operand.
REF_BODY void next_values(const ref_node *node, const tri_formula *p, walk *walks,
                          const tri_kernel_args *args, bool f64, double *values) {
    for (int k = 0; k < p->input_count; k++) {
        int64_t index = walk_index(&walks[k]);
        values[TRI_OPERAND_INPUT + k] = index < 0 ? 0 : get_number(node, args, k, index, f64);
        walk_on(&walks[k]);
    }
    for (int t = 0; t < p->step_count; t++) {
        const tri_formula_step *s = &p->steps[t];
        values[t] =
            tri_step_value((tri_step_kind)s->kind, values[s->a], values[s->b], values[s->c]);
    }
}

REF_BODY tri_status map_floats(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_map_attr *a = (const void *)node->attr;
    const tri_formula *p = &a->formula;
    const tri_shape *shape = &node->s.out[0];
    double values[UINT8_MAX + 1];
    walk walks[TRI_FORMULA_INPUTS];
    make_walks(node, shape, walks);
    for (int k = 0; k < p->constant_count; k++) values[TRI_OPERAND_CONSTANT + k] = p->constants[k];
    for (int64_t i = 0, count = ref_count(shape); i < count; i++) {
        next_values(node, p, walks, args, f64, values);
        for (int k = 0; k < p->output_count; k++)
            if (a->mask)
                ((uint8_t *)args->out[k])[i] = values[p->outputs[k]] != 0;
            else
                put(ref_output(args, k, f64), i, values[p->outputs[k]]);
    }
    return TRI_OK;
}

static tri_status map_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const ref_node *node = kernel->state;
    tri_dtype type = tri_map_type((const void *)node->attr, &node->s);
    if (!tri_dtype_is_float(type)) return map_integers(node, args);
    return type == TRI_F64 ? map_floats(node, args, true) : map_floats(node, args, false);
}

const tri_kernel_def ref_map = {.op = &tri_op_map,
                                .name = "ref",
                                .supports = ref_supports,
                                .prepare = ref_prepare,
                                .run = map_run,
                                .release = ref_release};

static const struct {
    tri_step_kind step;
    double start;
    int64_t integer_start;
} reductions[] = {[TRI_REDUCTION_SUM] = {TRI_STEP_add, 0, 0},
                  [TRI_REDUCTION_MAX] = {TRI_STEP_max, -INFINITY, INT64_MIN},
                  [TRI_REDUCTION_MIN] = {TRI_STEP_min, INFINITY, INT64_MAX},
                  [TRI_REDUCTION_PROD] = {TRI_STEP_mul, 1, 1}};

// Goes through the elements of an array of shape `in`, and finds the element of the result to which
// each belongs.
static walk walk_back(const ref_node *node, const tri_shape *in) {
    static const tri_map_attr broadcast = {.viewed = 0};
    const tri_shape *out = &node->s.out[0];
    return walk_of(&broadcast, 0, out, in);
}

static tri_status reduce_integers(const ref_node *node, const tri_kernel_args *args) {
    int64_t kind = ((const tri_reduce_attr *)(const void *)node->attr)->kind;
    int64_t *sums = args->workspace;
    walk to = walk_back(node, &node->s.in[0]);
    for (int64_t i = 0, count = ref_count(&node->s.out[0]); i < count; i++)
        sums[i] = reductions[kind].integer_start;
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++) {
        int64_t value = ref_get_integer(node->s.in_type[0], args->in[0], i);
        int64_t *sum = &sums[walk_index(&to)];
        *sum = formula_integer_step(reductions[kind].step, *sum, value, 0);
        walk_on(&to);
    }
    for (int64_t i = 0, count = ref_count(&node->s.out[0]); i < count; i++)
        ref_put_integer(node->s.out_type[0], args->out[0], i, sums[i]);
    return TRI_OK;
}

// Reduces an array of shape `in`: the input, or what `map` makes of the inputs (NULL: none).
REF_BODY tri_status reduce_array(const ref_node *node, const tri_kernel_args *args,
                                 const tri_reduce_attr *a, const tri_map_attr *map,
                                 const tri_shape *in, bool f64) {
    const tri_shape *out = &node->s.out[0];
    ref_array x = ref_input(args, 0, f64), y = ref_output(args, 0, f64);
    double *sums = args->workspace, values[UINT8_MAX + 1];
    walk walks[TRI_FORMULA_INPUTS], to = walk_back(node, in);
    if (map) make_walks(node, in, walks);
    for (int k = 0; map && k < map->formula.constant_count; k++)
        values[TRI_OPERAND_CONSTANT + k] = map->formula.constants[k];
    for (int64_t i = 0, count = ref_count(out); i < count; i++) sums[i] = reductions[a->kind].start;
    for (int64_t i = 0, count = ref_count(in); i < count; i++) {
        if (map) next_values(node, &map->formula, walks, args, f64, values);
        double value = map ? values[map->formula.outputs[0]] : get(x, i);
        double *sum = &sums[walk_index(&to)];
        *sum = tri_step_value(reductions[a->kind].step, *sum, value, 0);
        walk_on(&to);
    }
    for (int64_t i = 0, count = ref_count(out); i < count; i++) put(y, i, sums[i]);
    return TRI_OK;
}

// Reductions whose state are two numbers, of which the second is computed from the first.
REF_BODY void reduce_pairs(const ref_node *node, const tri_kernel_args *args, bool squares,
                           bool f64) {
    int64_t count = ref_count(&node->s.in[0]), results = ref_count(&node->s.out[0]);
    double *firsts = args->workspace, *sums = firsts + results;
    double terms = results ? (double)count / (double)results : 0;
    ref_array x = ref_input(args, 0, f64), y = ref_output(args, 0, f64);
    walk to = walk_back(node, &node->s.in[0]);
    for (int64_t i = 0; i < results; i++) firsts[i] = squares ? 0 : -INFINITY, sums[i] = 0;
    for (int64_t i = 0; i < count; i++, walk_on(&to)) {
        double *first = &firsts[walk_index(&to)];
        *first = squares ? *first + get(x, i) / terms
                         : tri_step_value(TRI_STEP_max, *first, get(x, i), 0);
    }
    to = walk_back(node, &node->s.in[0]);
    for (int64_t i = 0; i < count; i++, walk_on(&to)) {
        int64_t k = walk_index(&to);
        double from = get(x, i) - (squares ? firsts[k] : tri_pair_shift(firsts[k]));
        sums[k] += squares ? from * from : exp(from);
    }
    for (int64_t i = 0; i < results; i++)
        put(y, i, tri_pair_result(squares, (tri_reduce_pair){firsts[i], sums[i]}));
}

REF_BODY tri_status reduce_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    int64_t kind = ((const tri_reduce_attr *)(const void *)node->attr)->kind;
    if (!tri_dtype_is_float(node->s.in_type[0])) return reduce_integers(node, args);
    if (kind > TRI_REDUCTION_PROD) {
        reduce_pairs(node, args, kind == TRI_REDUCTION_SQUARES, f64);
        return TRI_OK;
    }
    return reduce_array(node, args, (const void *)node->attr, NULL, &node->s.in[0], f64);
}

REF_BODY tri_status map_reduce_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_map_reduce_attr *a = (const void *)node->attr;
    return reduce_array(node, args, &a->reduce, &a->map, &a->map.shape, f64);
}

REF_BODY tri_status mean_loss_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    ref_array x = ref_input(args, 0, f64);
    int64_t count = ref_count(&node->s.in[0]);
    double *loss = args->out[0], sum = 0;
    for (int64_t i = 0; i < count; i++) sum += get(x, i);
    loss[0] = sum;
    loss[1] = (double)count;
    return TRI_OK;
}

REF_KERNEL(mean_loss)
REF_SUMMING_KERNEL(reduce, 2 * tri_shape_count(&s->out[0]))
REF_SUMMING_KERNEL(map_reduce, tri_shape_count(&s->out[0]))
