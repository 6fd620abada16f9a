// Layers, activations and losses. A layer's name names its parameters: "conv1" has "conv1.weight"
// and "conv1.bias". Initial weights follow PyTorch's default rules unless said otherwise.
#ifndef TRIREME_NN_H
#define TRIREME_NN_H

#include <trireme/graph.h>

// Fully connected: y = x·Wᵀ + b over the last axis. x [.., in] → [.., features]. weight [features,
// in].
tri_value tri_linear(tri_graph *graph, const char *name, tri_value x, int64_t features);

typedef struct tri_conv2d_options {
    int64_t channels; // of the output
    int64_t kernel;   // height and width
    int64_t stride;   // 0: 1
    int64_t padding;  // zeros on every side
    int64_t dilation; // 0: 1
    int64_t groups;   // 0: 1
    bool no_bias;
} tri_conv2d_options;

// x [N, C, H, W] → [N, channels, H', W'], H' = (H + 2·padding − dilation·(kernel − 1) − 1) / stride
// + 1. weight [channels, C / groups, kernel, kernel].
tri_value tri_conv2d(tri_graph *graph, const char *name, tri_value x, tri_conv2d_options options);

typedef struct tri_pool2d_options {
    int64_t kernel;
    int64_t stride;  // 0: kernel
    int64_t padding; // at most kernel / 2; never the maximum
} tri_pool2d_options;

tri_value tri_max_pool2d(tri_graph *graph, tri_value x, tri_pool2d_options options);

typedef struct tri_batch_norm_options {
    double momentum; // 0: 0.1
    double eps;      // 0: 1e-5
} tri_batch_norm_options;

// x [N, C, …]: normalised per channel over the micro-batch; evaluation uses the running statistics.
// weight, bias, running_mean, running_var [C], num_batches_tracked.
tri_value tri_batch_norm(tri_graph *graph, const char *name, tri_value x,
                         tri_batch_norm_options options);

tri_value tri_relu(tri_graph *graph, tri_value x);
tri_value tri_leaky_relu(tri_graph *graph, tri_value x, double slope);
// Zeroes an element with probability p and divides the others by 1 − p; evaluation passes x on.
// The name keys the random numbers. The recipe's model.dropout replaces p.
tri_value tri_dropout(tri_graph *graph, const char *name, tri_value x, double p);
// [N, …] → [N, product].
tri_value tri_flatten(tri_graph *graph, tri_value x);
// The same elements in another shape.
tri_value tri_reshape(tri_graph *graph, tri_value x, tri_shape shape);
tri_value tri_add(tri_graph *graph, tri_value a, tri_value b);
// Over the last axis.
tri_value tri_log_softmax(tri_graph *graph, tri_value x);

// Losses: F64 [2], (sum over the samples or elements, their count). Classification losses also
// report the metric "accuracy".
tri_value tri_nll_loss(tri_graph *graph, tri_value log_probabilities, tri_value labels);
tri_value tri_cross_entropy(tri_graph *graph, tri_value logits, tri_value labels);
// Mean of (prediction − target)² over all elements.
tri_value tri_mse_loss(tri_graph *graph, tri_value prediction, tri_value target);
// Mean over samples of ‖prediction − target‖₂ / ‖target‖₂.
tri_value tri_relative_l2_loss(tri_graph *graph, tri_value prediction, tri_value target);

#endif
