// Helpers and declarations that op_families.c and op_families_training.c share. These files build
// random graphs of ops, which op_compare runs on two devices.
#ifndef TRIREME_TESTS_OP_FAMILIES_H
#define TRIREME_TESTS_OP_FAMILIES_H

#include "support/op_compare.h"

// Adds a node with all inputs of its op.
static inline void op_add(op_case *c, const tri_op *op, const tri_value *in, const void *attr) {
    tri_node_add(c->graph, op, in, op->input_count, attr, "");
}
// Adds a parameter with random numbers in [-1, 1), in F32 whatever the type of the case.
static inline tri_value op_wide_unit(op_case *c, tri_shape shape) {
    return op_wide(c, shape, -1, 1);
}

// Defined in op_families_training.c.
void op_build_update(op_case *c);
void op_build_step_numbers(op_case *c);
void op_build_network(op_case *c);

#endif
