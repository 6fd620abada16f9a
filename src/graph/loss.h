// What a loss that is a weighted sum of others is made of, for passes and engine. Each loss of the
// sum is a mean: its sum divided by its count, both over the whole step. Model code sees
// <trireme/graph.h>.
#ifndef TRIREME_GRAPH_LOSS_H
#define TRIREME_GRAPH_LOSS_H

#include "graph/graph.h"

// Makes weight · a + b, of losses; b may be none.
tri_value tri_loss_combine(tri_graph *graph, tri_value a, double weight, tri_value b);
// Declares a metric as another graph has it, with this graph's value: for passes, which write a new
// graph from another.
void tri_metric_copy(tri_graph *to, const tri_metric_info *metric, tri_value value);
// How many labels of a micro-batch of `size` samples the loss counts; `labels` points to its field.
// Labels that are left out do not count.
int64_t tri_loss_count_labels(const tri_graph *graph, const tri_loss_term *term, int64_t size,
                              const void *labels);

#endif
