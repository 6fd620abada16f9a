// Builds graphs: adds values, nodes, parameters, inputs and metrics one by one, and checks each.
#include "graph/graph.h"

#include "base/limits.h"
#include "base/tree.h"

#include <fnmatch.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

tri_graph *tri_graph_create(tri_arena *parent, const tri_graph_options *options) {
    tri_arena *arena = tri_arena_create(parent, "graph");
    tri_graph *g = TRI_NEW(arena, tri_graph);
    *g = (tri_graph){.arena = arena, .options = *options, .block = -1, .message = ""};
    g->drops_losses = options->predicts || options->loss_count > 0;
    TRI_PUSH(arena, g->values, g->value_count, g->value_capacity) = (tri_value_info){0};
    return g;
}

void tri_graph_destroy(tri_graph *graph) {
    if (graph) tri_arena_destroy(graph->arena);
}

// Keeps the graph's first error: later ones mostly follow from it.
static void keep_error(tri_graph *g, tri_status status) {
    if (g->status != TRI_OK) return;
    g->status = status;
    g->message = tri_arena_strdup(g->arena, tri_error_message());
}

void tri_graph_fail(tri_graph *graph, const char *format, ...) {
    char text[TRI_MESSAGE_MAX_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    keep_error(graph, TRI_FAIL(TRI_BAD_INPUT, "%s", text));
}

bool tri_graph_takes_name(tri_graph *graph, const char *what, const char *name) {
    if (graph->status != TRI_OK) return false;
    // A checkpoint cannot contain a name that is not UTF-8. Without this check the run would fail
    // only when it saves its first checkpoint.
    if (!name || !tri_json_is_text(name))
        tri_graph_fail(graph, "a %s's name is %s: give it one", what, name ? "not UTF-8" : "NULL");
    return graph->status == TRI_OK;
}

const char *tri_name(tri_graph *graph, const char *format, ...) {
    char text[TRI_MESSAGE_MAX_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return tri_arena_strdup(graph->arena, text);
}

tri_status tri_graph_status(const tri_graph *graph, const char **message) {
    if (message) *message = graph->message;
    return graph->status;
}

bool tri_training(const tri_graph *graph) { return graph->options.training; }

const tri_tree *tri_graph_model_option(tri_graph *graph, const char *key) {
    if (!key) tri_graph_fail(graph, "a model option's key is NULL: give it one");
    if (!key) return NULL;
    if (graph->options.model_asks) graph->options.model_asks(graph->options.model_context, key);
    const tri_tree *node = tri_tree_get(graph->options.model_options, key);
    return tri_tree_is_null(node) ? NULL : node;
}

static void fail_option(tri_graph *g, const tri_tree *node, const char *key, const char *what) {
    keep_error(g, tri_tree_fail(node, "model.%s has to be %s, not %s", key, what,
                                tri_yaml_flow(g->arena, node)));
}

double tri_model_float(tri_graph *graph, const char *key, double otherwise) {
    const tri_tree *node = tri_graph_model_option(graph, key);
    double value;
    if (!node) return otherwise;
    if (tri_tree_to_double(node, &value) && isfinite(value)) return value;
    fail_option(graph, node, key, "a number");
    return otherwise;
}

int64_t tri_model_int(tri_graph *graph, const char *key, int64_t otherwise) {
    const tri_tree *node = tri_graph_model_option(graph, key);
    int64_t value;
    double number;
    if (!node) return otherwise;
    if (tri_tree_to_int(node, &value)) return value;
    if (tri_tree_to_double(node, &number) && fabs(number) < 0x1p53 &&
        number == (double)(int64_t)number)
        return (int64_t)number; // 16.0
    fail_option(graph, node, key, "a whole number");
    return otherwise;
}

bool tri_model_bool(tri_graph *graph, const char *key, bool otherwise) {
    const tri_tree *node = tri_graph_model_option(graph, key);
    bool value;
    double number;
    if (!node) return otherwise;
    if (tri_tree_to_bool(node, &value)) return value;
    if (tri_tree_to_double(node, &number)) return number != 0;
    fail_option(graph, node, key, "true or false");
    return otherwise;
}

const char *tri_model_text(tri_graph *graph, const char *key, const char *otherwise) {
    const tri_tree *node = tri_graph_model_option(graph, key);
    if (!node) return otherwise;
    if (node->kind == TRI_TREE_SCALAR) return tri_arena_strdup(graph->arena, node->text);
    fail_option(graph, node, key, "a text");
    return otherwise;
}

bool tri_graph_has(const tri_graph *graph, tri_value value) {
    return value.id < (uint32_t)graph->value_count;
}

bool tri_graph_takes_value(tri_graph *graph, const char *what, const char *name, tri_value value) {
    if (graph->status == TRI_OK && !tri_graph_has(graph, value))
        tri_graph_fail(graph,
                       "%s%s%s: this graph has no value %u: a value belongs to the graph of the "
                       "call that returned it, and to no other",
                       what, name && *name ? " " : "", name ? name : "", value.id);
    return graph->status == TRI_OK;
}

const tri_value_info *tri_value_get(const tri_graph *graph, tri_value value) {
    TRI_ASSERT(value.id < (uint32_t)graph->value_count);
    return &graph->values[value.id];
}

tri_shape tri_value_shape(const tri_graph *graph, tri_value value) {
    return tri_graph_has(graph, value) ? graph->values[value.id].shape : (tri_shape){0};
}

const tri_node *tri_value_node(const tri_graph *graph, tri_value value) {
    const tri_value_info *info = tri_value_get(graph, value);
    return info->kind == TRI_VALUE_RESULT ? &graph->nodes[info->node] : NULL;
}

bool tri_value_is_loss(const tri_graph *graph, tri_value value) {
    const tri_node *node = tri_value_node(graph, value);
    return tri_value_get(graph, value)->kind == TRI_VALUE_WEIGHTED ||
           (node && node->op->flags & TRI_OP_LOSS);
}

int64_t tri_value_bytes(const tri_graph *graph, tri_value value) {
    const tri_value_info *info = tri_value_get(graph, value);
    return tri_layout_elements(&info->layout, &info->shape) * (int64_t)tri_dtype_bytes(info->dtype);
}

int64_t tri_graph_trained_count(const tri_graph *graph) {
    int64_t count = 0;
    for (int i = 0; i < graph->parameter_count; i++)
        if (graph->parameters[i].role == TRI_ROLE_TRAINED)
            count +=
                tri_shape_count(graph->parameters[i].slice.count ? &graph->parameters[i].slice.full
                                                                 : &graph->parameters[i].shape);
    return count;
}

static tri_value add_value(tri_graph *g, tri_value_info info) {
    tri_value value = {(uint32_t)g->value_count};
    TRI_PUSH(g->arena, g->values, g->value_count, g->value_capacity) = info;
    return value;
}

void tri_block(tri_graph *graph, const char *name) {
    if (!tri_graph_takes_name(graph, "block", name)) return;
    if (tri_index_find(&graph->block_index, name, strlen(name)) != TRI_NOT_IN_INDEX)
        tri_graph_fail(graph, "two blocks are named '%s'", name);
    if (graph->block_count == TRI_MAX_MODEL_BLOCKS)
        tri_graph_fail(graph, "a model has at most %d blocks: '%s' is one more",
                       TRI_MAX_MODEL_BLOCKS, name);
    if (graph->status != TRI_OK) return;
    graph->block = graph->block_count;
    name = tri_arena_strdup(graph->arena, name);
    tri_index_put(graph->arena, &graph->block_index, name, strlen(name), graph->block);
    TRI_PUSH(graph->arena, graph->blocks, graph->block_count, graph->block_capacity) = name;
}

// Begins the block "model" if there is no block yet: nodes and parameters that are added before the
// first tri_block need one, because every node belongs to a block.
static void need_block(tri_graph *g) {
    if (g->block < 0) tri_block(g, "model");
}

static tri_layer_info *layer_of(const tri_graph *g, const char *name) {
    int found = tri_index_find(&g->layer_index, name, strlen(name));
    return found == TRI_NOT_IN_INDEX ? NULL : &g->layers[found];
}

static tri_layer_info *layer_add(tri_graph *g, const char *name) {
    name = tri_arena_strdup(g->arena, name);
    tri_index_put(g->arena, &g->layer_index, name, strlen(name), g->layer_count);
    TRI_PUSH(g->arena, g->layers, g->layer_count, g->layer_capacity) =
        (tri_layer_info){.name = name};
    return &g->layers[g->layer_count - 1];
}

// Whether layers may have the name several times: it is shared, or begins with a shared one.
static bool is_shared(const tri_graph *g, const char *name) {
    for (size_t length = strlen(name); length > 0; length--) {
        if (name[length] != '\0' && name[length] != '.') continue;
        int found = tri_index_find(&g->layer_index, name, length);
        if (found != TRI_NOT_IN_INDEX && g->layers[found].shared) return true;
    }
    return false;
}

bool tri_layer_begin(tri_graph *graph, const char *name) {
    if (!tri_graph_takes_name(graph, "layer", name)) return false;
    tri_layer_info *layer = layer_of(graph, name);
    if (!layer) layer = layer_add(graph, name);
    if (layer->begun && !is_shared(graph, name))
        tri_graph_fail(graph,
                       "two layers are named '%s': give each its own name, or call "
                       "tri_share_layer to give both the same weights",
                       name);
    layer->begun = true;
    return graph->status == TRI_OK;
}

int64_t tri_layer_count(tri_graph *graph, const char *name) {
    if (!tri_graph_takes_name(graph, "layer", name)) return 0;
    tri_layer_info *layer = layer_of(graph, name);
    if (!layer) layer = layer_add(graph, name);
    return layer->counted++;
}

void tri_share_layer(tri_graph *graph, const char *name) {
    if (!tri_graph_takes_name(graph, "layer", name)) return;
    tri_layer_info *layer = layer_of(graph, name);
    if (!layer) layer = layer_add(graph, name);
    layer->shared = true;
}

tri_value tri_input(tri_graph *graph, const char *name, tri_dtype dtype, tri_shape shape) {
    for (int i = 0; i < graph->input_count; i++)
        if (!strcmp(graph->inputs[i].name, name)) return graph->inputs[i].value;
    tri_value value = add_value(graph, (tri_value_info){.kind = TRI_VALUE_INPUT,
                                                        .dtype = dtype,
                                                        .shape = shape,
                                                        .index = graph->input_count});
    TRI_PUSH(graph->arena, graph->inputs, graph->input_count, graph->input_capacity) =
        (tri_input_info){.name = tri_arena_strdup(graph->arena, name), .value = value};
    return value;
}

tri_value tri_position(tri_graph *graph) {
    return tri_input(graph, "position", TRI_I64, tri_shape_of(2));
}

tri_value tri_scalar(tri_graph *graph, tri_scalar_kind kind) {
    if (tri_value_is(graph->scalars[kind])) return graph->scalars[kind];
    bool seed = kind != TRI_SCALAR_STEP;
    graph->scalars[kind] =
        add_value(graph, (tri_value_info){.kind = TRI_VALUE_SCALAR,
                                          .dtype = seed ? graph->options.dtype : TRI_F64,
                                          .shape = tri_shape_of(seed ? 1 : TRI_STEP_SCALAR_COUNT),
                                          .index = (int)kind});
    return graph->scalars[kind];
}

tri_value tri_parameter_of_role(tri_graph *graph, const char *name, tri_dtype dtype,
                                tri_shape shape, tri_init init, tri_parameter_role role,
                                double momentum) {
    if (!tri_graph_takes_name(graph, "parameter", name)) return (tri_value){0};
    int known = tri_index_find(&graph->parameter_index, name, strlen(name));
    if (known != TRI_NOT_IN_INDEX) {
        const tri_parameter_info *p = &graph->parameters[known];
        if (tri_shape_equal(&p->shape, &shape) && p->role == role) return p->value;
        tri_graph_fail(graph, "parameter '%s' is declared twice with different %s", name,
                       p->role == role ? "shapes" : "roles: as trained, buffer or constant");
        return (tri_value){0};
    }
    if (strlen(name) >= TRI_MAX_NAME_BYTES || tri_shape_count(&shape) < 0) {
        tri_graph_fail(graph, "parameter '%.40s' has too long a name or an impossible shape", name);
        return (tri_value){0};
    }
    need_block(graph);
    tri_value value = add_value(graph, (tri_value_info){.kind = TRI_VALUE_PARAMETER,
                                                        .dtype = dtype,
                                                        .shape = shape,
                                                        .index = graph->parameter_count});
    name = tri_arena_strdup(graph->arena, name);
    size_t layer = tri_parameter_layer(name);
    int index = graph->parameter_count;
    int previous = tri_index_find(&graph->layer_parameters, name, layer);
    tri_index_put(graph->arena, &graph->parameter_index, name, strlen(name), index);
    tri_index_put(graph->arena, &graph->layer_parameters, name, layer, index);
    TRI_PUSH(graph->arena, graph->parameters, graph->parameter_count, graph->parameter_capacity) =
        (tri_parameter_info){.name = name,
                             .previous_of_layer = previous == TRI_NOT_IN_INDEX ? -1 : previous,
                             .role = role,
                             .dtype = dtype,
                             .shape = shape,
                             .init = init,
                             .momentum = momentum,
                             .block = graph->block,
                             .value = value};
    return value;
}

static bool trains_anything(const tri_graph *graph) {
    for (int i = 0; i < graph->parameter_count; i++)
        if (graph->parameters[i].role == TRI_ROLE_TRAINED) return true;
    return false;
}

static bool is_matched(const tri_parameter_info *p, const char *pattern) {
    bool is_trained = p->role == TRI_ROLE_TRAINED || p->role == TRI_ROLE_FROZEN;
    return is_trained && fnmatch(pattern, p->name, 0) == 0;
}

// Puts the parameters that match the pattern into the group, unless an earlier group has them.
// Returns how many match.
static int match_group(tri_graph *graph, const tri_parameter_group *group, int number,
                       const char *pattern, int *taken) {
    int matched = 0;
    for (int i = 0; i < graph->parameter_count; i++) {
        tri_parameter_info *p = &graph->parameters[i];
        if (!is_matched(p, pattern)) continue;
        matched++;
        if (p->group != 0 && p->group != number) continue;
        p->group = number;
        if (group->frozen) p->role = TRI_ROLE_FROZEN;
        ++*taken;
    }
    return matched;
}

static tri_status fill_group(tri_graph *graph, const tri_parameter_group *group, int number) {
    int matched = 0, taken = 0;
    const char *mistyped = NULL;
    bool needs_all = group->needs_all; // or a whole name matches nothing
    for (int k = 0; k < group->match.count; k++) {
        int found = match_group(graph, group, number, group->match.items[k], &taken);
        bool is_name = !strpbrk(group->match.items[k], "*?[");
        if (found == 0 && (!mistyped || is_name)) mistyped = group->match.items[k];
        needs_all = needs_all || (found == 0 && is_name);
        matched += found;
    }
    if (mistyped && (needs_all || matched == 0))
        return TRI_FAIL(TRI_BAD_INPUT, "%s: '%s' matches no parameter", group->key, mistyped);
    if (taken == 0 && !group->may_be_empty)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: the group of '%s' gets no parameter: earlier ones have all that it "
                        "matches, and the first that matches holds",
                        group->key, group->match.items[0]);
    return TRI_OK;
}

static bool is_small(const tri_parameter_info *p) {
    const char *dot = strrchr(p->name, '.');
    return p->shape.rank <= 1 || !strcmp(dot ? dot + 1 : p->name, "bias");
}

tri_status tri_graph_group(tri_graph *graph, const tri_parameter_group *groups, int count) {
    const char *freezing = NULL;
    for (int k = 0; k < count; k++) {
        if (groups[k].match.count > 0) TRI_TRY(fill_group(graph, &groups[k], k + 1));
        if (groups[k].frozen) freezing = groups[k].key;
    }
    for (int i = 0; i < graph->parameter_count; i++) {
        tri_parameter_info *p = &graph->parameters[i];
        int other = p->group ? groups[p->group - 1].of_small : 0;
        if (other && is_small(p)) p->group = other;
    }
    if (freezing && !trains_anything(graph))
        return TRI_FAIL(TRI_BAD_INPUT, "%s leaves no parameter to train", freezing);
    return TRI_OK;
}

bool tri_graph_has_match(const tri_graph *graph, const char *pattern) {
    for (int i = 0; i < graph->parameter_count; i++)
        if (is_matched(&graph->parameters[i], pattern)) return true;
    return false;
}

void tri_gradient_add(tri_graph *graph, int parameter, tri_value value) {
    TRI_PUSH(graph->arena, graph->gradients, graph->gradient_count, graph->gradient_capacity) =
        (tri_gradient_info){.parameter = parameter, .block = graph->block, .value = value};
}

tri_value tri_gradient_of(const tri_graph *graph, int parameter) {
    tri_value found = {0};
    for (int i = 0; i < graph->gradient_count; i++) {
        if (graph->gradients[i].parameter != parameter) continue;
        TRI_ASSERT(!tri_value_is(found));
        found = graph->gradients[i].value;
    }
    return found;
}

static tri_op_signature input_signature(const tri_graph *g, const tri_op *op,
                                        const tri_value *inputs, int count) {
    tri_op_signature s = {.input_count = op->input_count, .output_count = op->output_count};
    for (int i = 0; i < count; i++) {
        const tri_value_info *info = tri_value_get(g, inputs[i]);
        s.present[i] = tri_value_is(inputs[i]);
        s.in[i] = info->shape;
        s.in_type[i] = info->dtype;
    }
    return s;
}

bool tri_graph_check_input(tri_graph *graph, const char *layer, const char *name, tri_value input) {
    if (!tri_graph_takes_value(graph, layer, name, input)) return false;
    if (tri_value_is(input)) return true;
    const char *has = "";
    for (int i = 0; i < graph->input_count; i++)
        has = tri_name(graph, "%s%s%s", has, i ? ", " : "", graph->inputs[i].name);
    tri_graph_fail(
        graph, "%s%s%s: an input is missing: the data has %s, and not what is read here%s", layer,
        name && *name ? " " : "", name ? name : "", *has ? has : "no fields",
        graph->options.predicts ? "; if only losses read it, name it in data.shapes with "
                                  "the shape of one sample, as {labels: []}"
                                : "");
    return false;
}

// No op of a model takes a tensor without elements: most have no result for one, such as a mean,
// and none is of use. But [0] says between ops that something is not there, such as a layer's bias.
static tri_status want_elements(const tri_op *op, const tri_op_signature *s) {
    char shape[160];
    for (int i = 0; i < s->input_count; i++)
        for (int axis = 0; s->present[i] && axis < s->in[i].rank; axis++)
            if (s->in[i].dims[axis] == 0 && s->in[i].rank > 1)
                return TRI_FAIL(TRI_BAD_INPUT, "%s: axis %d of input %d, %s, is empty", op->name,
                                axis, i, tri_shape_text(&s->in[i], shape, sizeof shape));
    return TRI_OK;
}

tri_value tri_node_add(tri_graph *graph, const tri_op *op, const tri_value *inputs, int count,
                       const void *attr, const char *name) {
    tri_value none = {0};
    if (graph->status != TRI_OK) return none;
    TRI_ASSERT(count <= op->input_count && op->input_count <= TRI_MAX_INPUTS);
    for (int i = 0; i < op->input_count - op->optional_inputs; i++) {
        if (i < count && tri_graph_check_input(graph, op->name, name, inputs[i])) continue;
        return none;
    }
    for (int i = 0; i < count; i++) {
        if (!tri_graph_takes_value(graph, op->name, name, inputs[i])) return none;
        if (!tri_value_is(inputs[i]) || !tri_value_is_loss(graph, inputs[i])) continue;
        tri_graph_fail(graph,
                       "%s: input %d is a loss, whose mean is known only after the step: only "
                       "tri_loss, tri_metric, tri_add and tri_weighted take one",
                       op->name, i);
        return none;
    }
    need_block(graph);
    tri_node node = {.op = op,
                     .name = tri_arena_strdup(graph->arena, name ? name : ""),
                     .block = graph->block,
                     .phase = graph->phase,
                     .input_count = op->input_count,
                     .output_count = op->output_count};
    for (int i = 0; i < count; i++) node.inputs[i] = inputs[i];
    void *copy = tri_arena_alloc(graph->arena, op->attr_bytes);
    // If `attr` is NULL, `copy` is all zeros.
    if (op->attr_bytes && attr) memcpy(copy, attr, op->attr_bytes);
    node.attr = copy;
    tri_op_signature s = input_signature(graph, op, node.inputs, op->input_count);
    tri_status status = op->flags & TRI_OP_STEP ? TRI_OK : want_elements(op, &s);
    if (status == TRI_OK) status = op->shape(node.attr, &s);
    if (status != TRI_OK) {
        keep_error(graph, *node.name ? tri_status_context(status, "%s", node.name) : status);
        return none;
    }
    for (int i = 0; i < op->output_count; i++) {
        int64_t elements = tri_shape_count(&s.out[i]);
        if (elements > 0 || (elements == 0 && i > 0)) continue; // which may be left out
        char shape[160];
        tri_graph_fail(graph, "%s: %s: the result %s has %s elements", node.name, op->name,
                       tri_shape_text(&s.out[i], shape, sizeof shape),
                       elements ? "too many" : "no");
        return none;
    }
    for (int i = 0; i < op->output_count; i++)
        node.outputs[i] = add_value(graph, (tri_value_info){.kind = TRI_VALUE_RESULT,
                                                            .dtype = s.out_type[i],
                                                            .shape = s.out[i],
                                                            .node = graph->node_count,
                                                            .output = i});
    TRI_PUSH(graph->arena, graph->nodes, graph->node_count, graph->node_capacity) = node;
    return node.outputs[0];
}

int tri_node_overwrites(const tri_op *op, const void *attr) {
    if (op->may_overwrite && !op->may_overwrite(attr)) return -1;
    return op->in_place - 1;
}

tri_value tri_node_output(const tri_graph *graph, tri_value value, int output) {
    const tri_node *node = tri_value_node(graph, value);
    if (!node || output >= node->output_count) return (tri_value){0};
    return node->outputs[output];
}

tri_op_signature tri_node_signature(const tri_graph *graph, const tri_node *node) {
    tri_op_signature s = input_signature(graph, node->op, node->inputs, node->input_count);
    for (int i = 0; i < node->output_count; i++) {
        s.out[i] = tri_value_get(graph, node->outputs[i])->shape;
        s.out_type[i] = tri_value_get(graph, node->outputs[i])->dtype;
    }
    return s;
}

tri_cost tri_node_cost(const tri_graph *graph, const tri_node *node) {
    tri_op_signature s = tri_node_signature(graph, node);
    if (node->op->cost) return node->op->cost(node->attr, &s);
    if (node->op->flags & TRI_OP_VIEW || node->output_count == 0) return (tri_cost){0};
    return (tri_cost){.flops = (double)tri_shape_count(&s.out[0])};
}
