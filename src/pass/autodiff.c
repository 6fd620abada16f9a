// Autodiff: adds the backward nodes to a graph. It walks back through the nodes and lets each op's
// gradient rule add nodes that compute the gradients of a node's inputs.
#include "ops/ops.h"
#include "pass/pass.h"
#include "tensor/half.h"

#include <string.h>

typedef struct autodiff {
    tri_graph *graph;
    bool *wanted; // wanted[v]: value v, no integer, depends on a trained parameter
    // grads[v]: the gradient of value v, summed over the readers of v that were visited so far.
    tri_value *grads;
    int value_count; // before the backward nodes
} autodiff;

bool *pass_find_wanted(const tri_graph *g) {
    bool *wanted = TRI_NEW_ARRAY(g->arena, bool, g->value_count);
    for (int i = 0; i < g->parameter_count; i++)
        if (g->parameters[i].role == TRI_ROLE_TRAINED) wanted[g->parameters[i].value.id] = true;
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        bool any = false;
        for (int k = 0; k < node->input_count; k++) any = any || wanted[node->inputs[k].id];
        for (int k = 0; any && node->op->gradient && k < node->output_count; k++)
            wanted[node->outputs[k].id] =
                tri_dtype_is_float(tri_value_get(g, node->outputs[k])->dtype);
    }
    return wanted;
}

// Finds what the current block has added to the parameter's gradient so far; NULL: nothing. The
// backward pass goes from block to block, so the current block's entries are at the end of
// graph->gradients.
static tri_value *contribution(tri_graph *g, int parameter) {
    for (int i = g->gradient_count - 1; i >= 0 && g->gradients[i].block == g->block; i--)
        if (g->gradients[i].parameter == parameter) return &g->gradients[i].value;
    return NULL;
}

static tri_value as_type(tri_graph *g, tri_dtype dtype, tri_value gradient) {
    if (tri_value_get(g, gradient)->dtype == dtype) return gradient;
    return tri_node_add(g, &tri_op_cast, &gradient, 1, &(tri_cast_attr){.dtype = dtype}, "");
}

// What a rule has made of the gradients of a node's outputs.
typedef struct found {
    const tri_node *node;
    int before; // the number of nodes before the rule
    tri_value in[TRI_MAX_INPUTS];
} found;

// Whether nothing but the node's rule takes `gradient`, which the current block has made for the
// node's output.
static bool is_for_node_alone(const autodiff *a, const found *f, tri_value gradient) {
    const tri_graph *g = a->graph;
    const tri_node *maker = tri_value_node(g, gradient);
    int takers = 0;
    if (!maker || maker->phase != TRI_PHASE_BACKWARD || maker->block != g->block ||
        maker->op->flags & TRI_OP_VIEW)
        return false;
    for (int k = 0; k < f->node->input_count; k++) takers += f->in[k].id == gradient.id;
    for (int v = 0; v < a->value_count; v++) takers += a->grads[v].id == gradient.id;
    for (int i = 0; i < g->gradient_count; i++) takers += g->gradients[i].value.id == gradient.id;
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].input_count; k++)
            takers += g->nodes[i].inputs[k].id == gradient.id;
    return takers == 2; // the node's output, and the input to which the rule hands it on
}

// A parameter's gradient has memory of its own, which the block that reads the parameter writes. A
// gradient rule that hands on the gradient of its output, as that of an addition does, has made no
// such value: another block may have made it, or others may read it too. Then a copy is the
// gradient.
static tri_value as_own(const autodiff *a, const found *f, tri_value gradient) {
    tri_graph *g = a->graph;
    const tri_node *maker = tri_value_node(g, gradient);
    while (maker && maker->op->flags & TRI_OP_VIEW) maker = tri_value_node(g, maker->inputs[0]);
    if (maker && maker - g->nodes >= f->before) return gradient;
    if (is_for_node_alone(a, f, gradient)) return gradient;
    return tri_node_add(g, &tri_op_reorder, &gradient, 1, NULL, "");
}

// Adds what the rule of a node has found for its input k to that value's gradient.
static void accumulate(autodiff *a, const found *f, int k) {
    tri_value value = f->node->inputs[k], gradient = f->in[k];
    if (!tri_value_is(value) || !tri_value_is(gradient) || !a->wanted[value.id]) return;
    const tri_value_info *info = tri_value_get(a->graph, value);
    tri_value *sum = &a->grads[value.id];
    if (info->kind == TRI_VALUE_PARAMETER) {
        // Gradients are summed in the type in which the parameter is stored.
        tri_dtype stored = a->graph->parameters[info->index].dtype;
        gradient = as_own(a, f, as_type(a->graph, stored, gradient));
        sum = contribution(a->graph, info->index);
        if (!sum) {
            tri_gradient_add(a->graph, info->index, gradient);
            return;
        }
    } else if (k >= f->node->op->streams) {
        // A weight that other nodes have made, whose gradient is the sum of many terms in F32.
        gradient = as_type(a->graph, info->dtype, gradient);
    }
    *sum = tri_value_is(*sum)
               ? tri_node_add(a->graph, &tri_op_add, (tri_value[]){*sum, gradient}, 2, NULL, "")
               : gradient;
}

// The gradients of slices of a value, in the order of the slices. Each is a part of the value's
// gradient, padded with zeros before they are added. Seen as a matrix of rows, the value is cut
// into columns: an axis is cut, and those behind it are whole.
typedef struct slices {
    tri_value parts[TRI_MAX_INPUTS];
    int64_t first[TRI_MAX_INPUTS]; // the column where each part begins
    int count;
    int64_t rows, columns;
    tri_shape whole; // the value's shape where it is cut, which may be reshaped before
    int dim;         // the axis that is cut; -1: shapes or axes differ
} slices;

// Finds the axis along which a map does nothing but pad its input with zeros, and where along this
// axis the input begins. False: it does something else.
static bool is_padding(const tri_graph *g, const tri_node *node, int *dim, int64_t *first) {
    const tri_map_attr *attr = node->attr;
    if (node->op != &tri_op_map || attr->formula.input_count != 1 || attr->formula.step_count > 0 ||
        attr->formula.outputs[0] != TRI_OPERAND_INPUT || attr->viewed != 1 || attr->drawn ||
        attr->mask)
        return false;
    tri_shape x = tri_value_shape(g, node->inputs[0]), y = tri_value_shape(g, node->outputs[0]);
    const tri_map_view *view = &attr->views[0];
    *dim = -1;
    for (int i = 0; i < x.rank; i++) {
        if (x.rank != y.rank || view->axis[i] != i || view->sign[i] != 1) return false;
        if (view->start[i] == 0 && x.dims[i] == y.dims[i]) continue;
        if (*dim >= 0) return false;
        *dim = i;
        *first = -view->start[i];
    }
    return *dim >= 0;
}

// Notes how the first part is cut out of `whole`, or compares how another one is.
static bool is_cut_alike(slices *s, const tri_shape *whole, int dim) {
    int64_t rows = 1, columns = tri_shape_count(whole);
    for (int i = 0; i < dim; i++) rows *= whole->dims[i];
    columns /= rows;
    if (s->count == 0) {
        s->rows = rows;
        s->columns = columns;
        s->whole = *whole;
        s->dim = dim;
    }
    if (dim != s->dim || !tri_shape_equal(whole, &s->whole)) s->dim = -1;
    return rows == s->rows && columns == s->columns;
}

// Collects the parts of which `sum` is made, if the current block has made it, and all its terms
// are padded gradients of slices, reshaped or not.
static bool collect_slices(const tri_graph *g, tri_value sum, slices *s) {
    const tri_node *node = tri_value_node(g, sum);
    int dim, i = s->count;
    int64_t first;
    if (!node || node->phase != TRI_PHASE_BACKWARD || node->block != g->block) return false;
    if (node->op == &tri_op_add)
        return collect_slices(g, node->inputs[0], s) && collect_slices(g, node->inputs[1], s);
    while (node && node->op == &tri_op_reshape) node = tri_value_node(g, node->inputs[0]);
    if (!node || s->count == TRI_MAX_INPUTS || !is_padding(g, node, &dim, &first)) return false;
    tri_shape whole = tri_value_shape(g, node->outputs[0]);
    if (tri_shape_count(&whole) == 0 || !is_cut_alike(s, &whole, dim)) return false;
    first *= s->columns / whole.dims[dim];
    for (; i > 0 && s->first[i - 1] > first; i--) {
        s->parts[i] = s->parts[i - 1];
        s->first[i] = s->first[i - 1];
    }
    s->parts[i] = node->inputs[0];
    s->first[i] = first;
    s->count++;
    return true;
}

static tri_value reshaped(tri_graph *g, tri_value value, const tri_shape *shape) {
    tri_shape own = tri_value_shape(g, value);
    if (tri_shape_equal(&own, shape)) return value;
    return tri_node_add(g, &tri_op_reshape, &value, 1, &(tri_reshape_attr){*shape}, "");
}

// A value that is cut into slices has the joined gradients of the slices: to join them takes a
// fraction of the time that it takes to pad and to add them.
static tri_value joined(tri_graph *g, tri_value sum) {
    slices s = {.count = 0};
    int64_t end = 0;
    if (!tri_value_is(sum) || !collect_slices(g, sum, &s) || s.count < 2) return sum;
    for (int i = 0; i < s.count; i++) {
        tri_shape part = tri_value_shape(g, s.parts[i]);
        if (s.first[i] != end) return sum;
        end += tri_shape_count(&part) / s.rows;
    }
    if (end != s.columns) return sum;
    tri_concat_attr attr = {.dim = s.dim < 0 ? 1 : s.dim};
    for (int i = 0; i < s.count && s.dim < 0; i++) {
        tri_shape part = tri_value_shape(g, s.parts[i]);
        tri_shape matrix = tri_shape_of(s.rows, tri_shape_count(&part) / s.rows);
        s.parts[i] = reshaped(g, s.parts[i], &matrix);
    }
    tri_shape shape = tri_value_shape(g, sum);
    return reshaped(g, tri_node_add(g, &tri_op_concat, s.parts, s.count, &attr, ""), &shape);
}

static void differentiate(autodiff *a, tri_node node) {
    tri_value out[TRI_MAX_OUTPUTS] = {{0}};
    bool wanted[TRI_MAX_INPUTS] = {false}, any = false;
    a->graph->block = node.block;
    for (int k = 0; k < node.output_count; k++) {
        out[k] = joined(a->graph, a->grads[node.outputs[k].id]);
        any = any || tri_value_is(out[k]);
    }
    if (!any || !node.op->gradient) return;
    for (int k = 0; k < node.input_count; k++) wanted[k] = a->wanted[node.inputs[k].id];
    found f = {.node = &node, .before = a->graph->node_count};
    node.op->gradient(a->graph, &node, out, wanted, f.in);
    for (int k = 0; k < node.input_count; k++) accumulate(a, &f, k);
}

static tri_status check_gradients(const tri_graph *g) {
    bool *has = TRI_NEW_ARRAY(g->arena, bool, g->parameter_count);
    // gradient_of[v]: index + 1 of the gradient that is value v; 0: none.
    int *gradient_of = TRI_NEW_ARRAY(g->arena, int, g->value_count);
    for (int i = 0; i < g->gradient_count; i++) {
        has[g->gradients[i].parameter] = true;
        // Two parameters cannot share a gradient, because each parameter's gradient has its own
        // memory.
        int *of_value = &gradient_of[g->gradients[i].value.id];
        if (*of_value)
            return TRI_FAIL(TRI_UNSUPPORTED, "parameters %s and %s have one gradient",
                            g->parameters[g->gradients[i].parameter].name,
                            g->parameters[g->gradients[*of_value - 1].parameter].name);
        *of_value = i + 1;
    }
    for (int i = 0; i < g->parameter_count; i++)
        if (g->parameters[i].role == TRI_ROLE_TRAINED && !has[i])
            return TRI_FAIL(TRI_BAD_INPUT,
                            "parameter %s takes no part in the loss: use its layer's result, leave "
                            "the layer out, or freeze it (optimizer.freeze)",
                            g->parameters[i].name);
    return TRI_OK;
}

// Sets the loss seed, the gradient with which the backward pass begins. A loss that is a weighted
// sum has one seed for each of its terms. False: no loss depends on a trained parameter.
static bool seed_losses(autodiff *a) {
    tri_graph *g = a->graph;
    bool any = false;
    for (int i = 0; i < (g->term_count ? g->term_count : 1); i++) {
        tri_value loss = g->metrics[g->term_count ? g->first_term + i : 0].value;
        if (!a->wanted[loss.id]) continue;
        int kind = g->term_count ? TRI_SCALAR_TERM + i : TRI_SCALAR_SEED;
        a->grads[loss.id] = tri_scalar(g, (tri_scalar_kind)kind);
        any = true;
    }
    return any;
}

tri_status tri_pass_autodiff(tri_graph *graph) {
    if (graph->status != TRI_OK) return TRI_FAIL(graph->status, "%s", graph->message);
    if (graph->metric_count == 0 || strcmp(graph->metrics[0].name, "loss") != 0)
        return TRI_FAIL(TRI_BAD_INPUT, "the model declares no loss: it must call tri_loss");
    int values = graph->value_count;
    autodiff a = {.graph = graph,
                  .wanted = pass_find_wanted(graph),
                  .grads = TRI_NEW_ARRAY(graph->arena, tri_value, values),
                  .value_count = values};
    if (!seed_losses(&a)) return TRI_FAIL(TRI_BAD_INPUT, "the loss depends on no parameter");
    int forward = graph->node_count, block = graph->block;
    graph->phase = TRI_PHASE_BACKWARD;
    for (int i = forward - 1; i >= 0; i--) differentiate(&a, graph->nodes[i]);
    graph->phase = TRI_PHASE_FORWARD;
    graph->block = block;
    if (graph->status != TRI_OK) return TRI_FAIL(graph->status, "%s", graph->message);
    TRI_TRY(check_gradients(graph));
    return tri_pass_sweep(graph); // sums whose terms were joined instead
}
