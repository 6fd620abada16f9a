// Every operation (op): its attributes and its row, a constant tri_op with shape rule, gradient
// rule and cost. Each op's row is defined in a file of this folder; kernels, which compute ops, are
// in src/device. docs/adding-an-op.md shows how to add one. Shapes are PyTorch's: [N, C, H, W],
// weights [out, in, …].
#ifndef TRIREME_OPS_OPS_H
#define TRIREME_OPS_OPS_H

#include "base/limits.h"
#include "graph/graph.h"
#include "ops/axis_ops.h"
#include "ops/draw.h"
#include "ops/formula.h"
#include "ops/interpolate_axis.h"
#include "ops/loss_scale.h"
#include "ops/pool_window.h"
#include "ops/rank_groups.h"
#include "ops/recurrent_kind.h"
#include "ops/rotary_rate.h"
#include "tensor/pixels.h"

// X(identifier) for every op that a device computes. The op's row is `tri_op_<identifier>`, and its
// name is the identifier. The comments list inputs -> outputs; `?` marks an optional input. Some
// inputs and outputs have the same meaning in several ops:
// - (sum, count): what losses and metrics make, in F64: the sum over samples or labels, and how
//   many those are. In gradients of losses, `seed` is the gradient with respect to this sum.
// - spans: I64 [N, 2], of each sequence whose tokens come in several calls: how many tokens earlier
//   calls had, and how many of the T tokens of this call are the sequence's (span.h).
// - position: I64 [2], the number of the step, and which sample of the step is the first of the
//   micro-batch; random numbers of dropout depend on it.
// - index: of each window of max pooling, where in the window the maximum is.
// - mask: y or, if pooling is fused into the batch norm, its `index`; it tells where ReLU has set
//   y to zero, so that no gradient flows there.
// - moments: of each channel the mean and the sum of squared deviations from it; and the number of
//   samples.
// - inv_std, inv_rms: 1 / standard deviation, 1 / root of the mean square. mean_sum, var_sum: the
//   mean and the unbiased variance of each channel, times the number of samples; from their sums
//   over a step the running statistics are updated.
// - logits of a slice: the scores of those classes that this rank has. max: the largest score of
//   each row over all classes. sums [.., 2]: of each row the sum of exp(score - max) over the
//   classes, and the label's score - max. (The sums [2, C] of batch_norm_sums are its dweight and
//   dbias once more, to be added up over all replicas.)
// - param, statistic: what an update changes, in place like the optimizer's states. These ops have
//   no output.
// - step scalars: numbers that updates read in a step, such as the learning rate. Carried numbers:
//   what one step hands to the next, such as the loss scale.
#define TRI_OP_LIST(X)                                                                             \
    X(conv2d)                 /* x, weight, bias? -> y */                                          \
    X(conv2d_grad_input)      /* dy, weight -> dx */                                               \
    X(conv2d_grad_weight)     /* x, dy -> dweight, dbias (shape [0] if there is no bias) */        \
    X(linear)                 /* x, weight, bias? -> y; sums over the last attr.axes axes of x */  \
    X(linear_grad_input)      /* dy, weight -> dx of attr.shape */                                 \
    X(linear_grad_weight)     /* x, dy -> dweight, dbias (shape [0] if there is no bias) */        \
    X(matmul)                 /* a [.., M, K], b [.., K, N] -> y [.., M, N], with broadcasting */  \
    X(product_map)            /* inputs of a product, others of a map -> a map of the product */   \
    X(max_pool2d)             /* x, position? -> y, index (U8) */                                  \
    X(max_pool2d_grad)        /* index, dy -> dx */                                                \
    X(avg_pool2d)             /* x -> y */                                                         \
    X(avg_pool2d_grad)        /* dy -> dx */                                                       \
    X(interpolate)            /* x -> y, resized along attr.axis */                                \
    X(interpolate_grad)       /* dy -> dx */                                                       \
    X(batch_norm)             /* x, weight, bias -> y, mean, inv_std, mean_sum, var_sum, index */  \
    X(batch_norm_inference)   /* x, weight, bias, running_mean, running_var -> y */                \
    X(batch_norm_grad)        /* x, mask, dy, weight, mean, inv_std -> dx, dweight, dbias */       \
    X(batch_norm_moments)     /* x -> moments [1, 2C + 1] of this replica */                       \
    X(batch_norm_shared)      /* x, weight, bias, moments of all replicas -> as batch_norm */      \
    X(batch_norm_sums)        /* x, mask, dy, mean, inv_std -> dweight, dbias, sums [2, C] */      \
    X(batch_norm_shared_grad) /* x, mask, dy, weight, mean, inv_std, sums, moments -> dx */        \
    X(reshape)                /* x -> y, a view */                                                 \
    X(concat)                 /* a, b?, ... -> y, joined along an axis */                          \
    X(concat_grad)            /* dy -> dx of one input */                                          \
    X(add)                    /* a, b -> a + b */                                                  \
    X(own)                    /* in, ... -> y, y2?: attr.op, of a user's program */                \
    X(own_grad)               /* in (4), y, y2?, dy, dy2? -> dx of each input */                   \
    X(map)                    /* a, ... -> y, ...: attr.formula, with broadcasting */              \
    X(reduce)                 /* x -> sums, extremes, … over attr.axes, which keep the size 1 */ \
    X(map_reduce)             /* a, ... -> the reduction of a map that is not stored */            \
    X(gather)                 /* index, x -> y, elements along attr.axis by their numbers */       \
    X(scatter)                /* index, source, base? -> y of attr.shape */                        \
    X(argmax)                 /* x -> I64, where along attr.axis the first largest one is */       \
    X(sort)                  /* x -> y, index I64: along attr.axis in order, attr.count of them */ \
    X(scan)                  /* x -> y, index I64: running sums or extremes along attr.axis */     \
    X(scan_grad)             /* x, y, dy -> dx */                                                  \
    X(recurrent)             /* gates, weight, bias?, h?, c? -> y, last h, last c, saved,          \
                                cells (see tri_recurrent_attr) */                                  \
    X(recurrent_grad)        /* weight, y, saved, cells, dy?, d last h?, d last c?, h? -> dgates,  \
                                dproduct, before, dh, dc */                                        \
    X(cast)                  /* x -> x converted to the type attr.dtype */                         \
    X(add_bias)              /* x [.., F], bias [F] -> x + bias */                                 \
    X(add_bias_grad)         /* dy -> dbias */                                                     \
    X(softmax)               /* x -> y, over an axis */                                            \
    X(softmax_grad)          /* y, dy -> dx */                                                     \
    X(log_softmax)           /* x -> y, over an axis */                                            \
    X(log_softmax_grad)      /* y, dy -> dx */                                                     \
    X(embedding)             /* ids [..], weight [V, D] -> y [.., D] */                            \
    X(embedding_grad_weight) /* ids, dy -> dweight of attr.shape */                                \
    X(rms_norm)              /* x, weight -> y, inv_rms */                                         \
    X(rms_norm_grad)         /* x, dy, weight, inv_rms, sum? (added to dx) -> dx, dweight */       \
    X(layer_norm)            /* x, weight?, bias? -> y, mean, inv_std */                           \
    X(layer_norm_grad)       /* x, dy, mean, inv_std, weight?, sum? (added to dx) -> dx, dweight,  \
                                dbias */                                                           \
    X(group_norm)            /* x [N, C, ..], weight?, bias? -> y, mean, inv_std of each group */  \
    X(group_norm_grad)       /* x, dy, mean, inv_std, weight? -> dx, dweight, dbias */             \
    X(rotary)                /* x [N, T, H, D], spans? -> y */                                     \
    X(attention)             /* q [N, T, H, D], k, v [N, S, K, D] -> y, log_sum_exp [N, H, T] */   \
    X(attention_grad)        /* q, k, v, y, dy, log_sum_exp -> dq, dk, dv */                       \
    X(cache)                 /* x [N, T, ..], spans -> y [N, L, ..], kept from call to call */     \
    X(cached_attention)      /* q [N, T, H, D], caches k, v [N, L, K, D], spans -> y */            \
    X(next_token)            /* ids [N, T] -> labels [N, T]: for each token the next one */        \
    X(normalize_bytes)       /* x U8 [N, C, ..] -> y F32; attributes: tri_pixel_scale */           \
    X(nll_loss)              /* log-probabilities [.., K], labels [..] -> (sum, count) */          \
    X(nll_loss_grad)         /* labels, seed -> dx [.., K] */                                      \
    X(soft_nll_loss)         /* log-probabilities, soft labels [.., K] -> (sum, count) */          \
    X(soft_nll_loss_grad)    /* soft labels, seed -> dx */                                         \
    X(one_hot)               /* labels [..] -> soft labels [.., K] */                              \
    X(top_class)             /* soft labels [.., K] -> labels [..], the largest */                 \
    X(cross_entropy)         /* logits [.., K], labels [..] -> (sum, count) */                     \
    X(cross_entropy_grad)    /* logits, labels, seed -> dx */                                      \
    X(linear_cross_entropy)  /* x, weight, labels, bias? -> (sum, count), accuracy (hits,          \
                                labels), memory for the scores of a chunk of rows */               \
    X(linear_cross_entropy_grad) /* x, weight, labels, seed, bias? -> dx, dweight, dbias,          \
                                    (sum, count), memory for the scores of a chunk of rows */      \
    X(mean_loss)                 /* terms x -> (sum, count) */                                     \
    X(ratio_loss)                /* terms, counts -> (sum, count) */                               \
    X(label_weights)             /* labels [..], weights [K] -> the label's weight [..] */         \
    X(ignore_label)              /* labels -> labels, of which attr.label are -100 */              \
    X(ctc_loss)                  /* log-probabilities, targets, lengths? -> (sum, count) */        \
    X(ctc_loss_grad)             /* log-probabilities, targets, seed, lengths? -> dx */            \
    X(mse_loss)                  /* prediction, target -> (sum, count) */                          \
    X(mse_loss_grad)             /* prediction, target, seed -> d prediction */                    \
    X(binary_cross_entropy)      /* logits, target -> (sum, count) */                              \
    X(binary_cross_entropy_grad) /* logits, target, seed -> d logits */                            \
    X(relative_l2_loss)          /* prediction, target -> (sum, count) */                          \
    X(relative_l2_loss_grad)     /* prediction, target, seed -> d prediction */                    \
    X(accuracy)                  /* logits [.., K], labels [..] -> (hits, labels) */               \
    X(metric_sums)               /* prediction, labels or targets -> what a metric adds up */      \
    X(row_max)                   /* x [.., K] -> y [..], the largest of each row */                \
    X(vocab_parallel_softmax) /* logits of a slice of the classes, labels, max -> sums [.., 2] */  \
    X(vocab_parallel_cross_entropy) /* logits of a slice, labels, max, sums -> (sum, count) */     \
    X(vocab_parallel_cross_entropy_grad) /* the same inputs, seed -> dx */                         \
    X(vocab_parallel_argmax)   /* logits of a slice, max of each row over all slices -> for each   \
                                  row minus the number of the slice's first class whose logit is   \
                                  max, or minus the number of all classes if there is none; so the \
                                  maximum over the slices is minus the first such class of all */  \
    X(vocab_parallel_accuracy) /* outputs of vocab_parallel_argmax, of which the maximum over the  \
                                  slices was taken, labels -> (sum, count) */                      \
    X(copy_to)                 /* x -> x, a view; its gradient is summed over the group */         \
    X(split)                   /* x -> slice `index` of `slices` along an axis */                  \
    X(split_grad)              /* dy -> dx, zero outside the slice */                              \
    X(rechunk)                 /* x cut into chunks along an axis -> joined along another axis */  \
    X(reorder)                 /* x -> the same tensor in the output's layout */                   \
    X(sgd)                     /* param, grad, step scalars, momentum buffer? */                   \
    X(adam)                    /* param, grad, step scalars, exp_avg, exp_avg_sq; also AdamW */    \
    X(adadelta)                /* param, grad, step scalars, square_avg, acc_delta */              \
    X(moving_average)          /* statistic, grad (the sum over micro-batches of samples × the    \
                                  statistic of the micro-batch), step scalars */                   \
    X(map_update)              /* param, grad, step scalars, states: a formula on each element */  \
    X(average_weights)         /* average, param, step scalars: the average moves towards param */ \
    X(sum_of_squares)          /* x -> sums of x * x in F64 */                                     \
    X(sum_rows)                /* x [rows, width] F64 -> the sum of its rows */                    \
    X(step_numbers)            /* carried numbers, control (tri_step_control), sum and count of    \
                                  each loss, sums of squares of gradients -> carried numbers, step \
                                  scalars */                                                       \
    X(first_not_finite)        /* x, ranges of x, step scalars -> F64 [1]: the number (from 1) of  \
                                  the first range with NaN or infinity; 0: no range has one, or    \
                                  TRI_STEP_HALTS among the step scalars is 0 */                    \
    X(loss_seeds)              /* carried numbers, (weight, count) of each loss -> for each loss   \
                                  the gradient of its sum, with which BACKWARD begins */

// Ops that communicate among the ranks of a group. The engine runs them on the group's
// communicator: devices have no kernels for them, because a device knows nothing of other ranks.
#define TRI_COLLECTIVE_LIST(X)                                                                     \
    X(all_reduce)     /* x -> the sum or maximum of every rank's x */                              \
    X(all_gather)     /* x -> every rank's x, in rank order along an axis */                       \
    X(reduce_scatter) /* x -> this rank's slice, along an axis, of the sum over ranks */

#define X(identifier) extern const tri_op tri_op_##identifier;
TRI_OP_LIST(X)
TRI_COLLECTIVE_LIST(X)
#undef X

// All rows, in the order of the lists, for code that goes through all ops.
extern const tri_op *const tri_ops[];
extern const int tri_op_count;
// Finds an op by its name; NULL: there is none of this name.
const tri_op *tri_op_find(const char *name);
// Prints the name of each op, what it computes, and its attributes, as a reference.
void tri_ops_print(FILE *out);

typedef struct tri_conv2d_attr {
    int64_t stride[2], padding[2], dilation[2], groups;
    bool direct; // true: computes without Winograd's algorithm
} tri_conv2d_attr;

// The attributes of conv2d_grad_input and conv2d_grad_weight.
typedef struct tri_conv2d_grad_attr {
    tri_conv2d_attr conv;
    tri_shape shape; // conv2d_grad_input: the shape of x; conv2d_grad_weight: that of the weight
    bool has_bias;
} tri_conv2d_grad_attr;

typedef struct tri_linear_attr {
    // How many trailing axes of x are summed over: usually 1; 3 if a flatten of images was fused
    // into the layer.
    int64_t axes;
    bool wide; // y is one term of a sum over ranks: it is F32 even if x is of a half type
} tri_linear_attr;

typedef struct tri_linear_grad_attr {
    int64_t axes;
    // linear_grad_input: the shape of x; linear_grad_weight: that of the weight, [features,
    // summed].
    tri_shape shape;
    bool has_bias;
    bool wide; // linear_grad_input: dx is one term of a sum over ranks, so it is F32
} tri_linear_grad_attr;

// The operands of matmul; in arrays of the attributes and of plans they stand in this order.
enum { TRI_MATMUL_A, TRI_MATMUL_B, TRI_MATMUL_Y, TRI_MATMUL_OPERANDS };

// The attributes of matmul. Operands may lie in memory with their axes in another order, such as
// transposed, so that no copy is needed: axis i of operand k, as the product takes it, is axis
// axes[k][i] of the tensor.
typedef struct tri_matmul_attr {
    int64_t permuted; // bit k: operand k has the order axes[k]; else its axes lie as they are taken
    int8_t axes[TRI_MATMUL_OPERANDS][TRI_MAX_RANK];
    bool wide; // y is a term of a sum: it is F32 even if a and b are of a half type
} tri_matmul_attr;

// Which axis of its tensor is axis i of operand k.
int tri_matmul_axis(const tri_matmul_attr *attr, int k, int i);

// The attributes of softmax, log_softmax and their gradients. The axis is the one that has `behind`
// axes behind it; 0: the last. The others are for softmax over the last axis.
typedef struct tri_softmax_attr {
    int64_t behind;
    // Of x [.., T, S], row t has only elements 0 to t + S - T, and the others of y are 0.
    bool causal;
    bool empty; // a row whose elements are all -infinity becomes 0; false: NaN
} tri_softmax_attr;

// The attributes of max pooling: y is the maximum of each window, to which ReLU and then dropout
// are applied if they are set. The output `index`, which the gradient reads, is the position
// kh·kernel_w + kw of the (first) maximum in its window. It is TRI_POOL_NO_GRADIENT (pool_window.h)
// if ReLU or dropout has set y to zero.
typedef struct tri_max_pool2d_attr {
    int64_t kernel[2], stride[2], padding[2];
    bool relu;
    // Others than the gradient read the index, so it is plain, and nothing is fused that changes
    // it.
    bool indexed;
    double dropout;    // 0: there is no dropout, and no input `position`
    uint64_t key;      // tri_philox_key(seed, layer), from which dropout's random numbers follow
    tri_shape x_shape; // only for max_pool2d_grad: the shape of x
} tri_max_pool2d_attr;

// The attributes of average pooling, the mean of each window. If `out` is 0, windows have kernel[0]
// x kernel[1] elements; else out[0] x out[1] windows cover x.
typedef struct tri_avg_pool2d_attr {
    int64_t kernel[2], stride[2], padding[2];
    // True: the sum over a window is divided by the number of its elements inside x; false: padding
    // counts too.
    bool exclude_padding;
    int64_t out[2];    // not 0: adaptive pooling, which ignores kernel, stride and padding
    tri_shape x_shape; // only for avg_pool2d_grad: the shape of x
} tri_avg_pool2d_attr;

// Finds the elements [*begin, *end) of x that pooling window number `window` covers along axis 0
// (H) or 1 (W). `in` is the size of x along that axis. ops_avg_divisor takes the ranges of both
// axes and gives the number by which the sum over the window is divided.
void ops_avg_window(const tri_avg_pool2d_attr *attr, int axis, int64_t in, int64_t window,
                    int64_t *begin, int64_t *end);
int64_t ops_avg_divisor(const tri_avg_pool2d_attr *attr, const int64_t begin[2],
                        const int64_t end[2]);

// The attributes of interpolate, of which interpolate_axis says what they mean.
typedef struct tri_interpolate_attr {
    int64_t axis, size, kind; // size: that of y along the axis; kind: an interpolate_kind
    bool align_corners, antialias;
    double factor;
    tri_shape x_shape; // only for interpolate_grad: the shape of x
} tri_interpolate_attr;

// How the axis of x is resized.
interpolate_axis ops_interpolate_axis(const tri_interpolate_attr *attr, const tri_shape *x);

typedef struct tri_batch_norm_attr {
    double eps;
    bool relu; // true: ReLU is applied to y
    // If not 0: the half type (a tri_dtype) that y has although x is F32; 0: y has the type of x.
    int64_t narrow;
    // The max pooling, without dropout, that is applied to the normalised tensor to make y; its
    // kernel is 0 if there is none. The gradient op's input `mask` is the pooling's output `index`
    // or, without pooling, y.
    tri_max_pool2d_attr pool;
} tri_batch_norm_attr;

typedef struct tri_reshape_attr {
    tri_shape shape;
} tri_reshape_attr;

typedef struct tri_concat_attr {
    int64_t dim;
} tri_concat_attr;

typedef struct tri_concat_grad_attr {
    // Elements `first` to first + size - 1 of the joined tensor along axis `dim`: those that were
    // taken from the input whose gradient this op makes.
    int64_t dim, first, size;
} tri_concat_grad_attr;

// The attributes of embedding. The weight may be a slice of the table: rows `first` to first + V -
// 1 of `total`. For ids of other rows the result is zeros. total 0: the weight has all rows.
typedef struct tri_embedding_attr {
    int64_t first, total;
} tri_embedding_attr;

typedef struct tri_embedding_grad_attr {
    tri_shape shape; // the shape of the weight and of its gradient, [V, D]
    tri_embedding_attr rows;
} tri_embedding_grad_attr;

// The attributes of recurrent, one direction of a recurrent layer, and of recurrent_grad. Its
// inputs: gates, what the layer's input adds to the gates in each step, [N, T, gates · H]; weight
// [gates · H, H] and bias, with which the state h of the step before adds to them; h and c, the
// first state [N, H], which is 0 if left out. y [N, T, H] has the state h after each step. For the
// gradient of LSTM and GRU, `saved` [T, N, 4 · H] keeps the gates (of GRU also what h adds to the
// new gate), and for that of LSTM `cells` [T + 1, N, H] keeps c before and after each step; both in
// the order in which steps are computed. What a kind or a mode does not need is empty ([0]).
//
// The gradient makes dgates; dproduct, the gradient of what h adds to the gates, which only for GRU
// differs from dgates, else it is empty; and `before` [N, T, H], the state before each step. So the
// gradient of the weight is the product of `before` and dproduct over the whole sequence.
typedef struct tri_recurrent_attr {
    int64_t kind;    // a tri_recurrent_kind
    bool reverse;    // the last element of the sequence comes first
    bool time_first; // sequences are [T, N, ..]
    bool keeps;      // makes `saved` and `cells`
} tri_recurrent_attr;

// The attributes of rms_norm and layer_norm and of their gradients.
typedef struct tri_norm_attr {
    double eps;
    // If not 0: the half type (a tri_dtype) that y has although x is F32; 0: y has the type of x.
    int64_t narrow;
} tri_norm_attr;

typedef struct tri_group_norm_attr {
    tri_norm_attr norm;
    int64_t groups; // of neighbouring channels; each group of a sample is normalised alone
} tri_group_norm_attr;

typedef struct tri_rotary_attr {
    double theta;
    tri_rotary_scaling scaling;
    int64_t first; // the position of x[:, 0], which is above 0 in a slice of a sequence
    bool inverse;  // true: rotates in the opposite direction, which is the gradient
} tri_rotary_attr;

typedef struct tri_attention_attr {
    double scale; // factor of q·k; usually 1 / sqrt(D)
    bool causal;  // true: query t of T attends only to keys 0 to t + S - T of S
} tri_attention_attr;

typedef struct tri_cache_attr {
    int64_t length; // L, the most tokens of a sequence
} tri_cache_attr;

typedef struct tri_cached_attention_attr {
    double scale;   // factor of q·k
    int64_t window; // how many keys a query sees, its own the last of them; 0: all up to its own
} tri_cached_attention_attr;

// The attributes of batch_norm_shared and its gradient.
typedef struct tri_batch_norm_shared_attr {
    // This is the first member, because fusions change the attributes of batch_norm and of
    // batch_norm_shared through a tri_batch_norm_attr *.
    tri_batch_norm_attr norm;
    tri_collective_attr replicas;
} tri_batch_norm_shared_attr;

// The attributes of ops on a slice of the classes. The scores [.., K] are those of classes `first`
// to first + K - 1, of `classes` in all. The score of a label outside of them is on another rank.
typedef struct tri_classes_attr {
    int64_t first, classes;
} tri_classes_attr;

typedef struct tri_rechunk_attr {
    int64_t from, to, chunks; // y = cat(chunk(x, chunks, from), to), as in PyTorch
} tri_rechunk_attr;

// How map reads an input x: by the index of the output's element. Along axis j of x the index is
// start[j] + sign[j] · (index along axis[j] of the output), or start[j] if axis[j] is -1. Where
// that lies outside of x, the input is 0. So permuting, slicing, flipping, repeating and padding
// need no memory of their own. An axis of the output is used once at most.
typedef struct tri_map_view {
    int8_t axis[TRI_MAX_RANK], sign[TRI_MAX_RANK];
    int64_t start[TRI_MAX_RANK];
} tri_map_view;

// The attributes of map. Inputs without a view are broadcast, as in NumPy and PyTorch: axes are
// aligned at the last, and an axis of size 1 is repeated.
typedef struct tri_map_attr {
    tri_formula formula;
    bool expands;    // the inputs are broadcast to `shape`; false: to the smallest that fits all
    tri_shape shape; // of the outputs, if `expands` is set
    int64_t viewed;  // bit k: input k is read by views[k]; needs `expands`
    tri_map_view views[TRI_FORMULA_INPUTS];
    bool mask;     // the outputs are U8: 1 where the formula is not 0, else 0
    int64_t drawn; // bit k: input k stands for the random numbers draws[k]
    tri_map_draw draws[TRI_FORMULA_INPUTS];
    int64_t type; // the tri_dtype in which it computes if all inputs are drawn
} tri_map_attr;

// The type in which map computes: that of the first input that is not U8, and U8 if all are. Other
// inputs of U8, such as masks, are read as numbers of that type.
tri_dtype tri_map_type(const tri_map_attr *attr, const tri_op_signature *s);

// The shape of what input k is read from: x, the value's, or that of the numbers drawn.
const tri_shape *tri_map_read_shape(const tri_map_attr *attr, int k, const tri_shape *x);

// A dropout, as devices have it in kernels of its own: x / (1 - p) where it is kept, else 0. A
// sample of x consists of runs of `run` consecutive elements of the full sample, which begin at its
// elements first, first + stride, first + 2 * stride, … run 0: x has full samples.
typedef struct tri_map_dropout {
    double p;
    uint64_t key;
    int64_t run, stride, first;
} tri_map_dropout;

// Makes the map x, position -> y of a dropout of x of this shape.
tri_map_attr tri_map_of_dropout(const tri_shape *shape, double p, uint64_t key);
// Whether the node is such a map, or its gradient, which is one too.
bool tri_map_is_dropout(const tri_graph *graph, const tri_node *node, tri_map_dropout *out);

// Prints the formula, and which of its inputs are random numbers.
void tri_map_print(const void *attr, FILE *out);

// The view by which input k of shape `x` is read, also where it is broadcast.
tri_map_view tri_map_view_of(const tri_map_attr *attr, int k, const tri_shape *x,
                             const tri_shape *out);

typedef enum tri_reduction {
    TRI_REDUCTION_SUM,
    TRI_REDUCTION_MAX,
    TRI_REDUCTION_MIN,
    TRI_REDUCTION_PROD,
    TRI_REDUCTION_SQUARES,  // the sum of the squared distances from the mean
    TRI_REDUCTION_LOGSUMEXP // the logarithm of the sum of exp(x)
} tri_reduction;

typedef struct tri_reduce_attr {
    int64_t kind; // a tri_reduction
    int64_t axes; // bit i: axis i is reduced to the size 1
} tri_reduce_attr;

// The attributes of map_reduce. Those of the map come first, as kernels read them of either op.
typedef struct tri_map_reduce_attr {
    tri_map_attr map; // `expands` is set
    tri_reduce_attr reduce;
} tri_map_reduce_attr;

typedef struct tri_cast_attr {
    int64_t dtype; // the type of y, a tri_dtype
} tri_cast_attr;

typedef struct tri_linear_cross_entropy_attr {
    bool accuracy; // true: output 1 is the accuracy; false: output 1 is empty
} tri_linear_cross_entropy_attr;

// How many rows of scores the ops linear_cross_entropy and linear_cross_entropy_grad compute at a
// time: all of them if there are at most 512. More rows are divided into as few chunks of at most
// 512 rows as possible; their size is rounded up to a multiple of 64, so the last chunk may be
// smaller. The size decides in which order the weight's gradient is summed, so it depends on `rows`
// alone and not on the device.
int64_t tri_loss_chunk(int64_t rows);

// Of the losses on soft labels: how much of each label is spread evenly over all classes.
typedef struct tri_soft_labels_attr {
    double smoothing;
} tri_soft_labels_attr;

typedef struct tri_one_hot_attr {
    int64_t classes;
    int64_t dtype; // the type of the soft labels, a tri_dtype
} tri_one_hot_attr;

typedef struct tri_ignore_label_attr {
    int64_t label; // becomes TRI_IGNORED_LABEL
} tri_ignore_label_attr;

typedef struct tri_metric_sums_attr {
    int64_t tally; // a tri_tally of graph/metric.h, of these numbers
    int64_t classes, bins, k;
    double threshold;
} tri_metric_sums_attr;

typedef struct tri_ctc_loss_attr {
    int64_t blank;
    bool zero_infinity; // an impossible target has the loss 0 and no gradient
} tri_ctc_loss_attr;

typedef struct tri_nll_loss_grad_attr {
    tri_shape shape; // the shape of dx, [.., K]
    int64_t dtype;   // the type of dx, a tri_dtype
} tri_nll_loss_grad_attr;

// lr_factor of an optimizer's op: the factor of the step's learning rate, above 0.
typedef struct tri_sgd_attr {
    double lr_factor, momentum, dampening, weight_decay;
    bool nesterov;
} tri_sgd_attr;

typedef struct tri_adam_attr {
    double lr_factor, beta1, beta2, eps, weight_decay;
    // True: weight decay shrinks the parameter itself (AdamW); false: it is added to the gradient.
    bool decoupled;
} tri_adam_attr;

typedef struct tri_adadelta_attr {
    double lr_factor, rho, eps, weight_decay;
} tri_adadelta_attr;

// The update of one element of a parameter as a formula, whose inputs are these, then the element's
// states and, if there is one more, the number of the update, from 1. Its outputs are the new
// parameter and the new states.
enum {
    TRI_UPDATE_PARAMETER,
    TRI_UPDATE_GRADIENT,
    TRI_UPDATE_SCALE, // factor of the gradient
    TRI_UPDATE_LR,
    TRI_UPDATE_STATES, // the first state, if there are any
};
typedef struct tri_map_update_attr {
    double lr_factor;
    tri_formula formula;
} tri_map_update_attr;
// Which input is the number of the update; 0: none.
int tri_map_update_count(const tri_formula *formula);

typedef struct tri_sum_of_squares_attr {
    int64_t chunk; // how many numbers each sum covers; 0: all of them
} tri_sum_of_squares_attr;

// The elements of `control`, an input of step_numbers: what the host tells the device for a step.
typedef enum tri_step_control {
    TRI_CONTROL_CLIP,    // the largest allowed norm of all gradients; 0: they are not clipped
    TRI_CONTROL_SAMPLES, // how many samples the step has, whether their labels are ignored or not
    TRI_CONTROL_NOMINAL, // the count by which the backward pass has divided the loss
    TRI_CONTROL_UPDATES, // how many updates the host knows to be done
    TRI_CONTROL_AVERAGE, // TRI_STEP_AVERAGE, if the step does not halt
    // The learning rates of the next updates: element TRI_CONTROL_RATES + i is the rate to use if i
    // more updates are done than element TRI_CONTROL_UPDATES tells.
    TRI_CONTROL_RATES,
    TRI_STEP_CONTROL_COUNT = TRI_CONTROL_RATES + 1 + TRI_MAX_STEPS_AHEAD
} tri_step_control;

// The carried numbers: what one step hands to the next in the device's memory, so that the device
// need not wait for the host.
typedef enum tri_carried_number {
    TRI_CARRIED_SCALE, // the loss scale; 0: there is none
    TRI_CARRIED_GOOD_STEPS,
    TRI_CARRIED_HYSTERESIS_LEFT,
    TRI_CARRIED_UPDATES, // how many steps have changed the parameters
    TRI_CARRIED_HALTED,  // not 0: every step is skipped until the host sets it to 0
    TRI_CARRIED_COUNT = 8
} tri_carried_number;

// Attributes of step_numbers: where it finds the losses. Their pairs (sum, count) are in the input
// `sums`: `losses` pairs, the first at index `loss`, each `stride` behind the previous one.
typedef struct tri_step_numbers_attr {
    int64_t loss, losses, stride;
    // Index in `sums` of the true count (the step's labels without ignored ones), by which
    // gradients still have to be divided; -1: the backward pass has already divided each loss by
    // its true count.
    int64_t count;
    tri_loss_scale_options loss_scale; // used if the run has a loss scale
} tri_step_numbers_attr;

typedef struct tri_moving_average_attr {
    double momentum; // 0: 1 / the number of the update
} tri_moving_average_attr;

// These functions gather or reduce x along any axis (attr->dim). The collective itself runs along
// the outermost axis, whose slices are contiguous. For any other axis a rechunk is added.
tri_value ops_all_gather(tri_graph *graph, tri_value x, const tri_collective_attr *attr);
tri_value ops_reduce_scatter(tri_graph *graph, tri_value x, const tri_collective_attr *attr);

// Adds the nodes that take the place of the batch_norm `node` if trainer.sync_batchnorm is on. They
// compute this replica's moments, gather those of all replicas, and normalise with them
// (batch_norm_shared, whose first output is returned). `inputs` (x, weight, bias) are read in place
// of the node's own inputs.
tri_value ops_batch_norm_shared(tri_graph *graph, const tri_node *node, const tri_value *inputs,
                                const tri_collective_attr *replicas);

#endif
