// Inputs that stand in for fields that the data of a program for outputs do not have, such as
// labels: losses and metrics may read them in any way, because they are dropped. No output may.
#include "plan/stand_in.h"

#include <string.h>

// The first output that depends on the value; NULL: nothing reads it, "": something else does.
static const char *output_of(const tri_graph *g, tri_value value) {
    bool *reached = TRI_NEW_ARRAY(g->arena, bool, g->value_count), is_read = false;
    reached[value.id] = true;
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        bool reads = false;
        for (int k = 0; k < node->input_count; k++)
            reads = reads || (node->inputs[k].id != 0 && reached[node->inputs[k].id]);
        for (int k = 0; reads && k < node->output_count; k++) reached[node->outputs[k].id] = true;
        is_read = is_read || reads;
    }
    for (int i = 0; i < g->output_count; i++)
        if (reached[g->outputs[i].value.id]) return g->outputs[i].name;
    return is_read ? "" : NULL;
}

int tri_stand_in_find_read(const tri_graph *graph, const tri_field *absent, int count,
                           const char **output) {
    for (int i = 0; i < count; i++) {
        tri_value value = tri_input_find(graph, absent[i].name);
        *output = tri_value_is(value) ? output_of(graph, value) : NULL;
        if (*output) return i;
    }
    return -1;
}

static bool is_absent(const tri_field *absent, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (!strcmp(absent[i].name, name)) return true;
    return false;
}

void tri_stand_in_remove(tri_graph *graph, const tri_field *absent, int count) {
    int kept = 0;
    for (int i = 0; i < graph->input_count; i++) {
        tri_value_info *info = &graph->values[graph->inputs[i].value.id];
        if (is_absent(absent, count, graph->inputs[i].name)) {
            *info = (tri_value_info){0};
            continue;
        }
        info->index = kept;
        graph->inputs[kept++] = graph->inputs[i];
    }
    graph->input_count = kept;
}
