// Weighted sums of losses, for passes and engine; model code uses <trireme/graph.h>. Each loss of
// such a sum is a mean: its sum divided by its own count, both over the whole step.
#ifndef TRIREME_GRAPH_LOSS_H
#define TRIREME_GRAPH_LOSS_H

#include "graph/graph.h"

// Makes the weighted sum weight · a + b of two losses; b may be none.
tri_value tri_loss_combine(tri_graph *graph, tri_value a, double weight, tri_value b);
// Copies the declaration of a metric from another graph, with this graph's `value`: for passes,
// which write a new graph from an old one.
void tri_metric_copy(tri_graph *to, const tri_metric_info *metric, tri_value value);
// How many labels of a micro-batch of `size` samples the loss counts: all but the ignored ones.
// `labels` points to the field of the micro-batch that holds the labels, or from which an op makes
// them, as next_token makes them from tokens.
int64_t tri_loss_count_labels(const tri_graph *graph, const tri_loss_term *term, int64_t size,
                              const void *labels);

#endif
