// Adds a product and a map of its output as one node, as a fusion makes them. For inclusion by test
// programs.
#ifndef TRIREME_TESTS_MAPPED_PRODUCT_H
#define TRIREME_TESTS_MAPPED_PRODUCT_H

#include "ops/product_map.h"

#include <string.h>

// What test programs let products be followed by: nothing, ReLU and leaky ReLU.
static const char *const mapped_formulas[] = {"", "relu(x)",
                                              "x, slope = 0.125 -> leaky_relu(x, slope)"};

// Adds a product with the formula of this number, which has no input beside the product.
static inline tri_value mapped_product(tri_graph *graph, const tri_op *op, const tri_value *in,
                                       int count, const void *attr, int64_t number) {
    tri_product_map_attr mapped = {.product = tri_product_of(op)};
    if (number == 0) return tri_node_add(graph, op, in, count, attr, "");
    while (mapped.product_inputs < count && tri_value_is(in[mapped.product_inputs]))
        mapped.product_inputs++;
    memcpy(&mapped.of, attr, op->attr_bytes);
    if (tri_formula_parse(mapped_formulas[number], NULL, &mapped.map.formula) != TRI_OK)
        tri_graph_fail(graph, "%s", tri_error_message());
    return tri_node_add(graph, &tri_op_product_map, in, (int)mapped.product_inputs, &mapped, "");
}

#endif
