// Defines the op product_map: a product, such as a linear layer, and a map that reads its output
// element by element, so that a kernel can compute the map while a part of the product is still in
// a cache. A fusion makes it behind autodiff, so it needs no gradient rule.
#include "ops/product_map.h"

#include "ops/rules.h"

#include <string.h>

static const tri_op *const products[] = {
#define X(op, attr) &tri_op_##op,
    TRI_PRODUCT_LIST(X)
#undef X
};

tri_product tri_product_of(const tri_op *op) {
    int k = 0;
    while (k < TRI_PRODUCT_COUNT && products[k] != op) k++;
    return (tri_product)k;
}

const tri_op *tri_product_op(const tri_node *node) {
    if (node->op != &tri_op_product_map) return node->op;
    return products[((const tri_product_map_attr *)node->attr)->product];
}

// The place among the node's inputs of input k of the map, which is not the product.
static int64_t place_of(const tri_product_map_attr *a, int k) {
    return a->product_inputs + (k < a->reads ? k : k - 1);
}

void tri_product_map_split(const tri_node *node, tri_node *product, tri_node *map) {
    const tri_product_map_attr *a = node->attr;
    const tri_formula *f = &a->map.formula;
    *product = *map = (tri_node){.name = "", .block = node->block, .phase = node->phase};
    product->op = products[a->product];
    product->attr = &a->of;
    product->input_count = product->op->input_count;
    for (int k = 0; k < a->product_inputs; k++) product->inputs[k] = node->inputs[k];
    product->output_count = 1;
    product->outputs[0] = node->outputs[0];
    map->op = &tri_op_map;
    map->attr = &a->map;
    map->input_count = f->input_count;
    for (int k = 0; k < f->input_count; k++)
        map->inputs[k] = k == a->reads ? product->outputs[0] : node->inputs[place_of(a, k)];
    map->output_count = f->output_count;
    for (int k = 0; k < f->output_count; k++) map->outputs[k] = node->outputs[k];
}

void tri_product_map_memory(const tri_product_map_attr *a, void *const *in, void *out,
                            void *product_in[TRI_MAX_INPUTS], void *map_in[TRI_FORMULA_INPUTS]) {
    for (int k = 0; k < TRI_MAX_INPUTS; k++) product_in[k] = k < a->product_inputs ? in[k] : NULL;
    for (int k = 0; k < a->map.formula.input_count; k++)
        map_in[k] = k == a->reads ? out : in[place_of(a, k)];
}

// The signatures of the product and of the map, of which `s` has the inputs, with their outputs.
static tri_status find_parts(const tri_product_map_attr *a, const tri_op_signature *s,
                             tri_op_signature *product, tri_op_signature *map) {
    const tri_op *op = products[a->product];
    *product = *s;
    product->input_count = op->input_count;
    product->output_count = 1;
    for (int k = (int)a->product_inputs; k < TRI_MAX_INPUTS; k++) product->present[k] = false;
    TRI_TRY(op->shape(&a->of, product));
    *map = (tri_op_signature){.input_count = a->map.formula.input_count,
                              .output_count = TRI_FORMULA_OUTPUTS};
    for (int k = 0; k < map->input_count; k++) {
        bool is_product = k == a->reads;
        int64_t at = is_product ? 0 : place_of(a, k);
        if (at >= s->input_count || !s->present[at])
            return TRI_FAIL(TRI_BAD_INPUT, "product_map: input %d of the map is missing", k);
        map->present[k] = true;
        map->in[k] = is_product ? product->out[0] : s->in[at];
        map->in_type[k] = is_product ? product->out_type[0] : s->in_type[at];
    }
    return tri_op_map.shape(&a->map, map);
}

// The product is read as it lies, and the map may be written over it.
static tri_status product_map_shape(const void *attr, tri_op_signature *s) {
    const tri_product_map_attr *a = attr;
    tri_op_signature product, map;
    int outputs = a->map.formula.output_count;
    TRI_TRY(find_parts(a, s, &product, &map));
    if (a->map.mask || a->map.viewed >> a->reads & 1 || map.out_type[0] != product.out_type[0] ||
        !tri_shape_equal(&map.out[0], &product.out[0]))
        return TRI_FAIL(TRI_BAD_INPUT, "product_map: the map has not the product's elements");
    for (int k = 0; k < s->output_count; k++) {
        s->out[k] = k < outputs ? product.out[0] : tri_shape_of(0);
        s->out_type[k] = product.out_type[0];
    }
    return TRI_OK;
}

static tri_cost product_map_cost(const void *attr, const tri_op_signature *s) {
    const tri_product_map_attr *a = attr;
    tri_op_signature product, map;
    if (find_parts(a, s, &product, &map) != TRI_OK) return (tri_cost){0};
    tri_cost cost = products[a->product]->cost(&a->of, &product);
    cost.flops += tri_op_map.cost(&a->map, &map).flops;
    return cost;
}

static void print_formula(const void *at, FILE *out) { tri_formula_print(at, out); }

static void print_product(const void *at, FILE *out) {
    int64_t product;
    memcpy(&product, at, sizeof product);
    fputs(products[product]->name, out);
}

static const tri_attr_field product_map_fields[] = {
    {.name = "product",
     .kind = TRI_ATTR_PRINTED,
     .offset = offsetof(tri_product_map_attr, product),
     .print = print_product},
    {.name = "formula",
     .kind = TRI_ATTR_PRINTED,
     .offset = offsetof(tri_product_map_attr, map.formula),
     .print = print_formula},
    {0},
};

const tri_op tri_op_product_map = {
    .name = "product_map",
    .doc = "inputs of a product, others of a formula -> y, ...: a formula on each element of a "
           "product, which is not stored",
    .input_count = TRI_MAX_INPUTS,
    .optional_inputs = TRI_MAX_INPUTS - 2,
    .output_count = TRI_FORMULA_OUTPUTS,
    .attr_bytes = sizeof(tri_product_map_attr),
    .attr_fields = product_map_fields,
    .shape = product_map_shape,
    .cost = product_map_cost,
};
