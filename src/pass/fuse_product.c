// How a map becomes a part of the product that it reads, such as a linear layer: the kernel
// computes the map on what it has just made of the product, which is then still in a cache. Of each
// element of the product this spares a write and a read.
//
// It pays only if the map has nothing else of this size. The rows of another tensor come from
// memory a short piece at a time, while the product waits; a map of its own reads it from end to
// end (docs/decisions/0034-maps-that-finish-products.md).
#include "ops/product_map.h"
#include "pass/fusions.h"

#include <string.h>

// The number of the node's only input that is the value; -1: there are none, or several.
static int only_input(const tri_node *node, tri_value value) {
    int found = -1;
    for (int k = 0; k < node->input_count; k++)
        if (node->inputs[k].id == value.id) found = found < 0 ? k : TRI_MAX_INPUTS;
    return found < TRI_MAX_INPUTS ? found : -1;
}

// Whether the map reads, beside the product, only values that are smaller, and has one output.
static bool has_little_else(const tri_graph *graph, const tri_node *node, int reads) {
    const tri_formula *f = &((const tri_map_attr *)node->attr)->formula;
    tri_shape y = tri_value_shape(graph, node->outputs[0]);
    for (int k = 0; k < f->input_count; k++) {
        tri_shape x = tri_value_shape(graph, node->inputs[k]);
        if (k != reads && tri_shape_count(&x) == tri_shape_count(&y)) return false;
    }
    return f->output_count == 1;
}

bool pass_merge_map_into_product(const tri_graph *graph, tri_node *node, tri_node *producer) {
    const tri_value_info *y = tri_value_get(graph, producer->outputs[0]);
    const tri_value_info *to = tri_value_get(graph, node->outputs[0]);
    const tri_map_attr *map = node->attr;
    int reads = only_input(node, producer->outputs[0]), present = 0;
    // A product's kernel does not count elements as random numbers do.
    if (reads < 0 || map->mask || map->drawn || map->viewed >> reads & 1 || y->dtype != to->dtype ||
        !tri_shape_equal(&y->shape, &to->shape) || !has_little_else(graph, node, reads))
        return false;
    while (present < producer->input_count && tri_value_is(producer->inputs[present])) present++;
    int inputs = map->formula.input_count;
    if (present + inputs - 1 > TRI_MAX_INPUTS) return false;
    tri_product_map_attr *attr = TRI_NEW(graph->arena, tri_product_map_attr);
    attr->map = *map;
    attr->product = tri_product_of(producer->op);
    attr->product_inputs = present;
    attr->reads = reads;
    memcpy(&attr->of, producer->attr, producer->op->attr_bytes);
    producer->op = &tri_op_product_map;
    producer->attr = attr;
    producer->input_count = present;
    for (int k = 0; k < inputs; k++)
        if (k != reads) producer->inputs[producer->input_count++] = node->inputs[k];
    producer->output_count = attr->map.formula.output_count;
    for (int k = 0; k < producer->output_count; k++) producer->outputs[k] = node->outputs[k];
    return true;
}
