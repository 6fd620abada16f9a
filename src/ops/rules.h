// What shape rules and gradient rules of several ops share, so that all ops complain in the same
// words.
#ifndef TRIREME_OPS_RULES_H
#define TRIREME_OPS_RULES_H

#include "ops/ops.h"

#include <inttypes.h>
#include <stddef.h>

// Makes a row of an op's list of attributes, which printing reads.
#define OPS_FIELD(field_kind, type, member, ...)                                                   \
    { .name = #member, .kind = field_kind, .offset = offsetof(type, member), __VA_ARGS__ }

// The functions ops_want_… check one rule each. They fail with one line that names the op, the
// tensor and both sizes.
tri_status ops_want_rank(const char *op, const char *tensor, const tri_shape *shape, int rank);
tri_status ops_want_shape(const char *op, const char *tensor, const tri_shape *shape,
                          tri_shape wanted);
// Checks that the type is F32, F64, F16 or BF16.
tri_status ops_want_float(const char *op, const char *tensor, tri_dtype dtype);
// Checks that the type is F32 or F64: the types of optimizer states and of sums over many numbers,
// which a half type would round too much.
tri_status ops_want_wide(const char *op, const char *tensor, tri_dtype dtype);
tri_status ops_want_type(const char *op, const char *tensor, tri_dtype dtype, tri_dtype wanted);
// The type in which means and sums of numbers of type `dtype` are kept, and with them the gradients
// of parameters: F32 for F32 and narrower types, F64 for F64.
tri_dtype ops_accumulator_type(tri_dtype dtype);
// Checks that all present inputs from `first` to `end` - 1 have the type of input `first`, which is
// a floating one.
tri_status ops_want_one_type(const char *op, const tri_op_signature *s, int first, int end);
// Checks a regression's loss: input 0 is the prediction, input 1 a target of its type and shape.
tri_status ops_want_target(const char *op, const tri_op_signature *s);
// Checks that all present inputs from `first` to `end` - 1 have the accumulator type of input 0.
tri_status ops_want_accumulators(const char *op, const tri_op_signature *s, int first, int end);
// Finds the type of a norm's output: x's, or where `narrow` is not 0 that half type in place of x's
// F32.
tri_status ops_narrow_type(const char *op, int64_t narrow, tri_dtype x, tri_dtype *y);
// Checks a norm's gradient: input 0 is x, input 1 dy in the type of y, the optional input `sum`
// like x.
tri_status ops_want_norm_gradient(const char *op, int64_t narrow, int sum,
                                  const tri_op_signature *s);
// Checks that `activation` is one of TRI_ACTIVATION_…; a leaky slope is at least 0, so that the
// output keeps the input's sign, from which the gradient is found.
tri_status ops_want_activation(const char *op, int64_t activation, double slope);

// Checks that x, which is input 0, has a last axis that is not empty.
tri_status ops_want_last_axis(const char *op, const tri_op_signature *s);
// The shape of input 0 without its last axis, and that of the last axis alone.
tri_shape ops_rows(const tri_op_signature *s);
tri_shape ops_last_axis(const tri_op_signature *s);
// Checks that eps, which a norm adds to a variance, is above 0, because the variance may be 0.
tri_status ops_want_eps(const char *op, double eps);

// Gives output 0 input 0's shape and type.
void ops_like_first(tri_op_signature *s);
// How many outputs a kernel window has along one axis; below 1 when the window does not fit.
int64_t ops_window(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation);
// Makes output 0 F64 [2], (sum, count), as all losses and metrics have it.
void ops_loss_output(tri_op_signature *s);
// Checks that the loss seed, with which the backward pass begins, is F32 or F64 [1].
tri_status ops_want_seed(const char *op, const tri_op_signature *s, int input);
// The classes of a loss on scores [.., K]: K. They are compared with the labels in the data.
extern const tri_op_classes ops_label_classes;
extern const tri_attr_field ops_norm_fields[]; // of tri_norm_attr
// Checks scores [.., K] against labels I64 [..]; scores have at least 2 axes.
tri_status ops_want_labels(const char *op, const tri_shape *scores, const tri_shape *labels,
                           tri_dtype labels_type);

// Finds the gradient in front of a fused activation, from dy, the gradient behind it, and the
// output y. Returns an activation_grad node, or dy itself if there is no activation.
tri_value ops_activation_gradient(tri_graph *graph, const tri_node *node, int64_t activation,
                                  double slope, tri_value y, tri_value dy);
// Returns `gradient`, the gradient of `value`, in the value's type: by a cast where they differ.
// The gradient of a parameter is not narrowed, since it will be summed over micro-batches and
// ranks.
tri_value ops_gradient_as(tri_graph *graph, const tri_node *node, tri_value value,
                          tri_value gradient);
// Adds a node of `op` with up to four inputs, named like the node that it comes from, so that
// messages and times show the layer.
tri_value ops_node(tri_graph *graph, const tri_node *node, const tri_op *op, const void *attr,
                   tri_value a, tri_value b, tri_value c, tri_value d);

// What the gradient rule of `node` reads in place of its input `value`. If a TRI_OP_RECOMPUTABLE op
// of the same block made `value`, the backward pass computes it again, once for all readers, and
// this returns that copy; else `value` itself.
tri_value ops_recompute(tri_graph *graph, const tri_node *node, tri_value value);

// A cost: flops of `per_element` on each element of input 0.
tri_cost ops_cost_per_input(const tri_op_signature *s, double per_element);

// The shape rule of optimizer updates, whose inputs are param, grad, step scalars, states.
tri_status ops_update_shape(const char *op, tri_op_signature *s);

#endif
