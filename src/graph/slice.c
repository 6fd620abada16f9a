// Slices of parameters: where the elements of a tensor-parallel rank's slice lie in the full
// parameter, and the other way round; and how files have a parameter.
#include "graph/graph.h"

#include <string.h>

int64_t tri_parameter_run(const tri_parameter_slice *slice, const tri_shape *shape) {
    int64_t run = 1;
    for (int i = slice->count ? slice->axis : 0; i < shape->rank; i++) run *= shape->dims[i];
    return slice->parts > 1 ? run / slice->parts : run;
}

int64_t tri_parameter_full_index(const tri_parameter_slice *slice, const tri_shape *shape,
                                 int64_t index) {
    if (slice->count == 0) return index;
    int64_t run = tri_parameter_run(slice, shape);
    return (index / run * slice->count + slice->index) * run + index % run;
}

int tri_parameter_locate(const tri_parameter_slice *slice, const tri_shape *shape, int64_t full,
                         int64_t *local, int64_t *count) {
    int64_t run = tri_parameter_run(slice, shape), slices = slice->count ? slice->count : 1;
    *local = full / (run * slices) * run + full % run;
    *count = run - full % run;
    return (int)(full / run % slices);
}

static void transpose(tri_shape *shape) {
    int64_t rows = shape->dims[0];
    shape->dims[0] = shape->dims[1];
    shape->dims[1] = rows;
}

tri_parameter_info tri_parameter_stored(const tri_parameter_info *parameter) {
    tri_parameter_info p = *parameter;
    if (!p.stored_transposed) return p;
    transpose(&p.shape);
    p.layout = tri_layout_transposed(&p.layout);
    if (p.slice.count == 0) return p;
    transpose(&p.slice.full);
    p.slice.axis = 1 - p.slice.axis;
    return p;
}

size_t tri_parameter_layer(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? (size_t)(dot - name) : strlen(name);
}

// Sets how the layer's parameters are split; `function` is what the model called.
static void split_layer(tri_graph *g, const char *function, const char *layer, tri_split split,
                        int parts) {
    if (!tri_graph_takes_name(g, "layer", layer)) return;
    int last = tri_index_find(&g->layer_parameters, layer, strlen(layer));
    if (last == TRI_NOT_IN_INDEX)
        tri_graph_fail(g, "%s: no layer is named '%s'", function, layer);
    else
        for (int i = last; i >= 0; i = g->parameters[i].previous_of_layer) {
            g->parameters[i].split = split;
            g->parameters[i].split_parts = parts;
        }
}

void tri_split_layer(tri_graph *graph, const char *layer, tri_split split) {
    if ((unsigned)split > TRI_SPLIT_ROW)
        tri_graph_fail(graph, "tri_split_layer: %s: %d is no tri_split", layer, (int)split);
    split_layer(graph, "tri_split_layer", layer, split, 1);
}

void tri_split_fused_layer(tri_graph *graph, const char *layer, int parts) {
    if (parts < 1)
        tri_graph_fail(graph, "tri_split_fused_layer: %s: needs at least one part, not %d", layer,
                       parts);
    split_layer(graph, "tri_split_fused_layer", layer, TRI_SPLIT_COLUMN, parts);
}
