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

// Counts the parameters of a block. A tied parameter counts for the first block that reads it, so
// that it counts only once.
static counts count_parameters(const tri_graph *g, int block) {
    counts c = {0};
    for (int i = 0; i < g->parameter_count; i++) {
        const tri_parameter_info *p = &g->parameters[i];
        bool is_frozen = p->role == TRI_ROLE_FROZEN;
        if (p->block != block || (p->role != TRI_ROLE_TRAINED && !is_frozen)) continue;
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

const tri_tree *train_model_table(train_loop *loop) {
    tri_session *s = loop->session;
    tri_arena *arena = tri_arena_create(loop->arena, "model's table");
    tri_tree *table = tri_tree_list(loop->arena);
    tri_graph *g;
    int64_t batch = s->plan->programs[0]->batch;
    // The table shows the whole model, but the plan's graph has only this rank's slices. So the
    // graph is built once more.
    tri_status status = tri_model_build(arena, &s->model, batch, &g);
    if (status == TRI_OK)
        status = tri_graph_group(g, s->optimizer.groups, s->optimizer.group_count);
    for (int b = 0; status == TRI_OK && b < g->block_count; b++) {
        char shape[SHAPE_BYTES];
        counts c = count_parameters(g, b);
        write_shape(g, b, batch, shape, sizeof shape);
        tri_tree *row = tri_tree_map(loop->arena);
        tri_tree_put_string(loop->arena, row, "block", g->blocks[b]);
        tri_tree_put_string(loop->arena, row, "output", shape);
        tri_tree_put_int(loop->arena, row, "parameters", c.parameters);
        tri_tree_put_int(loop->arena, row, "frozen", c.frozen);
        tri_tree_put_int(loop->arena, row, "bytes", c.bytes);
        tri_tree_append(loop->arena, table, row);
    }
    tri_arena_destroy(arena);
    return table;
}

static int64_t count_of(const tri_tree *row, const char *key) {
    int64_t count = 0;
    (void)tri_tree_to_int(tri_tree_get(row, key), &count);
    return count;
}

static void show_row(train_loop *loop, const tri_tree *row, int width) {
    int64_t parameters = count_of(row, "parameters"), frozen = count_of(row, "frozen");
    tri_observe_message(loop->observer, "  %-*s  %-20s  %14s%s", width,
                        tri_tree_get(row, "block")->text, tri_tree_get(row, "output")->text,
                        tri_grouped((double)parameters),
                        frozen == 0            ? ""
                        : frozen == parameters ? "  frozen"
                                               : "  partly frozen");
}

void train_show_summary(train_loop *loop, const tri_tree *table) {
    int width = 5, left_out = table->count > MOST_ROWS ? table->count - MOST_ROWS + 1 : 0;
    int first_out = table->count - LAST_ROWS - left_out;
    counts all = {0};
    for (int b = 0; b < table->count; b++) {
        int length = (int)strlen(tri_tree_get(table->items[b], "block")->text);
        if (length > width) width = length;
        all.parameters += count_of(table->items[b], "parameters");
        all.frozen += count_of(table->items[b], "frozen");
        all.bytes += count_of(table->items[b], "bytes");
    }
    if (table->count == 0) return;
    tri_observe_message(loop->observer, "  %-*s  %-20s  %14s", width, "block", "output",
                        "parameters");
    for (int b = 0; b < table->count; b++) {
        if (left_out && b == first_out)
            tri_observe_message(loop->observer, "  ... %d more blocks", left_out);
        if (!left_out || b < first_out || b >= first_out + left_out)
            show_row(loop, table->items[b], width);
    }
    tri_observe_message(loop->observer, "  total: %s parameters, %s frozen, %s",
                        tri_grouped((double)all.parameters), tri_grouped((double)all.frozen),
                        tri_bytes_text((double)all.bytes));
}
