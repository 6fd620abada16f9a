// How a node of matmul is computed: as products of matrices that lie at regular distances, for
// devices that multiply one matrix after the other.
#ifndef TRIREME_DEVICE_MATMUL_PLAN_H
#define TRIREME_DEVICE_MATMUL_PLAN_H

#include "ops/ops.h"

// Where an operand's matrices lie, in elements: the distances between rows, between columns, and
// between neighbours along the batch axes; 0: all products along that axis read the same matrix.
// Rows or columns are contiguous: row or column is 1.
typedef struct tri_matmul_operand {
    int64_t row, column, batch[TRI_MAX_RANK];
} tri_matmul_operand;

// c = a · b, with a [m, k], b [k, n], c [m, n], whose rows are contiguous. Axes along which the
// operands run as through one are one axis.
typedef struct tri_matmul_plan {
    int64_t m, n, k;
    // True: the transposed product is computed, since the rows of y are not contiguous but its
    // columns are: `a` is the node's second input, transposed, and b the first.
    bool swapped;
    int rank; // number of batch axes
    int64_t batch[TRI_MAX_RANK];
    int64_t items; // number of products
    tri_matmul_operand a, b, c;
} tri_matmul_plan;

tri_matmul_plan tri_matmul_plan_of(const tri_matmul_attr *attr, const tri_shape *a,
                                   const tri_shape *b, const tri_shape *y);
tri_matmul_plan tri_matmul_plan_make(const tri_graph *graph, const tri_node *node);
// Where the matrix of product number `item` begins.
int64_t tri_matmul_offset(const tri_matmul_plan *plan, const tri_matmul_operand *operand,
                          int64_t item);

#endif
