// The losses of nn.h, and the metric "accuracy" that goes with those on labels. Each adds its node
// to the graph of the model that calls it.
#include "graph/loss.h"
#include "graph/metric.h"
#include "nn/layers.h"
#include "ops/ops.h"
#include "tensor/half.h"

#include <trireme/nn.h>

tri_value nn_stand_in(tri_graph *g, tri_value prediction) {
    return tri_node_add(g, &tri_op_mean_loss, &prediction, 1, NULL, "");
}

static bool is_one_element(const tri_shape *shape) {
    return shape->rank <= 1 && tri_shape_count(shape) == 1;
}

static bool fits(const tri_shape *target, const tri_shape *prediction, nn_fit fit) {
    int missing = prediction->rank - target->rank;
    if (fit == NN_SAME) return tri_shape_equal(target, prediction);
    if (missing < 0 || (fit == NN_ALIGNED && missing > 0)) return false;
    for (int i = 0; i < target->rank; i++) {
        int64_t size = target->dims[i], wanted = prediction->dims[i + missing];
        if (size != wanted && size != 1 && (fit == NN_WITHIN || wanted != 1)) return false;
    }
    return true;
}

bool nn_check_target(tri_graph *graph, const char *loss, const char *what, tri_value target,
                     tri_value prediction, nn_fit fit) {
    static const char *const rules[] = {"", ", or be broadcast to it", " or have as many axes"};
    char got[160], want[160];
    if (!tri_graph_check_input(graph, loss, NULL, prediction) ||
        !tri_graph_check_input(graph, loss, NULL, target))
        return false;
    tri_shape shape = tri_value_shape(graph, target), like = tri_value_shape(graph, prediction);
    if (is_one_element(&shape) || is_one_element(&like) || fits(&shape, &like, fit)) return true;
    tri_graph_fail(graph, "%s: %s must be %s%s, but is %s", loss, what,
                   tri_shape_text(&like, want, sizeof want), rules[fit],
                   tri_shape_text(&shape, got, sizeof got));
    return false;
}

// Soft labels are numbers for each class, and not the number of one class.
static bool is_soft(const tri_graph *g, tri_value labels) {
    return tri_value_is(labels) && labels.id < (uint32_t)g->value_count &&
           tri_dtype_is_float(tri_value_get(g, labels)->dtype);
}

void nn_report_accuracy(tri_graph *g, tri_value scores, tri_value labels) {
    if (g->drops_losses) return;
    if (!nn_has_metric(g, "accuracy")) tri_metric(g, "accuracy", tri_accuracy(g, scores, labels));
    nn_report_asked(g, scores, labels);
}

tri_value tri_accuracy(tri_graph *graph, tri_value scores, tri_value labels) {
    tri_value in[] = {scores, labels};
    if (tri_training(graph) && tri_graph_takes_value(graph, "accuracy", "", labels))
        tri_metric_note_inputs(graph, labels);
    if (tri_training(graph) || graph->options.predicts) return (tri_value){0};
    if (is_soft(graph, labels))
        in[1] = tri_node_add(graph, &tri_op_top_class, &labels, 1, NULL, "");
    return tri_node_add(graph, &tri_op_accuracy, in, 2, NULL, "");
}

static tri_value pair_loss(tri_graph *g, const tri_op *op, tri_value a, tri_value b) {
    // The target may stand first, and data that are predicted need not have it.
    if (g->drops_losses) return nn_stand_in(g, tri_value_is(a) ? a : b);
    return tri_node_add(g, op, (tri_value[]){a, b}, 2, NULL, "");
}

static tri_value soft_loss(tri_graph *g, tri_value log_probabilities, tri_value soft_labels,
                           double smoothing) {
    if (g->drops_losses) return nn_stand_in(g, log_probabilities);
    tri_soft_labels_attr attr = {.smoothing = smoothing};
    tri_value in[] = {log_probabilities, soft_labels};
    tri_value loss = tri_node_add(g, &tri_op_soft_nll_loss, in, 2, &attr, "");
    nn_report_accuracy(g, log_probabilities, soft_labels);
    return loss;
}

tri_value tri_soft_cross_entropy(tri_graph *graph, tri_value logits, tri_value soft_labels,
                                 double label_smoothing) {
    return soft_loss(graph, tri_log_softmax(graph, logits), soft_labels, label_smoothing);
}

double nn_take_smoothing(tri_graph *g) {
    if (g->options.label_smoothing > 0) g->smooths_labels = true;
    return g->options.label_smoothing;
}

tri_value nn_smoothed_loss(tri_graph *g, tri_value log_probabilities, tri_value labels,
                           double smoothing) {
    if (g->drops_losses) return nn_stand_in(g, log_probabilities);
    if (g->status != TRI_OK) return (tri_value){0};
    const tri_value_info *scores = tri_value_get(g, log_probabilities);
    int rank = scores->shape.rank;
    tri_one_hot_attr attr = {.classes = rank > 0 ? scores->shape.dims[rank - 1] : 0,
                             .dtype = scores->dtype};
    tri_soft_labels_attr spread = {.smoothing = smoothing};
    tri_value in[] = {log_probabilities, tri_node_add(g, &tri_op_one_hot, &labels, 1, &attr, "")};
    return tri_node_add(g, &tri_op_soft_nll_loss, in, 2, &spread, "");
}

tri_value tri_nll_loss(tri_graph *graph, tri_value log_probabilities, tri_value labels) {
    if (is_soft(graph, labels))
        return soft_loss(graph, log_probabilities, labels, nn_take_smoothing(graph));
    double smoothing = nn_take_smoothing(graph);
    tri_value loss = smoothing > 0 ? nn_smoothed_loss(graph, log_probabilities, labels, smoothing)
                                   : pair_loss(graph, &tri_op_nll_loss, log_probabilities, labels);
    nn_report_accuracy(graph, log_probabilities, labels);
    return loss;
}

tri_value tri_cross_entropy(tri_graph *graph, tri_value logits, tri_value labels) {
    if (is_soft(graph, labels))
        return tri_soft_cross_entropy(graph, logits, labels, nn_take_smoothing(graph));
    double smoothing = nn_take_smoothing(graph);
    if (smoothing > 0) {
        tri_value scores = tri_log_softmax(graph, logits);
        tri_value loss = nn_smoothed_loss(graph, scores, labels, smoothing);
        nn_report_accuracy(graph, scores, labels);
        return loss;
    }
    tri_value loss = pair_loss(graph, &tri_op_cross_entropy, logits, labels);
    nn_report_accuracy(graph, logits, labels);
    return loss;
}

tri_value tri_mse_loss(tri_graph *graph, tri_value prediction, tri_value target) {
    return pair_loss(graph, &tri_op_mse_loss, prediction, target);
}

tri_value tri_binary_cross_entropy(tri_graph *graph, tri_value logits, tri_value targets) {
    return pair_loss(graph, &tri_op_binary_cross_entropy, logits, targets);
}

tri_value tri_relative_l2_loss(tri_graph *graph, tri_value prediction, tri_value target) {
    return pair_loss(graph, &tri_op_relative_l2_loss, prediction, target);
}

tri_value tri_weighted(tri_graph *graph, tri_value loss, double weight) {
    return tri_loss_combine(graph, loss, weight, (tri_value){0});
}
