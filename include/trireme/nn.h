// Layers, activations and losses. Each function adds nodes to the graph and returns their output.
//
// The parameters of a layer are named after it: the layer "conv1" has "conv1.weight" and
// "conv1.bias". A name is used once, unless tri_share_layer allows more. Initial weights follow
// PyTorch's default rules unless a comment says otherwise. Shapes are written [N, C, H, W] with N
// the samples of the micro-batch; [.., D] has any number of leading axes.
#ifndef TRIREME_NN_H
#define TRIREME_NN_H

#include <trireme/api.h>
#include <trireme/functions.h>
#include <trireme/graph.h>
#include <trireme/parameters.h>

TRI_API_BEGIN

// A fully connected layer, y = x·Wᵀ + b over the last axis. x [.., in] → [.., features]; weight
// [features, in], bias [features].
tri_value tri_linear(tri_graph *graph, const char *name, tri_value x, int64_t features);

typedef struct tri_linear_options {
    int64_t features; // size of the output's last axis
    bool no_bias;
    // The full name of the weight; NULL: the layer's own, such as "fc1.weight". If a parameter of
    // this name and of shape [features, in] exists, the layer shares it: tied weights.
    const char *weight;
    // The weight and the bias, made by functions, in place of parameters.
    tri_value weight_value, bias_value;
    // If above 0: the weight starts with normal(0, std), and the bias with 0. If 0: both start by
    // PyTorch's default rules.
    double std;
    tri_init weight_init, bias_init; // how they start, in place of these rules (parameters.h)
    // Files have the weight as [in, features], as those of GPT-2's Conv1D layers. Its initial
    // values, too, are those of a parameter of this shape.
    bool stored_transposed;
} tri_linear_options;

// A fully connected layer with options: no bias, tied weights, other initial weights.
tri_value tri_linear_with(tri_graph *graph, const char *name, tri_value x,
                          tri_linear_options options);

// What stands around an image: zeros, its elements reflected at the border, copies of the border,
// or the elements of the other side.
typedef enum tri_padding_mode {
    TRI_PADDING_ZEROS,
    TRI_PADDING_REFLECT,
    TRI_PADDING_REPLICATE,
    TRI_PADDING_CIRCULAR
} tri_padding_mode;

// What all convolutions take. The lists have a number for each axis: 3 of [D, H, W], 2 of [H, W].
typedef struct tri_conv_options {
    int64_t channels; // number of channels of the output
    int64_t kernel;   // size along every axis
    int64_t stride;   // 0 means 1
    int64_t padding;  // zeros on every side
    int64_t dilation; // 0 means 1
    int64_t groups;   // 0 means 1; as many as channels: a depthwise convolution
    bool no_bias;
    bool same; // instead of `padding`: as many zeros as give the output the size of x; stride 1
    // Where axes differ: the numbers of each axis, of which 0 means the one for all, above.
    int64_t kernels[3], strides[3], dilations[3];
    int64_t pads[3][2]; // zeros before and after each axis, besides `padding`
    // Of a transpose: by how much its output is larger, besides; less than stride or dilation.
    int64_t output_padding, output_paddings[3]; // for every axis; for each axis, besides
    tri_init weight_init, bias_init;            // see parameters.h
    tri_padding_mode padding_mode;              // not of a transpose
    // The weight and the bias, made by functions, in place of parameters.
    tri_value weight_value, bias_value;
} tri_conv_options;
typedef tri_conv_options tri_conv2d_options;

// A convolution of images. x [N, C, H, W] → [N, channels, H', W'] with H' = (H + 2·padding −
// dilation·(kernel − 1) − 1) / stride + 1, where the quotient is rounded down; weight [channels, C
// / groups, kernel, kernel].
tri_value tri_conv2d(tri_graph *graph, const char *name, tri_value x, tri_conv_options options);
// A convolution of sequences. x [N, C, L] → [N, channels, L'].
tri_value tri_conv1d(tri_graph *graph, const char *name, tri_value x, tri_conv_options options);

// A transposed convolution of images, PyTorch's ConvTranspose2d: the gradient of a convolution with
// respect to its input. x [N, C, H, W] → [N, channels, H', W'] with H' = (H − 1)·stride − 2·padding
// + dilation·(kernel − 1) + 1 + output_padding; weight [C, channels / groups, kernel, kernel].
tri_value tri_conv_transpose2d(tri_graph *graph, const char *name, tri_value x,
                               tri_conv_options options);
// The same of sequences. x [N, C, L] → [N, channels, L'].
tri_value tri_conv_transpose1d(tri_graph *graph, const char *name, tri_value x,
                               tri_conv_options options);

// A convolution of volumes. x [N, C, D, H, W] → [N, channels, D', H', W'].
tri_value tri_conv3d(tri_graph *graph, const char *name, tri_value x, tri_conv_options options);
// A transposed convolution of volumes. x [N, C, D, H, W] → [N, channels, D', H', W'].
tri_value tri_conv_transpose3d(tri_graph *graph, const char *name, tri_value x,
                               tri_conv_options options);

// What all pools take. The lists have a number for each axis, as those of tri_conv_options.
typedef struct tri_pool_options {
    int64_t kernel;  // size along every axis
    int64_t stride;  // 0 means as many as `kernel`
    int64_t padding; // on every side, at most kernel / 2; padding never counts as a maximum
    // Where axes differ: the numbers of each axis, of which 0 means the one for all, above.
    int64_t kernels[3], strides[3];
    int64_t pads[3];      // besides `padding`
    bool exclude_padding; // of means: zeros of the padding do not count; in PyTorch they do
    // The last window may reach behind the padding; of means, what is there does not count.
    bool ceil_mode;
    int64_t dilation, dilations[3]; // of maxima: the distance of a window's elements; 0 means 1
    int64_t divisor_override; // of means: the sums are divided by it; 0: by the elements that count
} tri_pool_options;
typedef tri_pool_options tri_pool2d_options;

// The largest element of each window. x [N, C, H, W] → [N, C, H', W'], H' as in tri_conv2d.
tri_value tri_max_pool2d(tri_graph *graph, tri_value x, tri_pool_options options);
// The same of sequences. x [N, C, L] → [N, C, L'].
tri_value tri_max_pool1d(tri_graph *graph, tri_value x, tri_pool_options options);
// The same of volumes. x [N, C, D, H, W] → [N, C, D', H', W'].
tri_value tri_max_pool3d(tri_graph *graph, tri_value x, tri_pool_options options);
// The same, and *indices becomes where in its channel each maximum is, I64: element number row ·
// width + column, of equal ones the first.
tri_value tri_max_pool2d_with_indices(tri_graph *graph, tri_value x, tri_pool_options options,
                                      tri_value *indices);
// The same of sequences.
tri_value tri_max_pool1d_with_indices(tri_graph *graph, tri_value x, tri_pool_options options,
                                      tri_value *indices);
// The same of volumes.
tri_value tri_max_pool3d_with_indices(tri_graph *graph, tri_value x, tri_pool_options options,
                                      tri_value *indices);
// PyTorch's MaxUnpool: each element of x where its index says, and 0 elsewhere. The result has the
// sizes H and W; NULL: those that follow from kernel, stride and padding. Of equal indices the last
// one is there, and has the gradient.
tri_value tri_max_unpool2d(tri_graph *graph, tri_value x, tri_value indices,
                           tri_pool_options options, const int64_t *sizes);
// The same of sequences.
tri_value tri_max_unpool1d(tri_graph *graph, tri_value x, tri_value indices,
                           tri_pool_options options, const int64_t *sizes);
// The same of volumes.
tri_value tri_max_unpool3d(tri_graph *graph, tri_value x, tri_value indices,
                           tri_pool_options options, const int64_t *sizes);
// The mean of each window. x [N, C, H, W] → [N, C, H', W'], H' as in tri_conv2d. Zeros of the
// padding count, as in PyTorch, unless `exclude_padding` is set.
tri_value tri_avg_pool2d(tri_graph *graph, tri_value x, tri_pool_options options);
// The same of sequences. x [N, C, L] → [N, C, L'].
tri_value tri_avg_pool1d(tri_graph *graph, tri_value x, tri_pool_options options);
// The same of volumes. x [N, C, D, H, W] → [N, C, D', H', W'].
tri_value tri_avg_pool3d(tri_graph *graph, tri_value x, tri_pool_options options);
// Divides each channel into a grid of size × size windows and takes the mean of each: x [N, C, H,
// W] → [N, C, size, size], PyTorch's AdaptiveAvgPool2d. Size 1 is the mean of the whole channel.
tri_value tri_adaptive_avg_pool2d(tri_graph *graph, tri_value x, int64_t size);
// The same for one to three axes, with a number of windows for each in `sizes`, of which 0 leaves
// the axis as it is: tri_adaptive_avg_pool(g, x, (int64_t[]){7, 5}).
tri_value tri_adaptive_avg_pool(tri_graph *graph, tri_value x, const int64_t *sizes);
// The largest element of each window.
tri_value tri_adaptive_max_pool(tri_graph *graph, tri_value x, const int64_t *sizes);
// The same, with *indices as for tri_max_pool2d_with_indices.
tri_value tri_adaptive_max_pool_with_indices(tri_graph *graph, tri_value x, const int64_t *sizes,
                                             tri_value *indices);

// What an element of a resized tensor is made of.
typedef enum tri_interpolate_mode {
    TRI_INTERPOLATE_NEAREST,       // one element, with its place rounded down
    TRI_INTERPOLATE_LINEAR,        // its neighbours: linear, bilinear or trilinear
    TRI_INTERPOLATE_CUBIC,         // four neighbours along each axis: bicubic
    TRI_INTERPOLATE_NEAREST_EXACT, // the element in which its middle lies
    TRI_INTERPOLATE_AREA,          // the mean of a window, as tri_adaptive_avg_pool
} tri_interpolate_mode;

typedef struct tri_interpolate_options {
    int64_t sizes[3];   // of each axis behind the channels; 0: as the factor says
    double factor;      // PyTorch's scale_factor: how many times as many elements; 0 means 1
    bool linear;        // short for the mode TRI_INTERPOLATE_LINEAR
    bool align_corners; // linear and cubic: the elements at the borders keep their places
    bool antialias;     // linear and cubic: where x shrinks, all elements count
    tri_interpolate_mode mode;
    double factors[3]; // where axes differ: the factor of each, of which 0 means the one for all
    // Places follow from the sizes, also where a factor makes no whole number of elements.
    bool recompute_scale_factor;
} tri_interpolate_options;

// Resizes sequences, images or volumes, x [N, C, …], as PyTorch's interpolate and Upsample.
tri_value tri_interpolate(tri_graph *graph, tri_value x, tri_interpolate_options options);

typedef struct tri_batch_norm_options {
    double momentum; // running = (1 − momentum)·running + momentum·batch; 0 means 0.1
    double eps;      // added to the variance; 0 means 1e-5
    bool cumulative; // PyTorch's momentum=None: running = the mean over the steps of the run
    bool plain;      // true: the layer has neither weight nor bias; PyTorch's affine=False
    tri_init weight_init, bias_init; // in place of 1 and 0
    // How often a shared layer (tri_share_layer) is used in a step, all in one block; 0
    // means 1. Each use normalises by its own mean and variance, and moves the running ones, one
    // after the other.
    int64_t uses;
} tri_batch_norm_options;

// Batch norm: each channel of x [N, C, …] is normalised over the micro-batch (over the whole step
// with trainer.sync_batchnorm); evaluation uses the running statistics. N has to be the samples of
// the micro-batch. Parameters: weight, bias, running_mean and running_var [C], num_batches_tracked.
tri_value tri_batch_norm(tri_graph *graph, const char *name, tri_value x,
                         tri_batch_norm_options options);

typedef struct tri_embedding_options {
    int64_t tokens, features;
    double std;           // the weight starts with normal(0, std); 0 means 1
    tri_init weight_init; // in place of that: see parameters.h
} tri_embedding_options;

// An embedding: looks up rows of a table. ids I64 [..], each 0 to tokens − 1 → [.., features];
// weight [tokens, features].
tri_value tri_embedding(tri_graph *graph, const char *name, tri_value ids,
                        tri_embedding_options options);

// RMS norm: x · weight / √(mean of x² over the last axis + eps). x [.., D]; weight [D] starts at 1.
// `eps` must be above 0.
tri_value tri_rms_norm(tri_graph *graph, const char *name, tri_value x, double eps);

typedef struct tri_rms_norm_options {
    double eps;           // added to the mean; 0 means 2^-23
    bool plain;           // true: the layer has no weight; PyTorch's elementwise_affine=False
    int axes;             // how many of the last axes are normalised together; 0 means 1
    tri_init weight_init; // in place of 1
} tri_rms_norm_options;

// RMS norm with options: without a weight, or over several axes together. weight has their sizes.
tri_value tri_rms_norm_with(tri_graph *graph, const char *name, tri_value x,
                            tri_rms_norm_options options);

typedef struct tri_layer_norm_options {
    double eps;                      // added to the variance; 0 means 1e-5
    bool plain;                      // true: the layer has neither weight nor bias
    bool no_bias;                    // true: it has a weight alone
    int axes;                        // how many of the last axes are normalised together; 0 means 1
    tri_init weight_init, bias_init; // in place of 1 and 0
} tri_layer_norm_options;

// Layer norm: x [.., D] is normalised over the last axis, or over several. weight and bias have the
// sizes of these axes, [D].
tri_value tri_layer_norm(tri_graph *graph, const char *name, tri_value x,
                         tri_layer_norm_options options);

typedef struct tri_group_norm_options {
    int64_t groups;                  // must divide the channels
    double eps;                      // added to the variance; 0 means 1e-5
    bool plain;                      // true: the layer has neither weight nor bias
    tri_init weight_init, bias_init; // in place of 1 and 0
} tri_group_norm_options;

// Group norm: x [N, C, …] is normalised over each sample's C / groups neighbouring channels and all
// their pixels. weight and bias [C].
tri_value tri_group_norm(tri_graph *graph, const char *name, tri_value x,
                         tri_group_norm_options options);

typedef struct tri_instance_norm_options {
    double eps;  // added to the variance; 0 means 1e-5
    bool affine; // true: the layer has weight and bias [C]; PyTorch's InstanceNorm has none either
    // PyTorch's track_running_stats: the layer has running_mean and running_var [C], the means over
    // samples, by which evaluation normalises. Their momentum is given as that of batch norm.
    bool tracks, cumulative;
    double momentum;
    tri_init weight_init, bias_init; // in place of 1 and 0
} tri_instance_norm_options;

// Instance norm: each channel of each sample of x [N, C, …] is normalised over its pixels, in
// training and, unless statistics are tracked, in evaluation.
tri_value tri_instance_norm(tri_graph *graph, const char *name, tri_value x,
                            tri_instance_norm_options options);

// Rotary position embedding of x [N, T, H, D], D even, at positions t = 0 to T − 1. Elements i and
// i + D/2 are rotated by the angle t·theta^(−2i/D), as in Hugging Face's Llama.
tri_value tri_rotary(tri_graph *graph, tri_value x, double theta);

typedef struct tri_rotary_options {
    double theta;
    // Where each sequence's tokens stand, as caches.h says. None: at 0 to T − 1.
    tri_value spans;
    // Llama 3's scaling, for sequences longer than the original_positions of its first training:
    // the rotation of pairs that turn less than low_freq_factor times within these is divided by
    // `factor`, of those that turn more than high_freq_factor times it stays, and between both it
    // is a mixture. Factor 0: none.
    double factor, low_freq_factor, high_freq_factor;
    int64_t original_positions;
} tri_rotary_options;

// Rotary position embedding with options.
tri_value tri_rotary_with(tri_graph *graph, tri_value x, tri_rotary_options options);

typedef struct tri_attention_options {
    // A query sees no later keys. The last query stands where the last key does, also if T < S
    // (PyTorch's is_causal lets the first ones stand side by side).
    bool causal;
    double scale; // 0 means 1 / √D
    // Both are broadcast to [N, H, T, S], and may be none. `bias` is added to the scores. Where
    // `mask` is 0, a query does not see a key. The result for a query that sees no key, or whose
    // scores are all −∞, is 0, as in PyTorch since 2.5.
    tri_value bias, mask;
    // With `causal`: how many keys a query sees, its own and those before it; 0: all of these.
    // Where it leaves out any, scores are kept, as with a mask.
    int64_t window;
    // In training, the probability with which a probability of softmax is set to zero, by
    // tri_dropout, of which the recipe's model.dropout replaces the rate if it is above 0 here.
    double dropout;
    bool own_rate; // model.dropout does not replace this rate; but where it is 0, so is this one
} tri_attention_options;

// Attention, softmax(scale·q·kᵀ + bias)·v for each head. q [N, T, H, D], k and v [N, S, K, D] → [N,
// T, H, D]; v may also have heads of another size than D. H is a multiple of K: groups of H / K
// query heads share a key and a value head. Keys and values of another sequence make it
// cross-attention. Without bias, mask and dropout, one kernel computes it and keeps no scores.
tri_value tri_attention(tri_graph *graph, const char *name, tri_value q, tri_value k, tri_value v,
                        tri_attention_options options);

// The labels of a decoder, which predicts the next token. ids I64 [N, T] → labels I64 [N, T]: for
// each position the id that follows it. The last position has no successor and gets −100, which
// losses leave out.
tri_value tri_next_token(tri_graph *graph, tri_value ids);

// Dropout: sets an element to zero with probability p and divides the others by 1 − p, so that the
// mean stays; evaluation returns x. The random numbers depend on the name and on how often it was
// used before, so that any two calls have different masks. The first axis has to be that of the
// samples, each in one or several rows. The recipe's model.dropout replaces p.
tri_value tri_dropout(tri_graph *graph, const char *name, tri_value x, double p);
// Flattens all axes but the first: [N, …] → [N, their product].
tri_value tri_flatten(tri_graph *graph, tri_value x);
// The same elements in another shape. One size may be -1: it is computed from the others.
tri_value tri_reshape(tri_graph *graph, tri_value x, tri_shape shape);
// `count` values one after the other along `axis`, as torch.cat; a negative axis counts from the
// last. The values' other axes must agree. [N, 3, H, W] and [N, 5, H, W] along axis 1 →
// [N, 8, H, W].
tri_value tri_concat(tri_graph *graph, const tri_value *values, int count, int axis);
// a + b: two tensors, which are broadcast to one shape, or two losses (then their means are added;
// a sum has at most 8).
tri_value tri_add(tri_graph *graph, tri_value a, tri_value b);
// Softmax over an axis: exp(x) / the sum of exp(x); a negative axis counts from the last.
tri_value tri_softmax(tri_graph *graph, tri_value x, int axis);
// The logarithm of softmax over the last axis.
tri_value tri_log_softmax(tri_graph *graph, tri_value x);
// The logarithm of softmax over any axis.
tri_value tri_log_softmax_along(tri_graph *graph, tri_value x, int axis);

// A loss is F64 [2]: its sum over the samples (or elements) and their count, so that the sums of
// several ranks and micro-batches can be added before the division. The classification losses take
// labels I64 [..], leave out labels of −100, and report the metric "accuracy" in evaluation. Or
// they take soft labels F32 [.., K], a number for each class, mostly its probability: then the loss
// is the sum of −label · log-probability over the classes, accuracy counts predictions of the class
// with the largest label, and rows whose labels are all 0 are left out.
// The recipe's loss.label_smoothing spreads a part of each label evenly over the classes, in
// training and in evaluation, as PyTorch's CrossEntropyLoss does. A network with several of these
// losses reports only the accuracy of the one that is called first, and none of them if it has a
// metric of this name already: so it declares the accuracies that it wants by tri_metric, before
// the losses. C does not say which argument of a call is computed first: a loss that is written
// into the call of another function, as in tri_add(g, tri_cross_entropy(…), tri_nll_loss(…)), may
// be the second one.

// The metric of how often the largest of scores [.., K] is the label's (or that of the largest soft
// label); what the losses leave out does not count. While the graph is built for training it is
// none, as tri_metric takes it.
tri_value tri_accuracy(tri_graph *graph, tri_value scores, tri_value labels);

// The mean negative log-likelihood of the labels. log_probabilities [.., K].
tri_value tri_nll_loss(tri_graph *graph, tri_value log_probabilities, tri_value labels);
// The mean cross-entropy of softmax(logits) and the labels. logits [.., K].
tri_value tri_cross_entropy(tri_graph *graph, tri_value logits, tri_value labels);
// The same with soft labels, of which the part `label_smoothing`, from 0 to 1, is spread evenly
// over the classes, as in PyTorch: (1 − ε) · label + ε / K.
tri_value tri_soft_cross_entropy(tri_graph *graph, tri_value logits, tri_value soft_labels,
                                 double label_smoothing);
// The mean of (prediction − target)² over all elements.
tri_value tri_mse_loss(tri_graph *graph, tri_value prediction, tri_value target);
// The mean binary cross-entropy of σ(logits) and targets from 0 to 1 over all elements, PyTorch's
// BCEWithLogitsLoss: max(x, 0) − x·target + log(1 + exp(−|x|)).
tri_value tri_binary_cross_entropy(tri_graph *graph, tri_value logits, tri_value targets);
// The mean over samples of ‖prediction − target‖₂ / ‖target‖₂.
tri_value tri_relative_l2_loss(tri_graph *graph, tri_value prediction, tri_value target);
// Weights a loss, for tri_add and tri_loss: weight · loss. `loss` may be a sum of losses. The
// gradient of each loss is divided by its own count. If the counts of added losses differ, the
// labels have to be counted before the step, so they must be a field of the batch, or made by
// tri_next_token. A loss whose labels are all ignored adds nothing.
tri_value tri_weighted(tri_graph *graph, tri_value loss, double weight);

TRI_API_END

#endif
