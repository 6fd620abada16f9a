// Ops of a user's own program: how they are used in a network, and the check of their gradients.
#include "ops/own.h"

#include "base/philox.h"
#include "graph/graph.h"
#include "ops/ops.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

tri_value tri_op_apply(tri_graph *graph, const char *name, const tri_value *inputs,
                       const double *settings, tri_value *outputs) {
    const tri_own_op *op = ops_own_find(name);
    if (!op) tri_graph_fail(graph, "op %s is not registered: call tri_op_register first", name);
    if (op && op->settings > 0 && !settings)
        tri_graph_fail(graph, "op %s needs %d settings", name, op->settings);
    if (graph->status != TRI_OK) return (tri_value){0};
    tri_own_attr attr = {.op = op};
    for (int i = 0; i < op->settings; i++) attr.settings[i] = settings[i];
    tri_value y = tri_node_add(graph, &tri_op_own, inputs, op->inputs, &attr, "");
    for (int k = 0; outputs && k < ops_own_outputs(op); k++)
        outputs[k] = tri_value_is(y) ? tri_node_output(graph, y, k) : y;
    return y;
}

// An op that is being checked: one call, whose tensors are F64 or I64, and the weights of its
// outputs in the sum that is differentiated.
typedef struct check {
    const tri_own_op *op;
    const tri_op_check_options *options;
    tri_own_call call;
    bool out_of_memory;
} check;

static void add_tensor(check *c, tri_own_tensor *to, const tri_shape *shape, bool integers) {
    *to = (tri_own_tensor){
        .dtype = integers ? TRI_I64 : TRI_F64, .shape = *shape, .count = tri_shape_count(shape)};
    to->data = to->count > 0 ? calloc((size_t)to->count, sizeof(double)) : NULL;
    c->out_of_memory = c->out_of_memory || !to->data;
}

static void draw(const check *c, tri_own_tensor *to, uint64_t number) {
    const tri_op_check_options *o = c->options;
    bool ranged = o->low != 0 || o->high != 0;
    double low = ranged ? o->low : -1, high = ranged ? o->high : 1;
    for (int64_t i = 0; i < to->count; i++) {
        double unit = tri_philox_at(o->seed, number, 0, (uint64_t)i) * 0x1p-32;
        if (to->dtype == TRI_I64)
            ((int64_t *)to->data)[i] = (int64_t)(unit * (double)(o->integers ? o->integers : 2));
        else
            ((double *)to->data)[i] = low + (high - low) * unit;
    }
}

static tri_status begin(check *c, const tri_shape *inputs) {
    tri_own_call *call = &c->call;
    tri_shape out[TRI_OWN_OUTPUTS];
    for (int k = 0; k < c->op->inputs; k++)
        if (tri_shape_count(&inputs[k]) < 1)
            return TRI_FAIL(TRI_BAD_INPUT, "%s: input %d of the check has no elements", c->op->name,
                            k);
    TRI_TRY(ops_own_shapes(c->op, inputs, call->settings, out));
    for (int k = 0; k < c->op->inputs; k++) {
        bool integers = c->op->integers >> k & 1;
        add_tensor(c, &call->in[k], &inputs[k], integers);
        if (!integers) add_tensor(c, &call->in_grad[k], &inputs[k], false);
    }
    for (int k = 0; k < ops_own_outputs(c->op); k++) {
        add_tensor(c, &call->out[k], &out[k], false);
        add_tensor(c, &call->out_grad[k], &out[k], false);
    }
    if (c->out_of_memory) return TRI_FAIL(TRI_NO_MEMORY, "no memory to check op %s", c->op->name);
    for (int k = 0; k < c->op->inputs; k++) draw(c, &call->in[k], (uint64_t)k);
    for (int k = 0; k < ops_own_outputs(c->op); k++)
        draw(c, &call->out_grad[k], (uint64_t)(TRI_OWN_INPUTS + k));
    return TRI_OK;
}

static void end(check *c) {
    for (int k = 0; k < TRI_OWN_INPUTS; k++)
        free(c->call.in[k].data), free(c->call.in_grad[k].data);
    for (int k = 0; k < TRI_OWN_OUTPUTS; k++)
        free(c->call.out[k].data), free(c->call.out_grad[k].data);
}

// Computes the outputs over poison, and *sum, the sum of all of them by their weights.
static tri_status compute(const check *c, double *sum) {
    tri_own_call call = c->call; // without what `compute` has no business with
    *sum = 0;
    for (int k = 0; k < TRI_OWN_INPUTS; k++) call.in_grad[k] = (tri_own_tensor){0};
    for (int k = 0; k < ops_own_outputs(c->op); k++) {
        for (int64_t i = 0; i < call.out[k].count; i++) tri_own_put(&call.out[k], i, NAN);
        call.out_grad[k] = (tri_own_tensor){0};
    }
    c->op->compute(&call);
    for (int k = 0; k < ops_own_outputs(c->op); k++)
        for (int64_t i = 0; i < call.out[k].count; i++) {
            double y = tri_own_get(&call.out[k], i);
            if (!isfinite(y))
                return TRI_FAIL(TRI_BAD_INPUT,
                                "%s: element %" PRId64 " of output %d is not written, or not "
                                "finite: inputs that the op is defined for are set by `low` and "
                                "`high`",
                                c->op->name, i, k);
            *sum += y * tri_own_get(&c->call.out_grad[k], i);
        }
    return TRI_OK;
}

static uint64_t hash_of_inputs(const check *c) {
    uint64_t hash = 1469598103934665603U; // FNV-1a
    for (int k = 0; k < c->op->inputs; k++)
        for (int64_t i = 0; i < c->call.in[k].count; i++)
            hash = (hash ^ ((const uint64_t *)c->call.in[k].data)[i]) * 1099511628211U;
    return hash;
}

static tri_status check_values(const check *c) {
    uint64_t before = hash_of_inputs(c);
    double first, again;
    TRI_TRY(compute(c, &first));
    TRI_TRY(compute(c, &again));
    if (hash_of_inputs(c) != before)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: `compute` changes its inputs", c->op->name);
    if (first != again)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: `compute` has another result the second time",
                        c->op->name);
    if (!c->op->gradient) return TRI_OK;
    tri_own_call call = c->call;
    for (int k = 0; k < TRI_OWN_OUTPUTS && !c->op->keeps_outputs; k++)
        call.out[k] = (tri_own_tensor){0};
    c->op->gradient(&call);
    if (hash_of_inputs(c) != before)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: `gradient` changes its inputs", c->op->name);
    return TRI_OK;
}

static tri_status differentiate(const check *c, int input, tri_op_worst *worst) {
    const tri_own_tensor *x = &c->call.in[input];
    for (int64_t i = 0; i < x->count; i++) {
        double at = tri_own_get(x, i), step = 1e-5 * fmax(1, fabs(at)), above, below;
        tri_own_put(x, i, at + step);
        TRI_TRY(compute(c, &above));
        tri_own_put(x, i, at - step);
        TRI_TRY(compute(c, &below));
        tri_own_put(x, i, at);
        tri_op_worst here = {input, i, tri_own_get(&c->call.in_grad[input], i),
                             (above - below) / (2 * step), 0};
        here.error = fabs(here.gradient - here.difference) / fmax(1, fabs(here.difference));
        if (!(here.error <= worst->error)) *worst = here;
    }
    return TRI_OK;
}

static tri_status check_gradients(const check *c, tri_op_worst *out) {
    double tolerance = c->options->tolerance > 0 ? c->options->tolerance : 1e-6;
    tri_op_worst worst = {.error = -1};
    for (int k = 0; k < c->op->inputs; k++)
        if (!(c->op->integers >> k & 1)) TRI_TRY(differentiate(c, k, &worst));
    if (out) *out = worst;
    if (worst.error <= tolerance) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: the gradient of element %" PRId64 " of input %d is %.9g, and finite "
                    "differences say %.9g",
                    c->op->name, worst.element, worst.input, worst.gradient, worst.difference);
}

tri_status tri_op_check(const char *name, const tri_shape *inputs, tri_op_check_options options,
                        tri_op_worst *worst) {
    const double none[TRI_OWN_SETTINGS] = {0};
    check c = {.op = ops_own_find(name),
               .options = &options,
               .call = {.settings = options.settings ? options.settings : none}};
    if (!c.op)
        return TRI_FAIL(TRI_BAD_INPUT, "op %s is not registered: call tri_op_register first", name);
    tri_status status = begin(&c, inputs);
    if (status == TRI_OK) status = check_values(&c);
    if (status == TRI_OK && c.op->gradient) status = check_gradients(&c, worst);
    end(&c);
    return status;
}
