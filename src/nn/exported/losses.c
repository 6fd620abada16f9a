// Losses that the network itself computes: means, which become sums and counts.
#include "nn/exported/build.h"

#include <string.h>
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

// Integer labels, of which those to ignore become -100.
static tri_value labels_of(exported_call *c, int k, int ignored) {
    exported_value labels = exported_operand(c, k);
    tri_value value = exported_as_graph(c->build, &labels);
    int64_t number = exported_int(c, ignored);
    if (exported_type_is_float(labels.dtype) || number == TRI_IGNORED_LABEL) return value;
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

static void cross_entropy(exported_call *c) {
    want_mean(c, 3);
    tri_label_loss_options o = {weights_of(c, 2), exported_real(c, 5)};
    exported_give_graph(
        c, tri_cross_entropy_with(c->build->graph, classes_last(c, 0), labels_of(c, 1, 4), o));
}

static void nll(exported_call *c) {
    want_mean(c, 3);
    tri_label_loss_options o = {weights_of(c, 2), 0};
    exported_give_graph(
        c, tri_nll_loss_with(c->build->graph, classes_last(c, 0), labels_of(c, 1, 4), o));
}

static void mse(exported_call *c) {
    want_mean(c, 2);
    exported_give_graph(
        c, tri_mse_loss(c->build->graph, exported_tensor(c, 0), exported_tensor(c, 1)));
}

static void l1(exported_call *c) {
    want_mean(c, 2);
    exported_give_graph(c,
                        tri_l1_loss(c->build->graph, exported_tensor(c, 0), exported_tensor(c, 1)));
}

static void huber(exported_call *c) {
    want_mean(c, 2);
    exported_give_graph(c, tri_huber_loss(c->build->graph, exported_tensor(c, 0),
                                          exported_tensor(c, 1), exported_real(c, 3)));
}

static void smooth_l1(exported_call *c) {
    want_mean(c, 2);
    exported_give_graph(c, tri_smooth_l1_loss(c->build->graph, exported_tensor(c, 0),
                                              exported_tensor(c, 1), exported_real(c, 3)));
}

static void bce(exported_call *c) {
    want_mean(c, 3);
    tri_binary_options o = {exported_tensor(c, 2), {0}};
    exported_give_graph(
        c, tri_bce_loss_with(c->build->graph, exported_tensor(c, 0), exported_tensor(c, 1), o));
}

static void bce_with_logits(exported_call *c) {
    want_mean(c, 4);
    tri_binary_options o = {exported_tensor(c, 2), exported_tensor(c, 3)};
    exported_give_graph(c, tri_binary_cross_entropy_with(c->build->graph, exported_tensor(c, 0),
                                                         exported_tensor(c, 1), o));
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
    {NULL, NULL, NULL, NULL, NULL, false},
};
