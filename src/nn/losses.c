// The losses of nn.h, and the metric "accuracy" that goes with those on labels. Each adds its node
// to the graph of the model that calls it.
#include "graph/loss.h"
#include "ops/ops.h"

#include <string.h>
#include <trireme/nn.h>

// Adds the metric "accuracy". Training reports only the loss, so there the metric is declared but
// not computed, which saves time. It has to be declared because the graphs of training and
// evaluation must have the same metrics.
static void report_accuracy(tri_graph *g, tri_value scores, tri_value labels) {
    tri_value in[] = {scores, labels}, accuracy = {0};
    for (int i = 0; i < g->metric_count; i++)
        if (!strcmp(g->metrics[i].name, "accuracy")) return;
    if (!tri_training(g)) accuracy = tri_node_add(g, &tri_op_accuracy, in, 2, NULL, "");
    tri_metric(g, "accuracy", accuracy);
}

static tri_value pair_loss(tri_graph *g, const tri_op *op, tri_value a, tri_value b) {
    return tri_node_add(g, op, (tri_value[]){a, b}, 2, NULL, "");
}

tri_value tri_nll_loss(tri_graph *graph, tri_value log_probabilities, tri_value labels) {
    tri_value loss = pair_loss(graph, &tri_op_nll_loss, log_probabilities, labels);
    report_accuracy(graph, log_probabilities, labels);
    return loss;
}

tri_value tri_cross_entropy(tri_graph *graph, tri_value logits, tri_value labels) {
    tri_value loss = pair_loss(graph, &tri_op_cross_entropy, logits, labels);
    report_accuracy(graph, logits, labels);
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
