// Functions that shape rules and gradient rules of several ops use. A shape rule checks a node's
// inputs and finds the shapes of its outputs; a gradient rule adds the nodes that compute the
// gradients of its inputs. rules.h describes the functions.
#include "ops/rules.h"

#include <math.h>
#include <string.h>

#include "tensor/half.h"

static char *text(const tri_shape *shape, char *out, size_t size) {
    return tri_shape_text(shape, out, size);
}

tri_status ops_want_rank(const char *op, const char *tensor, const tri_shape *shape, int rank) {
    char got[160];
    if (shape->rank == rank) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "%s: %s must have %d axes, but is %s", op, tensor, rank,
                    text(shape, got, sizeof got));
}

tri_status ops_want_shape(const char *op, const char *tensor, const tri_shape *shape,
                          tri_shape wanted) {
    char got[160], want[160];
    if (tri_shape_equal(shape, &wanted)) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "%s: %s must be %s, but is %s", op, tensor,
                    text(&wanted, want, sizeof want), text(shape, got, sizeof got));
}

tri_status ops_want_float(const char *op, const char *tensor, tri_dtype dtype) {
    if (tri_dtype_is_float(dtype)) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "%s: %s must be F32, F64, F16 or BF16, but is %s", op, tensor,
                    tri_dtype_name(dtype));
}

tri_status ops_want_number(const char *op, const char *tensor, tri_dtype dtype) {
    if (tri_dtype_is_float(dtype) || dtype == TRI_I64 || dtype == TRI_I32 || dtype == TRI_U8)
        return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "%s: %s must be F32, F64, F16, BF16, I64, I32 or U8, but is %s",
                    op, tensor, tri_dtype_name(dtype));
}

tri_status ops_want_wide(const char *op, const char *tensor, tri_dtype dtype) {
    if (dtype == TRI_F32 || dtype == TRI_F64) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "%s: %s must be F32 or F64, but is %s", op, tensor,
                    tri_dtype_name(dtype));
}

tri_status ops_want_type(const char *op, const char *tensor, tri_dtype dtype, tri_dtype wanted) {
    if (dtype == wanted) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "%s: %s must be %s, but is %s", op, tensor,
                    tri_dtype_name(wanted), tri_dtype_name(dtype));
}

tri_status ops_want_types(const char *op, const tri_op_signature *s, int first, int end,
                          tri_dtype dtype) {
    for (int i = first; i < end; i++) {
        if (!s->present[i]) continue;
        char name[32];
        snprintf(name, sizeof name, "input %d", i);
        TRI_TRY(ops_want_type(op, name, s->in_type[i], dtype));
    }
    return TRI_OK;
}

tri_status ops_want_one_type(const char *op, const tri_op_signature *s, int first, int end) {
    char name[32];
    snprintf(name, sizeof name, "input %d", first);
    TRI_TRY(ops_want_float(op, name, s->in_type[first]));
    return ops_want_types(op, s, first + 1, end, s->in_type[first]);
}

tri_status ops_want_target(const char *op, const tri_op_signature *s) {
    TRI_TRY(ops_want_float(op, "the prediction", s->in_type[0]));
    TRI_TRY(ops_want_type(op, "the target", s->in_type[1], s->in_type[0]));
    return ops_want_shape(op, "the target", &s->in[1], s->in[0]);
}

tri_status ops_want_spans(const char *op, const tri_op_signature *s, int input) {
    TRI_TRY(ops_want_type(op, "spans", s->in_type[input], TRI_I64));
    return ops_want_shape(op, "spans", &s->in[input], tri_shape_of(s->in[0].dims[0], 2));
}

tri_dtype ops_sum_type(tri_dtype dtype) { return tri_dtype_is_float(dtype) ? dtype : TRI_I64; }

tri_dtype ops_accumulator_type(tri_dtype dtype) { return dtype == TRI_F64 ? TRI_F64 : TRI_F32; }

tri_status ops_want_accumulators(const char *op, const tri_op_signature *s, int first, int end) {
    return ops_want_types(op, s, first, end, ops_accumulator_type(s->in_type[0]));
}

tri_status ops_narrow_type(const char *op, int64_t narrow, tri_dtype x, tri_dtype *y) {
    *y = narrow ? (tri_dtype)narrow : x;
    if (*y == x || (x == TRI_F32 && tri_dtype_is_half(*y))) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "%s: cannot make %s of %s", op, tri_dtype_name(*y),
                    tri_dtype_name(x));
}

tri_status ops_want_norm_gradient(const char *op, int64_t narrow, int sum,
                                  const tri_op_signature *s) {
    tri_dtype y;
    TRI_TRY(ops_want_float(op, "input 0", s->in_type[0]));
    TRI_TRY(ops_narrow_type(op, narrow, s->in_type[0], &y));
    TRI_TRY(ops_want_type(op, "input 1", s->in_type[1], y));
    if (!s->present[sum]) return TRI_OK;
    TRI_TRY(ops_want_type(op, "sum", s->in_type[sum], s->in_type[0]));
    return ops_want_shape(op, "sum", &s->in[sum], s->in[0]);
}

tri_status ops_want_last_axis(const char *op, const tri_op_signature *s) {
    const tri_shape *x = &s->in[0];
    char got[160];
    if (x->rank >= 1 && x->dims[x->rank - 1] >= 1) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "%s: x %s has no last axis to sum over", op,
                    text(x, got, sizeof got));
}

tri_shape ops_rows(const tri_op_signature *s) {
    tri_shape rows = s->in[0];
    rows.dims[--rows.rank] = 0;
    return rows;
}

tri_shape ops_last_axis(const tri_op_signature *s) {
    return tri_shape_of(s->in[0].dims[s->in[0].rank - 1]);
}

tri_status ops_want_eps(const char *op, double eps) {
    if (eps > 0) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "%s: eps must be above 0, not %g", op, eps);
}

void ops_like_first(tri_op_signature *s) {
    s->out[0] = s->in[0];
    s->out_type[0] = s->in_type[0];
}

int64_t ops_window(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
    int64_t room = in + 2 * padding - dilation * (kernel - 1) - 1;
    return room < 0 ? 0 : room / stride + 1;
}

void ops_loss_output(tri_op_signature *s) {
    s->out[0] = tri_shape_of(2);
    s->out_type[0] = TRI_F64;
}

tri_status ops_want_seed(const char *op, const tri_op_signature *s, int input) {
    TRI_TRY(ops_want_wide(op, "the seed", s->in_type[input]));
    return ops_want_shape(op, "the seed", &s->in[input], tri_shape_of(1));
}

static int64_t count_scores(const void *attr, const tri_op_signature *s) {
    return s->in[0].dims[s->in[0].rank - 1];
}

const tri_op_classes ops_label_classes = {count_scores, "labels", "classes"};

const tri_attr_field ops_norm_fields[] = {
    OPS_FIELD(TRI_ATTR_FLOAT, tri_norm_attr, eps),
    OPS_FIELD(TRI_ATTR_TYPE, tri_norm_attr, narrow),
    {0},
};

tri_status ops_want_labels(const char *op, const tri_shape *scores, const tri_shape *labels,
                           tri_dtype labels_type) {
    char got[160];
    if (scores->rank < 2)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: the scores [.., K] must have 2 axes or more, but are %s", op,
                        text(scores, got, sizeof got));
    tri_shape rows = *scores;
    rows.rank--;
    TRI_TRY(ops_want_type(op, "labels", labels_type, TRI_I64));
    if (tri_shape_equal(labels, &rows)) return TRI_OK;
    char all[160], want[160];
    tri_shape column = rows;
    if (rows.rank < TRI_MAX_RANK) column.dims[column.rank++] = 1;
    return TRI_FAIL(
        TRI_BAD_INPUT, "%s: the labels of scores %s must be %s, but are %s%s", op,
        text(scores, all, sizeof all), text(&rows, want, sizeof want),
        text(labels, got, sizeof got),
        tri_shape_equal(labels, &column)  ? ": write y.squeeze(-1) in place of the column y"
        : tri_shape_equal(labels, scores) ? ": write y.argmax(-1) in place of y, if it is one-hot"
                                          : "");
}

tri_value ops_node(tri_graph *graph, const tri_node *node, const tri_op *op, const void *attr,
                   tri_value a, tri_value b, tri_value c, tri_value d) {
    tri_value inputs[4] = {a, b, c, d};
    int count = op->input_count < 4 ? op->input_count : 4;
    return tri_node_add(graph, op, inputs, count, attr, node->name);
}

tri_value ops_map(tri_graph *graph, const tri_node *node, const char *expression, tri_shape shape,
                  tri_value a, tri_value b, tri_value c) {
    tri_map_attr attr = {.expands = true, .shape = shape};
    if (tri_formula_parse(expression, NULL, &attr.formula) != TRI_OK)
        tri_graph_fail(graph, "%s", tri_error_message());
    tri_value in[] = {a, b, c};
    return tri_node_add(graph, &tri_op_map, in, attr.formula.input_count, &attr, node->name);
}

tri_value ops_gradient_as(tri_graph *graph, const tri_node *node, tri_value value,
                          tri_value gradient) {
    tri_value none = {0};
    if (!tri_value_is(gradient)) return none;
    const tri_value_info *info = tri_value_get(graph, value);
    tri_dtype wanted =
        info->kind == TRI_VALUE_PARAMETER ? ops_accumulator_type(info->dtype) : info->dtype;
    if (tri_value_get(graph, gradient)->dtype == wanted) return gradient;
    tri_cast_attr attr = {.dtype = wanted};
    return ops_node(graph, node, &tri_op_cast, &attr, gradient, none, none, none);
}

static bool same_inputs(const tri_node *a, const tri_node *b) {
    for (int i = 0; i < a->input_count; i++)
        if (a->inputs[i].id != b->inputs[i].id) return false;
    return true;
}

static bool is_recomputable(const tri_node *node) {
    if (node->op->is_recomputable) return node->op->is_recomputable(node->attr);
    return node->op->flags & TRI_OP_RECOMPUTABLE;
}

tri_value ops_recompute(tri_graph *graph, const tri_node *node, tri_value value) {
    const tri_node *found = tri_value_node(graph, value);
    // The output of copy_to is a view of its input, so the input can be computed again instead.
    if (found && found->op == &tri_op_copy_to && found->block == node->block) {
        tri_value from = found->inputs[0], made = ops_recompute(graph, node, from);
        return made.id == from.id ? value : made;
    }
    if (!found || !is_recomputable(found)) return value;
    if (found->outputs[0].id != value.id || found->block != node->block) return value;
    tri_node maker = *found;
    for (int i = graph->node_count - 1; i >= 0; i--) {
        const tri_node *copy = &graph->nodes[i];
        if (copy->phase != TRI_PHASE_BACKWARD || copy->block != node->block) break;
        bool same =
            copy->op == maker.op && same_inputs(copy, &maker) &&
            (maker.op->attr_bytes == 0 || !memcmp(copy->attr, maker.attr, maker.op->attr_bytes));
        if (same) return copy->outputs[0];
    }
    return tri_node_add(graph, maker.op, maker.inputs, maker.input_count, maker.attr, maker.name);
}

tri_cost ops_cost_per_input(const tri_op_signature *s, double per_element) {
    return (tri_cost){.flops = per_element * (double)tri_shape_count(&s->in[0])};
}

tri_status ops_update_shape(const char *op, tri_op_signature *s) {
    TRI_TRY(ops_want_wide(op, "the parameter", s->in_type[0]));
    TRI_TRY(ops_want_type(op, "the gradient", s->in_type[1], s->in_type[0]));
    TRI_TRY(ops_want_shape(op, "the gradient", &s->in[1], s->in[0]));
    TRI_TRY(ops_want_type(op, "the step scalars", s->in_type[2], TRI_F64));
    TRI_TRY(ops_want_shape(op, "the step scalars", &s->in[2], tri_shape_of(TRI_STEP_SCALAR_COUNT)));
    for (int i = 3; i < s->input_count; i++) {
        if (!s->present[i]) continue;
        TRI_TRY(ops_want_type(op, "the state", s->in_type[i], s->in_type[0]));
        TRI_TRY(ops_want_shape(op, "the state", &s->in[i], s->in[0]));
    }
    return TRI_OK;
}

tri_status ops_optimizer_shape(const char *op, double lr_factor, tri_op_signature *s) {
    if (!(lr_factor > 0 && isfinite(lr_factor)))
        return TRI_FAIL(TRI_BAD_INPUT, "%s: lr_factor must be above 0, not %g", op, lr_factor);
    return ops_update_shape(op, s);
}

tri_value ops_spread_seed(tri_graph *graph, const tri_node *node, tri_value terms, tri_value seed) {
    tri_value none = {0};
    tri_map_attr spread = {.expands = true, .shape = tri_value_shape(graph, terms)};
    if (tri_formula_parse("seed", NULL, &spread.formula) != TRI_OK)
        tri_graph_fail(graph, "%s", tri_error_message());
    tri_value gradient = ops_node(graph, node, &tri_op_map, &spread, seed, none, none, none);
    return ops_gradient_as(graph, node, terms, gradient);
}
