// Opens an exported network: its options, what its nodes are, and what stands in the way of
// training it. Read next: graph.c, which builds its graph.
#include "nn/exported/exported.h"

#include "base/index.h"
#include "base/quantity.h"
#include "nn/exported/build.h"
#include "nn/exported/lower.h"

#include <string.h>

const char *const exported_keys[] = {
    NN_EXPORTED_FILE_KEY, NN_EXPORTED_EVALUATION_KEY, "inputs", "output", "weights", "blocks"};
const int exported_key_count = sizeof exported_keys / sizeof *exported_keys;

const char *exported_option(const nn_exported *n, const char *key) {
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

static bool is_refused(const nn_exported *n, const exported_node *node) {
    return node->is_live && (!node->row || (!n->trained && !is_of_training(node)));
}

static void refuse(nn_exported *n, const char *line) {
    TRI_PUSH(n->arena, n->refusals, n->refusal_count, n->refusal_capacity) = line;
}

static bool is_complex(const nn_exported *n, const tri_pt2_argument *a, int count) {
    bool is = false;
    for (int i = 0; i < count; i++)
        is |= a[i].kind == TRI_PT2_VALUE && tri_pt2_is_complex(n->file.values[a[i].number].dtype);
    return is;
}

static const char WRITE[] = "write."; // into a view, for which there is no row (views.c)

// What to do about an operation that is not supported.
static const char *advice_of(const nn_exported *n, const tri_pt2_node *node) {
    if (!strncmp(node->target, WRITE, sizeof WRITE - 1))
        return ": write into a slice, x[:, 0] = y, or compute a new tensor, x = x + y";
    if (is_complex(n, node->outputs, node->output_count) ||
        is_complex(n, node->arguments, node->argument_count))
        return ": there are no complex numbers: compute with two tensors, such as cosines and "
               "sines; Fourier transforms are not supported";
    return "";
}

// Lists the operations that are not supported: each once, with how often and where it occurs.
static void find_refusals(nn_exported *n) {
    tri_index known = {0};
    int count = n->file.node_count, *times = TRI_NEW_ARRAY(n->arena, int, count),
        *first = TRI_NEW_ARRAY(n->arena, int, count);
    for (int i = 0; i < count; i++) {
        const char *target = n->file.nodes[i].target;
        if (!is_refused(n, &n->nodes[i])) continue;
        first[i] = tri_index_find(&known, target, strlen(target));
        if (first[i] == TRI_NOT_IN_INDEX) {
            first[i] = i;
            tri_index_put(n->arena, &known, target, strlen(target), i);
        }
        times[first[i]]++;
    }
    for (int i = 0; i < count; i++) {
        const exported_node *node = &n->nodes[i];
        const tri_pt2_node *of = node->node;
        if (times[i] == 0) continue;
        bool is_write = !strncmp(of->target, WRITE, sizeof WRITE - 1);
        refuse(n, tri_arena_printf(
                      n->arena, "%s: %s%s is %s: %s, first in '%s'%s%s%s", n->file.path,
                      is_write ? "what is written in place into the result of " : "",
                      of->target + (is_write ? sizeof WRITE - 1 : 0),
                      node->row ? "that of evaluation: export the network before eval()"
                                : "not supported",
                      tri_counted(times[i], "time"), *of->module ? of->module : "the network",
                      *of->source ? ", " : "", of->source, advice_of(n, of)));
    }
}

static void set_read(void *context, tri_pt2_argument *argument) {
    ((bool *)context)[argument->number] = true;
}

// Finds which values live nodes read.
static void find_read(nn_exported *n) {
    n->is_read = TRI_NEW_ARRAY(n->arena, bool, n->file.value_count);
    for (int i = 0; i < n->file.node_count; i++)
        if (n->nodes[i].is_live)
            walk(n->file.nodes[i].arguments, n->file.nodes[i].argument_count, set_read, n->is_read);
}

// The value that the node changes in place; -1: none.
static int changed_by(const tri_pt2_node *node) {
    bool changes = node->argument_count > 0 && node->arguments[0].kind == TRI_PT2_VALUE &&
                   exported_is_in_place(node->target);
    return changes ? (int)node->arguments[0].number : -1;
}

// Buffers that change from step to step are not supported, unless what the network returns does not
// depend on them, as a count of batches. Batch norm's statistics are of its layer.
static void find_changes(nn_exported *n) {
    bool *changes = TRI_NEW_ARRAY(n->arena, bool, n->file.value_count);
    tri_index mutated = {0};
    for (int i = 0; i < n->file.node_count; i++) {
        int value = changed_by(&n->file.nodes[i]);
        if (value >= 0 && (n->nodes[i].is_live || n->is_read[value])) changes[value] = true;
    }
    for (int i = 0; i < n->file.output_count; i++)
        if (n->file.outputs[i].role == TRI_PT2_MUTATION)
            tri_index_put(n->arena, &mutated, n->file.outputs[i].name,
                          strlen(n->file.outputs[i].name), i);
    for (int k = 0; k < n->file.input_count; k++) {
        const tri_pt2_port *port = &n->file.inputs[k];
        bool is_buffer = port->role == TRI_PT2_BUFFER || port->role == TRI_PT2_CONSTANT;
        if (!is_buffer || port->argument.kind != TRI_PT2_VALUE) continue;
        int64_t value = port->argument.number;
        bool is_mutated = tri_index_find(&mutated, port->name, strlen(port->name)) >= 0;
        if (changes[value] || (is_mutated && n->is_read[value]))
            refuse(n, tri_arena_printf(
                          n->arena,
                          "%s: the network changes '%s' in every step, which is not supported",
                          n->file.path, port->name));
    }
}

static tri_status check_options(nn_exported *n) {
    const char *weights = exported_option(n, "weights");
    const tri_tree *inputs = tri_tree_get(n->options, "inputs"),
                   *blocks = tri_tree_get(n->options, "blocks");
    bool is_auto = tri_tree_is_null(blocks) ||
                   (blocks->kind == TRI_TREE_SCALAR && !strcmp(blocks->text, "auto")),
         are_patterns = !is_auto && blocks->kind == TRI_TREE_LIST;
    for (int i = 0; are_patterns && i < blocks->count; i++)
        are_patterns = blocks->items[i]->kind == TRI_TREE_SCALAR;
    if (!is_auto && !are_patterns)
        return tri_tree_fail(blocks, "model.blocks is auto or a list of patterns of module paths, "
                                     "such as ['layers.*', head]");
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
        if (n->trained) continue; // it may take less
        if (!is_known || inputs->items[k]->kind != TRI_TREE_SCALAR)
            return tri_tree_fail(inputs->items[k],
                                 "model.inputs.%s: the network's arguments are %s, and each takes "
                                 "the name of a field",
                                 inputs->items[k]->key, names);
    }
    return TRI_OK;
}

const char *exported_input_field(const nn_exported *n, const char *argument) {
    const tri_tree *node = tri_tree_get(tri_tree_get(n->options, "inputs"), argument);
    return node && node->kind == TRI_TREE_SCALAR ? node->text : NULL;
}

// The input is one of the data, and not the only one.
int exported_input_count(const nn_exported *n) {
    int count = 0;
    for (int i = 0; i < n->file.input_count; i++) {
        const tri_pt2_port *port = &n->file.inputs[i];
        count += port->role == TRI_PT2_INPUT && port->argument.kind == TRI_PT2_VALUE &&
                 n->is_read[port->argument.number];
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
        bool fits = v->rank >= 1 && v->rank <= TRI_MAX_RANK && n->is_read[port->argument.number];
        for (int k = 1; fits && k < v->rank; k++) {
            field.shape.dims[k - 1] = v->sizes[k];
            fits = v->sizes[k] > 0;
        }
        if (!fits) continue;
        field.name = exported_input_field(n, port->name);
        if (!field.name && exported_input_count(n) == 1)
            field.name = is_float && v->rank == 4 ? "images" : is_float ? "inputs" : "input_ids";
        if (!field.name) field.name = port->name;
        n->task.fields[count++] = field;
    }
}

// Whether the option is left out or one word.
static tri_status check_file_option(const nn_exported *n, const char *key) {
    const tri_tree *node = tri_tree_get(n->options, key);
    if (tri_tree_is_null(node) || node->kind == TRI_TREE_SCALAR) return TRI_OK;
    return tri_tree_fail(node, "model.%s has to be the path of a file", key);
}

// The parameters and buffers of the program for evaluation have to be those of the other one.
static tri_status compare_tensors(const nn_exported *n, const nn_exported *e) {
    for (int i = 0; i < e->file.tensor_count; i++) {
        const tri_pt2_tensor *t = &e->file.tensors[i], *own = tri_pt2_find(&n->file, t->entry.name);
        if (!t->is_weight || (own && own->is_weight && own->entry.dtype == t->entry.dtype &&
                              tri_shape_equal(&own->entry.shape, &t->entry.shape)))
            continue;
        char there[160], here[160] = "missing";
        if (own) tri_shape_text(&own->entry.shape, here, sizeof here);
        return TRI_FAIL(TRI_BAD_INPUT,
                        "model.evaluation_program: '%s' is %s %s in %s, but %s%s%s in %s: export "
                        "both of the same network",
                        t->entry.name, tri_dtype_name(t->entry.dtype),
                        tri_shape_text(&t->entry.shape, there, sizeof there), e->file.path,
                        own ? tri_dtype_name(own->entry.dtype) : "", own ? " " : "", here,
                        n->file.path);
    }
    return TRI_OK;
}

static tri_status open_evaluation(nn_exported *n) {
    const char *path = exported_option(n, NN_EXPORTED_EVALUATION_KEY);
    TRI_TRY(check_file_option(n, NN_EXPORTED_EVALUATION_KEY));
    if (!path) return TRI_OK;
    nn_exported *e = TRI_NEW(n->arena, nn_exported);
    *e = (nn_exported){.arena = n->arena, .options = n->options, .trained = n};
    tri_status status = tri_pt2_open(n->arena, path, &e->file);
    if (status != TRI_OK) return tri_status_context(status, "model.evaluation_program");
    TRI_TRY(compare_tensors(n, e));
    TRI_TRY(exported_prepare(e));
    n->evaluation = e;
    for (int i = 0; i < e->refusal_count; i++) refuse(n, e->refusals[i]);
    return TRI_OK;
}

static tri_status open_network(nn_exported *n) {
    const char *path = exported_option(n, NN_EXPORTED_FILE_KEY);
    TRI_TRY(check_file_option(n, NN_EXPORTED_FILE_KEY));
    if (!path)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "model.program: model torch needs the file of an exported network, such as "
                        "net.pt2");
    TRI_TRY(tri_pt2_open(n->arena, path, &n->file));
    TRI_TRY(exported_prepare(n));
    tri_status status = open_evaluation(n);
    return n->refusal_count > 0 ? TRI_OK : status; // what stands in the way is told first
}

// Finds the row of each node; one operation occurs many times.
static void find_rows(nn_exported *n) {
    tri_index known = {0};
    for (int i = 0; i < n->file.node_count; i++) {
        exported_node *node = &n->nodes[i];
        node->node = &n->file.nodes[i];
        // No file has what patterns alone make.
        if (!strncmp(n->file.nodes[i].target, "fused.", 6)) n->file.nodes[i].target += 6;
        const char *target = node->node->target;
        int before = tri_index_find(&known, target, strlen(target));
        if (before == TRI_NOT_IN_INDEX) tri_index_put(n->arena, &known, target, strlen(target), i);
        node->row =
            before == TRI_NOT_IN_INDEX ? exported_find_row(n->arena, target) : n->nodes[before].row;
        n->draws = n->draws || (node->row && node->row->draws && !node->row->trains);
    }
}

tri_status exported_prepare(nn_exported *n) {
    n->task = (tri_task){.name = NN_EXPORTED_NAME, .build = exported_build_network};
    TRI_TRY(connect(n));
    TRI_TRY(check_options(n));
    n->nodes = TRI_NEW_ARRAY(n->arena, exported_node, n->file.node_count);
    find_rows(n);
    exported_find_patterns(n);
    exported_find_rules(n);
    TRI_TRY(exported_find_blocks(n));
    find_read(n);
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

int64_t nn_exported_text_length(const nn_exported *n, int64_t *most) {
    *most = 0;
    for (int i = 0; i < n->file.input_count; i++) {
        const tri_pt2_port *port = &n->file.inputs[i];
        if (port->role != TRI_PT2_INPUT || port->argument.kind != TRI_PT2_VALUE) continue;
        const tri_pt2_value *v = &n->file.values[port->argument.number];
        if (v->rank != 2 || !n->is_read[port->argument.number]) continue;
        *most = v->sizes[1] > 0 ? v->sizes[1] : v->most[1];
        return v->sizes[1] > 0 ? v->sizes[1] : 0;
    }
    return 0;
}

int64_t nn_exported_text_classes(const nn_exported *n) {
    for (int i = 0; i < n->file.output_count; i++) {
        const tri_pt2_port *port = &n->file.outputs[i];
        if (port->role != TRI_PT2_OUTPUT || port->argument.kind != TRI_PT2_VALUE) continue;
        const tri_pt2_value *v = &n->file.values[port->argument.number];
        if (v->rank == 3 && exported_type_is_float(v->dtype)) return v->sizes[2];
    }
    return 0;
}

const nn_exported *nn_exported_of(const tri_task *task) {
    return task && task->build == exported_build_network ? (const nn_exported *)task : NULL;
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
