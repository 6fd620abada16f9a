// The op product_map: a product, such as a linear layer, and a map that reads its output.
#ifndef TRIREME_OPS_PRODUCT_MAP_H
#define TRIREME_OPS_PRODUCT_MAP_H

#include "ops/ops.h"

// The products whose output a map may read before it is stored.
#define TRI_PRODUCT_LIST(X)                                                                        \
    X(conv2d, tri_conv2d_attr)                                                                     \
    X(conv2d_grad_input, tri_conv2d_grad_attr)                                                     \
    X(linear, tri_linear_attr)                                                                     \
    X(linear_grad_input, tri_linear_grad_attr)                                                     \
    X(matmul, tri_matmul_attr)
typedef enum tri_product {
#define X(op, attr) TRI_PRODUCT_##op,
    TRI_PRODUCT_LIST(X)
#undef X
        TRI_PRODUCT_COUNT
} tri_product;

// The attributes of product_map. Its inputs are those of the product, without optional ones that
// are missing, then those of the map other than the product. Its outputs are those of the map, and
// with `keeps` the product itself behind them.
typedef struct tri_product_map_attr {
    tri_map_attr map;
    int64_t product;        // a tri_product
    int64_t product_inputs; // how many inputs the product has
    int64_t reads;          // the number of the map's input that is the product
    union {
#define X(op, attr) attr op;
        TRI_PRODUCT_LIST(X)
#undef X
    } of; // the product's own attributes
} tri_product_map_attr;

// Makes of a node of product_map the two that it merges: the product, which writes output 0, and
// the map, which reads it there and may write over it. They have no names.
void tri_product_map_split(const tri_node *node, tri_node *product, tri_node *map);
// Sets product_in[k] and map_in[k] to the memory of input k of the product and of the map, of the
// node's inputs `in` and its output 0; NULL: the product has no such input.
void tri_product_map_memory(const tri_product_map_attr *attr, void *const *in, void *out,
                            void *product_in[TRI_MAX_INPUTS], void *map_in[TRI_FORMULA_INPUTS]);
// The product of the op; TRI_PRODUCT_COUNT: it is none.
tri_product tri_product_of(const tri_op *op);
// The op of the node, or of the product that is a part of it.
const tri_op *tri_product_op(const tri_node *node);

#endif
