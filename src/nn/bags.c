// Layers of large vocabularies: embeddings of bags and with padding, and a softmax whose rare
// classes have smaller weights.
#include "nn/layers.h"

#include <inttypes.h>
#include <math.h>
#include <trireme/functions.h>
#include <trireme/more_layers.h>
#include <trireme/nn.h>

static tri_value none(void) { return (tri_value){0}; }

// 1 where an id is not `padding`, in the type of floats.
static tri_value not_padding(tri_graph *g, tri_value ids, int64_t padding) {
    const char *formula = tri_name(g, "id -> id != %" PRId64, padding);
    return tri_cast(g, tri_map(g, formula, ids), TRI_F32);
}

// An embedding whose row `padding` begins as 0.
static tri_value zero_row_embedding(tri_graph *g, const char *name, tri_value ids,
                                    tri_embedding_options o, int64_t padding) {
    if (o.weight_init.kind == TRI_INIT_DEFAULT)
        o.weight_init = (tri_init){.kind = TRI_INIT_NORMAL, .std = o.std};
    o.weight_init.zero_row = padding + 1;
    return tri_embedding(g, name, ids, o);
}

tri_value tri_embedding_padded(tri_graph *graph, const char *name, tri_value ids, int64_t padding,
                               tri_embedding_options o) {
    if (padding < 0 || padding >= o.tokens) {
        tri_graph_fail(graph, "embedding %s: the padding %" PRId64 " is no token", name, padding);
        return none();
    }
    tri_value rows = zero_row_embedding(graph, name, ids, o, padding);
    tri_value keeps = tri_unsqueeze(graph, not_padding(graph, ids, padding), -1);
    return tri_map(graph, "row, keeps -> keeps > 0 ? row : detach(row)", rows, keeps);
}

tri_value tri_embedding_bag(tri_graph *graph, const char *name, tri_value ids,
                            tri_embedding_bag_options o) {
    tri_value rows = o.pads ? zero_row_embedding(graph, name, ids, o.embedding, o.padding)
                            : tri_embedding(graph, name, ids, o.embedding);
    tri_shape of_ids = tri_value_shape(graph, ids);
    if (of_ids.rank != 2 || tri_shape_count(&of_ids) == 0) {
        tri_graph_fail(graph, "embedding_bag %s: ids must be [N, L], neither of them 0", name);
        return none();
    }
    if (tri_value_is(o.weights)) {
        tri_shape own = tri_value_shape(graph, o.weights);
        if (o.mode != TRI_BAG_SUM || !tri_shape_equal(&of_ids, &own)) {
            tri_graph_fail(graph, "embedding_bag %s: weights must have the shape of ids, of a sum",
                           name);
            return none();
        }
        rows = tri_mul(graph, rows, tri_unsqueeze(graph, o.weights, -1));
    }
    if (!o.pads)
        return o.mode == TRI_BAG_MAX   ? tri_amax(graph, rows, (int[]){1}, 1, false)
               : o.mode == TRI_BAG_SUM ? tri_sum(graph, rows, (int[]){1}, 1, false)
                                       : tri_mean(graph, rows, (int[]){1}, 1, false);
    tri_value keeps = tri_unsqueeze(graph, not_padding(graph, ids, o.padding), -1);
    tri_value count = tri_sum(graph, keeps, (int[]){1}, 1, false); // [N, 1]
    if (o.mode == TRI_BAG_MAX) {
        rows = tri_map(graph, "row, keeps -> keeps > 0 ? row : -3e38", rows, keeps);
        rows = tri_amax(graph, rows, (int[]){1}, 1, false);
        return tri_map(graph, "row, count -> count > 0 ? row : 0", rows, count);
    }
    tri_value sum = tri_sum(graph, tri_map(graph, "row, keeps -> keeps > 0 ? row : 0", rows, keeps),
                            (int[]){1}, 1, false);
    if (o.mode == TRI_BAG_SUM) return sum;
    return tri_map(graph, "sum, count -> sum / max(count, 1)", sum, count);
}

// Whether the clusters of the options, of x [.., in], are such.
static bool check_clusters(tri_graph *g, const char *name, tri_value x,
                           const tri_adaptive_softmax_options *o, double div_value) {
    enum { MOST = 32 };
    if (!tri_graph_check_input(g, "adaptive_log_softmax", name, x)) return false;
    tri_shape shape = tri_value_shape(g, x);
    bool fits = shape.rank > 0 && o->count >= 1 && o->count <= MOST && o->cutoffs && div_value >= 1;
    for (int i = 0; fits && i < o->count; i++)
        fits = o->cutoffs[i] > (i ? o->cutoffs[i - 1] : 0) && o->cutoffs[i] < o->classes;
    if (!fits) {
        tri_graph_fail(
            g,
            "adaptive_log_softmax %s: needs x [.., in], 1 to %d cutoffs that go up from 1 "
            "and lie below the %" PRId64 " classes, and a div_value of at least 1",
            name, MOST, o->classes);
        return false;
    }
    double features = (double)shape.dims[shape.rank - 1] / pow(div_value, o->count);
    if (features >= 1) return true;
    tri_graph_fail(g, "adaptive_log_softmax %s: cluster %d has no features left of %" PRId64, name,
                   o->count - 1, shape.dims[shape.rank - 1]);
    return false;
}

tri_value tri_adaptive_log_softmax(tri_graph *graph, const char *name, tri_value x,
                                   tri_adaptive_softmax_options o) {
    double div_value = o.div_value != 0 ? o.div_value : 4, fewer = 1;
    if (!tri_layer_begin(graph, name)) return none();
    if (!check_clusters(graph, name, x, &o, div_value)) return none();
    int last = tri_value_shape(graph, x).rank - 1;
    double in = (double)tri_value_shape(graph, x).dims[last];
    int64_t common = o.cutoffs[0];
    tri_linear_options head = {.features = common + o.count, .no_bias = !o.head_bias};
    tri_value scores = tri_linear_with(graph, tri_name(graph, "%s.head", name), x, head);
    tri_value first = tri_log_softmax(graph, scores);
    tri_value *parts = TRI_NEW_ARRAY(graph->arena, tri_value, o.count + 1);
    parts[0] = tri_slice(graph, first, last, 0, common, 1);
    for (int i = 0; i < o.count; i++) {
        int64_t end = i + 1 < o.count ? o.cutoffs[i + 1] : o.classes;
        fewer *= div_value;
        tri_linear_options narrow = {.features = (int64_t)floor(in / fewer), .no_bias = true};
        tri_linear_options own = {.features = end - o.cutoffs[i], .no_bias = true};
        tri_value y = tri_linear_with(graph, tri_name(graph, "%s.tail.%d.0", name, i), x, narrow);
        y = tri_linear_with(graph, tri_name(graph, "%s.tail.%d.1", name, i), y, own);
        tri_value cluster = tri_slice(graph, first, last, common + i, common + i + 1, 1);
        parts[i + 1] = tri_add(graph, tri_log_softmax(graph, y), cluster);
    }
    return tri_concat(graph, parts, o.count + 1, last);
}
