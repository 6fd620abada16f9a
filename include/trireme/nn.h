// Layers, activations and losses. A layer's name names its parameters: "conv1" has "conv1.weight"
// and "conv1.bias"; each name is used once, unless tri_share_layer says otherwise. Initial weights
// follow PyTorch's default rules unless said otherwise.
#ifndef TRIREME_NN_H
#define TRIREME_NN_H

#include <trireme/api.h>
#include <trireme/graph.h>

TRI_API_BEGIN

// Fully connected: y = x·Wᵀ + b over the last axis. x [.., in] → [.., features]. weight [features,
// in].
tri_value tri_linear(tri_graph *graph, const char *name, tri_value x, int64_t features);

typedef struct tri_linear_options {
    int64_t features; // of the output
    bool no_bias;
    // The weight's name; NULL: the layer's. That of a parameter declared before, [features, in], is
    // borrowed: tied weights.
    const char *weight;
    double std; // not 0: the weight starts normal(0, std) and the bias 0
} tri_linear_options;

tri_value tri_linear_with(tri_graph *graph, const char *name, tri_value x,
                          tri_linear_options options);

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

typedef struct tri_embedding_options {
    int64_t tokens, features;
    double std; // the weight starts normal(0, std); 0: 1
} tri_embedding_options;

// Rows of a table: ids I64 [..], 0 to tokens − 1 → [.., features]. weight [tokens, features].
tri_value tri_embedding(tri_graph *graph, const char *name, tri_value ids,
                        tri_embedding_options options);

// x [.., D] · weight / √(mean of x² over the last axis + eps). weight [D], at first 1.
tri_value tri_rms_norm(tri_graph *graph, const char *name, tri_value x, double eps);

typedef struct tri_layer_norm_options {
    double eps; // 0: 1e-5
    bool plain; // neither weight nor bias
} tri_layer_norm_options;

// x [.., D]: normalised over the last axis. weight, bias [D].
tri_value tri_layer_norm(tri_graph *graph, const char *name, tri_value x,
                         tri_layer_norm_options options);

// Rotary position embedding of x [N, T, H, D], D even, at positions 0 to T − 1: x[i] and x[i + D/2]
// are turned by t·theta^(−2i/D), as in Hugging Face's Llama.
tri_value tri_rotary(tri_graph *graph, tri_value x, double theta);

typedef struct tri_attention_options {
    bool causal;  // a query sees no later keys
    double scale; // 0: 1 / √D
} tri_attention_options;

// softmax(scale·q·kᵀ)·v per head: q [N, T, H, D], k and v [N, S, K, D] → [N, T, H, D]. H is a
// multiple of K: groups of heads share a key and a value.
tri_value tri_attention(tri_graph *graph, const char *name, tri_value q, tri_value k, tri_value v,
                        tri_attention_options options);

// x·Φ(x), or its approximation by tanh.
tri_value tri_gelu(tri_graph *graph, tri_value x);
tri_value tri_gelu_tanh(tri_graph *graph, tri_value x);
// gate·σ(gate)·up: what SwiGLU has between its projections.
tri_value tri_silu_mul(tri_graph *graph, tri_value gate, tri_value up);
// The labels of a decoder: ids I64 [N, T] → the id that follows each, −100 for the last one.
tri_value tri_next_token(tri_graph *graph, tri_value ids);

tri_value tri_relu(tri_graph *graph, tri_value x);
tri_value tri_leaky_relu(tri_graph *graph, tri_value x, double slope);
// Zeroes an element with probability p and divides the others by 1 − p; evaluation passes x on.
// The name keys the random numbers. The recipe's model.dropout replaces p.
tri_value tri_dropout(tri_graph *graph, const char *name, tri_value x, double p);
// [N, …] → [N, product].
tri_value tri_flatten(tri_graph *graph, tri_value x);
// The same elements in another shape.
tri_value tri_reshape(tri_graph *graph, tri_value x, tri_shape shape);
// Of two tensors, or of two losses (then of their means).
tri_value tri_add(tri_graph *graph, tri_value a, tri_value b);
// Over the last axis.
tri_value tri_log_softmax(tri_graph *graph, tri_value x);

// Losses: F64 [2], (sum over the samples or elements, their count). Classification losses take
// scores [.., K] with labels I64 [..], leave out labels of −100, and report the metric "accuracy"
// in evaluation.
tri_value tri_nll_loss(tri_graph *graph, tri_value log_probabilities, tri_value labels);
tri_value tri_cross_entropy(tri_graph *graph, tri_value logits, tri_value labels);
// Mean of (prediction − target)² over all elements.
tri_value tri_mse_loss(tri_graph *graph, tri_value prediction, tri_value target);
// Mean over samples of ‖prediction − target‖₂ / ‖target‖₂.
tri_value tri_relative_l2_loss(tri_graph *graph, tri_value prediction, tri_value target);
// weight times the loss, or times a sum of losses: for tri_add and tri_loss. In a sum of losses
// with different counts, labels must be the batch's, as they are or by tri_next_token: they are
// counted before the step. A term whose labels are all left out adds nothing.
tri_value tri_weighted(tri_graph *graph, tri_value loss, double weight);

TRI_API_END

#endif
