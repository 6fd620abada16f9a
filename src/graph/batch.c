// Gives a model the fields of a micro-batch: the graph's inputs by name.
#include "graph/graph.h"

#include <string.h>

tri_value tri_input_find(const tri_graph *graph, const char *name) {
    for (int i = 0; i < graph->input_count; i++)
        if (!strcmp(graph->inputs[i].name, name)) return graph->inputs[i].value;
    return (tri_value){0};
}

tri_value tri_batch_field(const tri_batch *batch, const char *name) {
    // The graph's input "position" is not a field of the data: the engine fills it, and dropout
    // derives its random numbers from it.
    bool is_field = batch->graph && strcmp(name, "position") != 0;
    return is_field ? tri_input_find(batch->graph, name) : (tri_value){0};
}

tri_batch tri_batch_make(const tri_graph *graph, int64_t size) {
    tri_batch batch = {.size = size, .graph = graph};
    batch.images = tri_batch_field(&batch, "images");
    batch.labels = tri_batch_field(&batch, "labels");
    batch.inputs = tri_batch_field(&batch, "inputs");
    batch.targets = tri_batch_field(&batch, "targets");
    batch.input_ids = tri_batch_field(&batch, "input_ids");
    return batch;
}

int64_t tri_graph_samples(const tri_graph *graph) {
    if (graph->input_count == 0) return 0;
    const tri_shape *shape = &tri_value_get(graph, graph->inputs[0].value)->shape;
    return shape->rank > 0 ? shape->dims[0] : 0;
}
