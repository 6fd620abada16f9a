// Products of matrices, as torch.matmul has them. An operand that was only permuted is read where
// it lies, so that a transposition costs nothing.
#include "graph/graph.h"
#include "ops/ops.h"

#include <trireme/functions.h>
#include <trireme/nn.h>

// An operand: axis i, as the product takes it, is axis order[i] of the tensor `value`.
typedef struct operand {
    tri_value value;
    int rank;
    int order[TRI_MAX_RANK];
} operand;

// Whether the node only puts the axes of its input in another order.
static bool permutes(const tri_graph *graph, const tri_node *node) {
    if (!node || node->op != &tri_op_map || node->block != graph->block) return false;
    const tri_map_attr *attr = node->attr;
    tri_shape x = tri_value_shape(graph, node->inputs[0]);
    tri_shape y = tri_value_shape(graph, node->outputs[0]);
    const tri_map_view *view = &attr->views[0];
    if (!(attr->viewed & 1) || attr->formula.step_count != 0 || attr->formula.input_count != 1 ||
        attr->formula.output_count != 1 || x.rank != y.rank)
        return false;
    for (int j = 0; j < x.rank; j++)
        if (view->axis[j] < 0 || view->sign[j] != 1 || view->start[j] != 0 ||
            x.dims[j] != y.dims[view->axis[j]])
            return false;
    return true;
}

// Describes x as an operand: goes back through permutations as long as the last axis in memory is
// one of the two that the product multiplies.
static operand operand_of(const tri_graph *graph, tri_value x) {
    operand found = {.value = x, .rank = tri_value_shape(graph, x).rank};
    for (int i = 0; i < found.rank; i++) found.order[i] = i;
    for (operand next = found;;) {
        const tri_node *node = tri_value_node(graph, next.value);
        if (!permutes(graph, node)) return found;
        const tri_map_view *view = &((const tri_map_attr *)node->attr)->views[0];
        int inverse[TRI_MAX_RANK] = {0};
        for (int j = 0; j < found.rank; j++) inverse[view->axis[j]] = j;
        for (int i = 0; i < found.rank; i++) next.order[i] = inverse[next.order[i]];
        next.value = node->inputs[0];
        for (int i = found.rank > 2 ? found.rank - 2 : 0; i < found.rank; i++)
            if (next.order[i] == found.rank - 1) found = next;
    }
}

static bool is_plain(const operand *x) {
    for (int i = 0; i < x->rank; i++)
        if (x->order[i] != i) return false;
    return true;
}

// Gives the operand new axes of size 1 in front until it has `rank`.
static void widen(tri_graph *graph, operand *x, int rank) {
    tri_shape shape = tri_value_shape(graph, x->value), wide = {.rank = rank};
    int more = rank - x->rank;
    if (more <= 0) return;
    for (int i = rank - 1; i >= 0; i--) {
        wide.dims[i] = i < more ? 1 : shape.dims[i - more];
        x->order[i] = i < more ? i : x->order[i - more] + more;
    }
    x->rank = rank;
    x->value = tri_reshape(graph, x->value, wide);
}

static tri_value multiply(tri_graph *graph, operand a, operand b) {
    tri_matmul_attr attr = {0};
    int rank = a.rank > b.rank ? a.rank : b.rank;
    const operand *operands[] = {&a, &b};
    widen(graph, &a, rank);
    widen(graph, &b, rank);
    for (int k = 0; k < 2; k++) {
        if (!is_plain(operands[k])) attr.permuted |= (int64_t)1 << k;
        for (int i = 0; i < rank; i++) attr.axes[k][i] = (int8_t)operands[k]->order[i];
    }
    return tri_node_add(graph, &tri_op_matmul, (tri_value[]){a.value, b.value}, 2, &attr, "");
}

// Many matrices times one are the rows of one matrix times it: so the gradient of the one is one
// product too.
static tri_value multiply_rows(tri_graph *graph, operand a, operand b) {
    tri_shape shape = tri_value_shape(graph, a.value), product = shape;
    tri_shape other = tri_value_shape(graph, b.value);
    int64_t width = shape.dims[a.rank - 1], count = tri_shape_count(&shape);
    tri_shape rows = tri_shape_of(width > 0 ? count / width : 0, width);
    a = (operand){.value = tri_reshape(graph, a.value, rows), .rank = 2, .order = {0, 1}};
    tri_value y = multiply(graph, a, b);
    product.dims[shape.rank - 1] = other.dims[b.order[1]];
    return tri_reshape(graph, y, product);
}

tri_value tri_matmul(tri_graph *graph, tri_value a, tri_value b) {
    if (!tri_graph_check_input(graph, "matmul", NULL, a) ||
        !tri_graph_check_input(graph, "matmul", NULL, b))
        return (tri_value){0};
    bool row = tri_value_shape(graph, a).rank == 1, column = tri_value_shape(graph, b).rank == 1;
    if (tri_value_shape(graph, a).rank == 0 || tri_value_shape(graph, b).rank == 0) {
        tri_graph_fail(graph, "matmul: a and b need an axis");
        return (tri_value){0};
    }
    if (row) a = tri_unsqueeze(graph, a, 0);
    if (column) b = tri_unsqueeze(graph, b, 1);
    operand left = operand_of(graph, a), right = operand_of(graph, b);
    bool many = right.rank == 2 && left.rank > 2 && is_plain(&left);
    tri_value y = (many ? multiply_rows : multiply)(graph, left, right);
    if (row) y = tri_squeeze(graph, y, -1 - !column);
    return column ? tri_squeeze(graph, y, -1) : y;
}
