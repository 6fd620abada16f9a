// Opens an exported network, and builds its graph node by node.
#include "nn/exported/exported.h"

#include "base/quantity.h"
#include "nn/exported/build.h"
#include "nn/exported/lower.h"
#include "nn/exported/patterns.h"
#include "nn/layers.h"
#include "tensor/half.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <trireme/nn.h>

static const char *const keys[] = {NN_EXPORTED_FILE_KEY, "inputs", "output", "weights"};

static const char *option(const nn_exported *n, const char *key) {
    const tri_tree *node = tri_tree_get(n->options, key);
    return node && node->kind == TRI_TREE_SCALAR ? node->text : NULL;
}

bool exported_is_in_place(const char *target) {
    const char *end = strrchr(target, '.');
    return end && end - target > 2 && end[-1] == '_' && end[-2] != '_';
}

typedef void visit_argument(void *context, tri_pt2_argument *argument);

// Calls `visit` for each value among the arguments.
static void walk(tri_pt2_argument *arguments, int count, visit_argument *visit, void *context) {
    for (int i = 0; i < count; i++) {
        if (arguments[i].kind == TRI_PT2_LIST)
            walk(arguments[i].items, arguments[i].count, visit, context);
        if (arguments[i].kind == TRI_PT2_VALUE) visit(context, &arguments[i]);
    }
}

// Finds what makes the values, each before it is read.
typedef struct order {
    nn_exported *network;
    int node;      // the one that is looked at
    bool is_known; // all its arguments are made before it
} order;

static void check_made(void *context, tri_pt2_argument *argument) {
    order *r = context;
    int maker = r->network->makers[argument->number];
    bool is_made = r->network->ports[argument->number] || (maker >= 0 && maker < r->node);
    r->is_known = r->is_known && is_made;
}

static void set_maker(void *context, tri_pt2_argument *argument) {
    order *r = context;
    r->network->makers[argument->number] = r->node;
}

static tri_status fail_order(const nn_exported *n, const char *what) {
    return TRI_FAIL(TRI_CORRUPT,
                    "%s: the graph of this file is damaged: %s reads what nothing has "
                    "made",
                    n->file.path, what);
}

// Finds what makes each value.
static tri_status connect(nn_exported *n) {
    tri_pt2 *file = &n->file;
    TRI_TRY(exported_write_views(n));
    n->makers = TRI_NEW_ARRAY(n->arena, int, file->value_count);
    n->ports = TRI_NEW_ARRAY(n->arena, const tri_pt2_port *, file->value_count);
    order r = {n, 0, true};
    for (int i = 0; i < file->value_count; i++) n->makers[i] = -1;
    for (int i = 0; i < file->input_count; i++)
        if (file->inputs[i].argument.kind == TRI_PT2_VALUE)
            n->ports[file->inputs[i].argument.number] = &file->inputs[i];
    for (r.node = 0; r.node < file->node_count; r.node++) {
        tri_pt2_node *node = &file->nodes[r.node];
        walk(node->arguments, node->argument_count, check_made, &r);
        if (!r.is_known) return fail_order(n, node->target);
        walk(node->outputs, node->output_count, set_maker, &r);
    }
    for (int i = 0; i < file->output_count; i++)
        walk(&file->outputs[i].argument, 1, check_made, &r);
    return r.is_known ? TRI_OK : fail_order(n, "an output");
}

// Whether the node computes what training does: a dropout with the argument train=False does not.
static bool is_of_training(const exported_node *node) {
    const char *name = node->row ? node->row->trains : NULL;
    double p = 1;
    bool trains = !name;
    for (int i = 0; name && i < node->node->argument_count; i++) {
        const tri_pt2_argument *a = &node->node->arguments[i];
        if (!strcmp(a->name, name)) trains = a->kind != TRI_PT2_BOOL || a->number;
        if (!strcmp(a->name, "p") && a->kind == TRI_PT2_FLOAT) p = a->real;
    }
    return trains || p == 0;
}

static bool is_refused(const exported_node *node) {
    return node->is_live && (!node->row || !is_of_training(node));
}

// Lists the operations that are not supported: each once, with how often and where it occurs.
static void find_refusals(nn_exported *n) {
    for (int i = 0; i < n->file.node_count; i++) {
        const exported_node *node = &n->nodes[i];
        const char *target = node->node->target, *source = node->node->source;
        int count = 0, before = 0;
        if (!is_refused(node)) continue;
        for (int k = 0; k < n->file.node_count; k++) {
            bool is_same = is_refused(&n->nodes[k]) && !strcmp(n->file.nodes[k].target, target);
            count += is_same;
            before += is_same && k < i;
        }
        if (before) continue;
        const char *line = tri_arena_printf(
            n->arena, "%s: %s is %s: %s, first in '%s'%s%s", n->file.path, target,
            node->row ? "that of evaluation: export the network before eval()" : "not supported",
            tri_counted(count, "time"), *node->node->module ? node->node->module : "the network",
            *source ? ", " : "", source);
        TRI_PUSH(n->arena, n->refusals, n->refusal_count, n->refusal_capacity) = line;
    }
}

typedef struct search {
    int value;
    bool found;
} search;

static void look_for(void *context, tri_pt2_argument *argument) {
    search *s = context;
    s->found = s->found || argument->number == s->value;
}

// Whether a live node reads the value.
static bool is_read(const nn_exported *n, int value) {
    search s = {.value = value};
    for (int i = 0; i < n->file.node_count && !s.found; i++)
        if (n->nodes[i].is_live)
            walk(n->file.nodes[i].arguments, n->file.nodes[i].argument_count, look_for, &s);
    return s.found;
}

// Whether the node changes the value in place.
static bool changes(const tri_pt2_node *node, int value) {
    return exported_is_in_place(node->target) && node->argument_count > 0 &&
           node->arguments[0].kind == TRI_PT2_VALUE && node->arguments[0].number == value;
}

// Whether what the network returns depends on a buffer that it changes in every step.
static bool is_state(const nn_exported *n, const tri_pt2_port *port) {
    int value = (int)port->argument.number;
    for (int i = 0; i < n->file.node_count; i++)
        if (changes(&n->file.nodes[i], value) && (n->nodes[i].is_live || is_read(n, value)))
            return true;
    for (int i = 0; i < n->file.output_count; i++)
        if (n->file.outputs[i].role == TRI_PT2_MUTATION &&
            !strcmp(n->file.outputs[i].name, port->name) && is_read(n, value))
            return true;
    return false;
}

// Buffers that change from step to step are not supported, unless nothing reads them, as a count of
// batches. Batch norm's statistics are of its layer.
static void find_changes(nn_exported *n) {
    for (int k = 0; k < n->file.input_count; k++) {
        const tri_pt2_port *port = &n->file.inputs[k];
        bool is_buffer = port->role == TRI_PT2_BUFFER || port->role == TRI_PT2_CONSTANT;
        if (!is_buffer || port->argument.kind != TRI_PT2_VALUE || !is_state(n, port)) continue;
        TRI_PUSH(n->arena, n->refusals, n->refusal_count, n->refusal_capacity) = tri_arena_printf(
            n->arena, "%s: the network changes '%s' in every step, which is not supported",
            n->file.path, port->name);
    }
}

static tri_status check_options(nn_exported *n) {
    const char *weights = option(n, "weights");
    const tri_tree *inputs = tri_tree_get(n->options, "inputs");
    n->has_weights = !weights || !strcmp(weights, "program");
    if (!n->has_weights && strcmp(weights, "none") != 0)
        return tri_tree_fail(tri_tree_get(n->options, "weights"),
                             "model.weights is program or none, not '%s'", weights);
    if (inputs && inputs->kind != TRI_TREE_MAP)
        return tri_tree_fail(inputs, "model.inputs is a map of arguments to fields of the data, "
                                     "such as {x: images}");
    for (int k = 0; inputs && k < inputs->count; k++) {
        bool is_known = false;
        const char *names = "";
        for (int i = 0; i < n->file.input_count; i++) {
            if (n->file.inputs[i].role != TRI_PT2_INPUT || !n->file.inputs[i].name) continue;
            is_known = is_known || !strcmp(n->file.inputs[i].name, inputs->items[k]->key);
            names = tri_arena_printf(n->arena, "%s%s%s", names, *names ? ", " : "",
                                     n->file.inputs[i].name);
        }
        if (!is_known || inputs->items[k]->kind != TRI_TREE_SCALAR)
            return tri_tree_fail(inputs->items[k],
                                 "model.inputs.%s: the network's arguments are %s, and each takes "
                                 "the name of a field",
                                 inputs->items[k]->key, names);
    }
    return TRI_OK;
}

static const char *input_field(const nn_exported *n, const char *argument) {
    const tri_tree *node = tri_tree_get(tri_tree_get(n->options, "inputs"), argument);
    return node && node->kind == TRI_TREE_SCALAR ? node->text : NULL;
}

// The input is one of the data, and not the only one.
static int input_count(const nn_exported *n) {
    int count = 0;
    for (int i = 0; i < n->file.input_count; i++) {
        const tri_pt2_port *port = &n->file.inputs[i];
        count += port->role == TRI_PT2_INPUT && port->argument.kind == TRI_PT2_VALUE &&
                 is_read(n, (int)port->argument.number);
    }
    return count;
}

// The fields of a sample as the file has them, for commands that do not open the data.
static void describe_fields(nn_exported *n) {
    int count = 0;
    for (int i = 0; i < n->file.input_count && count < TRI_TASK_MAX_FIELDS; i++) {
        const tri_pt2_port *port = &n->file.inputs[i];
        if (port->role != TRI_PT2_INPUT || port->argument.kind != TRI_PT2_VALUE) continue;
        const tri_pt2_value *v = &n->file.values[port->argument.number];
        bool is_float = exported_type_is_float(v->dtype);
        tri_field field = {.dtype = is_float ? TRI_F32 : TRI_I64, .shape.rank = v->rank - 1};
        bool fits =
            v->rank >= 1 && v->rank <= TRI_MAX_RANK && is_read(n, (int)port->argument.number);
        for (int k = 1; fits && k < v->rank; k++) {
            field.shape.dims[k - 1] = v->sizes[k];
            fits = v->sizes[k] > 0;
        }
        if (!fits) continue;
        field.name = input_field(n, port->name);
        if (!field.name && input_count(n) == 1)
            field.name = is_float && v->rank == 4 ? "images" : is_float ? "inputs" : "input_ids";
        if (!field.name) field.name = port->name;
        n->task.fields[count++] = field;
    }
}

static void build_network(tri_graph *g, const tri_batch *batch);

static tri_status open_network(nn_exported *n) {
    const char *path = option(n, NN_EXPORTED_FILE_KEY);
    if (!path)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "model.program: model torch needs the file of an exported network, such as "
                        "net.pt2");
    TRI_TRY(tri_pt2_open(n->arena, path, &n->file));
    return exported_prepare(n);
}

tri_status exported_prepare(nn_exported *n) {
    n->task = (tri_task){.name = NN_EXPORTED_NAME, .build = build_network};
    TRI_TRY(connect(n));
    TRI_TRY(check_options(n));
    n->nodes = TRI_NEW_ARRAY(n->arena, exported_node, n->file.node_count);
    for (int i = 0; i < n->file.node_count; i++) n->nodes[i].node = &n->file.nodes[i];
    exported_find_patterns(n);
    for (int i = 0; i < n->file.node_count; i++)
        n->nodes[i].row = exported_find_row(n->arena, n->file.nodes[i].target);
    exported_find_blocks(n);
    find_refusals(n);
    find_changes(n);
    describe_fields(n);
    return TRI_OK;
}

tri_status nn_exported_open(tri_arena *arena, const tri_tree *options, nn_exported **out) {
    nn_exported *n = TRI_NEW(arena, nn_exported);
    *n = (nn_exported){.arena = arena, .options = options};
    *out = n;
    return open_network(n);
}

const tri_task *nn_exported_task(const nn_exported *n) { return &n->task; }

const nn_exported *nn_exported_of(const tri_task *task) {
    return task && task->build == build_network ? (const nn_exported *)task : NULL;
}

const tri_pt2 *nn_exported_file(const nn_exported *n) { return &n->file; }

bool nn_exported_has_weights(const nn_exported *n) { return n->has_weights; }

const char *const *nn_exported_refusals(const nn_exported *n, int *count) {
    *count = n->refusal_count;
    return n->refusals;
}

int nn_exported_block_count(const nn_exported *n) { return n->block_count; }

const char *nn_exported_block(const nn_exported *n, int number, int *nodes) {
    *nodes = 0;
    for (int i = 0; i < n->file.node_count; i++)
        *nodes += n->nodes[i].is_reached && n->nodes[i].block == number;
    return n->blocks[number];
}

int nn_exported_fused_count(const nn_exported *n) { return n->fused_count; }

const char *nn_exported_fused(const nn_exported *n, int number, int *times) {
    *times = n->fused[number].count;
    return n->fused[number].name;
}

// How a parameter begins where the file's weights are not wanted: as PyTorch's layers begin the
// argument of an operation that it is. Others have no rule.
static const struct beginning {
    const char *operation, *argument;
    tri_init_kind kind;
    double value;
} beginnings[] = {
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
static const struct beginning *beginning_of(const tri_pt2_node *node, const tri_pt2_argument *a) {
    for (size_t k = 0; k < sizeof beginnings / sizeof *beginnings; k++)
        if (!strncmp(node->target, beginnings[k].operation, strlen(beginnings[k].operation)) &&
            !strcmp(a->name, beginnings[k].argument))
            return &beginnings[k];
    return NULL;
}

static tri_init init_of(exported_build *b, const tri_pt2_port *port) {
    const nn_exported *n = b->network;
    for (int i = 0; i < n->file.node_count; i++) {
        const tri_pt2_node *node = &n->file.nodes[i];
        for (int k = 0; k < node->argument_count; k++) {
            const tri_pt2_argument *a = &node->arguments[k];
            if (a->kind != TRI_PT2_VALUE || a->number != port->argument.number) continue;
            const struct beginning *rule = beginning_of(node, a);
            if (!rule) continue;
            if (rule->kind == TRI_INIT_UNIFORM) return nn_fan_in_uniform(fan_in_of(n, node));
            return (tri_init){.kind = rule->kind, .value = rule->value, .std = 1};
        }
    }
    if (!n->has_weights)
        tri_graph_fail(b->graph,
                       "model.weights: none: how '%s' begins is known to its module alone; begin "
                       "with the program's weights",
                       port->name);
    return (tri_init){.kind = TRI_INIT_ZEROS};
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

static exported_value parameter_of(exported_build *b, const tri_pt2_port *port) {
    const tri_pt2 *file = &b->network->file;
    const tri_pt2_value *v = &file->values[port->argument.number];
    const tri_pt2_tensor *stored = tri_pt2_find(file, port->name);
    const char *name = stored && stored->twin ? stored->twin : port->name;
    tri_shape shape = shape_of(b, v);
    tri_value value = tri_parameter(b->graph, name, shape, init_of(b, port));
    if (b->graph->status != TRI_OK) return (exported_value){0};
    tri_parameter_info *info = &b->graph->parameters[tri_value_get(b->graph, value)->index];
    for (int i = 0; i < file->tensor_count && !info->alias; i++)
        if (file->tensors[i].twin && !strcmp(file->tensors[i].twin, name))
            info->alias = file->tensors[i].entry.name;
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

// The field of the data that an argument of the network takes: the one that the recipe names, one
// of its own name, or the only one there is.
static tri_value field_of(exported_build *b, const tri_pt2_port *port) {
    static const char *const targets[] = {"labels", "targets", "target", "soft_labels"};
    const char *given = input_field(b->network, port->name), *names = "";
    tri_value value = tri_batch_field(b->batch, given ? given : port->name), only = {0};
    if (tri_value_is(value)) return value;
    int count = 0;
    for (int i = 0; i < b->graph->input_count; i++) {
        bool is_target = false;
        const tri_input_info *input = &b->graph->inputs[i];
        for (size_t k = 0; k < sizeof targets / sizeof *targets; k++)
            is_target = is_target || !strcmp(targets[k], input->name);
        names = tri_name(b->graph, "%s%s%s", names, *names ? ", " : "", input->name);
        if (is_target) continue;
        count++;
        only = input->value;
    }
    if (!given && count == 1 && input_count(b->network) == 1) return only;
    tri_graph_fail(b->graph,
                   "the data have no field '%s' for the argument '%s' of %s; they have %s: "
                   "model.inputs says which one it takes",
                   given ? given : port->name, port->name, b->network->file.path, names);
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
        if (i == 0)
            snprintf(want, sizeof want, "[N");
        else if (v->sizes[i] < 0)
            snprintf(want + used, sizeof want - used, ", any");
        else
            snprintf(want + used, sizeof want - used, ", %lld", (long long)v->sizes[i]);
        fits = fits && (i == 0 || v->sizes[i] < 0 || v->sizes[i] == shape.dims[i]);
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
    g->message = tri_arena_printf(g->arena, "%s: %s in '%s'%s%s: %s", b->network->file.path,
                                  node->target, *node->module ? node->module : "the network",
                                  *node->source ? ", " : "", node->source, g->message);
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

// Declares the result: a loss, or outputs by their names.
static void declare_outputs(exported_build *b) {
    const tri_pt2 *file = &b->network->file;
    const char *wanted = option(b->network, "output"), *names = "";
    int number = 0, given = 0;
    for (int i = 0; i < file->output_count && b->graph->status == TRI_OK; i++) {
        const tri_pt2_port *port = &file->outputs[i];
        if (port->role != TRI_PT2_OUTPUT) continue;
        const char *place = tri_name(b->graph, "%d", number++);
        names = tri_name(b->graph, "%s%s%s", names, *names ? ", " : "", port->name);
        if (wanted && strcmp(wanted, port->name) != 0 && strcmp(wanted, place) != 0) continue;
        if (port->argument.kind != TRI_PT2_VALUE) continue;
        exported_value v = exported_get(b, (int)port->argument.number);
        given++;
        if (v.kind != EXPORTED_GRAPH) continue;
        if (tri_value_is_loss(b->graph, v.graph))
            tri_loss(b->graph, v.graph);
        else
            tri_output(b->graph, port->name, v.graph);
    }
    if (!given && b->graph->status == TRI_OK)
        tri_graph_fail(b->graph, "model.output: %s returns %s, not '%s'", file->path, names,
                       wanted ? wanted : "");
}

// Parameters with requires_grad=False are not trained.
static void freeze(exported_build *b) {
    for (int i = 0; i < b->graph->parameter_count; i++) {
        tri_parameter_info *info = &b->graph->parameters[i];
        const tri_pt2_tensor *stored = tri_pt2_find(&b->network->file, info->name);
        if (stored && stored->is_frozen && info->role == TRI_ROLE_TRAINED)
            info->role = TRI_ROLE_FROZEN;
    }
}

static void build_network(tri_graph *g, const tri_batch *batch) {
    const nn_exported *n = nn_exported_of(g->options.task);
    exported_build b = {.graph = g, .batch = batch, .network = n, .block = 0};
    b.values = TRI_NEW_ARRAY(g->arena, exported_value, n->file.value_count);
    b.made = TRI_NEW_ARRAY(g->arena, int, n->file.value_count);
    for (int i = 0; i < n->file.value_count; i++) b.made[i] = -1;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) tri_graph_model_option(g, keys[i]);
    tri_block(g, n->blocks[0]);
    for (int i = 0; i < n->file.node_count && g->status == TRI_OK; i++) {
        const exported_node *node = &n->nodes[i];
        if (!node->is_live) continue;
        if (node->is_reached && node->block > b.block) {
            b.block = node->block;
            tri_block(g, n->blocks[b.block]);
        }
        lower(&b, i);
    }
    if (g->status == TRI_OK) declare_outputs(&b);
    if (g->status == TRI_OK) freeze(&b);
}
