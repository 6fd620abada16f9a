// Prints graphs for people: one line per node, or as input of Graphviz.
#include "graph/graph.h"

#include <inttypes.h>

static const char *const phase_names[TRI_PHASE_COUNT] = {"forward", "backward", "weight", "step"};

static void print_field(const tri_attr_field *field, const void *attr, FILE *out) {
    int count = field->count ? field->count : 1;
    fprintf(out, " %s=", field->name);
    for (int i = 0; i < count; i++) {
        const char *at = (const char *)attr + field->offset;
        if (i) fputc(',', out);
        switch (field->kind) {
        case TRI_ATTR_INT:
            fprintf(out, "%" PRId64, ((const int64_t *)at)[i]);
            break;
        case TRI_ATTR_FLOAT:
            fprintf(out, "%g", ((const double *)at)[i]);
            break;
        case TRI_ATTR_BOOL:
            fprintf(out, "%s", ((const bool *)at)[i] ? "true" : "false");
            break;
        case TRI_ATTR_KEY:
            fprintf(out, "%016" PRIx64, ((const uint64_t *)at)[i]);
            break;
        case TRI_ATTR_TYPE:
            fprintf(out, "%s", tri_dtype_name((tri_dtype)((const int64_t *)at)[i]));
            break;
        case TRI_ATTR_PRINTED:
            field->print(at, out);
            break;
        }
    }
}

static void print_value(const tri_graph *g, tri_value value, FILE *out) {
    const tri_value_info *info = tri_value_get(g, value);
    switch (info->kind) {
    case TRI_VALUE_NONE:
        fprintf(out, "-");
        break;
    case TRI_VALUE_INPUT:
        fprintf(out, "@%s", g->inputs[info->index].name);
        break;
    case TRI_VALUE_PARAMETER:
        fprintf(out, "%s", g->parameters[info->index].name);
        break;
    case TRI_VALUE_SCALAR:
        if (info->index >= TRI_SCALAR_TERM)
            fprintf(out, "@seed%d", info->index - TRI_SCALAR_TERM);
        else
            fprintf(out, info->index == TRI_SCALAR_SEED ? "@seed" : "@step");
        break;
    case TRI_VALUE_RESULT:
    case TRI_VALUE_WEIGHTED:
        fprintf(out, "%%%" PRIu32, value.id);
        break;
    }
}

void tri_graph_print(const tri_graph *graph, FILE *out) {
    int block = -1, phase = -1;
    for (int i = 0; i < graph->node_count; i++) {
        const tri_node *node = &graph->nodes[i];
        if (node->block != block || (int)node->phase != phase)
            fprintf(out, "%s %s:\n", phase_names[node->phase], graph->blocks[node->block]);
        block = node->block;
        phase = (int)node->phase;
        fprintf(out, "  ");
        for (int k = 0; k < node->output_count; k++) {
            const tri_value_info *info = tri_value_get(graph, node->outputs[k]);
            char shape[128], layout[64];
            if (k > 0 && tri_shape_count(&info->shape) == 0) continue; // it is left out
            fprintf(out, "%s%%%" PRIu32 " %s%s", k ? ", " : "", node->outputs[k].id,
                    tri_dtype_name(info->dtype), tri_shape_text(&info->shape, shape, sizeof shape));
            if (!tri_layout_is_plain(&info->layout))
                fprintf(out, " %s",
                        tri_layout_text(&info->layout, &info->shape, layout, sizeof layout));
        }
        fprintf(out, "%s%s", node->output_count ? " = " : "", node->op->name);
        if (*node->name) fprintf(out, " '%s'", node->name);
        int inputs = node->input_count; // without those that are left out at the end
        while (inputs > 0 && !tri_value_is(node->inputs[inputs - 1])) inputs--;
        for (int k = 0; k < inputs; k++) {
            fputc(' ', out);
            print_value(graph, node->inputs[k], out);
        }
        for (const tri_attr_field *f = node->op->attr_fields; f && f->name; f++)
            print_field(f, node->attr, out);
        fputc('\n', out);
    }
}

void tri_graph_dot(const tri_graph *graph, FILE *out) {
    fprintf(out, "digraph model {\n  rankdir=TB; node [shape=box, fontname=\"sans-serif\"];\n");
    for (int block = 0; block < graph->block_count; block++) {
        fprintf(out, "  subgraph cluster_%d {\n    label=\"%s\";\n", block, graph->blocks[block]);
        for (int i = 0; i < graph->node_count; i++) {
            const tri_node *node = &graph->nodes[i];
            if (node->block != block) continue;
            fprintf(out, "    n%d [label=\"%s%s%s\"%s];\n", i, node->op->name,
                    *node->name ? "\\n" : "", node->name,
                    node->phase == TRI_PHASE_BACKWARD ? ", style=filled, fillcolor=\"#dde8f5\""
                                                      : "");
        }
        fprintf(out, "  }\n");
    }
    for (int i = 0; i < graph->node_count; i++) {
        const tri_node *node = &graph->nodes[i];
        for (int k = 0; k < node->input_count; k++) {
            const tri_value_info *info = tri_value_get(graph, node->inputs[k]);
            if (info->kind == TRI_VALUE_RESULT) fprintf(out, "  n%d -> n%d;\n", info->node, i);
            if (info->kind != TRI_VALUE_PARAMETER) continue;
            fprintf(out, "  p%d [label=\"%s\", shape=ellipse];\n  p%d -> n%d;\n", info->index,
                    graph->parameters[info->index].name, info->index, i);
        }
    }
    fprintf(out, "}\n");
}
