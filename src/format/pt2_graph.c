// Parses the graph of a .pt2 file: values, nodes with their arguments, and what goes in and out.
#include "format/pt2.h"

#include "base/index.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct parser {
    tri_arena *arena;
    tri_pt2 *out;
    tri_index names; // of values
    int value_capacity, node_capacity;
    const char *where;    // what is being read, for messages
    const char *scope;    // before the names of values of a graph within the graph
    int depth;            // of graphs within graphs
    int region, regions;  // without gradients: the one that is being read, and how many there are
    const json_t *ranges; // of symbols
} parser;

static tri_status fail(const parser *p, const char *what) {
    return TRI_FAIL(TRI_CORRUPT, "%s: the graph of this file is damaged: %s %s", p->out->path,
                    p->where, what);
}

static const char *text_of(const parser *p, const json_t *node) {
    const char *text = json_string_value(node);
    return text ? tri_arena_strdup(p->arena, text) : NULL;
}

// The number of the value `name`, which is added if it is new.
static int value_of(parser *p, const char *name, bool is_tensor) {
    const char *kept = tri_arena_printf(p->arena, "%s%s", p->scope, name);
    int found = tri_index_find(&p->names, kept, strlen(kept));
    if (found != TRI_NOT_IN_INDEX) return found;
    found = p->out->value_count;
    TRI_PUSH(p->arena, p->out->values, p->out->value_count, p->value_capacity) =
        (tri_pt2_value){.name = kept, .is_tensor = is_tensor};
    tri_index_put(p->arena, &p->names, kept, strlen(kept), found);
    return found;
}

static tri_status read_value(parser *p, const json_t *name, bool is_tensor, tri_pt2_argument *out) {
    if (!json_is_string(name)) return fail(p, "names no value");
    out->kind = TRI_PT2_VALUE;
    out->number = value_of(p, json_string_value(name), is_tensor);
    return TRI_OK;
}

// A number; those that JSON cannot have are texts.
static bool read_real(const json_t *node, double *out) {
    const char *text = json_string_value(node);
    *out = json_number_value(node);
    if (!text) return json_is_number(node);
    *out = !strcmp(text, "Infinity") ? INFINITY : !strcmp(text, "-Infinity") ? -INFINITY : NAN;
    return !isnan(*out) || !strcmp(text, "NaN");
}

typedef tri_status read_item(parser *p, const json_t *node, int depth, tri_pt2_argument *out);

static tri_status read_list(parser *p, const json_t *list, read_item *read, int depth,
                            tri_pt2_argument *out) {
    if (!json_is_array(list) || depth > TRI_MAX_PT2_DEPTH) return fail(p, "has no list");
    out->kind = TRI_PT2_LIST;
    out->count = (int)json_array_size(list);
    out->items = TRI_NEW_ARRAY(p->arena, tri_pt2_argument, out->count);
    for (int i = 0; i < out->count; i++)
        TRI_TRY(read(p, json_array_get(list, (size_t)i), depth + 1, &out->items[i]));
    return TRI_OK;
}

static tri_status read_int(parser *p, const json_t *node, int depth, tri_pt2_argument *out) {
    if (!json_is_integer(node)) return fail(p, "has no whole number");
    *out = (tri_pt2_argument){.kind = TRI_PT2_INT, .number = json_integer_value(node)};
    out->real = (double)out->number;
    return TRI_OK;
}

static tri_status read_float(parser *p, const json_t *node, int depth, tri_pt2_argument *out) {
    out->kind = TRI_PT2_FLOAT;
    return read_real(node, &out->real) ? TRI_OK : fail(p, "has no number");
}

static tri_status read_bool(parser *p, const json_t *node, int depth, tri_pt2_argument *out) {
    if (!json_is_boolean(node)) return fail(p, "is neither true nor false");
    out->kind = TRI_PT2_BOOL;
    out->number = json_is_true(node);
    return TRI_OK;
}

static tri_status read_text(parser *p, const json_t *node, int depth, tri_pt2_argument *out) {
    out->kind = TRI_PT2_TEXT;
    out->text = text_of(p, node);
    return out->text ? TRI_OK : fail(p, "has no text");
}

static tri_status read_dtype(parser *p, const json_t *node, int depth, tri_pt2_argument *out) {
    TRI_TRY(read_int(p, node, depth, out));
    out->kind = TRI_PT2_DTYPE;
    return TRI_OK;
}

static tri_status read_none(parser *p, const json_t *node, int depth, tri_pt2_argument *out) {
    out->kind = TRI_PT2_NONE;
    return TRI_OK;
}

static tri_status read_tensor(parser *p, const json_t *node, int depth, tri_pt2_argument *out) {
    return read_value(p, json_object_get(node, "name"), true, out);
}

// A number that is given, or a value that the graph computes: {"as_int": 2} or {"as_name": "s"}.
static tri_status read_symbol(parser *p, const json_t *node, int depth, tri_pt2_argument *out) {
    static const struct {
        const char *key;
        read_item *read;
    } rows[] = {{"as_int", read_int}, {"as_float", read_float}, {"as_bool", read_bool}};
    const json_t *name = json_object_get(node, "as_name");
    if (name) return read_value(p, name, false, out);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const json_t *value = json_object_get(node, rows[i].key);
        if (value) return rows[i].read(p, value, depth, out);
    }
    return fail(p, "has no size");
}

static tri_status read_argument(parser *p, const json_t *node, int depth, tri_pt2_argument *out);

static tri_status read_tensors(parser *p, const json_t *node, int depth, tri_pt2_argument *out) {
    return read_list(p, node, read_tensor, depth, out);
}

// The kinds of arguments: the key in the file, whether it is a list, and who reads an item.
static const struct argument_kind {
    const char *key;
    bool is_list;
    read_item *read;
} kinds[] = {
    {"as_tensor", false, read_tensor},
    {"as_tensors", true, read_tensor},
    {"as_optional_tensor", false, read_argument},
    {"as_optional_tensors", true, read_argument},
    {"as_nested_tensors", true, read_tensors},
    {"as_int", false, read_int},
    {"as_ints", true, read_int},
    {"as_float", false, read_float},
    {"as_floats", true, read_float},
    {"as_bool", false, read_bool},
    {"as_bools", true, read_bool},
    {"as_string", false, read_text},
    {"as_strings", true, read_text},
    {"as_sym_int", false, read_symbol},
    {"as_sym_ints", true, read_symbol},
    {"as_sym_float", false, read_symbol},
    {"as_sym_floats", true, read_symbol},
    {"as_sym_bool", false, read_symbol},
    {"as_sym_bools", true, read_symbol},
    {"as_scalar_type", false, read_dtype},
    {"as_none", false, read_none},
};

// Reads a tagged union, {"as_int": 3}: an object with one entry that is not null.
static tri_status read_argument(parser *p, const json_t *node, int depth, tri_pt2_argument *out) {
    const char *key;
    json_t *value;
    if (!json_is_object(node)) return fail(p, "has an argument that is no object");
    json_object_foreach((json_t *)node, key, value) {
        if (json_is_null(value)) continue;
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            if (strcmp(kinds[i].key, key) != 0) continue;
            return kinds[i].is_list ? read_list(p, value, kinds[i].read, depth, out)
                                    : kinds[i].read(p, value, depth, out);
        }
        *out = (tri_pt2_argument){.kind = TRI_PT2_OTHER, .text = tri_arena_strdup(p->arena, key)};
        return TRI_OK;
    }
    *out = (tri_pt2_argument){.kind = TRI_PT2_NONE};
    return TRI_OK;
}

// How large a size may be that is a symbol alone, written "Symbol('s7', …)" or "s7"; 0: there is no
// limit.
static int64_t read_limit(const parser *p, const json_t *size) {
    static const char begin[] = "Symbol('";
    const json_t *expression = json_object_get(size, "as_expr");
    const char *text = json_string_value(json_object_get(expression, "expr_str"));
    char name[64];
    if (!text) return 0;
    if (!strncmp(text, begin, strlen(begin))) text += strlen(begin);
    size_t length = strcspn(text, "'");
    const char *rest = text + length;
    bool is_alone = length < sizeof name && (!*rest || strcspn(rest, ")") + 1 == strlen(rest));
    if (!is_alone) return 0;
    memcpy(name, text, length);
    name[length] = 0;
    const json_t *most = json_object_get(json_object_get(p->ranges, name), "max_val");
    return json_integer_value(most) > 0 ? json_integer_value(most) : 0;
}

// Sizes or strides with the numbers that symbols had when the network was exported. NULL: there are
// not `count` of them.
static int64_t *read_examples(const parser *p, const json_t *list, int count) {
    int64_t *numbers = TRI_NEW_ARRAY(p->arena, int64_t, count + 1);
    if ((int)json_array_size(list) != count) return NULL;
    for (int i = 0; i < count; i++) {
        const json_t *item = json_array_get(list, (size_t)i), *number, *hint;
        number = json_object_get(item, "as_int");
        hint = json_object_get(json_object_get(item, "as_expr"), "hint");
        if (!number) number = json_object_get(hint, "as_int");
        numbers[i] = json_integer_value(number);
        if (!json_is_integer(number) || numbers[i] < 0) return NULL;
    }
    return numbers;
}

// Reads the types, sizes and strides of all tensors.
static tri_status read_values(parser *p, const json_t *graph) {
    const char *name;
    json_t *entry, *values = json_object_get(graph, "tensor_values");
    p->where = "a tensor";
    if (!json_is_object(values)) return fail(p, "is not described");
    json_object_foreach(values, name, entry) {
        const json_t *sizes = json_object_get(entry, "sizes");
        int number = value_of(p, name, true); // the array may move
        tri_pt2_value *v = &p->out->values[number];
        if (json_array_size(sizes) > TRI_MAX_PT2_RANK)
            return TRI_FAIL(TRI_UNSUPPORTED, "%s: '%s' has more than %d axes", p->out->path, name,
                            TRI_MAX_PT2_RANK);
        v->dtype = (int)json_integer_value(json_object_get(entry, "dtype"));
        v->rank = (int)json_array_size(sizes);
        v->sizes = TRI_NEW_ARRAY(p->arena, int64_t, 2 * v->rank);
        v->most = v->sizes + v->rank;
        for (int i = 0; i < v->rank; i++) {
            const json_t *item = json_array_get(sizes, (size_t)i),
                         *size = json_object_get(item, "as_int");
            v->sizes[i] = json_is_integer(size) ? json_integer_value(size) : TRI_PT2_SYMBOLIC;
            if (size && v->sizes[i] < 0) return fail(p, "has a size below 0");
            if (!size) v->most[i] = read_limit(p, item);
        }
        v->examples = read_examples(p, sizes, v->rank);
        v->strides = read_examples(p, json_object_get(entry, "strides"), v->rank);
        if (!v->examples) v->strides = NULL;
    }
    return TRI_OK;
}

// Reads the module from the last entry of "KEY,PATH,CLASS;KEY,PATH,CLASS".
static void read_module(const parser *p, const json_t *metadata, tri_pt2_node *node) {
    const char *stack = json_string_value(json_object_get(metadata, "nn_module_stack"));
    node->module = node->call = node->type = "";
    if (!stack) return;
    const char *last = strrchr(stack, ';');
    char *entry = tri_arena_strdup(p->arena, last ? last + 1 : stack);
    char *path = strchr(entry, ','), *type = path ? strchr(path + 1, ',') : NULL;
    if (!type) return;
    *path++ = 0;
    *type++ = 0;
    const char *again = strrchr(entry, '@');
    node->module = node->call = path;
    node->type = type;
    if (again) node->call = tri_arena_printf(p->arena, "%s%s", path, again);
}

// Finds the user's line in a stack trace of PyTorch: the last that is not in PyTorch itself.
static void read_source(const parser *p, const json_t *metadata, tri_pt2_node *node) {
    const char *at = json_string_value(json_object_get(metadata, "stack_trace"));
    node->source = "";
    while (at && (at = strstr(at, "File \""))) {
        const char *file = at + strlen("File \""), *end = strchr(file, '"');
        if (!end) return;
        at = end;
        long line = !strncmp(end, "\", line ", 8) ? strtol(end + 8, NULL, 10) : 0;
        const char *inside = strstr(file, "/torch/");
        if (line > 0 && (!inside || inside > end))
            node->source = tri_arena_printf(p->arena, "%.*s:%ld", (int)(end - file), file, line);
    }
}

static tri_status read_node(parser *p, const json_t *json, tri_pt2_node *node) {
    const char *target = json_string_value(json_object_get(json, "target"));
    const json_t *inputs = json_object_get(json, "inputs"),
                 *outputs = json_object_get(json, "outputs"),
                 *metadata = json_object_get(json, "metadata");
    static const char PREFIX[] = "torch.ops.";
    p->where = "a node";
    if (!target || !json_is_array(inputs) || !json_is_array(outputs))
        return fail(p, "has no target, inputs or outputs");
    if (!strncmp(target, PREFIX, sizeof PREFIX - 1)) target += sizeof PREFIX - 1;
    node->target = p->where = tri_arena_strdup(p->arena, target);
    node->argument_count = (int)json_array_size(inputs);
    node->arguments = TRI_NEW_ARRAY(p->arena, tri_pt2_argument, node->argument_count);
    for (int i = 0; i < node->argument_count; i++) {
        const json_t *input = json_array_get(inputs, (size_t)i);
        const char *name = text_of(p, json_object_get(input, "name"));
        TRI_TRY(read_argument(p, json_object_get(input, "arg"), 0, &node->arguments[i]));
        node->arguments[i].name = name ? name : "";
    }
    node->output_count = (int)json_array_size(outputs);
    node->outputs = TRI_NEW_ARRAY(p->arena, tri_pt2_argument, node->output_count);
    for (int i = 0; i < node->output_count; i++)
        TRI_TRY(read_argument(p, json_array_get(outputs, (size_t)i), 0, &node->outputs[i]));
    read_module(p, metadata, node);
    read_source(p, metadata, node);
    return TRI_OK;
}

// Operations that compute a graph of their own, which takes its place in the whole: regions in
// which gradients are on or off, or types are chosen. Behind the graph stand its inputs.
static const char *const regions[] = {
    "torch.ops.higher_order.wrap_with_set_grad_enabled",
    "torch.ops.higher_order.wrap_with_autocast",
    "torch.ops.higher_order.tag_activation_checkpoint",
    "torch.ops.higher_order.wrap_activation_checkpoint",
};

static bool is_region(const json_t *node) {
    const char *target = json_string_value(json_object_get(node, "target"));
    for (size_t i = 0; target && i < sizeof regions / sizeof *regions; i++)
        if (!strcmp(regions[i], target)) return true;
    return false;
}

// Lists the values among arguments and in their lists. Returns how many there are.
static int collect(const tri_pt2_argument *a, int count, tri_pt2_argument *out, int most) {
    int found = 0;
    for (int i = 0; i < count; i++) {
        if (a[i].kind == TRI_PT2_LIST)
            found += collect(a[i].items, a[i].count, out + found, most - found);
        else if (found < most)
            out[found++] = a[i];
    }
    return found;
}

enum { MAX_REGION_VALUES = 1024 };

// Reads a list of arguments. Returns how many values they are, or -1.
static int read_all(parser *p, const json_t *list, bool is_named, tri_pt2_argument *out) {
    int count = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        tri_pt2_argument one = {0};
        if (read_argument(p, is_named ? json_object_get(entry, "arg") : entry, 0, &one) != TRI_OK)
            return -1;
        count += collect(&one, 1, out + count, MAX_REGION_VALUES - count);
    }
    return count;
}

static tri_status read_nodes(parser *p, const json_t *graph);

// The results of a region: what its graph returns, without a gradient where they are off.
static tri_status give_results(parser *p, const json_t *json, const tri_pt2_argument *from,
                               int count, bool detaches) {
    tri_pt2_argument *to = TRI_NEW_ARRAY(p->arena, tri_pt2_argument, MAX_REGION_VALUES);
    if (read_all(p, json_object_get(json, "outputs"), false, to) != count)
        return fail(p, "has another number of results than its graph");
    for (int i = 0; i < count; i++) {
        if (from[i].kind != TRI_PT2_VALUE || to[i].kind != TRI_PT2_VALUE) continue;
        int dtype = p->out->values[from[i].number].dtype;
        bool is_float = dtype == TRI_PT2_HALF || dtype == TRI_PT2_FLOAT32 ||
                        dtype == TRI_PT2_DOUBLE || dtype == TRI_PT2_BFLOAT16;
        tri_pt2_node node = {.target = detaches && is_float ? "aten.detach.default"
                                                            : "aten.alias.default",
                             .argument_count = 1,
                             .output_count = 1,
                             .arguments = TRI_NEW(p->arena, tri_pt2_argument),
                             .outputs = TRI_NEW(p->arena, tri_pt2_argument)};
        node.arguments[0] = from[i];
        node.arguments[0].name = "self";
        node.outputs[0] = to[i];
        read_module(p, json_object_get(json, "metadata"), &node);
        read_source(p, json_object_get(json, "metadata"), &node);
        TRI_PUSH(p->arena, p->out->nodes, p->out->node_count, p->node_capacity) = node;
    }
    return TRI_OK;
}

static tri_status read_region(parser *p, const json_t *json) {
    const json_t *inputs = json_object_get(json, "inputs"), *graph = NULL;
    const char *target = json_string_value(json_object_get(json, "target")), *outer = p->scope;
    size_t first = 0;
    while (!graph && first < json_array_size(inputs)) {
        const json_t *arg = json_object_get(json_array_get(inputs, first++), "arg");
        graph = json_object_get(json_object_get(arg, "as_graph"), "graph");
    }
    p->where = target;
    if (!graph || ++p->depth > TRI_MAX_PT2_DEPTH) return fail(p, "has no graph");
    const json_t *flag = json_object_get(json_array_get(inputs, 0), "arg");
    bool detaches = !strcmp(target, regions[0]) && json_is_false(json_object_get(flag, "as_bool"));
    tri_pt2_argument *values = TRI_NEW_ARRAY(p->arena, tri_pt2_argument, MAX_REGION_VALUES);
    const json_t *names = json_object_get(graph, "inputs");
    if (json_array_size(names) != json_array_size(inputs) - first)
        return fail(p, "has another number of inputs than its graph");
    const char *scope = tri_arena_printf(p->arena, "%s%d/", outer, p->out->node_count);
    for (size_t i = 0; i < json_array_size(names); i++) {
        tri_pt2_argument from = {0};
        TRI_TRY(
            read_argument(p, json_object_get(json_array_get(inputs, first + i), "arg"), 0, &from));
        const json_t *tagged = json_array_get(names, i),
                     *tensor = json_object_get(json_object_get(tagged, "as_tensor"), "name"),
                     *size = json_object_get(json_object_get(tagged, "as_sym_int"), "as_name");
        const char *name = json_string_value(tensor ? tensor : size);
        if (!name || from.kind != TRI_PT2_VALUE) return fail(p, "has an input that is no tensor");
        const char *inside = tri_arena_printf(p->arena, "%s%s", scope, name);
        tri_index_put(p->arena, &p->names, inside, strlen(inside), (int)from.number);
    }
    int around = p->region;
    p->scope = scope;
    if (detaches) p->region = ++p->regions;
    TRI_TRY(read_values(p, graph));
    TRI_TRY(read_nodes(p, graph));
    int count = read_all(p, json_object_get(graph, "outputs"), false, values);
    p->scope = outer;
    p->region = around;
    p->depth--;
    return give_results(p, json, values, count, detaches);
}

static tri_status read_nodes(parser *p, const json_t *graph) {
    const json_t *nodes = json_object_get(graph, "nodes");
    p->where = "the list of nodes";
    if (!json_is_array(nodes)) return fail(p, "is missing");
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const json_t *json = json_array_get(nodes, i);
        tri_pt2_node node = {0};
        if (is_region(json)) {
            TRI_TRY(read_region(p, json));
            continue;
        }
        TRI_TRY(read_node(p, json, &node));
        node.region = p->region;
        TRI_PUSH(p->arena, p->out->nodes, p->out->node_count, p->node_capacity) = node;
    }
    return TRI_OK;
}

// What the entries of the signature are: their key in the file, their role, and the key of a name.
static const struct port_kind {
    const char *key;
    tri_pt2_role role;
    const char *name;
} port_kinds[] = {
    {"parameter", TRI_PT2_PARAMETER, "parameter_name"},
    {"buffer", TRI_PT2_BUFFER, "buffer_name"},
    {"tensor_constant", TRI_PT2_CONSTANT, "tensor_constant_name"},
    {"user_input", TRI_PT2_INPUT, NULL},
    {"constant_input", TRI_PT2_INPUT, NULL},
    {"user_output", TRI_PT2_OUTPUT, NULL},
    {"loss_output", TRI_PT2_OUTPUT, NULL},
    {"buffer_mutation", TRI_PT2_MUTATION, "buffer_name"},
    {"user_input_mutation", TRI_PT2_MUTATION, "user_input_name"},
};

static tri_status read_port(parser *p, const json_t *json, tri_pt2_port *port) {
    const struct port_kind *kind = NULL;
    const json_t *entry = NULL;
    for (size_t i = 0; i < sizeof port_kinds / sizeof *port_kinds && !entry; i++) {
        kind = &port_kinds[i];
        entry = json_object_get(json, kind->key);
    }
    p->where = "the signature";
    if (!entry)
        return TRI_FAIL(TRI_UNSUPPORTED, "%s: its signature has an entry that is not supported: %s",
                        p->out->path, json_object_iter_key(json_object_iter((json_t *)json)));
    const json_t *argument = json_object_get(entry, "arg");
    port->role = kind->role;
    // Parameters and buffers are {"name": …}, without a tag.
    tri_status status = json_object_get(argument, "name")
                            ? read_tensor(p, argument, 0, &port->argument)
                            : read_argument(p, argument, 0, &port->argument);
    TRI_TRY(status);
    if (kind->name) port->name = text_of(p, json_object_get(entry, kind->name));
    if (kind->name && !port->name) return fail(p, "has a parameter without a name");
    if (kind->role == TRI_PT2_INPUT && port->argument.kind == TRI_PT2_VALUE)
        port->name = p->out->values[port->argument.number].name;
    if (kind->role == TRI_PT2_BUFFER && json_is_false(json_object_get(entry, "persistent")))
        port->role = TRI_PT2_CONSTANT;
    return TRI_OK;
}

static tri_status read_ports(parser *p, const json_t *signature, const char *key,
                             tri_pt2_port **ports, int *count) {
    const json_t *list = json_object_get(signature, key);
    p->where = "the signature";
    if (!json_is_array(list)) return fail(p, "is missing");
    *count = (int)json_array_size(list);
    *ports = TRI_NEW_ARRAY(p->arena, tri_pt2_port, *count);
    for (int i = 0; i < *count; i++)
        TRI_TRY(read_port(p, json_array_get(list, (size_t)i), &(*ports)[i]));
    return TRI_OK;
}

// A tree of results, as PyTorch's pytree describes it: lists, dictionaries and objects with named
// fields, whose leaves are the outputs in their order.
typedef struct output_tree {
    const parser *p;
    const char **names;
    int count, most;
} output_tree;

static void name_leaves(output_tree *t, const json_t *spec, const char *path, int depth) {
    const json_t *children = json_object_get(spec, "children_spec");
    const char *context = json_string_value(json_object_get(spec, "context"));
    if (json_is_null(json_object_get(spec, "type")) || !json_is_array(children)) {
        if (t->count < t->most) t->names[t->count] = path;
        t->count++;
        return;
    }
    json_t *keys = context ? json_loads(context, 0, NULL) : NULL;
    for (size_t i = 0; i < json_array_size(children) && depth < TRI_MAX_PT2_DEPTH; i++) {
        const char *key = json_string_value(json_array_get(keys, i));
        const char *name =
            key ? tri_arena_strdup(t->p->arena, key) : tri_arena_printf(t->p->arena, "%d", (int)i);
        // A list at the top has no name that its items could continue.
        const char *joint = depth == 0 && !key ? tri_arena_printf(t->p->arena, "output_%s", name)
                            : *path            ? tri_arena_printf(t->p->arena, "%s.%s", path, name)
                                               : name;
        name_leaves(t, json_array_get(children, i), joint, depth + 1);
    }
    json_decref(keys);
}

// The names of the network's `count` results. NULL: the file does not say.
static const char **output_names(const parser *p, const json_t *module, int count) {
    const json_t *root = json_array_get(json_object_get(module, "module_call_graph"), 0);
    const char *text =
        json_string_value(json_object_get(json_object_get(root, "signature"), "out_spec"));
    json_t *spec = text ? json_loads(text, 0, NULL) : NULL;
    output_tree t = {p, TRI_NEW_ARRAY(p->arena, const char *, count), 0, count};
    if (spec) name_leaves(&t, json_array_get(spec, 1), "", 0);
    json_decref(spec);
    return spec && t.count == count ? t.names : NULL;
}

// Names the outputs: by the result's own names, or output, or output_0, output_1, …
static void name_outputs(parser *p, const json_t *module) {
    int count = 0, number = 0;
    for (int i = 0; i < p->out->output_count; i++)
        count += p->out->outputs[i].role == TRI_PT2_OUTPUT;
    const char **names = output_names(p, module, count);
    for (int i = 0; i < p->out->output_count; i++) {
        tri_pt2_port *port = &p->out->outputs[i];
        if (port->role != TRI_PT2_OUTPUT) continue;
        const char *own = names && *names[number] ? names[number] : NULL;
        port->name = own          ? own
                     : count == 1 ? "output"
                                  : tri_arena_printf(p->arena, "output_%d", number);
        number++;
    }
}

static tri_status read_root(parser *p, const json_t *root) {
    enum { MAJOR = 8 };
    const json_t *module = json_object_get(root, "graph_module"),
                 *graph = json_object_get(module, "graph"),
                 *version = json_object_get(root, "schema_version");
    const char *torch = text_of(p, json_object_get(root, "torch_version"));
    p->out->torch_version = torch ? torch : "";
    if (json_integer_value(json_object_get(version, "major")) != MAJOR)
        return TRI_FAIL(TRI_UNSUPPORTED,
                        "%s: its graph has another format than that of PyTorch 2.9 and later: save "
                        "it with one of these",
                        p->out->path);
    p->ranges = json_object_get(root, "range_constraints");
    TRI_TRY(read_values(p, graph));
    TRI_TRY(read_nodes(p, graph));
    const json_t *signature = json_object_get(module, "signature");
    TRI_TRY(read_ports(p, signature, "input_specs", &p->out->inputs, &p->out->input_count));
    TRI_TRY(read_ports(p, signature, "output_specs", &p->out->outputs, &p->out->output_count));
    name_outputs(p, module);
    return TRI_OK;
}

tri_status tri_pt2_parse_graph(tri_arena *arena, const char *text, size_t size, tri_pt2 *out) {
    parser p = {.arena = arena, .out = out, .where = "the text", .scope = ""};
    json_error_t error;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return TRI_FAIL(TRI_CORRUPT, "%s: its graph is no JSON: line %d: %s", out->path, error.line,
                        error.text);
    tri_status status = read_root(&p, root);
    json_decref(root);
    return status;
}
