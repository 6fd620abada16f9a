// Defines the op map, which computes a formula on each element of its inputs: its shape rule,
// gradient rule and cost. The gradient is a map again, by the derivative of the formula, followed
// by a sum over the axes along which an input was repeated.
#include "ops/formula_integer.h"
#include "ops/rules.h"
#include "tensor/half.h"

static tri_status broadcast(const tri_shape *x, tri_shape *out) {
    char a[160], b[160];
    tri_shape joined = *out;
    if (x->rank > out->rank) {
        joined.rank = x->rank;
        for (int i = 0; i < joined.rank; i++) {
            int old = i - (x->rank - out->rank);
            joined.dims[i] = old < 0 ? 1 : out->dims[old];
        }
    }
    for (int i = 0; i < x->rank; i++) {
        int64_t size = x->dims[i], *to = &joined.dims[joined.rank - x->rank + i];
        if (*to == 1) *to = size;
        if (size != *to && size != 1)
            return TRI_FAIL(TRI_BAD_INPUT, "map: %s and %s do not fit together",
                            tri_shape_text(out, a, sizeof a), tri_shape_text(x, b, sizeof b));
    }
    *out = joined;
    return TRI_OK;
}

tri_map_view tri_map_view_of(const tri_map_attr *attr, int k, const tri_shape *x,
                             const tri_shape *out) {
    tri_map_view view = attr->views[k];
    if (attr->viewed >> k & 1) return view;
    for (int j = 0; j < x->rank; j++) {
        view.axis[j] = (int8_t)(x->dims[j] == 1 ? -1 : out->rank - x->rank + j);
        view.sign[j] = 1;
        view.start[j] = 0;
    }
    return view;
}

static tri_status check_view(const tri_map_view *view, const tri_shape *x, const tri_shape *out) {
    bool used[TRI_MAX_RANK] = {false};
    for (int j = 0; j < x->rank; j++) {
        int axis = view->axis[j];
        if (axis < -1 || axis >= out->rank || (axis >= 0 && used[axis]) ||
            (view->sign[j] != 1 && view->sign[j] != -1))
            return TRI_FAIL(TRI_BAD_INPUT, "map: axis %d of an input has no valid view", j);
        if (axis < 0 && (view->start[j] < 0 || view->start[j] >= x->dims[j]))
            return TRI_FAIL(TRI_BAD_INPUT, "map: there is no index %" PRId64 " on axis %d",
                            view->start[j], j);
        if (axis >= 0) used[axis] = true;
    }
    return TRI_OK;
}

tri_dtype tri_map_type(const tri_map_attr *attr, const tri_op_signature *s) {
    bool reads = false;
    for (int i = 0; i < s->input_count && s->present[i]; i++) {
        if (attr->drawn >> i & 1) continue;
        if (s->in_type[i] != TRI_U8) return s->in_type[i];
        reads = true;
    }
    return reads ? TRI_U8 : (tri_dtype)attr->type;
}

static tri_status want_drawn(const tri_map_draw *draw, const tri_op_signature *s, int k,
                             tri_dtype type) {
    TRI_TRY(ops_want_type("map", "position", s->in_type[k], TRI_I64));
    TRI_TRY(ops_want_shape("map", "position", &s->in[k], tri_shape_of(2)));
    TRI_TRY(ops_want_float("map", "what reads random numbers", type));
    if (draw->shape.rank < 1)
        return TRI_FAIL(TRI_BAD_INPUT, "map: random numbers need samples as their first axis");
    if (!(draw->p >= 0 && draw->p <= 1))
        return TRI_FAIL(TRI_BAD_INPUT, "map: p must be 0 to 1, not %g", draw->p);
    return TRI_OK;
}

static tri_status want_types(const tri_map_attr *attr, const tri_op_signature *s, int inputs,
                             tri_dtype type) {
    char name[32];
    TRI_TRY(ops_want_number("map", "the inputs' type", type));
    for (int i = 0; i < inputs; i++) {
        snprintf(name, sizeof name, "input %d", i);
        if (attr->drawn >> i & 1)
            TRI_TRY(want_drawn(&attr->draws[i], s, i, type));
        else if (s->in_type[i] != TRI_U8)
            TRI_TRY(ops_want_type("map", name, s->in_type[i], type));
    }
    return TRI_OK;
}

// Checks a formula on integers: all of its steps have to have integer results.
static tri_status want_integers(const tri_formula *formula, tri_dtype type) {
    for (int t = 0; t < formula->step_count; t++)
        if (!formula_is_integer(formula->steps[t].kind))
            return TRI_FAIL(TRI_BAD_INPUT,
                            "map: `%s` is not computed with integers: make them F32 (tri_cast)",
                            tri_step_name((tri_step_kind)formula->steps[t].kind));
    for (int k = 0; k < formula->constant_count; k++) {
        double number = formula->constants[k];
        // Numbers of formulas are F64: from 2^53 on they may be others than those written.
        if (!(number > -0x1p53 && number < 0x1p53) || number != (double)(int64_t)number)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "map: %.17g is no integer below 2^53, but the inputs are %s", number,
                            tri_dtype_name(type));
    }
    return TRI_OK;
}

static tri_status want_floats(const tri_formula *formula) {
    for (int t = 0; t < formula->step_count; t++)
        if (tri_step_is_of_bits((tri_step_kind)formula->steps[t].kind))
            return TRI_FAIL(TRI_BAD_INPUT,
                            "map: `%s` is computed with integers only: make them I64 (tri_cast)",
                            tri_step_name((tri_step_kind)formula->steps[t].kind));
    return TRI_OK;
}

static tri_status map_shape(const void *attr, tri_op_signature *s) {
    const tri_map_attr *a = attr;
    char want[160], got[160];
    tri_shape shape = a->expands ? a->shape : *tri_map_read_shape(a, 0, &s->in[0]);
    int inputs = 0;
    while (inputs < s->input_count && s->present[inputs]) inputs++;
    if (a->formula.input_count != inputs)
        return TRI_FAIL(TRI_BAD_INPUT, "map: the formula has %d inputs, but there are %d",
                        a->formula.input_count, inputs);
    tri_dtype type = tri_map_type(a, s);
    TRI_TRY(want_types(a, s, inputs, type));
    TRI_TRY(tri_dtype_is_float(type) ? want_floats(&a->formula) : want_integers(&a->formula, type));
    for (int i = 0; i < inputs; i++) {
        const tri_shape *x = tri_map_read_shape(a, i, &s->in[i]);
        if (a->expands && a->viewed >> i & 1)
            TRI_TRY(check_view(&a->views[i], x, &shape));
        else
            TRI_TRY(broadcast(x, &shape));
    }
    if (a->expands && !tri_shape_equal(&shape, &a->shape))
        return TRI_FAIL(TRI_BAD_INPUT, "map: the inputs need the shape %s, not %s",
                        tri_shape_text(&shape, got, sizeof got),
                        tri_shape_text(&a->shape, want, sizeof want));
    for (int k = 0; k < s->output_count; k++) { // outputs that the formula does not have are empty
        s->out[k] = k < a->formula.output_count ? shape : tri_shape_of(0);
        s->out_type[k] = a->mask ? TRI_U8 : type;
    }
    return TRI_OK;
}

tri_value ops_sum_to(tri_graph *graph, const tri_node *node, tri_value x, tri_shape shape) {
    tri_shape from = tri_value_shape(graph, x);
    tri_value none = {0};
    tri_reduce_attr sum = {.kind = TRI_REDUCTION_SUM};
    int extra = from.rank - shape.rank;
    for (int i = 0; i < from.rank; i++)
        if (i < extra || (shape.dims[i - extra] == 1 && from.dims[i] != 1)) sum.axes |= 1 << i;
    if (sum.axes) x = ops_node(graph, node, &tri_op_reduce, &sum, x, none, none, none);
    if (extra == 0) return x;
    tri_reshape_attr reshape = {.shape = shape};
    return ops_node(graph, node, &tri_op_reshape, &reshape, x, none, none, none);
}

// Makes the gradient of an input that is read by a view from `whole`, the gradient for each element
// of the output: sums over the axes along which the input is repeated, and reads the sum by the
// inverse view, which is 0 where no element of the output reads the input.
static tri_value view_back(tri_graph *graph, const tri_node *node, const tri_map_view *view,
                           tri_value whole, tri_shape shape) {
    tri_value none = {0};
    tri_shape from = tri_value_shape(graph, whole);
    tri_reduce_attr sum = {.kind = TRI_REDUCTION_SUM};
    tri_map_attr back = {.expands = true, .shape = shape, .viewed = 1};
    tri_map_view *inverse = &back.views[0];
    for (int i = 0; i < from.rank; i++) inverse->axis[i] = -1, inverse->sign[i] = 1;
    for (int j = 0; j < shape.rank; j++) {
        int axis = view->axis[j];
        if (axis < 0) continue;
        inverse->axis[axis] = (int8_t)j;
        inverse->sign[axis] = view->sign[j];
        inverse->start[axis] = -view->sign[j] * view->start[j];
    }
    for (int i = 0; i < from.rank; i++)
        if (inverse->axis[i] < 0 && from.dims[i] != 1) sum.axes |= 1 << i;
    if (sum.axes) whole = ops_node(graph, node, &tri_op_reduce, &sum, whole, none, none, none);
    // An index of x that no axis of the output moves has the gradient at that index alone: it is
    // read along an axis of size 1, one that was summed or a new one.
    from = tri_value_shape(graph, whole);
    for (int j = 0, i = 0; j < shape.rank; j++) {
        if (view->axis[j] >= 0 || shape.dims[j] == 1) continue;
        while (i < from.rank && inverse->axis[i] >= 0) i++;
        if (i == from.rank) from.dims[from.rank++] = 1;
        inverse->axis[i] = (int8_t)j;
        inverse->sign[i] = 1;
        inverse->start[i] = -view->start[j];
    }
    tri_reshape_attr reshape = {.shape = from};
    whole = ops_node(graph, node, &tri_op_reshape, &reshape, whole, none, none, none);
    if (tri_formula_parse("x", NULL, &back.formula) != TRI_OK) return whole; // it never fails
    return ops_node(graph, node, &tri_op_map, &back, whole, none, none, none);
}

// Whether a map of one input would only copy it.
static bool is_input(const tri_graph *graph, const tri_map_attr *map, const tri_value *inputs) {
    const tri_formula *f = &map->formula;
    if (f->input_count != 1 || f->output_count != 1 || f->outputs[0] != TRI_OPERAND_INPUT ||
        map->viewed || map->drawn)
        return false;
    tri_shape shape = tri_value_shape(graph, inputs[0]);
    return tri_shape_equal(&shape, &map->shape);
}

// Adds the gradient of an input, which has one already if another output depends on it too.
static void add_gradient(tri_graph *graph, const tri_node *node, int k, tri_value whole,
                         tri_value *in_grads) {
    const tri_map_attr *a = node->attr;
    tri_value none = {0};
    tri_shape shape = tri_value_shape(graph, node->inputs[k]);
    tri_value made = a->viewed >> k & 1 ? view_back(graph, node, &a->views[k], whole, shape)
                                        : ops_sum_to(graph, node, whole, shape);
    in_grads[k] = tri_value_is(in_grads[k])
                      ? ops_map(graph, node, "a, b -> a + b", shape, in_grads[k], made, none)
                      : made;
}

// The derivative of the formula `f` with these outputs, as a node; none if it has no inputs or no
// outputs.
static tri_value derive_node(tri_graph *graph, const tri_node *node, const tri_formula *f,
                             const tri_value *outputs, const tri_value *out_grads, const bool *now,
                             bool *differs, tri_formula *formula) {
    const tri_map_attr *a = node->attr;
    tri_map_attr derived = {.expands = true, .shape = tri_value_shape(graph, node->outputs[0])};
    bool has_gradient[TRI_FORMULA_OUTPUTS];
    tri_value given[TRI_FORMULA_INPUTS + 2 * TRI_FORMULA_OUTPUTS], in[TRI_FORMULA_INPUTS];
    int uses[TRI_FORMULA_INPUTS], inputs = f->input_count, count = 0;
    for (int k = 0; k < inputs; k++) given[count++] = node->inputs[k];
    for (int k = 0; k < f->output_count; k++) given[count++] = outputs[k];
    for (int k = 0; k < f->output_count; k++) {
        has_gradient[k] = tri_value_is(out_grads[k]);
        if (has_gradient[k]) given[count++] = out_grads[k];
    }
    tri_status status = tri_formula_derive(f, has_gradient, now, &derived.formula, uses, differs);
    if (status != TRI_OK) tri_graph_fail(graph, "%s: %s", node->name, tri_error_message());
    *formula = derived.formula;
    if (status != TRI_OK || formula->output_count == 0 || formula->input_count == 0)
        return (tri_value){0};
    for (int i = 0; i < formula->input_count; i++) {
        in[i] = ops_recompute(graph, node, given[uses[i]]);
        if (uses[i] >= inputs) continue;
        derived.viewed |= (a->viewed >> uses[i] & 1) << i;
        derived.views[i] = a->views[uses[i]];
        derived.drawn |= (a->drawn >> uses[i] & 1) << i;
        derived.draws[i] = a->draws[uses[i]];
    }
    if (is_input(graph, &derived, in)) return in[0];
    return tri_node_add(graph, &tri_op_map, in, formula->input_count, &derived, node->name);
}

// Adds the gradients that the formula `f` with these outputs gives its inputs.
static void add_gradients(tri_graph *graph, const tri_node *node, const tri_formula *f,
                          const tri_value *outputs, const tri_value *out_grads, const bool *wanted,
                          tri_value *in_grads) {
    int inputs = f->input_count;
    bool are_factors = f->output_count == 1 && inputs == TRI_FORMULA_INPUTS;
    // One node has few outputs, so each takes as many inputs as it has outputs.
    for (int first = 0; first < inputs; first += TRI_FORMULA_OUTPUTS) {
        bool now[TRI_FORMULA_INPUTS] = {false}, differs[TRI_FORMULA_INPUTS] = {false};
        tri_formula formula = {0};
        tri_shape shape = tri_value_shape(graph, node->outputs[0]);
        int output = 0;
        for (int k = first; k < inputs && k < first + TRI_FORMULA_OUTPUTS; k++) now[k] = wanted[k];
        tri_value made = derive_node(graph, node, f, outputs, out_grads, now, differs, &formula);
        if (formula.output_count == 0) continue;
        for (int k = first; k < inputs && k < first + TRI_FORMULA_OUTPUTS; k++) {
            double factor;
            if (!differs[k]) continue;
            tri_value whole = output ? tri_node_output(graph, made, output) : made, none = {0};
            if (tri_formula_is_constant(&formula, formula.outputs[output++], &factor) &&
                are_factors)
                whole = ops_map(graph, node, tri_name(graph, "dy * %.17g", factor), shape,
                                out_grads[0], none, none);
            else if (are_factors)
                whole = ops_map(graph, node, "slope, dy -> slope * dy", shape, whole, out_grads[0],
                                none);
            add_gradient(graph, node, k, whole, in_grads);
        }
    }
}

static void map_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                         const bool *wanted, tri_value *in_grads) {
    const tri_formula *f = &((const tri_map_attr *)node->attr)->formula;
    int gradients = 0;
    for (int k = 0; k < f->output_count; k++) gradients += tri_value_is(out_grads[k]);
    if (f->output_count == 1 || f->input_count + gradients <= TRI_FORMULA_INPUTS) {
        add_gradients(graph, node, f, node->outputs, out_grads, wanted, in_grads);
        return;
    }
    for (int k = 0; k < f->output_count; k++) { // one after the other, for there is no room
        tri_formula one = *f;
        one.output_count = 1;
        one.outputs[0] = f->outputs[k];
        if (tri_value_is(out_grads[k]))
            add_gradients(graph, node, &one, &node->outputs[k], &out_grads[k], wanted, in_grads);
    }
}

// Counts the operations for an element: a step is one, and a function, such as exp, ten. So is a
// random number. The normal distribution of GELU is twenty.
static double count_flops(const tri_map_attr *attr) {
    const tri_formula *f = &attr->formula;
    double flops = 0;
    for (int k = 0; k < f->input_count; k++) flops += attr->drawn >> k & 1 ? 10 : 0;
    for (int i = 0; i < f->step_count; i++) {
        tri_step_kind kind = (tri_step_kind)f->steps[i].kind;
        bool is_function = kind == TRI_STEP_pow || (kind >= TRI_STEP_exp && kind < TRI_STEP_less);
        flops += kind == TRI_STEP_normal_cdf ? 20 : is_function ? 10 : 1;
    }
    return flops;
}

static tri_cost map_cost(const void *attr, const tri_op_signature *s) {
    const tri_map_attr *a = attr;
    return (tri_cost){.flops = count_flops(a) * (double)tri_shape_count(&s->out[0])};
}

// Activations such as GELU, with one function such as exp: little is computed again, and the
// gradient reads all inputs and not the output.
static bool is_recomputable(const void *attr) {
    const tri_map_attr *a = attr;
    enum { ONE_FUNCTION = 10, TWO_FUNCTIONS = 20 };
    static const bool all[TRI_FORMULA_INPUTS] = {true, true, true, true, true, true, true, true};
    bool differs[TRI_FORMULA_INPUTS];
    tri_formula derivative;
    int uses[TRI_FORMULA_INPUTS], inputs = a->formula.input_count, read = 0;
    double flops = count_flops(a);
    if (a->viewed || a->drawn || inputs > TRI_FORMULA_OUTPUTS || flops < ONE_FUNCTION ||
        flops >= TWO_FUNCTIONS)
        return false;
    if (tri_formula_derive(&a->formula, all, all, &derivative, uses, differs) != TRI_OK)
        return false;
    for (int i = 0; i < derivative.input_count; i++) {
        if (uses[i] >= inputs && uses[i] < inputs + a->formula.output_count) return false;
        read += uses[i] < inputs;
    }
    return read == inputs;
}

// An input that is read by a view would be overwritten before all of it is read.
static bool may_overwrite(const void *attr) {
    const tri_map_attr *a = attr;
    return (a->viewed & ~a->drawn) == 0 && !(a->drawn & 1);
}

void tri_map_print(const void *attr, FILE *out) {
    const tri_map_attr *a = attr;
    for (int k = 0; k < a->formula.input_count; k++)
        if (a->drawn >> k & 1) fprintf(out, "in%d=random(%016" PRIx64 ") ", k, a->draws[k].key);
    tri_formula_print(&a->formula, out);
}

static const tri_attr_field map_fields[] = {
    {.name = "formula", .kind = TRI_ATTR_PRINTED, .print = tri_map_print},
    OPS_FIELD(TRI_ATTR_BOOL, tri_map_attr, mask),
    {0},
};

// The axis of input k that runs along axis `along` of the output. -1: none, the input is repeated.
// -2: one does, but in another order or from another start, so that slices do not fit each other.
static int axis_along(const tri_map_attr *attr, int k, const tri_op_signature *full, int along) {
    const tri_shape *x = tri_map_read_shape(attr, k, &full->in[k]), *out = &full->out[0];
    tri_map_view view = tri_map_view_of(attr, k, x, out);
    for (int j = 0; j < x->rank; j++) {
        if (view.axis[j] != along) continue;
        bool whole = view.sign[j] == 1 && view.start[j] == 0 && x->dims[j] == out->dims[along];
        return whole ? j : -2;
    }
    return -1;
}

// Has the slice read those of the random numbers that belong to its elements.
static void slice_draws(tri_map_attr *a, int k, const tri_op_signature *full,
                        const tri_op_slices *slices) {
    tri_map_draw *draw = &a->draws[k];
    tri_map_view view = tri_map_view_of(a, k, &draw->shape, &full->out[0]);
    int64_t first = full->out[0].dims[slices->out] / slices->count * slices->index;
    for (int j = 0; j < draw->shape.rank; j++)
        if (view.axis[j] == slices->out) view.start[j] += view.sign[j] * first;
    a->viewed |= (int64_t)1 << k;
    a->views[k] = view;
}

// A view of one input that takes some of the parts of its axis `dim`, or all of them: its slice
// takes the rank's share of these.
static bool take_parts(tri_map_attr *a, int dim, const tri_op_signature *full,
                       tri_op_slices *slices) {
    tri_map_view *view = &a->views[0];
    int64_t all = full->in[0].dims[dim], part = all / slices->parts, first = view->start[dim];
    int64_t taken = full->out[0].dims[slices->out];
    if (a->viewed != 1 || a->formula.input_count != 1 || view->sign[dim] != 1 || first < 0 ||
        first + taken > all || first % part || taken % part)
        return false;
    slices->out_parts = taken / part;
    view->start[dim] /= slices->count;
    a->shape.dims[slices->out] /= slices->count;
    return true;
}

static bool map_slice(int input, int dim, const tri_op_signature *full, void *attr,
                      tri_op_slices *slices) {
    tri_map_attr *a = attr;
    if (a->drawn >> input & 1) return false;
    tri_map_view view = tri_map_view_of(a, input, &full->in[input], &full->out[0]);
    slices->out = view.axis[dim];
    if (slices->out < 0) return false;
    if (take_parts(a, dim, full, slices)) return true;
    if (a->drawn && slices->parts > 1) return false;
    for (int k = 0; k < a->formula.input_count; k++) {
        slices->in[k] = a->drawn >> k & 1 ? -1 : axis_along(a, k, full, slices->out);
        if (slices->in[k] < -1) return false;
        if (a->drawn >> k & 1) slice_draws(a, k, full, slices);
    }
    if (!a->expands && a->drawn) a->expands = true, a->shape = full->out[0];
    if (a->expands) a->shape.dims[slices->out] /= slices->count;
    return true;
}

const tri_op tri_op_map = {
    .name = "map",
    .doc = "a, ... -> y, ...: a formula on each element of the inputs, which are broadcast to one "
           "shape",
    .input_count = TRI_FORMULA_INPUTS,
    .optional_inputs = TRI_FORMULA_INPUTS - 1,
    .output_count = TRI_FORMULA_OUTPUTS,
    .in_place = 1,
    .may_overwrite = may_overwrite,
    .is_recomputable = is_recomputable,
    .precision = TRI_PRECISION_FOLLOW,
    .streams = TRI_FORMULA_INPUTS,
    .axes = TRI_AXES_ANY,
    .slice = map_slice,
    .attr_bytes = sizeof(tri_map_attr),
    .attr_fields = map_fields,
    .shape = map_shape,
    .gradient = map_gradient,
    .cost = map_cost,
};
