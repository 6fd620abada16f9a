// Parameters of your own, such as a position embedding or a learnable scale, and the values with
// which parameters begin.
//
// A value of a parameter is read like any other: tri_add(g, x, tri_parameter(g, "positions", …)).
// Random initial values depend on the run's seed, the parameter's full name and the element, so
// that they are the same on any number of ranks.
#ifndef TRIREME_PARAMETERS_H
#define TRIREME_PARAMETERS_H

#include <trireme/api.h>
#include <trireme/graph.h>

TRI_API_BEGIN

// How a parameter begins; the names are those of torch.nn.init. Those from XAVIER_UNIFORM on need
// two axes or more. The fans are PyTorch's: fan_in is the size of the second axis times those
// behind it, fan_out the size of the first axis times those behind the second.
typedef enum tri_init_kind {
    TRI_INIT_DEFAULT,      // a layer's own, mostly PyTorch's default; of tri_parameter: zeros
    TRI_INIT_ZEROS,        // 0
    TRI_INIT_ONES,         // 1
    TRI_INIT_CONSTANT,     // `value`
    TRI_INIT_VALUES,       // `values`
    TRI_INIT_UNIFORM,      // evenly from `low` to `high`
    TRI_INIT_NORMAL,       // a normal distribution of `mean` and `std`
    TRI_INIT_TRUNC_NORMAL, // the same without what lies outside of `low` to `high`
    TRI_INIT_XAVIER_UNIFORM, // Glorot's: the standard deviation is gain · √(2 / (fan_in + fan_out))
    TRI_INIT_XAVIER_NORMAL,
    TRI_INIT_KAIMING_UNIFORM, // He's: the standard deviation is tri_init_gain(…) / √fan
    TRI_INIT_KAIMING_NORMAL,
    // Rows or columns, whichever are fewer, that have the length `gain` and are orthogonal to each
    // other. [K, …] counts as K rows, and a vector as one column. It takes about (elements · rows
    // or columns) operations.
    TRI_INIT_ORTHOGONAL,
    TRI_INIT_IDENTITY, // 1 on the diagonal of a matrix, else 0
    // The weight of a convolution that passes its channels on: 1 in the middle of the kernel, from
    // each channel of a group to that of the same number in the group, else 0.
    TRI_INIT_DIRAC,
    // A matrix of normal numbers around 0, of which in each column the fraction `sparsity` is 0, at
    // random places.
    TRI_INIT_SPARSE,
} tri_init_kind;

// What follows a layer, by which the Kaiming rules scale its weight.
typedef enum tri_nonlinearity {
    TRI_NONLINEARITY_LEAKY_RELU, // of `slope`; 0: it is ReLU
    TRI_NONLINEARITY_RELU,
    TRI_NONLINEARITY_LINEAR, // nothing, or a convolution
    TRI_NONLINEARITY_SIGMOID,
    TRI_NONLINEARITY_TANH,
    TRI_NONLINEARITY_SELU,
} tri_nonlinearity;

typedef struct tri_init {
    tri_init_kind kind;
    double value;                  // of CONSTANT
    const float *values;           // of VALUES: one for each element, row-major; they are copied
    double low, high;              // both 0: 0 and 1 of UNIFORM, -2 and 2 of TRUNC_NORMAL
    double mean, std;              // std 0 means 1, of SPARSE 0.01
    double gain;                   // of XAVIER and ORTHOGONAL; 0 means 1
    bool fan_out;                  // of KAIMING: by fan_out, and not by fan_in
    tri_nonlinearity nonlinearity; // of KAIMING
    double slope;                  // of LEAKY_RELU
    int64_t groups;                // of DIRAC; 0 means 1
    double sparsity;               // of SPARSE, from 0 to 1
    int64_t zero_row;              // 1 + a row that begins as 0, whatever `kind` is; 0: none
} tri_init;

// PyTorch's calculate_gain: √2 of ReLU, √(2 / (1 + slope²)) of leaky ReLU, 5/3 of tanh, 3/4 of
// SELU, else 1.
double tri_init_gain(tri_nonlinearity nonlinearity, double slope);

// A parameter that is trained, of the current block. Its name is that in checkpoints, in `init` and
// in the recipe's optimizer.groups. If the graph has one of this name and shape already, this is
// it, and begins as it was declared first.
tri_value tri_parameter(tri_graph *graph, const char *name, tri_shape shape, tri_init init);
// A buffer: a tensor that checkpoints and `init` have, but that training does not change, as
// torch's register_buffer. `init` may lack it when a run begins.
tri_value tri_register_buffer(tri_graph *graph, const char *name, tri_shape shape, tri_init init);
// A tensor of given values, which no checkpoint has: a buffer with persistent=False. `values` has
// one number for each element, row-major, and is copied. Other values need another name.
tri_value tri_constant(tri_graph *graph, const char *name, tri_shape shape, const float *values);

// Weights made of other parameters, for layers that take a `weight_value`. `shape` is that of the
// layer's weight. Of conv1:
//
//     tri_value w = tri_weight_norm(g, "conv1", tri_shape_of(8, 3, 5), 0, (tri_init){0});
//     x = tri_conv1d(g, "conv1", x, (tri_conv_options){.channels = 8, .kernel = 5,
//                                                      .weight_value = w});

// PyTorch's weight_norm: g · v / |v|, in which each slice of v along the axis `dim` has a length of
// its own; dim -1: all of v has one, PyTorch's dim=None. Parameters: NAME.weight_g, which has the
// size 1 along all other axes and begins as the lengths of v, and NAME.weight_v, which begins by
// `init`, of kind 0 by the default rule of convolutions and linear layers.
tri_value tri_weight_norm(tri_graph *graph, const char *name, tri_shape shape, int dim,
                          tri_init init);

typedef struct tri_spectral_norm_options {
    int dim;            // which axis counts the rows of the matrix: 1 of a transposed convolution
    int64_t iterations; // of the power method in a step; 0 means 1
    double eps;         // the least length by which a vector is divided; 0 means 1e-12
    tri_init init;      // of weight_orig; of kind 0 by the default rule of layers
} tri_spectral_norm_options;

// PyTorch's spectral_norm: a weight divided by its largest singular value σ, as a matrix [rows, all
// else]. Parameters: NAME.weight_orig, and the buffers NAME.weight_u [rows] and NAME.weight_v. Each
// training step takes the next iterations of the power method, from the vectors that the step
// before has left; evaluation takes none. σ = uᵀ·W·v, of which u and v have no gradient.
tri_value tri_spectral_norm(tri_graph *graph, const char *name, tri_shape shape,
                            tri_spectral_norm_options options);

TRI_API_END

#endif
