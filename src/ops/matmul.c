// Defines the op matmul, products of matrices over batch axes: its shape rule, gradient rule and
// cost. The gradients are products too, followed by a sum over the axes along which an operand was
// repeated.
#include "ops/rules.h"

int tri_matmul_axis(const tri_matmul_attr *attr, int k, int i) {
    return attr->permuted >> k & 1 ? attr->axes[k][i] : i;
}

// Checks an operand's order of axes. The last axis in memory has to be one of the two that the
// product multiplies, because kernels read them in runs.
static tri_status check_order(const tri_matmul_attr *a, int k, int rank) {
    bool used[TRI_MAX_RANK] = {false};
    for (int i = 0; i < rank; i++) {
        int axis = tri_matmul_axis(a, k, i);
        bool good = axis >= 0 && axis < rank && !used[axis] && (axis < rank - 1 || i >= rank - 2);
        if (!good)
            return TRI_FAIL(TRI_BAD_INPUT, "matmul: operand %d has no valid order of %d axes", k,
                            rank);
        used[axis] = true;
    }
    return TRI_OK;
}

// The shape of an operand as the product takes it.
static tri_shape taken(const tri_matmul_attr *a, int k, const tri_shape *shape) {
    tri_shape x = {.rank = shape->rank};
    for (int i = 0; i < x.rank; i++) x.dims[i] = shape->dims[tri_matmul_axis(a, k, i)];
    return x;
}

static tri_status matmul_shape(const void *attr, tri_op_signature *s) {
    const tri_matmul_attr *a = attr;
    char a_text[160], b_text[160];
    int rank = s->in[0].rank;
    TRI_TRY(ops_want_one_type("matmul", s, 0, 2));
    if (rank < 2 || s->in[1].rank != rank)
        return TRI_FAIL(TRI_BAD_INPUT, "matmul: a and b need 2 axes or more, and equally many");
    for (int k = 0; k < TRI_MATMUL_OPERANDS; k++) TRI_TRY(check_order(a, k, rank));
    tri_shape x = taken(a, TRI_MATMUL_A, &s->in[0]), y = x;
    tri_shape other = taken(a, TRI_MATMUL_B, &s->in[1]);
    bool fits = x.dims[rank - 1] == other.dims[rank - 2];
    y.dims[rank - 1] = other.dims[rank - 1];
    for (int i = 0; i < rank - 2; i++) {
        fits = fits && (x.dims[i] == other.dims[i] || x.dims[i] == 1 || other.dims[i] == 1);
        if (y.dims[i] == 1) y.dims[i] = other.dims[i];
    }
    tri_shape_text(&x, a_text, sizeof a_text);
    tri_shape_text(&other, b_text, sizeof b_text);
    if (!fits)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "matmul: a %s and b %s do not fit: the last axis of a has to be as long as "
                        "the last but one of b, and those before equally long or 1",
                        a_text, b_text);
    s->out[0].rank = rank;
    for (int i = 0; i < rank; i++) s->out[0].dims[tri_matmul_axis(a, TRI_MATMUL_Y, i)] = y.dims[i];
    s->out_type[0] = a->wide ? ops_accumulator_type(s->in_type[0]) : s->in_type[0];
    return TRI_OK;
}

// An operand of a product that is made from operand `from` of another.
typedef struct operand {
    tri_value value;
    int from;
    bool transposed;
} operand;

static void set_order(const tri_matmul_attr *a, int rank, operand x, int k, tri_matmul_attr *out) {
    for (int i = 0; i < rank && i < TRI_MAX_RANK; i++) {
        int at = !x.transposed || i < rank - 2 ? i : i == rank - 1 ? rank - 2 : rank - 1;
        out->axes[k][i] = (int8_t)tri_matmul_axis(a, x.from, at);
        if (out->axes[k][i] != i) out->permuted |= (int64_t)1 << k;
    }
}

// The gradient of operand `of`, as the product of two others.
static tri_value gradient_of(tri_graph *graph, const tri_node *node, int of, operand left,
                             operand right) {
    const tri_matmul_attr *a = node->attr;
    tri_matmul_attr product = {0};
    tri_value none = {0}, x = node->inputs[of];
    tri_shape shape = tri_value_shape(graph, x);
    set_order(a, shape.rank, left, TRI_MATMUL_A, &product);
    set_order(a, shape.rank, right, TRI_MATMUL_B, &product);
    set_order(a, shape.rank, (operand){.from = of}, TRI_MATMUL_Y, &product);
    // Whether x was repeated along a batch axis, so that terms of its gradient are summed.
    tri_shape y = tri_value_shape(graph, node->outputs[0]);
    for (int i = 0; i < shape.rank - 2; i++)
        product.wide |= shape.dims[tri_matmul_axis(a, of, i)] == 1 &&
                        y.dims[tri_matmul_axis(a, TRI_MATMUL_Y, i)] != 1;
    product.wide |= tri_value_get(graph, x)->kind == TRI_VALUE_PARAMETER;
    tri_value made =
        ops_node(graph, node, &tri_op_matmul, &product, left.value, right.value, none, none);
    return ops_gradient_as(graph, node, x, ops_sum_to(graph, node, made, shape));
}

static void matmul_gradient(tri_graph *graph, const tri_node *node, const tri_value *out_grads,
                            const bool *wanted, tri_value *in_grads) {
    tri_value a = node->inputs[0], b = node->inputs[1], dy = out_grads[0], none = {0};
    if (!tri_value_is(dy)) return;
    // A wide y has a gradient in F32, but a product reads operands of one type.
    tri_cast_attr cast = {.dtype = tri_value_get(graph, a)->dtype};
    if (tri_value_get(graph, dy)->dtype != (tri_dtype)cast.dtype)
        dy = ops_node(graph, node, &tri_op_cast, &cast, dy, none, none, none);
    if (wanted[0]) // da = dy · transposed b
        in_grads[0] = gradient_of(graph, node, TRI_MATMUL_A, (operand){dy, TRI_MATMUL_Y, false},
                                  (operand){ops_recompute(graph, node, b), TRI_MATMUL_B, true});
    if (wanted[1]) // db = transposed a · dy
        in_grads[1] = gradient_of(graph, node, TRI_MATMUL_B,
                                  (operand){ops_recompute(graph, node, a), TRI_MATMUL_A, true},
                                  (operand){dy, TRI_MATMUL_Y, false});
}

static tri_cost matmul_cost(const void *attr, const tri_op_signature *s) {
    int64_t summed = s->in[0].dims[tri_matmul_axis(attr, TRI_MATMUL_A, s->in[0].rank - 1)];
    return (tri_cost){.flops = 2 * (double)summed * (double)tri_shape_count(&s->out[0])};
}

static void print_orders(const void *at, FILE *out) {
    const tri_matmul_attr *a = at;
    static const char names[] = "aby";
    const char *gap = "";
    for (int k = 0; k < TRI_MATMUL_OPERANDS; k++) {
        if (!(a->permuted >> k & 1)) continue;
        fprintf(out, "%s%c", gap, names[k]);
        gap = " ";
        for (int i = 0; i < TRI_MAX_RANK; i++) fprintf(out, "%s%d", i ? "," : ":", a->axes[k][i]);
    }
}

static const tri_attr_field matmul_fields[] = {
    {.name = "orders", .kind = TRI_ATTR_PRINTED, .offset = 0, .print = print_orders},
    OPS_FIELD(TRI_ATTR_BOOL, tri_matmul_attr, wide),
    {0},
};

// Ranks share batch axes, the rows of a or the columns of b, not the axis that is summed.
static bool matmul_slice(int input, int dim, const tri_op_signature *full, void *attr,
                         tri_op_slices *slices) {
    const tri_matmul_attr *a = attr;
    int rank = full->in[0].rank, other = input == TRI_MATMUL_A ? TRI_MATMUL_B : TRI_MATMUL_A, i = 0;
    while (tri_matmul_axis(a, input, i) != dim) i++;
    if (i == (input == TRI_MATMUL_A ? rank - 1 : rank - 2)) return false;
    int beside = tri_matmul_axis(a, other, i);
    slices->in[other] = i < rank - 2 && full->in[other].dims[beside] != 1 ? beside : -1;
    slices->out = tri_matmul_axis(a, TRI_MATMUL_Y, i);
    return true;
}

const tri_op tri_op_matmul = {
    .name = "matmul",
    .doc = "a [.., M, K], b [.., K, N] -> y [.., M, N]: the product of matrices; the axes before "
           "are broadcast, and each operand's axes may lie in any order that ends with one of its "
           "matrix",
    .input_count = 2,
    .output_count = 1,
    .precision = TRI_PRECISION_HALF,
    .streams = 2,
    .axes = TRI_AXES_ANY,
    .slice = matmul_slice,
    .attr_bytes = sizeof(tri_matmul_attr),
    .attr_fields = matmul_fields,
    .shape = matmul_shape,
    .gradient = matmul_gradient,
    .cost = matmul_cost,
};
