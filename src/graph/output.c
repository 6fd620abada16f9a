// Declares the outputs of a model: the values that a program without a loss hands to its caller.
#include "base/quantity.h"
#include "graph/graph.h"

#include <string.h>

void tri_output_add(tri_graph *graph, const char *name, tri_value value) {
    TRI_PUSH(graph->arena, graph->outputs, graph->output_count, graph->output_capacity) =
        (tri_output_info){.name = tri_arena_strdup(graph->arena, name), .value = value};
}

// Checks that the value has a row for each sample of the micro-batch.
static void check_rows(tri_graph *g, const char *name, tri_value value) {
    const tri_value_info *info = tri_value_get(g, value);
    int64_t samples = tri_graph_samples(g);
    char shape[128];
    bool has_rows = info->shape.rank > 0 && (samples == 0 || info->shape.dims[0] == samples);
    if (info->kind == TRI_VALUE_RESULT && !tri_value_is_loss(g, value) && has_rows) return;
    tri_graph_fail(g,
                   "output '%s' is %s, and has to be a tensor made by a layer, whose first axis is "
                   "the %s of the micro-batch",
                   name, tri_shape_text(&info->shape, shape, sizeof shape),
                   tri_counted(samples, "sample"));
}

void tri_output(tri_graph *graph, const char *name, tri_value value) {
    if (!tri_graph_takes_name(graph, "output", name) ||
        !tri_graph_check_input(graph, "output", name, value) ||
        !tri_graph_takes_value(graph, "output", name, value))
        return;
    if (!*name) tri_graph_fail(graph, "an output has an empty name");
    for (int i = 0; i < graph->output_count; i++)
        if (!strcmp(graph->outputs[i].name, name))
            tri_graph_fail(graph, "the output '%s' is declared twice", name);
    check_rows(graph, name, value);
    // Other graphs do without outputs, so that these cost nothing. The recipe's losses read them.
    if (graph->status == TRI_OK && graph->drops_losses) tri_output_add(graph, name, value);
}
