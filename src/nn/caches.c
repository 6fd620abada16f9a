// Caches and what computes with them; see include/trireme/caches.h.
#include "graph/graph.h"
#include "nn/layers.h"
#include "ops/ops.h"

#include <math.h>
#include <trireme/caches.h>
#include <trireme/functions.h>
#include <trireme/nn.h>

int64_t tri_cache_length(const tri_graph *graph) { return graph->options.cache_length; }

// Whether the graph has caches, and the inputs are its values.
static bool begin(tri_graph *g, const char *function, const char *name, tri_value x,
                  tri_value spans) {
    if (g->status == TRI_OK && tri_cache_length(g) == 0)
        tri_graph_fail(g, "%s %s: this graph is built without caches: ask tri_cache_length first",
                       function, name);
    return tri_graph_check_input(g, function, name, x) &&
           tri_graph_check_input(g, function, "spans", spans);
}

tri_value tri_cache(tri_graph *graph, const char *name, tri_value x, tri_value spans) {
    tri_cache_attr attr = {.length = tri_cache_length(graph)};
    if (!tri_layer_begin(graph, name) || !begin(graph, "cache", name, x, spans))
        return (tri_value){0};
    return tri_node_add(graph, &tri_op_cache, (tri_value[]){x, spans}, 2, &attr, name);
}

tri_value tri_cached_attention(tri_graph *graph, const char *name, tri_value q, tri_value k,
                               tri_value v, tri_value spans, tri_cached_attention_options o) {
    if (!tri_layer_begin(graph, name) || !begin(graph, "cached_attention", name, q, spans))
        return (tri_value){0};
    tri_shape of_q = tri_value_shape(graph, q);
    tri_cached_attention_attr attr = {
        .scale = o.scale != 0 ? o.scale : 1 / sqrt((double)of_q.dims[3]), .window = o.window};
    k = tri_cache(graph, tri_name(graph, "%s.keys", name), k, spans);
    v = tri_cache(graph, tri_name(graph, "%s.values", name), v, spans);
    return tri_node_add(graph, &tri_op_cached_attention, (tri_value[]){q, k, v, spans}, 4, &attr,
                        name);
}

tri_value tri_last_token(tri_graph *graph, tri_value x, tri_value spans) {
    if (!begin(graph, "last_token", "", x, spans)) return (tri_value){0};
    tri_value last = tri_map(graph, "max(x - 1, 0)", tri_slice(graph, spans, 1, 1, 2, 1));
    return tri_take_along(graph, x, 1, tri_unsqueeze(graph, last, 2));
}
