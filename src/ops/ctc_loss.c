// Defines the op ctc_loss, connectionist temporal classification (Graves et al., ICML 2006), and
// its gradient: their shape rules and the gradient rule.
#include "ops/rules.h"

enum { SCORES, TARGETS, SEED };

// Checks the inputs; the lengths are inputs `lengths` and the next one.
static tri_status want_inputs(const char *op, const void *attr, int lengths,
                              const tri_op_signature *s) {
    const tri_ctc_loss_attr *a = attr;
    TRI_TRY(ops_want_float(op, "log-probabilities", s->in_type[SCORES]));
    TRI_TRY(ops_want_rank(op, "log-probabilities [N, T, K]", &s->in[SCORES], 3));
    TRI_TRY(ops_want_rank(op, "targets [N, S]", &s->in[TARGETS], 2));
    int64_t samples = s->in[SCORES].dims[0], classes = s->in[SCORES].dims[2];
    TRI_TRY(ops_want_shape(op, "targets", &s->in[TARGETS],
                           tri_shape_of(samples, s->in[TARGETS].dims[1])));
    TRI_TRY(ops_want_type(op, "targets", s->in_type[TARGETS], TRI_I64));
    for (int i = lengths; i < lengths + 2; i++) {
        const char *name = i == lengths ? "input lengths" : "target lengths";
        if (!s->present[i]) continue;
        TRI_TRY(ops_want_type(op, name, s->in_type[i], TRI_I64));
        TRI_TRY(ops_want_shape(op, name, &s->in[i], tri_shape_of(samples)));
    }
    if (a->blank >= 0 && a->blank < classes) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "%s: the blank, %" PRId64 ", must be one of %" PRId64 " classes",
                    op, a->blank, classes);
}

static tri_status ctc_loss_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(want_inputs("ctc_loss", attr, TARGETS + 1, s));
    ops_loss_output(s);
    return TRI_OK;
}

static tri_status ctc_loss_grad_shape(const void *attr, tri_op_signature *s) {
    TRI_TRY(want_inputs("ctc_loss_grad", attr, SEED + 1, s));
    TRI_TRY(ops_want_seed("ctc_loss_grad", s, SEED));
    ops_like_first(s);
    return TRI_OK;
}

static void ctc_loss_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                              const bool *wanted, tri_value *in_grads) {
    if (!wanted[0] || !tri_value_is(out_grads[0])) return;
    tri_value in[] = {node->inputs[0], node->inputs[1], out_grads[0], node->inputs[2],
                      node->inputs[3]};
    in_grads[0] = tri_node_add(graph, &tri_op_ctc_loss_grad, in, 5, node->attr, node->name);
}

static int64_t ctc_loss_count(const tri_op_signature *s) { return s->in[0].dims[0]; }

// A sum of three exponentials for each time and each of the 2 S + 1 states.
static tri_cost ctc_loss_cost(const void *attr, const tri_op_signature *s) {
    double states = (double)(2 * s->in[TARGETS].dims[1] + 1);
    return (tri_cost){.flops = 30 * states * (double)(s->in[0].dims[0] * s->in[0].dims[1])};
}

static const tri_attr_field ctc_loss_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_ctc_loss_attr, blank),
    OPS_FIELD(TRI_ATTR_BOOL, tri_ctc_loss_attr, zero_infinity),
    {0},
};

const tri_op tri_op_ctc_loss = {
    .name = "ctc_loss",
    .doc = "log-probabilities [N, T, K], targets I64 [N, S], input lengths, target lengths [N] -> "
           "F64 [2]: sum of -log(probability of the target) / max(1, target length), number of "
           "samples; a target ends before a label -100",
    .input_count = 4,
    .optional_inputs = 2,
    .output_count = 1,
    .flags = TRI_OP_LOSS,
    .count = ctc_loss_count,
    .attr_bytes = sizeof(tri_ctc_loss_attr),
    .attr_fields = ctc_loss_fields,
    .shape = ctc_loss_shape,
    .gradient = ctc_loss_gradient,
    .cost = ctc_loss_cost,
};

const tri_op tri_op_ctc_loss_grad = {
    .name = "ctc_loss_grad",
    .doc = "log-probabilities [N, T, K], targets, seed, input lengths, target lengths -> dx: -seed "
           "* probability of each class at each time, given the target, / max(1, target length)",
    .input_count = 5,
    .optional_inputs = 2,
    .output_count = 1,
    .attr_bytes = sizeof(tri_ctc_loss_attr),
    .attr_fields = ctc_loss_fields,
    .shape = ctc_loss_grad_shape,
    .cost = ctc_loss_cost,
};
