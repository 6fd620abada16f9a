// More of torch.nn, made of the layers and functions of nn.h and functions.h: a layer of products,
// learned slopes, norms and pools of neighbours, padding other than zeros, dropout of whole
// channels, embeddings of bags. Shapes and initial weights are PyTorch's.
#ifndef TRIREME_MORE_LAYERS_H
#define TRIREME_MORE_LAYERS_H

#include <trireme/api.h>
#include <trireme/graph.h>
#include <trireme/nn.h>

TRI_API_BEGIN

typedef struct tri_bilinear_options {
    int64_t features; // size of the output's last axis
    bool no_bias;
    tri_init weight_init, bias_init; // in place of uniform numbers within ±1/√I
} tri_bilinear_options;

// PyTorch's Bilinear: feature k of y is aᵀ·W[k]·b + bias[k]. a [.., I] and b [.., J] → [..,
// features]; weight [features, I, J], bias [features].
tri_value tri_bilinear(tri_graph *graph, const char *name, tri_value a, tri_value b,
                       tri_bilinear_options options);

// PReLU: x where x > 0, else weight·x with the parameter `weight` [count], which begins as 0.25.
// count is 1, or the number of channels, those of axis 1.
tri_value tri_prelu(tri_graph *graph, const char *name, tri_value x, int64_t count);

// Softmax of -x over an axis; a negative axis counts from the last.
tri_value tri_softmin(tri_graph *graph, tri_value x, int axis);

// PyTorch's LPPool: the p-th root of the sum of x to the power p over each window. x [N, C, L],
// [N, C, H, W] or [N, C, D, H, W].
tri_value tri_lp_pool(tri_graph *graph, tri_value x, double p, tri_pool_options options);

typedef struct tri_local_response_norm_options {
    int64_t size; // of neighbouring channels
    double alpha; // 0 means 1e-4
    double beta;  // 0 means 0.75
    double k;     // 0 means 1
} tri_local_response_norm_options;

// x / (k + alpha · the mean of x² over `size` neighbouring channels) to the power beta. x [N, C,
// …].
tri_value tri_local_response_norm(tri_graph *graph, tri_value x,
                                  tri_local_response_norm_options options);

// The channels of `groups` groups in turn: channel c of group g becomes number c · groups + g.
tri_value tri_channel_shuffle(tri_graph *graph, tri_value x, int64_t groups);

// As tri_pad, with `value` in place of zeros.
tri_value tri_pad_constant(tri_graph *graph, tri_value x, int axis, int64_t before, int64_t after,
                           double value);
// As tri_pad, with x reflected at its first and last element, which are not repeated; fewer new
// elements than x has.
tri_value tri_pad_reflect(tri_graph *graph, tri_value x, int axis, int64_t before, int64_t after);
// As tri_pad, with copies of the first and the last element.
tri_value tri_pad_replicate(tri_graph *graph, tri_value x, int axis, int64_t before, int64_t after);
// As tri_pad, with the elements of the other end; at most as many as x has.
tri_value tri_pad_circular(tri_graph *graph, tri_value x, int axis, int64_t before, int64_t after);

// PyTorch's Unfold: the elements of each window of a convolution as a column. x [N, C, H, W] → [N,
// C · kernel · kernel, windows]. Of the options kernel, stride, padding and dilation are read.
tri_value tri_unfold_images(tri_graph *graph, tri_value x, tri_conv_options options);
// PyTorch's Fold, which adds such columns where their windows lie. x [N, C · kernel · kernel,
// windows] → [N, C, height, width].
tri_value tri_fold_images(tri_graph *graph, tri_value x, int64_t height, int64_t width,
                          tri_conv_options options);

// What a sample between elements is made of.
typedef enum tri_sample_mode {
    TRI_SAMPLE_LINEAR, // its neighbours: bilinear, of a volume trilinear
    TRI_SAMPLE_NEAREST,
    TRI_SAMPLE_CUBIC, // bicubic, of images only
} tri_sample_mode;

// What lies outside of what is sampled: zeros, copies of its border, or its reflection.
typedef enum tri_sample_padding {
    TRI_SAMPLE_ZEROS,
    TRI_SAMPLE_BORDER,
    TRI_SAMPLE_REFLECTION
} tri_sample_padding;

typedef struct tri_grid_sample_options {
    tri_sample_mode mode;
    tri_sample_padding padding;
    bool align_corners; // -1 and 1 are the middles of the first and last element, not their borders
} tri_grid_sample_options;

// PyTorch's grid_sample: samples of x at the places of a grid, of which (x, y) = (-1, -1) is the
// upper left end and (1, 1) the lower right one. x [N, C, H, W], grid [N, H', W', 2] → [N, C, H',
// W']; of volumes x [N, C, D, H, W], grid [N, D', H', W', 3] of (x, y, z) → [N, C, D', H', W'].
tri_value tri_grid_sample(tri_graph *graph, tri_value x, tri_value grid,
                          tri_grid_sample_options options);
// PyTorch's affine_grid: the places of images of the sizes H, W or volumes of D, H, W, each moved
// by the matrix of its sample. theta [N, 2, 3] → [N, H, W, 2], or [N, 3, 4] → [N, D, H, W, 3].
tri_value tri_affine_grid(tri_graph *graph, tri_value theta, const int64_t *sizes,
                          bool align_corners);

// Dropout1d, Dropout2d and Dropout3d: tri_dropout of whole channels of x [N, C, …].
tri_value tri_dropout_channels(tri_graph *graph, const char *name, tri_value x, double p);
// Stochastic depth, or DropPath: tri_dropout of whole samples of x [N, …], which stands before it
// is added to what goes around it. Each layer keeps its own p, of which the recipe's model.dropout
// only changes whether there is any: 0 turns it off.
tri_value tri_drop_path(tri_graph *graph, const char *name, tri_value x, double p);
// AlphaDropout, which goes with SELU: elements that are dropped take the value that SELU has far
// below 0, and all are scaled so that mean and variance stay.
tri_value tri_alpha_dropout(tri_graph *graph, const char *name, tri_value x, double p);
// FeatureAlphaDropout: the same of whole channels of x [N, C, …].
tri_value tri_feature_alpha_dropout(tri_graph *graph, const char *name, tri_value x, double p);
// RReLU: x where x > 0, else x times a slope, which is drawn between two numbers for each element;
// evaluation takes their mean. PyTorch's are 1/8 and 1/3.
tri_value tri_rrelu(tri_graph *graph, const char *name, tri_value x, double lower, double upper);
// The softmax along an axis of (logits + Gumbel noise) / temperature, as
// torch.nn.functional.gumbel_softmax without `hard`. It draws in evaluation too.
tri_value tri_gumbel_softmax(tri_graph *graph, const char *name, tri_value logits,
                             double temperature, int axis);
// The same with `hard`: 1 for the largest one and else 0, with the gradient of the softmax.
tri_value tri_gumbel_softmax_hard(tri_graph *graph, const char *name, tri_value logits,
                                  double temperature, int axis);

// What is made of the rows of a bag.
typedef enum tri_bag_mode { TRI_BAG_MEAN, TRI_BAG_SUM, TRI_BAG_MAX } tri_bag_mode;

typedef struct tri_embedding_bag_options {
    tri_embedding_options embedding;
    tri_bag_mode mode;
    bool pads;         // ids of `padding` are in no bag
    int64_t padding;   // PyTorch's padding_idx
    tri_value weights; // of a sum: per_sample_weights, a factor for each id [N, L]; none: 1
} tri_embedding_bag_options;

// PyTorch's EmbeddingBag: the mean, sum or maximum of the rows of each bag. ids I64 [N, L], a bag
// in each row → [N, features]; weight [tokens, features]. A bag without ids is 0.
tri_value tri_embedding_bag(tri_graph *graph, const char *name, tri_value ids,
                            tri_embedding_bag_options options);
// An embedding with PyTorch's padding_idx: the row `padding` of the weight begins as 0 (unless
// `init` brings another) and has no gradient.
tri_value tri_embedding_padded(tri_graph *graph, const char *name, tri_value ids, int64_t padding,
                               tri_embedding_options options);

typedef struct tri_adaptive_softmax_options {
    int64_t classes;
    const int64_t *cutoffs; // the first class of each cluster, ascending; they are copied
    int count;              // of clusters, at most 32
    double div_value;       // by which each cluster's features are fewer; 0 means 4
    bool head_bias;
} tri_adaptive_softmax_options;

// PyTorch's AdaptiveLogSoftmaxWithLoss.log_prob: x [.., in] → the logarithms of the probabilities
// of all classes [.., classes], of which the rarer ones, of the clusters, have smaller weights. Its
// loss is tri_nll_loss of them. Parameters: NAME.head.weight [cutoffs[0] + clusters, in],
// NAME.head.bias and for cluster i, NAME.tail.i.0.weight [in / div_value^(i + 1), in] and
// NAME.tail.i.1.weight [its classes, in / div_value^(i + 1)]. All clusters are computed for all
// rows, where PyTorch computes those of the labels: it saves weights, and no time.
tri_value tri_adaptive_log_softmax(tri_graph *graph, const char *name, tri_value x,
                                   tri_adaptive_softmax_options options);

typedef struct tri_fractional_pool_options {
    int64_t kernel;     // size along every axis
    int64_t kernels[3]; // where axes differ: those of each axis
    int64_t sizes[3];   // of the result; 0: as the ratio says
    double ratio;       // PyTorch's output_ratio, above 0 and below 1
    double ratios[3];   // where axes differ
    // PyTorch's _random_samples: numbers in [0, 1), [N, C, axes] of (x, y) or (z, y, x), which
    // decide where windows lie; none: they are drawn.
    tri_value places;
} tri_fractional_pool_options;

// PyTorch's FractionalMaxPool2d and 3d: the largest element of each of windows that lie at random
// places, other ones for each channel of each sample (B. Graham, "Fractional Max-Pooling", 2014). x
// [N, C, H, W] or [N, C, D, H, W]. It draws in evaluation too.
tri_value tri_fractional_max_pool(tri_graph *graph, const char *name, tri_value x,
                                  tri_fractional_pool_options options);

// PyTorch's PairwiseDistance: the p-norm of a - b + eps over the last axis, which goes. p 0 means
// 2, eps 0 means 1e-6.
tri_value tri_pairwise_distance(tri_graph *graph, tri_value a, tri_value b, double p, double eps);

TRI_API_END

#endif
