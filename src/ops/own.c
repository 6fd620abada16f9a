// Ops of a user's own program: which are registered, and the two ops `own` and `own_grad`, whose
// attribute is the row of such an op. So passes, plans and devices know two ops, whatever a program
// registers.
#include "ops/own.h"

#include "ops/rules.h"

#include <ctype.h>
#include <pthread.h>
#include <string.h>

enum { MOST_OPS = 64, NAME_BYTES = 64 };

static struct {
    pthread_mutex_t lock;
    int count;
    struct {
        tri_own_op op;
        char name[NAME_BYTES];
    } rows[MOST_OPS];
} registered = {.lock = PTHREAD_MUTEX_INITIALIZER};

const tri_own_op *ops_own_find(const char *name) {
    const tri_own_op *found = NULL;
    pthread_mutex_lock(&registered.lock);
    for (int i = 0; i < registered.count && !found; i++)
        if (!strcmp(registered.rows[i].name, name)) found = &registered.rows[i].op;
    pthread_mutex_unlock(&registered.lock);
    return found;
}

int ops_own_outputs(const tri_own_op *op) { return op->outputs ? op->outputs : 1; }

static bool is_name(const char *name) {
    if (!name || !*name || strlen(name) >= NAME_BYTES) return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && *name != '_' && *name != '-') return false;
    return true;
}

static tri_status check_row(const tri_own_op *op) {
    if (!is_name(op->name))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "an op's name has 1 to %d letters, digits, - and _, and is not '%.80s'",
                        NAME_BYTES - 1, op->name ? op->name : "");
    if (tri_op_find(op->name))
        return TRI_FAIL(TRI_BAD_INPUT, "op %s: the library has an op of this name", op->name);
    if (op->inputs < 1 || op->inputs > TRI_OWN_INPUTS || op->outputs < 0 ||
        op->outputs > TRI_OWN_OUTPUTS || op->settings < 0 || op->settings > TRI_OWN_SETTINGS)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "op %s: an op has 1 to %d inputs, 1 to %d outputs and up to %d settings, "
                        "not %d, %d and %d",
                        op->name, TRI_OWN_INPUTS, TRI_OWN_OUTPUTS, TRI_OWN_SETTINGS, op->inputs,
                        ops_own_outputs(op), op->settings);
    unsigned all = (1U << op->inputs) - 1;
    if ((op->integers & all) == all)
        return TRI_FAIL(TRI_BAD_INPUT, "op %s: an input has to be of numbers, not of integers",
                        op->name);
    if (!op->compute) return TRI_FAIL(TRI_BAD_INPUT, "op %s: it has no `compute`", op->name);
    return TRI_OK;
}

static bool is_same(const tri_own_op *a, const tri_own_op *b) {
    return a->inputs == b->inputs && a->outputs == b->outputs && a->settings == b->settings &&
           a->integers == b->integers && a->keeps_outputs == b->keeps_outputs &&
           a->mixes_samples == b->mixes_samples && a->shape == b->shape &&
           a->compute == b->compute && a->gradient == b->gradient;
}

tri_status tri_op_register(const tri_own_op *op) {
    TRI_TRY(check_row(op));
    const tri_own_op *known = ops_own_find(op->name);
    if (known && is_same(known, op)) return TRI_OK;
    if (known)
        return TRI_FAIL(TRI_BAD_INPUT, "op %s: another op of this name is registered", op->name);
    pthread_mutex_lock(&registered.lock);
    int at = registered.count;
    if (at < MOST_OPS) {
        snprintf(registered.rows[at].name, NAME_BYTES, "%s", op->name);
        registered.rows[at].op = *op;
        registered.rows[at].op.name = registered.rows[at].name;
        registered.count++;
    }
    pthread_mutex_unlock(&registered.lock);
    if (at < MOST_OPS) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "op %s: a program has at most %d ops of its own", op->name,
                    MOST_OPS);
}

static bool is_integer(const tri_own_op *op, int input) { return op->integers >> input & 1; }

// Checks the inputs, and finds the type of the numbers among them.
static tri_status want_inputs(const tri_own_op *op, const tri_op_signature *s, tri_dtype *type) {
    char name[32];
    bool found = false;
    for (int k = 0; k < TRI_OWN_INPUTS; k++) {
        snprintf(name, sizeof name, "input %d", k);
        if (s->present[k] != (k < op->inputs))
            return TRI_FAIL(TRI_BAD_INPUT, "%s: it has %d inputs, and %s is %s", op->name,
                            op->inputs, name, s->present[k] ? "one more" : "missing");
        if (!s->present[k]) continue;
        if (is_integer(op, k)) {
            TRI_TRY(ops_want_type(op->name, name, s->in_type[k], TRI_I64));
            continue;
        }
        if (!found) *type = s->in_type[k];
        TRI_TRY(ops_want_float(op->name, name, s->in_type[k]));
        TRI_TRY(ops_want_type(op->name, name, s->in_type[k], *type));
        found = true;
    }
    return TRI_OK;
}

tri_status ops_own_shapes(const tri_own_op *op, const tri_shape *in, const double *settings,
                          tri_shape *out) {
    char all[TRI_OWN_INPUTS * 160] = "", one[160];
    for (int k = 0; k < ops_own_outputs(op); k++) out[k] = in[0];
    const char *why = op->shape ? op->shape(in, out, settings) : NULL;
    for (int k = 0; k < ops_own_outputs(op) && !why; k++)
        if (out[k].rank < 0 || out[k].rank > TRI_MAX_RANK || tri_shape_count(&out[k]) < 1)
            why = "its shape rule makes an output without elements";
    if (!why) return TRI_OK;
    for (int k = 0; k < op->inputs; k++) {
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", k ? ", " : "",
                 tri_shape_text(&in[k], one, sizeof one));
    }
    return TRI_FAIL(TRI_BAD_INPUT, "%s: %s: the inputs are %s", op->name, why, all);
}

static tri_status own_shape(const void *attr, tri_op_signature *s) {
    const tri_own_attr *a = attr;
    if (!a->op) return TRI_FAIL(TRI_BAD_INPUT, "own: there is no op");
    tri_dtype type = TRI_F32;
    TRI_TRY(want_inputs(a->op, s, &type));
    for (int k = 0; k < TRI_OWN_OUTPUTS; k++) {
        s->out[k] = tri_shape_of(0);
        s->out_type[k] = type;
    }
    return ops_own_shapes(a->op, s->in, a->settings, s->out);
}

// The inputs are those of the op, its outputs and the gradients of these, each in a place of its
// own. An input of integers has a gradient of one element, which nobody reads.
static tri_status own_grad_shape(const void *attr, tri_op_signature *s) {
    const tri_own_attr *a = attr;
    if (!a->op) return TRI_FAIL(TRI_BAD_INPUT, "own_grad: there is no op");
    tri_dtype type = TRI_F32;
    tri_shape out[TRI_OWN_OUTPUTS];
    TRI_TRY(want_inputs(a->op, s, &type));
    TRI_TRY(ops_own_shapes(a->op, s->in, a->settings, out));
    for (int k = 0; k < 2 * TRI_OWN_OUTPUTS; k++) {
        int i = TRI_OWN_INPUTS + k;
        if (!s->present[i]) continue;
        const char *name = k < TRI_OWN_OUTPUTS ? "y" : "dy";
        TRI_TRY(ops_want_type(a->op->name, name, s->in_type[i], type));
        TRI_TRY(ops_want_shape(a->op->name, name, &s->in[i], out[k % TRI_OWN_OUTPUTS]));
    }
    for (int k = 0; k < TRI_OWN_INPUTS; k++) {
        s->out[k] = !s->present[k]         ? tri_shape_of(0)
                    : is_integer(a->op, k) ? tri_shape_of(1)
                                           : s->in[k];
        s->out_type[k] = type;
    }
    return TRI_OK;
}

static void own_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                         const bool *wanted, tri_value *in_grads) {
    const tri_own_attr *a = node->attr;
    tri_value in[TRI_OWN_INPUTS + 2 * TRI_OWN_OUTPUTS] = {{0}};
    bool any = false;
    for (int k = 0; k < a->op->inputs; k++) any = any || wanted[k];
    if (!any || !a->op->gradient) return;
    for (int k = 0; k < a->op->inputs; k++) in[k] = ops_recompute(graph, node, node->inputs[k]);
    for (int k = 0; k < ops_own_outputs(a->op); k++) {
        if (a->op->keeps_outputs) in[TRI_OWN_INPUTS + k] = node->outputs[k];
        in[TRI_OWN_INPUTS + TRI_OWN_OUTPUTS + k] = out_grads[k];
    }
    tri_value made = tri_node_add(graph, &tri_op_own_grad, in, TRI_OWN_INPUTS + 2 * TRI_OWN_OUTPUTS,
                                  a, node->name);
    for (int k = 0; k < a->op->inputs && tri_value_is(made); k++)
        if (wanted[k] && !is_integer(a->op, k)) in_grads[k] = tri_node_output(graph, made, k);
}

static void print_op(const void *at, FILE *out) {
    const tri_own_attr *a = at;
    if (a->op) fputs(a->op->name, out);
    for (int i = 0; a->op && i < a->op->settings; i++) fprintf(out, " %.17g", a->settings[i]);
}

static const tri_attr_field own_fields[] = {
    {.name = "op", .kind = TRI_ATTR_PRINTED, .offset = 0, .print = print_op},
    {0},
};

const tri_op tri_op_own = {
    .name = "own",
    .doc = "in, ... -> y, y2: what the user's own op attr.op computes",
    .input_count = TRI_OWN_INPUTS,
    .optional_inputs = TRI_OWN_INPUTS - 1,
    .output_count = TRI_OWN_OUTPUTS,
    .attr_bytes = sizeof(tri_own_attr),
    .attr_fields = own_fields,
    .shape = own_shape,
    .gradient = own_gradient,
};

const tri_op tri_op_own_grad = {
    .name = "own_grad",
    .doc = "in, ... (4), y, y2?, dy, dy2? -> the gradients of the inputs of the user's own op",
    .input_count = TRI_OWN_INPUTS + 2 * TRI_OWN_OUTPUTS,
    .optional_inputs = TRI_OWN_INPUTS + 2 * TRI_OWN_OUTPUTS - 1,
    .output_count = TRI_OWN_INPUTS,
    .attr_bytes = sizeof(tri_own_attr),
    .attr_fields = own_fields,
    .shape = own_grad_shape,
};
