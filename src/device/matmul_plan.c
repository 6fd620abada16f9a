// Plans how a node of matmul is computed: turns orders of axes into distances, and joins axes.
#include "device/matmul_plan.h"

static tri_matmul_operand operand_of(const tri_matmul_attr *attr, int k, const tri_shape *x) {
    tri_matmul_operand operand = {0};
    int64_t strides[TRI_MAX_RANK], stride = 1;
    for (int axis = x->rank - 1; axis >= 0; axis--) {
        strides[axis] = stride;
        stride *= x->dims[axis];
    }
    operand.row = strides[tri_matmul_axis(attr, k, x->rank - 2)];
    operand.column = strides[tri_matmul_axis(attr, k, x->rank - 1)];
    for (int i = 0; i < x->rank - 2; i++) {
        int axis = tri_matmul_axis(attr, k, i);
        operand.batch[i] = x->dims[axis] == 1 ? 0 : strides[axis];
    }
    return operand;
}

static tri_matmul_operand transposed(tri_matmul_operand x) {
    int64_t row = x.row;
    x.row = x.column;
    x.column = row;
    return x;
}

// Adds batch axis i of the operands in `whole` to the plan, or joins it with the axis before.
static void add_axis(tri_matmul_plan *plan, int64_t size, int i,
                     const tri_matmul_operand *const whole[3]) {
    tri_matmul_operand *operands[] = {&plan->a, &plan->b, &plan->c};
    bool joins = plan->rank > 0;
    if (size == 1) return;
    for (int k = 0; k < 3 && joins; k++)
        joins = operands[k]->batch[plan->rank - 1] == whole[k]->batch[i] * size;
    if (!joins) plan->batch[plan->rank++] = 1;
    plan->batch[plan->rank - 1] *= size;
    for (int k = 0; k < 3; k++) operands[k]->batch[plan->rank - 1] = whole[k]->batch[i];
}

// Lets the last batch axis become rows, or columns, of one larger matrix where the operands allow
// it: several matrices times the same one.
static void join_matrices(tri_matmul_plan *p) {
    while (p->rank > 0) {
        int last = p->rank - 1;
        int64_t a = p->a.batch[last], b = p->b.batch[last], c = p->c.batch[last];
        bool rows = b == 0 && a == p->m * p->a.row && c == p->m * p->c.row;
        bool columns = a == 0 && b == p->n * p->b.column && c == p->n * p->c.column;
        if (!rows && !columns) return;
        if (rows)
            p->m *= p->batch[last];
        else
            p->n *= p->batch[last];
        p->rank--;
    }
}

// An axis of one element has no distance of its own: it gets that of a contiguous matrix, so that
// rows or columns are contiguous.
static void set_single(tri_matmul_operand *x, int64_t rows, int64_t columns) {
    if (columns == 1) x->column = 1;
    if (rows == 1) x->row = x->column == 1 ? columns : 1;
}

tri_matmul_plan tri_matmul_plan_of(const tri_matmul_attr *attr, const tri_shape *a,
                                   const tri_shape *b, const tri_shape *y) {
    int rank = y->rank;
    tri_matmul_operand whole[] = {operand_of(attr, TRI_MATMUL_A, a),
                                  operand_of(attr, TRI_MATMUL_B, b),
                                  operand_of(attr, TRI_MATMUL_Y, y)};
    tri_matmul_plan p = {.m = y->dims[tri_matmul_axis(attr, TRI_MATMUL_Y, rank - 2)],
                         .n = y->dims[tri_matmul_axis(attr, TRI_MATMUL_Y, rank - 1)],
                         .k = a->dims[tri_matmul_axis(attr, TRI_MATMUL_A, rank - 1)]};
    p.swapped = whole[2].column != 1 && p.n > 1;
    const tri_matmul_operand *order[] = {&whole[p.swapped], &whole[!p.swapped], &whole[2]};
    p.a = p.swapped ? transposed(whole[1]) : whole[0];
    p.b = p.swapped ? transposed(whole[0]) : whole[1];
    p.c = p.swapped ? transposed(whole[2]) : whole[2];
    if (p.swapped) {
        int64_t m = p.m;
        p.m = p.n;
        p.n = m;
    }
    for (int i = 0; i < rank - 2; i++)
        add_axis(&p, y->dims[tri_matmul_axis(attr, TRI_MATMUL_Y, i)], i, order);
    set_single(&p.a, p.m, p.k);
    set_single(&p.b, p.k, p.n);
    set_single(&p.c, p.m, p.n);
    join_matrices(&p);
    p.items = 1;
    for (int i = 0; i < p.rank; i++) p.items *= p.batch[i];
    return p;
}

tri_matmul_plan tri_matmul_plan_make(const tri_graph *graph, const tri_node *node) {
    return tri_matmul_plan_of(node->attr, &tri_value_get(graph, node->inputs[0])->shape,
                              &tri_value_get(graph, node->inputs[1])->shape,
                              &tri_value_get(graph, node->outputs[0])->shape);
}

int64_t tri_matmul_offset(const tri_matmul_plan *plan, const tri_matmul_operand *operand,
                          int64_t item) {
    int64_t offset = 0;
    for (int i = plan->rank - 1; i >= 0; i--) {
        offset += item % plan->batch[i] * operand->batch[i];
        item /= plan->batch[i];
    }
    return offset;
}
