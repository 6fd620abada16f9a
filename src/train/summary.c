// Prints the table at the start of a run: the model's blocks (layers or groups of layers), their
// output shapes and parameters, as users know it from Keras and Lightning.
#include "base/quantity.h"
#include "tensor/half.h"
#include "train/loop.h"

#include <stdio.h>
#include <string.h>

enum { MOST_ROWS = 24, LAST_ROWS = 4, SHAPE_BYTES = 96 };

typedef struct counts {
    int64_t parameters, frozen, bytes;
} counts;

enum { ALL_BLOCKS = -1 };

// Counts the parameters of a block, or of ALL_BLOCKS. A tied parameter counts for the first block
// that reads it, so that it counts only once.
static counts count_parameters(const tri_graph *g, int block) {
    counts c = {0};
    for (int i = 0; i < g->parameter_count; i++) {
        const tri_parameter_info *p = &g->parameters[i];
        bool is_frozen = p->role == TRI_ROLE_FROZEN;
        if ((block != ALL_BLOCKS && p->block != block) ||
            (p->role != TRI_ROLE_TRAINED && !is_frozen))
            continue;
        int64_t elements = tri_shape_count(&p->shape);
        c.parameters += elements;
        c.frozen += is_frozen ? elements : 0;
        c.bytes += elements * (int64_t)tri_dtype_bytes(p->dtype);
    }
    return c;
}

static bool is_metric(const tri_graph *g, tri_value value) {
    for (int i = 0; i < g->metric_count; i++)
        if (g->metrics[i].value.id == value.id) return true;
    return false;
}

// Writes the shape of a block's output: of the last value that the block computes and that is no
// loss, no metric and no integer. Integers are left out, because they are labels (of the op
// `next_token`). N stands for the number of samples: [N, 10], or [8N, 64] with 8 rows per sample.
static void write_shape(const tri_graph *g, int block, int64_t batch, char *out, size_t size) {
    tri_value last = {0};
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        if (node->block != block || node->output_count == 0) continue;
        bool is_loss_or_metric = node->op->flags & TRI_OP_LOSS || is_metric(g, node->outputs[0]);
        if (!is_loss_or_metric && tri_dtype_is_float(tri_value_get(g, node->outputs[0])->dtype))
            last = node->outputs[0];
    }
    out[0] = 0;
    if (!tri_value_is(last)) return;
    tri_shape shape = tri_value_shape(g, last);
    int64_t first = shape.rank > 0 ? shape.dims[0] : 0;
    size_t used = first == batch ? (size_t)snprintf(out, size, "[N")
                  : first % batch == 0
                      ? (size_t)snprintf(out, size, "[%lldN", (long long)(first / batch))
                      : (size_t)snprintf(out, size, "[%lld", (long long)first);
    for (int i = 1; i < shape.rank && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, ", %lld", (long long)shape.dims[i]);
    if (used < size) snprintf(out + used, size - used, "]");
}

static void show_row(train_loop *loop, const tri_graph *g, int block, int64_t batch, int width) {
    char shape[SHAPE_BYTES];
    counts c = count_parameters(g, block);
    write_shape(g, block, batch, shape, sizeof shape);
    tri_observe_message(loop->observer, "  %-*s  %-20s  %14s%s", width, g->blocks[block], shape,
                        tri_grouped((double)c.parameters),
                        c.frozen == 0              ? ""
                        : c.frozen == c.parameters ? "  frozen"
                                                   : "  partly frozen");
}

void train_show_summary(train_loop *loop) {
    tri_session *s = loop->session;
    tri_arena *arena = tri_arena_create(loop->arena, "summary");
    tri_graph *g;
    int64_t batch = s->plan->programs[0]->batch;
    // The table shows the whole model, but the plan's graph has only this rank's slices. So the
    // graph is built once more.
    tri_status status = tri_model_build(arena, &s->model, batch, &g);
    if (status == TRI_OK)
        status = tri_graph_group(g, s->optimizer.groups, s->optimizer.group_count);
    int width = 5;
    for (int b = 0; status == TRI_OK && b < g->block_count; b++)
        if ((int)strlen(g->blocks[b]) > width) width = (int)strlen(g->blocks[b]);
    if (status == TRI_OK) {
        tri_observe_message(loop->observer, "  %-*s  %-20s  %14s", width, "block", "output",
                            "parameters");
        int left_out = g->block_count > MOST_ROWS ? g->block_count - MOST_ROWS + 1 : 0;
        int first_out = g->block_count - LAST_ROWS - left_out;
        for (int b = 0; b < g->block_count; b++) {
            if (left_out && b == first_out)
                tri_observe_message(loop->observer, "  ... %d more blocks", left_out);
            if (!left_out || b < first_out || b >= first_out + left_out)
                show_row(loop, g, b, batch, width);
        }
        counts all = count_parameters(g, ALL_BLOCKS);
        tri_observe_message(loop->observer, "  total: %s parameters, %s frozen, %s",
                            tri_grouped((double)all.parameters), tri_grouped((double)all.frozen),
                            tri_bytes_text((double)all.bytes));
    }
    tri_arena_destroy(arena);
}
