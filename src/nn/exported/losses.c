// Losses that the network itself computes: means, which become sums and counts.
#include "nn/exported/build.h"
#include "tensor/half.h"

#include <string.h>
#include <trireme/functions.h>
#include <trireme/losses.h>
#include <trireme/nn.h>

// The classes of scores [N, C, …] become the last axis, as those of [.., C] are.
static tri_value classes_last(exported_call *c, int k) {
    exported_value x = exported_operand(c, k);
    int rank = exported_rank(c->build, &x), order[EXPORTED_MAX_RANK];
    for (int i = 0; i < rank; i++) order[i] = i == 0 ? 0 : i == rank - 1 ? 1 : i + 1;
    if (rank > 2) x = exported_permute(c->build, x, order);
    return exported_as_float(c->build, &x);
}

static void want_mean(exported_call *c, int k) {
    enum { MEAN = 1 };
    if (exported_int(c, k) != MEAN)
        exported_fail(c,
                      "a loss in the network is a mean (reduction=\"mean\"); leave others to the "
                      "recipe's loss");
}

// Integer labels, of which those to ignore become -100; or probabilities, whose classes become the
// last axis, as those of the scores.
static tri_value labels_of(exported_call *c, int k, int ignored) {
    exported_value labels = exported_operand(c, k);
    if (exported_type_is_float(labels.dtype)) return classes_last(c, k);
    tri_value value = exported_as_graph(c->build, &labels);
    int64_t number = exported_int(c, ignored);
    if (number == TRI_IGNORED_LABEL) return value;
    return tri_ignore_label(c->build->graph, value, number);
}

static const float *weights_of(exported_call *c, int k) {
    if (exported_is_none(c, k)) return NULL;
    exported_value w = exported_operand(c, k);
    if (w.kind != EXPORTED_HOST) {
        exported_fail(c, "weights of classes have to be constants");
        return NULL;
    }
    w = exported_host_row_major(c->build, &w);
    int64_t count = exported_count(c->build, &w);
    float *values = TRI_NEW_ARRAY(c->build->graph->arena, float, count);
    for (int64_t i = 0; i < count; i++) values[i] = (float)w.host.data[i];
    return values;
}

// Without a reduction: the loss of each label, 0 of those that are left out. Argument 3 is the
// reduction. False: it is a mean.
static bool give_label_terms(exported_call *c, bool are_logarithms, double smoothing) {
    tri_graph *g = c->build->graph;
    if (exported_int(c, 3) != 0) {
        want_mean(c, 3);
        return false;
    }
    if (!exported_is_none(c, 2)) {
        exported_fail(c, "a loss without a reduction has no weights of classes");
        return true;
    }
    tri_value x = classes_last(c, 0), labels = labels_of(c, 1, 4);
    tri_value y = are_logarithms ? x : tri_log_softmax(g, x);
    if (g->status != TRI_OK) return true;
    int last = tri_value_shape(g, x).rank - 1;
    tri_value spread = {0};
    if (tri_dtype_is_float(tri_value_get(g, labels)->dtype)) {
        if (smoothing > 0) spread = tri_mean(g, y, &last, 1, false);
        y = tri_sum(g, tri_map(g, "y, t -> -y * t", y, labels), &last, 1, false);
        if (smoothing > 0) // the labels move towards 1 / classes
            y = tri_add(g, tri_mul_scalar(g, y, 1 - smoothing),
                        tri_mul_scalar(g, spread, -smoothing));
    } else {
        tri_value number = tri_cast(g, labels, TRI_F32);
        tri_value place = tri_cast(g, tri_map(g, "t -> max(t, 0)", number), TRI_I64);
        if (smoothing > 0) spread = tri_mean(g, y, &last, 1, false);
        y = tri_squeeze(g, tri_gather(g, y, last, tri_unsqueeze(g, place, last)), last);
        if (smoothing > 0)
            y = tri_add(g, tri_mul_scalar(g, y, 1 - smoothing),
                        tri_mul_scalar(g, spread, smoothing));
        y = tri_map(g, "y, t -> t < 0 ? 0 : -y", y, number);
    }
    exported_give_graph(c, y);
    return true;
}

static void cross_entropy(exported_call *c) {
    if (give_label_terms(c, false, exported_real(c, 5))) return;
    tri_label_loss_options o = {weights_of(c, 2), exported_real(c, 5)};
    exported_give_graph(
        c, tri_cross_entropy_with(c->build->graph, classes_last(c, 0), labels_of(c, 1, 4), o));
}

static void nll(exported_call *c) {
    if (give_label_terms(c, true, 0)) return;
    tri_label_loss_options o = {weights_of(c, 2), 0};
    exported_give_graph(
        c, tri_nll_loss_with(c->build->graph, classes_last(c, 0), labels_of(c, 1, 4), o));
}

// The terms of the losses whose means are in TRI_LOSS_LIST.
#define X(name, declared, values, parameters, expression, doc) {#name, expression},
static const struct {
    const char *name, *formula;
} terms[] = {TRI_LOSS_LIST(X){"mse_loss", "p, t -> (p - t) * (p - t)"},
             {"binary_cross_entropy_with_logits",
              "x, t, w, v -> w * ((1 - t) * x + (1 + (v - 1) * t) * (log1p(exp(-abs(x))) + "
              "max(-x, 0)))"},
             {"weighted_bce_loss",
              "p, t, w -> -w * (t * max(log(p), -100) + (1 - t) * max(log1p(-p), -100))"},
             {"log_kl_div_loss", "p, t -> exp(t) * (t - p)"}};
#undef X

// Without a reduction, the argument `k`, gives the loss's terms of its first `count` arguments.
// False: it is a mean.
static bool give_terms(exported_call *c, int k, const char *loss, const double *parameters,
                       int count) {
    exported_value in[TRI_FORMULA_INPUTS];
    if (exported_int(c, k) != 0) {
        want_mean(c, k);
        return false;
    }
    for (int i = 0; i < count; i++) {
        in[i] = exported_operand(c, i);
        // A weight that is not given.
        if (in[i].kind == EXPORTED_NOTHING) in[i] = exported_of_number(1, TRI_PT2_FLOAT32);
    }
    for (size_t i = 0; i < sizeof terms / sizeof *terms; i++)
        if (!strcmp(terms[i].name, loss))
            exported_give(c, exported_map_text(c->build, terms[i].formula, parameters, in, count,
                                               exported_result_type(c, 0)));
    return true;
}

static void mse(exported_call *c) {
    if (give_terms(c, 2, "mse_loss", NULL, 2)) return;
    exported_give_graph(
        c, tri_mse_loss(c->build->graph, exported_tensor(c, 0), exported_tensor(c, 1)));
}

static void l1(exported_call *c) {
    if (give_terms(c, 2, "l1_loss", NULL, 2)) return;
    exported_give_graph(c,
                        tri_l1_loss(c->build->graph, exported_tensor(c, 0), exported_tensor(c, 1)));
}

static void huber(exported_call *c) {
    double delta = exported_real(c, 3);
    if (give_terms(c, 2, "huber_loss", &delta, 2)) return;
    exported_give_graph(
        c, tri_huber_loss(c->build->graph, exported_tensor(c, 0), exported_tensor(c, 1), delta));
}

static void smooth_l1(exported_call *c) {
    double beta = exported_real(c, 3);
    if (give_terms(c, 2, "smooth_l1_loss", &beta, 2)) return;
    exported_give_graph(
        c, tri_smooth_l1_loss(c->build->graph, exported_tensor(c, 0), exported_tensor(c, 1), beta));
}

static void bce(exported_call *c) {
    if (give_terms(c, 3, "weighted_bce_loss", NULL, 3)) return;
    tri_binary_options o = {exported_tensor(c, 2), {0}};
    exported_give_graph(
        c, tri_bce_loss_with(c->build->graph, exported_tensor(c, 0), exported_tensor(c, 1), o));
}

static void bce_with_logits(exported_call *c) {
    if (give_terms(c, 4, "binary_cross_entropy_with_logits", NULL, 4)) return;
    tri_binary_options o = {exported_tensor(c, 2), exported_tensor(c, 3)};
    exported_give_graph(c, tri_binary_cross_entropy_with(c->build->graph, exported_tensor(c, 0),
                                                         exported_tensor(c, 1), o));
}

static void kl_div(exported_call *c) {
    bool is_log = exported_bool(c, 3);
    if (give_terms(c, 2, is_log ? "log_kl_div_loss" : "kl_div_loss", NULL, 2)) return;
    exported_give_graph(c, tri_kl_div_loss_with(c->build->graph, exported_tensor(c, 0),
                                                exported_tensor(c, 1),
                                                (tri_kl_div_options){.log_target = is_log}));
}

static void poisson(exported_call *c) {
    want_mean(c, 5);
    tri_poisson_options o = {!exported_bool(c, 2), exported_real(c, 4), exported_bool(c, 3)};
    exported_give_graph(c, tri_poisson_nll_loss_with(c->build->graph, exported_tensor(c, 0),
                                                     exported_tensor(c, 1), o));
}

static void soft_margin(exported_call *c) {
    if (give_terms(c, 2, "soft_margin_loss", NULL, 2)) return;
    exported_give_graph(
        c, tri_soft_margin_loss(c->build->graph, exported_tensor(c, 0), exported_tensor(c, 1)));
}

static void cosine_embedding(exported_call *c) {
    want_mean(c, 4);
    exported_give_graph(c, tri_cosine_embedding_loss(c->build->graph, exported_tensor(c, 0),
                                                     exported_tensor(c, 1), exported_tensor(c, 2),
                                                     exported_real(c, 3)));
}

static void hinge_embedding(exported_call *c) {
    want_mean(c, 3);
    exported_give_graph(c, tri_hinge_embedding_loss(c->build->graph, exported_tensor(c, 0),
                                                    exported_tensor(c, 1), exported_real(c, 2)));
}

static void margin_ranking(exported_call *c) {
    want_mean(c, 4);
    exported_give_graph(c, tri_margin_ranking_loss(c->build->graph, exported_tensor(c, 0),
                                                   exported_tensor(c, 1), exported_tensor(c, 2),
                                                   exported_real(c, 3)));
}

static void triplet_margin(exported_call *c) {
    want_mean(c, 7);
    tri_triplet_options o = {exported_real(c, 3), exported_real(c, 4), exported_real(c, 5),
                             exported_bool(c, 6)};
    if (o.margin <= 0 || o.p <= 0 || o.eps <= 0)
        exported_fail(c, "the margin, p and eps have to be above 0");
    exported_give_graph(c,
                        tri_triplet_margin_loss(c->build->graph, exported_tensor(c, 0),
                                                exported_tensor(c, 1), exported_tensor(c, 2), o));
}

const exported_row exported_loss_rows[] = {
    ROW("aten.cross_entropy_loss",
        "self target weight=None reduction=1 ignore_index=-100 label_smoothing=0.0", cross_entropy),
    ROW("aten.nll_loss_nd", "self target weight=None reduction=1 ignore_index=-100", nll),
    ROW("aten.nll_loss", "self target weight=None reduction=1 ignore_index=-100", nll),
    ROW("aten.mse_loss", "self target reduction=1", mse),
    ROW("aten.l1_loss", "self target reduction=1", l1),
    ROW("aten.huber_loss", "self target reduction=1 delta=1.0", huber),
    ROW("aten.smooth_l1_loss", "self target reduction=1 beta=1.0", smooth_l1),
    ROW("aten.binary_cross_entropy", "self target weight=None reduction=1", bce),
    ROW("aten.binary_cross_entropy_with_logits",
        "self target weight=None pos_weight=None reduction=1", bce_with_logits),
    ROW("aten.kl_div", "self target reduction=1 log_target=False", kl_div),
    ROW("aten.poisson_nll_loss", "input target log_input full eps reduction", poisson),
    ROW("aten.soft_margin_loss", "self target reduction=1", soft_margin),
    ROW("aten.cosine_embedding_loss", "input1 input2 target margin=0.0 reduction=1",
        cosine_embedding),
    ROW("aten.hinge_embedding_loss", "self target margin=1.0 reduction=1", hinge_embedding),
    ROW("aten.margin_ranking_loss", "input1 input2 target margin=0.0 reduction=1", margin_ranking),
    ROW("aten.triplet_margin_loss",
        "anchor positive negative margin=1.0 p=2.0 eps=1e-06 swap=False reduction=1",
        triplet_margin),
    {NULL, NULL, NULL, NULL, NULL, false},
};
