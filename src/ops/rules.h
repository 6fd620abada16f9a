// Functions that shape rules and gradient rules of several ops use, so that all ops report mistakes
// in the same words. A shape rule checks a node's inputs and finds the shapes and types of its
// outputs. A gradient rule adds the nodes that compute the gradients of its inputs. Names: x is an
// op's input, y its output, and dx and dy are their gradients.
#ifndef TRIREME_OPS_RULES_H
#define TRIREME_OPS_RULES_H

#include "ops/ops.h"

#include <inttypes.h>
#include <stddef.h>

// Makes a row of the list of an op's attributes (tri_op.attr_fields). Printed graphs show the
// attributes in this list.
#define OPS_FIELD(field_kind, type, member, ...)                                                   \
    { .name = #member, .kind = field_kind, .offset = offsetof(type, member), __VA_ARGS__ }

// The functions ops_want_… check one rule each. They fail with a message of one line: the op, the
// tensor, what its shape or type must be, and what it is.
tri_status ops_want_rank(const char *op, const char *tensor, const tri_shape *shape, int rank);
tri_status ops_want_shape(const char *op, const char *tensor, const tri_shape *shape,
                          tri_shape wanted);
// Checks that the type is a floating one: F32, F64, F16 or BF16.
tri_status ops_want_float(const char *op, const char *tensor, tri_dtype dtype);
// Checks that the type is one of those that kernels compute with: a floating one, I64, I32 or U8.
tri_status ops_want_number(const char *op, const char *tensor, tri_dtype dtype);
// Checks that the type is F32 or F64. Optimizer states and sums over many numbers need these types,
// because half types would round them too much.
tri_status ops_want_wide(const char *op, const char *tensor, tri_dtype dtype);
tri_status ops_want_type(const char *op, const char *tensor, tri_dtype dtype, tri_dtype wanted);
// The type in which means, sums and gradients of parameters are kept for numbers of type `dtype`:
// F32 for F32 and narrower types, F64 for F64.
tri_dtype ops_accumulator_type(tri_dtype dtype);
// The type of sums and products of numbers of type `dtype`: I64 of integers, else that type.
tri_dtype ops_sum_type(tri_dtype dtype);
// Checks that all present inputs from `first` to `end` - 1 have this type.
tri_status ops_want_types(const char *op, const tri_op_signature *s, int first, int end,
                          tri_dtype dtype);
// Checks that all present inputs from `first` to `end` - 1 have the type of input `first`, and that
// it is a floating type.
tri_status ops_want_one_type(const char *op, const tri_op_signature *s, int first, int end);
// Checks the inputs of a regression loss: input 0 is the prediction, input 1 a target of the same
// type and shape.
tri_status ops_want_target(const char *op, const tri_op_signature *s);
// Checks that all present inputs from `first` to `end` - 1 have the type ops_accumulator_type of
// input 0's type.
tri_status ops_want_accumulators(const char *op, const tri_op_signature *s, int first, int end);
// Finds the type of a norm's output: the type of x or, if `narrow` is not 0 and x is F32, the half
// type `narrow`.
tri_status ops_narrow_type(const char *op, int64_t narrow, tri_dtype x, tri_dtype *y);
// Checks inputs of a norm's gradient: input 0 is x, and input 1 is dy in the type of y. The
// optional input with the number `sum`, a gradient that is added to dx, has the type and shape of
// x.
tri_status ops_want_norm_gradient(const char *op, int64_t narrow, int sum,
                                  const tri_op_signature *s);

// Checks that the input has a span, I64 [N, 2], for each sample of input 0.
tri_status ops_want_spans(const char *op, const tri_op_signature *s, int input);

// Checks that x has the axis.
tri_status ops_want_axis(const char *op, int64_t axis, const tri_shape *x);
// Checks that x, which is input 0, has a last axis that is not empty.
tri_status ops_want_last_axis(const char *op, const tri_op_signature *s);
// The shape of input 0 without its last axis, and the shape of that axis alone.
tri_shape ops_rows(const tri_op_signature *s);
tri_shape ops_last_axis(const tri_op_signature *s);
// Checks that eps, which a norm adds to a variance, is above 0, because the variance may be 0.
tri_status ops_want_eps(const char *op, double eps);

// Finds the shape of max pooling's result y.
tri_status ops_max_pool_shape(const char *op, const tri_max_pool2d_attr *pool, const tri_shape *x,
                              tri_shape *y);
// Finds the shape of batch norm's result y, which depends on the pooling that is fused into it.
tri_status ops_batch_norm_shape(const char *op, const tri_batch_norm_attr *attr, const tri_shape *x,
                                tri_shape *y);
// Sets shape and type of batch norm's output number 5. If max pooling is fused into the batch norm,
// this output tells for each pooled element where in its window the maximum was. Without pooling it
// is empty ([0]).
void ops_batch_norm_index(const tri_batch_norm_attr *attr, tri_op_signature *s);
// Checks the inputs 0 to 2 of batch norm's gradients: x, mask (see ops_batch_norm_mask) and dy.
tri_status ops_batch_norm_gradient(const char *op, const tri_batch_norm_attr *attr,
                                   const tri_op_signature *s);
// Returns what the batch norm's gradients get as `mask`: y if ReLU is fused into the batch norm, or
// output number 5 if max pooling is. If neither is, they read no mask: they get dy again, which has
// its shape and type, so that y need not be kept for them.
tri_value ops_batch_norm_mask(const tri_batch_norm_attr *attr, const tri_node *node, tri_value dy);
// The attributes of a batch norm with its ReLU and pooling, for printing.
extern const tri_attr_field ops_batch_norm_fields[];
// Gives output 0 the shape and type of input 0.
void ops_like_first(tri_op_signature *s);
// Counts the windows of a convolution or pooling along one axis; below 1: the kernel does not fit.
int64_t ops_window(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation);
// Sets the shape and type of output 0 to those of a pair (sum, count), F64 [2], which all losses
// and metrics make.
void ops_loss_output(tri_op_signature *s);
// Checks that an input, the loss seed with which the backward pass begins, has type F32 or F64 and
// shape [1].
tri_status ops_want_seed(const char *op, const tri_op_signature *s, int input);
// Tells the number of classes of a loss on scores [.., K], which is K, so that data with labels of
// K or more can be rejected.
extern const tri_op_classes ops_label_classes;
// The list of the members of tri_norm_attr, which printed graphs show.
extern const tri_attr_field ops_norm_fields[];
// Checks that labels I64 [..] fit scores [.., K]; scores have at least 2 axes.
tri_status ops_want_labels(const char *op, const tri_shape *scores, const tri_shape *labels,
                           tri_dtype labels_type);

// Returns `gradient`, the gradient of `value`, in the type of the value, by a cast if the two
// differ. The gradient of a parameter is not narrowed, since it will be summed over micro-batches
// and ranks.
tri_value ops_gradient_as(tri_graph *graph, const tri_node *node, tri_value value,
                          tri_value gradient);
// Adds a node of `op` with up to four inputs, as the gradient rule of `node` needs it. The new node
// gets the name of `node`, so that messages and times name the layer.
tri_value ops_node(tri_graph *graph, const tri_node *node, const tri_op *op, const void *attr,
                   tri_value a, tri_value b, tri_value c, tri_value d);

// The gradient of a loss that is the sum of `terms`: the loss seed for each of them.
tri_value ops_spread_seed(tri_graph *graph, const tri_node *node, tri_value terms, tri_value seed);
// Adds a node of map with this expression of up to three values, which are broadcast to `shape`.
tri_value ops_map(tri_graph *graph, const tri_node *node, const char *expression, tri_shape shape,
                  tri_value a, tri_value b, tri_value c);

// Sums x over the axes along which a value of shape `shape` was repeated to make the shape of x,
// and returns a value of that shape: what broadcasting does to gradients.
tri_value ops_sum_to(tri_graph *graph, const tri_node *node, tri_value x, tri_shape shape);

// Gets what the gradient rule of `node` should read instead of its input `value`. If an op that is
// cheap to compute again (TRI_OP_RECOMPUTABLE) has made `value` in the same block, this is a copy
// that the backward pass computes again, once for all readers, so that `value` need not be kept.
// Otherwise it is `value` itself.
tri_value ops_recompute(tri_graph *graph, const tri_node *node, tri_value value);

// Computes a cost: `per_element` flops for each element of input 0.
tri_cost ops_cost_per_input(const tri_op_signature *s, double per_element);

// The shape rule of all optimizer updates. Their inputs are param, grad, step scalars (numbers of
// the step, such as the learning rate) and optimizer states.
tri_status ops_update_shape(const char *op, tri_op_signature *s);
// The same for an optimizer, with its factor of the learning rate.
tri_status ops_optimizer_shape(const char *op, double lr_factor, tri_op_signature *s);

#endif
