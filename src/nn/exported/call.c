// The arguments and results of one node, by the names and defaults of its row's schema.
#include "nn/exported/build.h"
#include "nn/exported/lower.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void exported_fail(exported_call *call, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    tri_graph_fail(call->build->graph, "%s", text);
}

// Reads a default, such as None, False, 0.01, [] or 'none'.
static tri_pt2_argument default_of(const exported_call *call, const char *text, size_t length) {
    tri_pt2_argument a = {.kind = TRI_PT2_NONE};
    if (!strncmp(text, "None", length)) return a;
    if (!strncmp(text, "True", length) || !strncmp(text, "False", length)) {
        a.kind = TRI_PT2_BOOL;
        a.number = *text == 'T';
    } else if (*text == '[') {
        a.kind = TRI_PT2_LIST;
    } else if (*text == '\'') {
        a.kind = TRI_PT2_TEXT;
        a.text = tri_name(call->build->graph, "%.*s", (int)length - 2, text + 1);
    } else {
        a.kind =
            memchr(text, '.', length) || memchr(text, 'e', length) ? TRI_PT2_FLOAT : TRI_PT2_INT;
        a.real = strtod(text, NULL);
        a.number = (int64_t)a.real;
    }
    return a;
}

// The argument of that name, or number `k` where the file gives none.
static const tri_pt2_argument *given(const tri_pt2_node *node, const char *name, size_t length,
                                     int k) {
    for (int i = 0; i < node->argument_count; i++)
        if (strlen(node->arguments[i].name) == length &&
            !strncmp(node->arguments[i].name, name, length))
            return &node->arguments[i];
    // What works in place calls its first argument "self", whatever the schema of its twin says.
    bool is_nameless =
        k < node->argument_count &&
        (!*node->arguments[k].name || (k == 0 && !strcmp(node->arguments[0].name, "self")));
    return is_nameless ? &node->arguments[k] : NULL;
}

// Whether the row's schema has an argument of that name.
static bool has_argument(const char *schema, const char *name) {
    size_t length = strlen(name);
    for (const char *at = schema; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, "= ") == length && !strncmp(at, name, length)) return true;
    return false;
}

// Refuses an argument that the row does not know, unless it says only where or in which type a
// result lies, or nothing.
static void refuse_unknown(exported_call *call) {
    static const char *const idle[] = {
        "dtype",        "layout",    "device",      "pin_memory",    "memory_format",
        "generator",    "copy",      "sparse",      "non_blocking",  "sparse_grad",
        "stable",       "sorted",    "output_size", "half_to_float", "cudnn_enabled",
        "cudnn_enable", "enable_gqa"};
    for (int i = 0; i < call->node->argument_count; i++) {
        const tri_pt2_argument *a = &call->node->arguments[i];
        bool is_idle = !*a->name || a->kind == TRI_PT2_NONE || a->kind == TRI_PT2_OTHER ||
                       (a->kind == TRI_PT2_BOOL && !a->number) ||
                       (i == 0 && !strcmp(a->name, "self"));
        for (size_t k = 0; k < sizeof idle / sizeof *idle; k++)
            is_idle = is_idle || !strcmp(idle[k], a->name);
        if (!is_idle && !strcmp(a->name, "out"))
            exported_fail(call,
                          "what it writes lasts from step to step, as the vectors of spectral "
                          "norm do, which is not supported");
        else if (!is_idle && !has_argument(call->row->schema, a->name))
            exported_fail(call, "the argument '%s' is not supported", a->name);
    }
}

void exported_bind(exported_call *call) {
    refuse_unknown(call);
    const char *at = call->row->schema;
    while (*at && call->count < EXPORTED_MAX_ARGUMENTS) {
        size_t length = strcspn(at, " "), name = strcspn(at, "= ");
        const tri_pt2_argument *a = given(call->node, at, name, call->count);
        tri_pt2_argument *to = &call->arguments[call->count++];
        if (a)
            *to = *a;
        else if (name < length)
            *to = default_of(call, at + name + 1, length - name - 1);
        else
            *to = (tri_pt2_argument){.kind = TRI_PT2_NONE};
        at += length + (at[length] == ' ');
    }
}

static exported_value value_of(exported_call *call, const tri_pt2_argument *a) {
    switch (a->kind) {
    case TRI_PT2_VALUE:
        return exported_get(call->build, (int)a->number);
    case TRI_PT2_INT: {
        exported_value v = exported_of_number((double)a->number, TRI_PT2_LONG);
        v.integer = a->number;
        return v;
    }
    case TRI_PT2_BOOL:
        return exported_of_number((double)a->number, TRI_PT2_BOOLEAN);
    case TRI_PT2_FLOAT:
        return exported_of_number(a->real, TRI_PT2_FLOAT32);
    default:
        return (exported_value){0};
    }
}

exported_value exported_operand(exported_call *call, int k) {
    return value_of(call, &call->arguments[k]);
}

tri_value exported_tensor(exported_call *call, int k) {
    exported_value v = exported_operand(call, k);
    return exported_as_float(call->build, &v);
}

bool exported_is_none(const exported_call *call, int k) {
    return call->arguments[k].kind == TRI_PT2_NONE;
}

// A number that is given, or that the graph has computed of sizes or constants.
static exported_value number_of(exported_call *call, const tri_pt2_argument *a) {
    exported_value v = value_of(call, a);
    if (v.kind == EXPORTED_HOST && exported_count(call->build, &v) == 1)
        v = exported_of_number(v.host.data[0], v.dtype);
    if (v.kind != EXPORTED_NUMBER)
        exported_fail(call, "an argument is no number that is known when the network is built");
    return v;
}

int64_t exported_int(exported_call *call, int k) {
    return number_of(call, &call->arguments[k]).integer;
}

double exported_real(exported_call *call, int k) {
    return number_of(call, &call->arguments[k]).real;
}

bool exported_bool(exported_call *call, int k) {
    const tri_pt2_argument *a = &call->arguments[k];
    return a->kind == TRI_PT2_NONE ? false : number_of(call, a).real != 0;
}

const char *exported_text(const exported_call *call, int k) {
    const tri_pt2_argument *a = &call->arguments[k];
    return a->kind == TRI_PT2_TEXT ? a->text : "";
}

static int numbers_of(exported_call *call, int k, exported_value *out, int most) {
    const tri_pt2_argument *a = &call->arguments[k];
    int count = a->kind == TRI_PT2_LIST ? a->count : a->kind == TRI_PT2_NONE ? 0 : 1;
    if (count > most) {
        exported_fail(call, "a list has %d numbers; at most %d are supported", count, most);
        count = most;
    }
    for (int i = 0; i < count; i++)
        out[i] = number_of(call, a->kind == TRI_PT2_LIST ? &a->items[i] : a);
    return count;
}

int exported_ints(exported_call *call, int k, int64_t *out, int most) {
    exported_value values[EXPORTED_MAX_PARTS];
    int count = numbers_of(call, k, values, most < EXPORTED_MAX_PARTS ? most : EXPORTED_MAX_PARTS);
    for (int i = 0; i < count; i++) out[i] = values[i].integer;
    return count;
}

int exported_reals(exported_call *call, int k, double *out, int most) {
    exported_value values[EXPORTED_MAX_RANK];
    int count = numbers_of(call, k, values, most < EXPORTED_MAX_RANK ? most : EXPORTED_MAX_RANK);
    for (int i = 0; i < count; i++) out[i] = values[i].real;
    return count;
}

void exported_sizes(exported_call *call, int k, int64_t *out, int count) {
    int found = exported_ints(call, k, out, count);
    if (found == 1)
        for (int i = 1; i < count; i++) out[i] = out[0];
    else if (found != count)
        exported_fail(call, "a list has %d numbers, not %d", found, count);
}

int exported_list(exported_call *call, int k, exported_value *out, int most) {
    const tri_pt2_argument *a = &call->arguments[k];
    if (a->kind != TRI_PT2_LIST || a->count > most) {
        exported_fail(call, "an argument is no list of at most %d tensors", most);
        return 0;
    }
    for (int i = 0; i < a->count; i++) out[i] = value_of(call, &a->items[i]);
    return a->count;
}

int exported_axis(exported_call *call, int64_t axis, int rank) {
    int64_t found = axis < 0 ? axis + rank : axis;
    if (found >= 0 && found < rank) return (int)found;
    // A tensor without axes is taken as if it had one.
    if (!(rank == 0 && (axis == 0 || axis == -1)))
        exported_fail(call, "there is no axis %lld of %d", (long long)axis, rank);
    return 0;
}

int exported_axis_of(exported_call *call, int k) {
    exported_value x = exported_operand(call, 0);
    return exported_axis(call, exported_int(call, k), exported_rank(call->build, &x));
}

// The number of the value that is result k; -1: there is none.
static int result_of(const exported_call *call, int k) {
    for (int i = 0; i < call->node->output_count; i++) {
        const tri_pt2_argument *a = &call->node->outputs[i];
        int count = a->kind == TRI_PT2_LIST ? a->count : 1;
        if (k < count) {
            if (a->kind == TRI_PT2_LIST) a = &a->items[k];
            return a->kind == TRI_PT2_VALUE ? (int)a->number : -1;
        }
        k -= count;
    }
    return -1;
}

int exported_result_count(const exported_call *call) {
    int count = 0;
    for (int i = 0; i < call->node->output_count; i++)
        count += call->node->outputs[i].kind == TRI_PT2_LIST ? call->node->outputs[i].count : 1;
    return count;
}

const char *exported_result_name(const exported_call *call) {
    int result = result_of(call, 0);
    return result < 0 ? "" : call->build->network->file.values[result].name;
}

int exported_result_type(const exported_call *call, int k) {
    int result = result_of(call, k);
    return result < 0 ? 0 : call->build->network->file.values[result].dtype;
}

bool exported_is_sized(const exported_call *call, int k) {
    int result = result_of(call, k);
    const tri_pt2_value *v = result < 0 ? NULL : &call->build->network->file.values[result];
    bool is_sized = false;
    for (int i = 0; v && i < v->rank; i++) is_sized = is_sized || v->sizes[i] < 0;
    return is_sized;
}

void exported_give_at(exported_call *call, int k, exported_value value) {
    exported_build *b = call->build;
    int result = result_of(call, k);
    if (result < 0) return;
    const tri_pt2_value *info = &b->network->file.values[result];
    if (info->dtype) value.dtype = info->dtype;
    value.name = info->name;
    b->values[result] = value;
    b->made[result] = b->block;
}

void exported_give(exported_call *call, exported_value value) { exported_give_at(call, 0, value); }

void exported_give_graph_at(exported_call *call, int k, tri_value value) {
    exported_give_at(call, k, exported_of_graph(value, exported_result_type(call, k)));
}

void exported_give_graph(exported_call *call, tri_value value) {
    exported_give_graph_at(call, 0, value);
}
