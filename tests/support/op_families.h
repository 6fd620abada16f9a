// Helpers and declarations that op_families.c and the other files op_families_….c share.
// These files build random graphs of ops, which op_compare runs on two devices.
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

// Draws a number of channels. Half of them are multiples of 16, as the CPU's layouts in blocks of
// 16 channels need them.
static inline int64_t op_channels(op_case *c) {
    static const int64_t some[] = {1, 2, 3, 5, 8, 16, 16, 32, 48, 64};
    return some[op_draw(c, 0, 9)];
}

// Draws the shape of n images of `ch` channels, at least `smallest` pixels high and wide.
static inline tri_shape op_image(op_case *c, int64_t n, int64_t ch, int64_t smallest) {
    int64_t largest = op_chance(c, 30) ? 28 : 12;
    return tri_shape_of(n, ch, op_draw(c, smallest, largest), op_draw(c, smallest, largest));
}

// How many windows of a convolution or pooling fit along an axis.
static inline int64_t op_window(int64_t in, int64_t kernel, int64_t stride, int64_t padding,
                                int64_t dilation) {
    return (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
}

// Defined in op_families_conv.c.
void op_build_conv2d(op_case *c);
void op_build_conv2d_grad(op_case *c);
void op_build_conv2d_first(op_case *c);
void op_build_depthwise(op_case *c);
void op_build_interpolate(op_case *c);
// Defined in op_families_map.c.
void op_build_map(op_case *c);
void op_build_reduce(op_case *c);
void op_build_matmul(op_case *c);
void op_build_product_map(op_case *c);
// Defined in op_families_losses.c.
void op_build_ratio_loss(op_case *c);
void op_build_ctc_loss(op_case *c);
void op_build_metric_sums(op_case *c);
void op_build_distance_loss(op_case *c);
// Defined in op_families_index.c.
void op_build_gather(op_case *c);
void op_build_scatter(op_case *c);
void op_build_order(op_case *c);
void op_build_scan(op_case *c);
void op_build_integers(op_case *c);
void op_build_masks(op_case *c);
void op_build_own(op_case *c);
void op_build_cache(op_case *c);
// Defined in op_families_recurrent.c.
void op_build_recurrent(op_case *c);
// Defined in op_families_training.c.
void op_build_update(op_case *c);
void op_build_step_numbers(op_case *c);
void op_build_network(op_case *c);

#endif
