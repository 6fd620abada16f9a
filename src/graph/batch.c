// The fields of a micro-batch: the graph's inputs by name.
#include "graph/graph.h"

#include <string.h>

tri_value tri_batch_field(const tri_batch *batch, const char *name) {
    const tri_graph *g = batch->graph;
    // "position" is an input of the graph, but no field.
    for (int i = 0; g && i < g->input_count && strcmp(name, "position") != 0; i++)
        if (!strcmp(g->inputs[i].name, name)) return g->inputs[i].value;
    return (tri_value){0};
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
