// Defines the op map_reduce: a reduction of a map whose result is not stored. A fusion makes it
// behind autodiff, so it needs no gradient rule.
#include "ops/rules.h"

static tri_status map_reduce_shape(const void *attr, tri_op_signature *s) {
    const tri_map_reduce_attr *a = attr;
    tri_op_signature reduced = {.input_count = 1, .output_count = 1, .present = {true}};
    if (!a->map.expands || a->map.formula.output_count != 1)
        return TRI_FAIL(TRI_BAD_INPUT, "map_reduce: the map has no shape, or several outputs");
    if (a->reduce.kind > TRI_REDUCTION_PROD)
        return TRI_FAIL(TRI_BAD_INPUT, "map_reduce: reads its input once");
    TRI_TRY(tri_op_map.shape(&a->map, s));
    reduced.in[0] = s->out[0];
    reduced.in_type[0] = s->out_type[0];
    TRI_TRY(tri_op_reduce.shape(&a->reduce, &reduced));
    s->out[0] = reduced.out[0];
    return TRI_OK;
}

static tri_cost map_reduce_cost(const void *attr, const tri_op_signature *s) {
    const tri_map_reduce_attr *a = attr;
    tri_op_signature whole = *s;
    whole.out[0] = a->map.shape;
    return (tri_cost){.flops = tri_op_map.cost(&a->map, &whole).flops +
                               (double)tri_shape_count(&a->map.shape)};
}

static const tri_attr_field map_reduce_fields[] = {
    {.name = "formula",
     .kind = TRI_ATTR_PRINTED,
     .offset = offsetof(tri_map_reduce_attr, map),
     .print = tri_map_print},
    OPS_FIELD(TRI_ATTR_INT, tri_map_reduce_attr, reduce.kind),
    OPS_FIELD(TRI_ATTR_INT, tri_map_reduce_attr, reduce.axes),
    {0},
};

const tri_op tri_op_map_reduce = {
    .name = "map_reduce",
    .doc = "a, ... -> y: reduces a formula on each element of the inputs, which is not stored",
    .input_count = TRI_FORMULA_INPUTS,
    .optional_inputs = TRI_FORMULA_INPUTS - 1,
    .output_count = 1,
    .precision = TRI_PRECISION_FOLLOW,
    .attr_bytes = sizeof(tri_map_reduce_attr),
    .attr_fields = map_reduce_fields,
    .shape = map_reduce_shape,
    .cost = map_reduce_cost,
};
