// Weighted sums of losses, for passes and engine; model code uses <trireme/graph.h>. Each loss of a
// weighted sum is a mean: the sum of its values for all samples or labels of the step, divided by
// their number.
#ifndef TRIREME_GRAPH_LOSS_H
#define TRIREME_GRAPH_LOSS_H

#include "graph/graph.h"

// Makes the weighted sum weight · a + b of two losses; b may be none.
tri_value tri_loss_combine(tri_graph *graph, tri_value a, double weight, tri_value b);
// Drops the loss with its terms, and the metrics that are means, of which some may be losses that
// are dropped. Those of metrics.h stay.
void tri_loss_drop(tri_graph *graph);
// Declares in the graph `to` a metric of another graph, with the same name and weight; `value` is
// the metric's value in `to`. Passes that write a new graph from an old one use it.
void tri_metric_copy(tri_graph *to, const tri_metric_info *metric, tri_value value);
// Counts the labels of a micro-batch of `size` samples that enter the loss: all but the ignored
// ones, each with the weight of its class. `labels` points to the field of the micro-batch that
// holds the labels, or from which an op makes them, as next_token makes them from tokens.
double tri_loss_count_labels(const tri_graph *graph, const tri_loss_term *term, int64_t size,
                             const void *labels);

#endif
