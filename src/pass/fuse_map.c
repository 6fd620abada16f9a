// How two maps become one: the formula of the one that reads the other's outputs takes in the
// steps that compute them, and reads the other's inputs itself, by views that are those of both,
// one after the other.
#include "ops/ops.h"
#include "pass/fusions.h"
#include "tensor/half.h"

#include <string.h>

static const tri_map_attr *attr_of(const tri_node *node) { return node->attr; }

// An input of the merged map: a value, and how it is read.
typedef struct map_input {
    tri_value value;
    tri_map_view view;
    const tri_map_draw *draw; // NULL: it is no random number
} map_input;

typedef struct merging {
    const tri_graph *graph;
    tri_shape shape; // of the merged map
    tri_dtype type;  // in which it computes
    tri_formula formula;
    tri_formula_maker maker;
    map_input inputs[TRI_FORMULA_INPUTS];
} merging;

static const tri_map_draw *draw_of(const tri_node *node, int k) {
    return attr_of(node)->drawn >> k & 1 ? &attr_of(node)->draws[k] : NULL;
}

// The shape of what is read by input k.
static tri_shape read_shape(const tri_graph *graph, const tri_node *node, int k) {
    tri_shape x = tri_value_shape(graph, node->inputs[k]);
    return *tri_map_read_shape(attr_of(node), k, &x);
}

static tri_map_view view_of(const tri_graph *graph, const tri_node *node, int k) {
    tri_shape x = read_shape(graph, node, k);
    tri_shape out = tri_value_shape(graph, node->outputs[0]);
    return tri_map_view_of(attr_of(node), k, &x, &out);
}

// Makes of a view of x by a value of shape `middle`, and a view of this value by an output, the
// view of x by the output. False: the output reads zeros around the value, of which x has none.
static bool compose(const tri_map_view *inner, const tri_map_view *outer, const tri_shape *x,
                    const tri_shape *middle, const tri_shape *out, tri_map_view *view) {
    for (int a = 0; a < middle->rank; a++) {
        int64_t first = outer->start[a], last = first;
        if (outer->axis[a] >= 0) last += outer->sign[a] * (out->dims[outer->axis[a]] - 1);
        if (first < 0 || last < 0 || first >= middle->dims[a] || last >= middle->dims[a])
            return false;
    }
    *view = (tri_map_view){.axis = {0}};
    for (int j = 0; j < x->rank; j++) {
        int a = inner->axis[j];
        int64_t start = inner->start[j];
        int axis = -1, sign = 1;
        if (a >= 0) {
            start += inner->sign[j] * outer->start[a];
            axis = outer->axis[a];
            sign = axis < 0 ? 1 : inner->sign[j] * outer->sign[a];
        }
        if (axis < 0 && (start < 0 || start >= x->dims[j])) return false;
        if (axis >= 0 && start == 0 && x->dims[j] == 1 && out->dims[axis] == 1) axis = -1, sign = 1;
        view->axis[j] = (int8_t)axis;
        view->sign[j] = (int8_t)sign;
        view->start[j] = start;
    }
    return true;
}

static bool same_view(const tri_map_view *a, const tri_map_view *b, int rank) {
    for (int j = 0; j < rank; j++)
        if (a->axis[j] != b->axis[j] || a->sign[j] != b->sign[j] || a->start[j] != b->start[j])
            return false;
    return true;
}

static bool same_draw(const tri_map_draw *a, const tri_map_draw *b) {
    if (!a || !b) return a == b;
    return a->kind == b->kind && a->key == b->key && a->p == b->p &&
           tri_shape_equal(&a->shape, &b->shape);
}

// Gets the operand of what the node reads by its input k, which is added if it is not there yet.
static int input_operand(merging *m, const tri_node *node, int k, const tri_map_view *view) {
    int rank = read_shape(m->graph, node, k).rank, count = m->formula.input_count;
    map_input input = {node->inputs[k], *view, draw_of(node, k)};
    for (int i = 0; i < count; i++)
        if (m->inputs[i].value.id == input.value.id && same_draw(m->inputs[i].draw, input.draw) &&
            same_view(&m->inputs[i].view, view, rank))
            return TRI_OPERAND_INPUT + i;
    if (count == TRI_FORMULA_INPUTS) return -1;
    m->inputs[count] = input;
    return TRI_OPERAND_INPUT + m->formula.input_count++;
}

// Adds the steps and constants of a formula whose inputs have become the operands `operands`.
// operands: by operand of the formula, that of the merged one.
static void add_steps(merging *m, const tri_formula *f, int *operands) {
    for (int k = 0; k < f->constant_count; k++)
        operands[TRI_OPERAND_CONSTANT + k] = tri_formula_constant(&m->maker, f->constants[k]);
    for (int i = 0; i < f->step_count; i++) {
        const tri_formula_step *s = &f->steps[i];
        operands[i] = tri_formula_step_add(&m->maker, (tri_step_kind)s->kind, operands[s->a],
                                           operands[s->b], operands[s->c]);
    }
}

// Adds what the node reads by its input k, an output of the producer, and returns its operand.
static int add_producer(merging *m, const tri_node *node, const tri_node *producer, int k) {
    const tri_formula *f = &attr_of(producer)->formula;
    tri_shape middle = tri_value_shape(m->graph, node->inputs[k]);
    tri_map_view outer = view_of(m->graph, node, k);
    int operands[UINT8_MAX + 1] = {0}, output = tri_value_get(m->graph, node->inputs[k])->output;
    for (int i = 0; i < f->input_count; i++) {
        tri_shape x = read_shape(m->graph, producer, i);
        tri_map_view inner = view_of(m->graph, producer, i), view;
        if (!compose(&inner, &outer, &x, &middle, &m->shape, &view)) return -1;
        int operand = input_operand(m, producer, i, &view);
        if (operand < 0) return -1;
        operands[TRI_OPERAND_INPUT + i] = operand;
    }
    add_steps(m, f, operands);
    return operands[f->outputs[output]];
}

static bool is_read(const tri_node *producer, tri_value value) {
    for (int k = 0; k < producer->output_count; k++)
        if (producer->outputs[k].id == value.id) return true;
    return false;
}

// Whether numbers between the steps of the merged map are as those that the producer would have
// stored, or more exact. Integers of fewer bits wrap when they are stored, and masks become 1 or 0.
static bool keeps_numbers(const tri_graph *graph, const tri_node *node, const tri_node *producer,
                          tri_dtype *out) {
    tri_op_signature reads = tri_node_signature(graph, node);
    tri_op_signature makes = tri_node_signature(graph, producer);
    tri_dtype type = tri_map_type(node->attr, &reads);
    *out = type;
    return !attr_of(producer)->mask && tri_map_type(producer->attr, &makes) == type &&
           (tri_dtype_is_float(type) || type == TRI_I64);
}

// Whether the view is how a value of shape `x` is read that is broadcast to `out`.
static bool is_broadcast(const tri_map_view *view, const tri_shape *x, const tri_shape *out) {
    static const tri_map_attr broadcast = {.viewed = 0};
    for (int j = 0; j < x->rank; j++) {
        int axis = out->rank - x->rank + j;
        if (axis < 0 || (x->dims[j] != 1 && x->dims[j] != out->dims[axis])) return false;
    }
    tri_map_view plain = tri_map_view_of(&broadcast, 0, x, out);
    return same_view(&plain, view, x->rank);
}

// Gives the node the merged formula and its inputs.
static void finish(merging *m, tri_node *node) {
    int uses[TRI_FORMULA_INPUTS];
    tri_map_attr *attr = (tri_map_attr *)(uintptr_t)node->attr;
    tri_formula_sweep(&m->formula, 0, uses);
    tri_map_attr merged = {.formula = m->formula,
                           .expands = true,
                           .shape = m->shape,
                           .mask = attr->mask,
                           .type = (int64_t)m->type};
    for (int k = 0; k < node->input_count; k++) node->inputs[k] = (tri_value){0};
    for (int k = 0; k < m->formula.input_count; k++) {
        const map_input *input = &m->inputs[uses[k]];
        tri_shape x = input->draw ? input->draw->shape : tri_value_shape(m->graph, input->value);
        node->inputs[k] = input->value;
        if (input->draw) {
            merged.drawn |= (int64_t)1 << k;
            merged.draws[k] = *input->draw;
        }
        if (is_broadcast(&input->view, &x, &m->shape)) continue;
        merged.viewed |= (int64_t)1 << k;
        merged.views[k] = input->view;
    }
    *attr = merged;
}

bool pass_merge_maps(const tri_graph *graph, tri_node *node, tri_node *producer) {
    const tri_formula *f = &attr_of(node)->formula;
    merging m = {.graph = graph, .shape = tri_value_shape(graph, node->outputs[0])};
    int operands[UINT8_MAX + 1] = {0};
    m.maker = (tri_formula_maker){.formula = &m.formula, .most_steps = TRI_FORMULA_STEPS};
    tri_map_dropout dropout;
    if (tri_map_is_dropout(graph, node, &dropout) || tri_map_is_dropout(graph, producer, &dropout))
        return false; // which has a faster kernel of its own
    if (!keeps_numbers(graph, node, producer, &m.type)) return false;
    for (int k = 0; k < f->input_count; k++) {
        tri_map_view view = view_of(graph, node, k);
        int operand = is_read(producer, node->inputs[k]) ? add_producer(&m, node, producer, k)
                                                         : input_operand(&m, node, k, &view);
        if (operand < 0) return false;
        operands[TRI_OPERAND_INPUT + k] = operand;
    }
    add_steps(&m, f, operands);
    m.formula.output_count = f->output_count;
    for (int k = 0; k < f->output_count; k++)
        m.formula.outputs[k] = (uint8_t)operands[f->outputs[k]];
    if (m.maker.error) return false;
    finish(&m, node);
    return attr_of(node)->formula.input_count > 0;
}

bool pass_merge_map_into_reduce(const tri_graph *graph, tri_node *node, tri_node *producer) {
    int uses[TRI_FORMULA_INPUTS], output = tri_value_get(graph, node->inputs[0])->output;
    const tri_map_attr *map = attr_of(producer);
    tri_map_dropout dropout;
    if (node->op != &tri_op_reduce) return false; // it has taken a map already
    if (((const tri_reduce_attr *)node->attr)->kind > TRI_REDUCTION_PROD) return false;
    if (tri_map_is_dropout(graph, producer, &dropout)) return false;
    if (!tri_dtype_is_float(tri_value_get(graph, node->inputs[0])->dtype)) return false;
    tri_map_reduce_attr *attr = TRI_NEW(graph->arena, tri_map_reduce_attr);
    attr->reduce = *(const tri_reduce_attr *)node->attr;
    attr->map = *map;
    attr->map.expands = true;
    attr->map.shape = tri_value_shape(graph, node->inputs[0]);
    attr->map.formula.outputs[0] = map->formula.outputs[output];
    attr->map.formula.output_count = 1;
    tri_formula_sweep(&attr->map.formula, 0, uses);
    attr->map.viewed = attr->map.drawn = 0;
    for (int k = 0; k < attr->map.formula.input_count; k++) {
        node->inputs[k] = producer->inputs[uses[k]];
        attr->map.viewed |= (map->viewed >> uses[k] & 1) << k;
        attr->map.views[k] = map->views[uses[k]];
        attr->map.drawn |= (map->drawn >> uses[k] & 1) << k;
        attr->map.draws[k] = map->draws[uses[k]];
    }
    node->op = &tri_op_map_reduce;
    node->input_count = tri_op_map_reduce.input_count;
    node->attr = attr;
    return attr->map.formula.input_count > 0;
}
