// Reads arbitrary bytes as shapes and views of a map. Where its shape rule takes them, the strides
// that devices read by stay inside of each input, and each gradient has the shape of its input.
#include "device/map_plan.h"
#include "graph/graph.h"
#include "ops/ops.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct bytes {
    const uint8_t *data;
    size_t size;
} bytes;

static int next(bytes *b) {
    if (b->size == 0) return 0;
    b->size--;
    return *b->data++;
}

static tri_shape next_shape(bytes *b) {
    tri_shape shape = {.rank = next(b) % (TRI_MAX_RANK + 1)};
    for (int i = 0; i < shape.rank; i++) shape.dims[i] = next(b) % 8;
    return shape;
}

static void check_plan(const tri_graph *g, const tri_node *node) {
    tri_map_plan plan;
    tri_map_plan_make(g, node, &plan);
    for (int k = 0; k < plan.formula.input_count; k++) {
        const tri_map_input *input = &plan.inputs[k];
        tri_shape x = tri_value_shape(g, node->inputs[k]);
        int64_t least = input->offset, most = input->offset;
        bool none = false;
        for (int i = 0; i < plan.rank; i++) {
            int64_t first = input->first[i] * input->strides[i],
                    last = (input->end[i] - 1) * input->strides[i];
            none = none || input->first[i] >= input->end[i];
            least += first < last ? first : last;
            most += first < last ? last : first;
        }
        TRI_ASSERT(none || (least >= 0 && most < tri_shape_count(&x)));
    }
}

static void check_gradient(tri_graph *g, tri_node node) {
    tri_value out_grads[TRI_MAX_OUTPUTS] = {
        tri_input(g, "dy", TRI_F32, tri_value_shape(g, node.outputs[0]))};
    bool wanted[TRI_MAX_INPUTS] = {true, true};
    tri_value in_grads[TRI_MAX_INPUTS] = {{0}};
    node.op->gradient(g, &node, out_grads, wanted, in_grads);
    for (int k = 0; k < 2 && g->status == TRI_OK; k++) {
        tri_shape x = tri_value_shape(g, node.inputs[k]), dx = tri_value_shape(g, in_grads[k]);
        TRI_ASSERT(tri_shape_equal(&x, &dx));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bytes b = {data, size};
    tri_graph_options options = {.dtype = TRI_F32};
    tri_graph *g = tri_graph_create(NULL, &options);
    tri_map_attr attr = {.expands = true, .viewed = next(&b) % 4, .shape = next_shape(&b)};
    tri_value in[2];
    TRI_ASSERT(tri_formula_parse("a, b -> a * b", NULL, &attr.formula) == TRI_OK);
    for (int k = 0; k < 2; k++) {
        in[k] = tri_input(g, k ? "b" : "a", TRI_F32, next_shape(&b));
        for (int i = 0; i < TRI_MAX_RANK; i++) {
            attr.views[k].axis[i] = (int8_t)(next(&b) % 8 - 1);
            attr.views[k].sign[i] = (int8_t)(next(&b) % 2 ? 1 : -1);
            attr.views[k].start[i] = (int8_t)next(&b);
        }
    }
    tri_value y = tri_node_add(g, &tri_op_map, in, 2, &attr, "");
    if (g->status == TRI_OK) {
        check_plan(g, tri_value_node(g, y));
        check_gradient(g, *tri_value_node(g, y));
    }
    tri_graph_destroy(g);
    return 0;
}
