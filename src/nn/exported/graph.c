// Builds the graph of an exported network, node by node: parameters, the data, each node by its
// row, and the outputs.
//
// All graphs of a model have the same parameters, and the constants among them. A network may make
// others in evaluation than in training: another program is computed, or a layer that draws random
// numbers. So such a graph first declares those of both.
#include "nn/exported/exported.h"

#include "nn/exported/build.h"
#include "nn/exported/lower.h"
#include "nn/layers.h"
#include "nn/options.h"
#include "tensor/half.h"

#include <stdio.h>
#include <string.h>
#include <trireme/caches.h>
#include <trireme/nn.h>

// How a parameter begins where the file's weights are not wanted: as PyTorch's layers begin the
// argument of an operation that it is. Others have no rule.
static const exported_beginning beginnings[] = {
    {"aten.embedding", "weight", TRI_INIT_NORMAL, 0},
    {"aten.linear", "weight", TRI_INIT_UNIFORM, 0},
    {"aten.linear", "bias", TRI_INIT_UNIFORM, 0},
    {"aten.conv", "weight", TRI_INIT_UNIFORM, 0},
    {"aten.conv", "bias", TRI_INIT_UNIFORM, 0},
    {"aten.layer_norm", "weight", TRI_INIT_ONES, 0},
    {"aten.layer_norm", "bias", TRI_INIT_ZEROS, 0},
    {"aten.rms_norm", "weight", TRI_INIT_ONES, 0},
    {"aten.group_norm", "weight", TRI_INIT_ONES, 0},
    {"aten.group_norm", "bias", TRI_INIT_ZEROS, 0},
    {"aten.instance_norm", "weight", TRI_INIT_ONES, 0},
    {"aten.instance_norm", "bias", TRI_INIT_ZEROS, 0},
    {"aten.prelu", "weight", TRI_INIT_CONSTANT, 0.25},
};

// The number of inputs of the operation's weight.
static int64_t fan_in_of(const nn_exported *n, const tri_pt2_node *node) {
    for (int i = 0; i < node->argument_count; i++) {
        const tri_pt2_argument *a = &node->arguments[i];
        if (strcmp(a->name, "weight") != 0 || a->kind != TRI_PT2_VALUE) continue;
        const tri_pt2_value *v = &n->file.values[a->number];
        int64_t fan_in = 1;
        for (int k = 1; k < v->rank; k++) fan_in *= v->sizes[k];
        return fan_in;
    }
    return 1;
}

// The rule by which the node's argument `a` begins; NULL: there is none.
static const exported_beginning *beginning_of(const tri_pt2_node *node, const tri_pt2_argument *a) {
    for (size_t k = 0; k < sizeof beginnings / sizeof *beginnings; k++)
        if (!strncmp(node->target, beginnings[k].operation, strlen(beginnings[k].operation)) &&
            !strcmp(a->name, beginnings[k].argument))
            return &beginnings[k];
    return NULL;
}

// Finds of each parameter the first argument that says how it begins.
void exported_find_rules(nn_exported *n) {
    n->rules = TRI_NEW_ARRAY(n->arena, exported_rule, n->file.value_count);
    for (int i = 0; i < n->file.node_count; i++) {
        const tri_pt2_node *node = &n->file.nodes[i];
        for (int k = 0; k < node->argument_count; k++) {
            const tri_pt2_argument *a = &node->arguments[k];
            if (a->kind != TRI_PT2_VALUE || !n->ports[a->number] || n->rules[a->number].node)
                continue;
            const exported_beginning *rule = beginning_of(node, a);
            if (rule) n->rules[a->number] = (exported_rule){node, rule};
        }
    }
}

static tri_shape shape_of(exported_build *b, const tri_pt2_value *v) {
    tri_shape shape = {.rank = v->rank};
    for (int i = 0; i < v->rank && i < TRI_MAX_RANK; i++) shape.dims[i] = v->sizes[i];
    if (v->rank > TRI_MAX_RANK) {
        tri_graph_fail(b->graph, "'%s' has more than %d axes", v->name, TRI_MAX_RANK);
        shape.rank = 0;
    }
    return shape;
}

static tri_init init_of(exported_build *b, const tri_pt2_port *port) {
    const nn_exported *n = b->network;
    const exported_rule *rule = &n->rules[port->argument.number];
    if (rule->node) {
        if (rule->begins->kind == TRI_INIT_UNIFORM)
            return nn_fan_in_uniform(fan_in_of(n, rule->node));
        return (tri_init){.kind = rule->begins->kind, .value = rule->begins->value, .std = 1};
    }
    if (!n->has_weights)
        tri_graph_fail(b->graph,
                       "model.weights: none: how '%s' begins is known to its module alone; begin "
                       "with the program's weights",
                       port->name);
    return (tri_init){.kind = TRI_INIT_ZEROS};
}

const char *exported_parameter_name(const nn_exported *n, const tri_pt2_port *port) {
    const tri_pt2_tensor *stored = tri_pt2_find(&n->file, port->name);
    return stored && stored->twin ? stored->twin : port->name;
}

static exported_value parameter_of(exported_build *b, const tri_pt2_port *port) {
    const tri_pt2 *file = &b->network->file;
    const tri_pt2_value *v = &file->values[port->argument.number];
    const char *name = exported_parameter_name(b->network, port);
    tri_value value = tri_parameter(b->graph, name, shape_of(b, v), init_of(b, port));
    if (b->graph->status != TRI_OK) return (exported_value){0};
    const tri_pt2_tensor *stored = tri_pt2_find(file, name);
    tri_parameter_info *info = &b->graph->parameters[tri_value_get(b->graph, value)->index];
    if (stored && !info->alias) info->alias = stored->alias;
    return exported_of_graph(value, v->dtype);
}

static exported_value constant_of(exported_build *b, const tri_pt2_port *port) {
    const tri_pt2 *file = &b->network->file;
    const tri_pt2_tensor *stored = tri_pt2_find(file, port->name);
    if (!stored) {
        tri_graph_fail(b->graph, "the file has no '%s'", port->name);
        return (exported_value){0};
    }
    exported_value v = exported_host_read(b, stored);
    v.dtype = file->values[port->argument.number].dtype;
    v.name = file->values[port->argument.number].name;
    return v;
}

// The tokens of texts that are generated, which have to be all that the network takes.
static tri_value tokens_of(exported_build *b) {
    if (exported_input_count(b->network) > 1)
        tri_graph_fail(b->graph,
                       "%s generates no text: it takes more than the tokens of a text: export it "
                       "with input_ids alone",
                       b->network->file.path);
    return tri_batch_field(b->batch, "input_ids");
}

// Whether the field is what a loss compares with: by its usual name, or because the recipe says so.
static bool is_target(const exported_build *b, const char *field) {
    static const char *const usual[] = {"labels", "targets", "target", "soft_labels"};
    const tri_graph_options *o = &b->graph->options;
    bool is = false;
    for (size_t k = 0; k < sizeof usual / sizeof *usual; k++) is = is || !strcmp(usual[k], field);
    for (int k = 0; k < o->loss_count; k++)
        is = is || (o->losses[k].target && !strcmp(o->losses[k].target, field));
    return is;
}

// The field of the data that an argument of the network takes: the one that the recipe names, one
// of its own name, or the only one there is.
static tri_value field_of(exported_build *b, const tri_pt2_port *port) {
    const char *given = exported_input_field(b->network, port->name), *names = "";
    if (tri_cache_length(b->graph) > 0) return tokens_of(b);
    tri_value value = tri_batch_field(b->batch, given ? given : port->name), only = {0};
    if (tri_value_is(value)) return value;
    int count = 0;
    for (int i = 0; i < b->graph->input_count; i++) {
        const tri_input_info *input = &b->graph->inputs[i];
        names = tri_name(b->graph, "%s%s%s", names, *names ? ", " : "", input->name);
        if (is_target(b, input->name)) continue;
        count++;
        only = input->value;
    }
    if (!given && count == 1 && exported_input_count(b->network) == 1) return only;
    tri_graph_fail(b->graph,
                   "the data have no field '%s' for the argument '%s' of %s%s%s: "
                   "model.inputs says which one it takes",
                   given ? given : port->name, port->name, b->network->file.path,
                   *names ? "; they have " : "", names);
    return value;
}

static exported_value input_of(exported_build *b, const tri_pt2_port *port) {
    const tri_pt2_value *v = &b->network->file.values[port->argument.number];
    tri_value value = field_of(b, port);
    tri_shape shape = tri_value_shape(b->graph, value);
    char text[160], want[160] = "";
    if (b->graph->status != TRI_OK) return (exported_value){0};
    bool is_float = tri_dtype_is_float(tri_value_get(b->graph, value)->dtype),
         fits = shape.rank == v->rank && is_float == exported_type_is_float(v->dtype);
    for (int i = 0; i < v->rank; i++) {
        size_t used = strlen(want);
        bool is_any = i == 0 || v->sizes[i] < 0;
        int64_t most = i == 0 ? 0 : v->most[i];
        if (i == 0)
            snprintf(want, sizeof want, "[N");
        else if (is_any && most == 0)
            snprintf(want + used, sizeof want - used, ", any");
        else
            snprintf(want + used, sizeof want - used, ", %s%lld", is_any ? "up to " : "",
                     (long long)(is_any ? most : v->sizes[i]));
        fits = fits && (is_any ? most == 0 || shape.dims[i] <= most : v->sizes[i] == shape.dims[i]);
    }
    if (!fits)
        tri_graph_fail(
            b->graph, "the argument '%s' of %s is %s%s of %s, but the data have %s of %s",
            port->name, b->network->file.path, want, v->rank ? "]" : "",
            exported_type_is_float(v->dtype) ? "numbers" : "integers",
            tri_shape_text(&shape, text, sizeof text), is_float ? "numbers" : "integers");
    if (v->dtype == TRI_PT2_BOOLEAN) value = tri_mask(b->graph, "x != 0", value);
    return exported_of_graph(value, v->dtype);
}

static exported_value port_value(exported_build *b, const tri_pt2_port *port) {
    switch (port->role) {
    case TRI_PT2_PARAMETER:
        return parameter_of(b, port);
    case TRI_PT2_INPUT:
        return input_of(b, port);
    default:
        return constant_of(b, port);
    }
}

// Says which node an error is of.
static void name_node(exported_build *b, const tri_pt2_node *node) {
    tri_graph *g = b->graph;
    int64_t fixed = exported_fixed_batch(b);
    const char *hint = "";
    if (fixed)
        hint = tri_arena_printf(g->arena,
                                " (the network was exported with a batch of %lld and not with "
                                "dynamic_shapes: do that, or train with batch.micro=%lld)",
                                (long long)fixed, (long long)fixed);
    bool is_write = !strncmp(node->target, "write.", 6); // of a view into its base (views.c)
    g->message = tri_arena_printf(g->arena, "%s: %s in '%s'%s%s: %s%s", b->network->file.path,
                                  is_write ? "what is written in place into a view" : node->target,
                                  *node->module ? node->module : "the network",
                                  *node->source ? ", " : "", node->source, g->message, hint);
}

static void lower(exported_build *b, int number) {
    const exported_node *node = &b->network->nodes[number];
    exported_call call = {.build = b, .node = node->node, .row = node->row};
    if (b->graph->status != TRI_OK) return;
    exported_bind(&call);
    if (node->row->lower) {
        node->row->lower(&call);
    } else {
        tri_formula formula;
        exported_value in[TRI_FORMULA_INPUTS];
        double parameters[EXPORTED_MAX_ARGUMENTS] = {0};
        if (tri_formula_parse(node->row->formula, NULL, &formula) != TRI_OK)
            tri_graph_fail(b->graph, "%s", tri_error_message());
        int count = b->graph->status == TRI_OK ? formula.input_count : 0;
        for (int k = 0; k < count; k++) in[k] = exported_operand(&call, k);
        for (int k = count; k < call.count; k++) parameters[k - count] = exported_real(&call, k);
        if (b->graph->status == TRI_OK)
            exported_give(&call, exported_map_text(b, node->row->formula, parameters, in, count,
                                                   exported_result_type(&call, 0)));
    }
    if (b->graph->status != TRI_OK) name_node(b, node->node);
}

exported_value exported_get(exported_build *b, int number) {
    const nn_exported *n = b->network;
    const tri_pt2_port *port = n->ports[number];
    int maker = n->makers[number];
    bool is_made = b->made[number] >= 0;
    exported_value *v = &b->values[number];
    if (b->graph->status != TRI_OK) return (exported_value){0};
    if (port && !is_made) {
        *v = port_value(b, port);
        b->made[number] = b->block;
    } else if (maker >= 0) {
        // What only data reach is computed in each block that reads it, so that blocks hand over
        // nothing but what parameters reach.
        bool is_elsewhere =
            v->kind == EXPORTED_GRAPH && !n->nodes[maker].is_reached && b->made[number] != b->block;
        if (!is_made || is_elsewhere) lower(b, maker);
    }
    return *v;
}

// Declares an output, or the loss; of texts that are generated, the scores of the next token.
static bool declare_output(exported_build *b, const char *name, tri_value value) {
    tri_graph *g = b->graph;
    if (tri_cache_length(g) == 0) {
        if (tri_value_is_loss(g, value))
            tri_loss(g, value);
        else if (g->status == TRI_OK && tri_value_shape(g, value).rank == 0)
            tri_graph_fail(g,
                           "the result '%s' is one number and no loss: a loss is a mean of all "
                           "elements, a sum over the number of samples or over that of a mask, or "
                           "added and scaled of these; return what it is computed of, and let the "
                           "recipe have the loss",
                           name);
        else
            tri_output(g, name, value);
        return true;
    }
    bool is_float = tri_dtype_is_float(tri_value_get(g, value)->dtype);
    if (tri_value_shape(g, value).rank != 3 || !is_float || g->output_count > 0) return false;
    tri_output(g, "logits", tri_last_token(g, value, tri_batch_field(b->batch, "spans")));
    return true;
}

static const char *output_at(const nn_exported *n, const char *name, int number) {
    const char *found = NULL;
    for (int i = 0, count = 0; i < n->file.output_count; i++) {
        const tri_pt2_port *port = &n->file.outputs[i];
        if (port->role != TRI_PT2_OUTPUT) continue;
        if (!strcmp(port->name, name)) return name;
        if (count++ == number) found = port->name;
    }
    return found ? found : name;
}

// The name of an output: of a program for evaluation one that the other has, or the one at its
// place there.
static const char *output_name(const nn_exported *n, const tri_pt2_port *port, int number) {
    return n->trained ? output_at(n->trained, port->name, number) : port->name;
}

// Declares the result: a loss, or outputs by their names.
static void declare_outputs(exported_build *b) {
    const tri_pt2 *file = &b->network->file;
    const char *wanted = exported_option(b->network, "output"), *names = "";
    int number = 0, given = 0;
    bool any = false;
    for (int i = 0; i < file->output_count && b->graph->status == TRI_OK; i++) {
        const tri_pt2_port *port = &file->outputs[i];
        if (port->role != TRI_PT2_OUTPUT) continue;
        const char *place = tri_name(b->graph, "%d", number),
                   *name = output_name(b->network, port, number++);
        names = tri_name(b->graph, "%s%s%s", names, *names ? ", " : "", name);
        if (wanted && strcmp(wanted, name) != 0 && strcmp(wanted, place) != 0) continue;
        if (port->argument.kind != TRI_PT2_VALUE) continue;
        exported_value v = exported_get(b, (int)port->argument.number);
        given++;
        if (v.kind == EXPORTED_GRAPH) any = declare_output(b, name, v.graph) || any;
    }
    if (!given && b->graph->status == TRI_OK)
        tri_graph_fail(b->graph, "model.output: %s returns %s, not '%s'", file->path, names,
                       wanted ? wanted : "");
    else if (!any && tri_cache_length(b->graph) > 0)
        tri_graph_fail(b->graph,
                       "%s generates no text: none of its results is scores [N, T, tokens]",
                       file->path);
}

// Parameters with requires_grad=False are not trained.
static void freeze(tri_graph *g, const nn_exported *n) {
    for (int i = 0; i < g->parameter_count; i++) {
        tri_parameter_info *info = &g->parameters[i];
        const tri_pt2_tensor *stored = tri_pt2_find(&n->file, info->name);
        if (stored && stored->is_frozen && info->role == TRI_ROLE_TRAINED)
            info->role = TRI_ROLE_FROZEN;
    }
}

// The graphs of both modes, whose parameters a graph declares. NULL: there are none.
typedef struct prelude {
    const tri_graph *graphs[2];
} prelude;

static void declare_block(tri_graph *g, const prelude *p, int block) {
    for (int k = 0; k < 2 && p->graphs[k]; k++)
        for (int i = 0; i < p->graphs[k]->parameter_count; i++) {
            const tri_parameter_info *info = &p->graphs[k]->parameters[i];
            if (info->block == block)
                tri_parameter_of_role(g, info->name, info->dtype, info->shape, info->init,
                                      info->role, info->momentum);
        }
}

static void begin_block(exported_build *b, const prelude *p, int block) {
    b->block = block;
    tri_block(b->graph, b->network->blocks[block]);
    declare_block(b->graph, p, block);
}

// is_alone: only its parameters are asked for.
static void build_program(tri_graph *g, const tri_batch *batch, const nn_exported *n,
                          const prelude *p, bool is_alone) {
    exported_build b = {.graph = g, .batch = batch, .network = n};
    b.values = TRI_NEW_ARRAY(g->arena, exported_value, n->file.value_count);
    b.made = TRI_NEW_ARRAY(g->arena, int, n->file.value_count);
    for (int i = 0; i < n->file.value_count; i++) b.made[i] = -1;
    begin_block(&b, p, 0);
    for (int i = 0; i < n->file.node_count && g->status == TRI_OK; i++) {
        const exported_node *node = &n->nodes[i];
        if (!node->is_live) continue;
        while (node->is_reached && node->block > b.block) begin_block(&b, p, b.block + 1);
        lower(&b, i);
    }
    while (b.block + 1 < n->block_count) begin_block(&b, p, b.block + 1);
    if (g->status == TRI_OK && !is_alone) declare_outputs(&b);
}

// The program of a mode: in evaluation it may be another one.
static const nn_exported *program_of(const nn_exported *n, bool trains) {
    return n->evaluation && !trains ? n->evaluation : n;
}

// Builds the graph of a mode on its own, with the inputs of another graph.
static const tri_graph *build_alone(tri_graph *g, const tri_batch *batch, const nn_exported *n,
                                    bool trains) {
    const prelude none = {{NULL}};
    tri_graph_options options = g->options;
    options.training = trains;
    options.predicts = options.predicts && !trains;
    tri_graph *alone = tri_graph_create(g->arena, &options);
    for (int i = 0; i < g->input_count; i++) {
        const tri_value_info *info = tri_value_get(g, g->inputs[i].value);
        tri_input(alone, g->inputs[i].name, info->dtype, info->shape);
    }
    tri_batch inputs = tri_batch_make(alone, batch->size);
    build_program(alone, &inputs, program_of(n, trains), &none, true);
    if (alone->status != TRI_OK && g->status == TRI_OK) {
        g->status = alone->status;
        g->message = alone->message;
    }
    return alone;
}

// What only outputs are wanted of need not be as in training, unless the weights are of that.
static bool needs_both(const tri_graph *g, const nn_exported *n) {
    return n->evaluation || (n->draws && !g->options.predicts);
}

void exported_build_network(tri_graph *g, const tri_batch *batch) {
    const nn_exported *n = nn_exported_of(g->options.task);
    prelude p = {{NULL}};
    for (int i = 0; i < exported_key_count; i++) tri_graph_model_option(g, exported_keys[i]);
    for (int k = 0; k < 2 && needs_both(g, n) && g->status == TRI_OK; k++)
        p.graphs[k] = build_alone(g, batch, n, k == 0);
    if (g->status != TRI_OK) return;
    build_program(g, batch, program_of(n, g->options.training), &p, false);
    if (g->status == TRI_OK) freeze(g, n);
}
