// The parameters of the module's kernels for images: convolution, pooling, batch norm, dropout,
// conversion of bytes. Images are [samples, channels, height, width]. They lie row-major or, if a
// struct's `channels_last` is set, with the channels of a pixel side by side. An image that is
// pooled has fewer than 2^31 pixels. dx is the gradient of the loss with respect to x, and dy,
// dweight and the like are gradients too.
#ifndef TRIREME_DEVICE_CUDA_PARAMS_IMAGE_H
#define TRIREME_DEVICE_CUDA_PARAMS_IMAGE_H

#include "base/kernel_inline.h"
#include "ops/interpolate_axis.h"
#include "ops/pool_window.h"
#include "tensor/pixels.h"

#include <stdbool.h>
#include <stdint.h>
#include <trireme/tensor.h>

#define CUDA_IMAGE_KERNEL_LIST(X)                                                                  \
    X(convolution)                                                                                 \
    X(channel_sums)                                                                                \
    X(max_pool)                                                                                    \
    X(max_pool_grad)                                                                               \
    X(avg_pool)                                                                                    \
    X(avg_pool_grad)                                                                               \
    X(batch_norm)                                                                                  \
    X(dropout)                                                                                     \
    X(interpolate)                                                                                 \
    X(normalize_bytes)

// A thread block of our own kernel for convolutions computes this many rows and this many columns
// of the result, which is a matrix (module/convolution.cu).
enum { CUDA_CONVOLUTION_TILE = 64 };

typedef enum cuda_convolution_kind {
    CUDA_FORWARD,     // x, weight -> y
    CUDA_GRAD_INPUT,  // dy, weight -> dx
    CUDA_GRAD_WEIGHT, // x, dy -> dweight
} cuda_convolution_kind;

// One of the computations of a convolution (forward, or one of the gradients), from x [samples,
// channels, in[0], in[1]] to y [samples, features, out[0], out[1]] with weight [features, channels
// / groups, kernel[0], kernel[1]]. The GPU's kernel numbers pixels and weights in 32 bits, which is
// faster than in 64. So x and y each have fewer than 2^31 pixels, over all samples, and the weight
// has fewer than 2^31 elements for each feature, and for each channel.
typedef struct cuda_convolution {
    cuda_convolution_kind kind;
    int64_t samples, channels, features, groups;
    int in[2], out[2], kernel[2], stride[2], padding[2], dilation[2];
    tri_dtype in_type, out_type; // in_type: type of a, b and the bias; out_type: type of c
    bool tf32;                   // F32 inputs may be rounded to TF32
    bool channels_last;          // x, y and the weight have their channels last
    bool relu;                   // ReLU is applied to y
    const void *a, *b;           // the two inputs, as listed at cuda_convolution_kind
    const void *bias;            // [features]; NULL: there is no bias
    void *c;                     // the output
    // For CUDA_GRAD_WEIGHT, a sum over pixels: the pixels are cut into `slices` ranges of `slice`
    // pixels, each with a sum of its own for every weight.
    int64_t slices, slice;
    float *slice_sums; // [slices, elements of the weight]: these sums; NULL if there is one range
    void *workspace;   // memory for cuDNN
    int64_t workspace_bytes;
} cuda_convolution;

// How many bytes of workspace cuDNN may use for the convolution. All kernels of a rank use this
// memory in turn. cuDNN needs it for copies, because tensor cores read 16 bytes of a pixel's
// channels at a time. So cuDNN copies a tensor whose channels are not last, or whose pixels have no
// multiple of 16 bytes of channels. The gradient of the weight needs memory too: if it is computed
// in a half type (F16, BF16), it lies in the workspace until it is widened to F32. Convolutions
// that compute exactly in F32 use no tensor cores, so `least` has to be enough for them.
TRI_KERNEL_INLINE int64_t cuda_convolution_bytes(const cuda_convolution *p) {
    const int64_t least = 64 << 20; // what every convolution may use, for cuDNN's other needs
    int64_t element = p->in_type == TRI_F32 ? sizeof(float) : sizeof(uint16_t), lot = 16 / element;
    int64_t channels = (p->channels + lot - 1) / lot * lot;
    int64_t features = (p->features + lot - 1) / lot * lot;
    bool copies = !p->channels_last, computes_exactly = p->in_type == TRI_F32 && !p->tf32;
    bool copies_x = copies || channels != p->channels, copies_y = copies || features != p->features;
    int64_t x = p->samples * channels * p->in[0] * p->in[1];
    int64_t y = p->samples * features * p->out[0] * p->out[1];
    int64_t weight = features * (channels / p->groups) * p->kernel[0] * p->kernel[1];
    if (computes_exactly) return least;
    return least + ((copies_x ? x : 0) + (copies_y ? y : 0) + 2 * weight) * element;
}

// sums [channels] F32 = the sums of x [samples, channels, inner] over samples and `inner` pixels.
typedef struct cuda_channel_sums {
    int64_t samples, channels, inner;
    tri_dtype type;
    const void *x;
    float *sums;
} cuda_channel_sums;

// Which elements dropout keeps: those whose random number is at least `threshold`. The random
// numbers follow from `key`, the step and the element.
typedef struct cuda_mask {
    uint64_t key;
    uint32_t threshold; // 0: all elements are kept, or none is, so no random numbers are drawn
    float scale;        // factor of the elements that are kept; 0: none is kept
    // Two numbers: the step, and the position in the step of the micro-batch's first sample.
    const int64_t *position;
} cuda_mask;

// Sizes of the images x (`in`) and y (`out`), and of the windows of x from which the pixels of y
// are computed. Each array has the number along the height, then that along the width.
typedef struct cuda_windows {
    int in[2], out[2], kernel[2], stride[2], padding[2];
} cuda_windows;

// y = the maximum of each window of x. With `relu`, negative maxima become 0. Then dropout is
// applied. `index` has, for each element of y, the position of the maximum in its window, counted
// row by row from 0, or TRI_POOL_NO_GRADIENT if ReLU or dropout has set the element to 0.
typedef struct cuda_max_pool {
    int64_t samples, channels;
    cuda_windows sizes;
    bool channels_last, relu;
    cuda_mask mask; // the elements of y that dropout keeps
    tri_dtype type; // type of x and y
    const void *x;
    void *y;
    uint8_t *index;
} cuda_max_pool;

typedef struct cuda_max_pool_grad {
    int64_t samples, channels;
    cuda_windows sizes;
    bool channels_last;
    float scale;    // dropout's factor of the elements that it kept
    tri_dtype type; // type of dy and dx
    const uint8_t *index;
    const void *dy;
    void *dx;
} cuda_max_pool_grad;

// Average pooling of images of axis[0].in x axis[1].in pixels, and its gradient.
typedef struct cuda_avg_pool {
    int64_t samples, channels,
        windows[2]; // windows: rows and columns of y, a pixel for each window
    pool_axis axis[2];
    bool channels_last;
    // Divides the sum of each window; 0: the sum is divided by the number of elements of x that the
    // window covers.
    int64_t divisor;
    tri_dtype type;
    const void *x;
    void *y;
} cuda_avg_pool;

typedef struct cuda_avg_pool cuda_avg_pool_grad; // here x is dy, and y is dx

// The stages of which batch norm and its gradient consist. One call computes several of them, in
// this order. A slice is a range of a channel's elements, which one thread block sums.
typedef enum cuda_norm_stage {
    // Moments are the mean of x and the sum of squared deviations from it. The normalised x is
    // (x - mean) · inv_std.
    CUDA_NORM_MOMENTS = 1,     // moments of each slice of x, into `slice_results`
    CUDA_NORM_JOIN_SLICES = 2, // combines the slices' moments (slice_results) into the channel's
    CUDA_NORM_JOIN_ALL = 4,    // combines the moments of all replicas (all_moments) into one
    CUDA_NORM_APPLY = 8,       // computes y
    CUDA_NORM_GRAD_SUMS = 16,  // sums of dy, and of dy · normalised x, into `slice_results`
    CUDA_NORM_JOIN_SUMS = 32,  // adds up the slices' sums (slice_results): dweight and dbias
    CUDA_NORM_GRAD_INPUT = 64, // computes dx
} cuda_norm_stage;

// Batch norm and its variants: see src/ops/batch_norm.c. x, y, dy and dx are [samples, channels,
// inner]; all others are F32 and [channels] unless a comment says otherwise. Pointers that the
// stages do not need are NULL.
typedef struct cuda_batch_norm {
    unsigned stages;                            // bits of cuda_norm_stage
    int64_t samples, channels, inner, replicas; // numbers of samples, channels, pixels, replicas
    tri_dtype x_type, y_type;                   // dx has the type of x, dy that of y
    bool channels_last;                         // x, y, dy and dx are [samples, inner, channels]
    bool relu;                                  // ReLU is applied to y
    double eps;
    const void *x, *dy;
    void *y, *dx; // y is an output of forward ops and an input of gradient ops
    const float *weight, *bias;
    float *mean, *inv_std; // outputs of forward ops, inputs of gradient ops
    // Outputs of forward ops in training: samples · mean and samples · unbiased variance. At the
    // end of a step, they are added up over its micro-batches and divided by its samples, and then
    // update the running averages.
    float *mean_sum, *var_sum;
    const float *running_mean, *running_var; // the running averages, with which evaluation computes
    // [1, 2 · channels + 1], an output: the means, then the sums of squared deviations, then the
    // number of samples of this replica.
    float *moments;
    const float *all_moments; // [replicas, 2 · channels + 1]: the same of all replicas
    float *dweight, *dbias;
    // The sums of dy · normalised x, and of dy, from which GRAD_INPUT computes dx.
    const float *sum_dy_h, *sum_dy;
    // [2, channels], an output: dweight and dbias again, in one tensor, so that one reduction over
    // the replicas sums both.
    float *sums_out;
    // [channels, slices, 2]: for each slice, the mean and the sum of squared deviations of x, or
    // the sums of dy and of dy · normalised x.
    double *slice_results;
} cuda_batch_norm;

// How many elements of a channel one thread block of batch norm sums. The number follows from the
// shape alone, so that the sums have the same bits on every device. With channels last a block sums
// up to 128 channels in F32 and 256 in half types, so fewer elements of each. For images of medium
// size the number is chosen such that about CUDA_NORM_BLOCKS blocks of CUDA_NORM_TILE channels are
// launched, which fill a GPU. The least keeps writing the slices' results cheap beside reading x.
enum {
    CUDA_NORM_SLICE = 8192,
    CUDA_NORM_LEAST_SLICE = 128,
    CUDA_NORM_MOST_SLICE = 1024,
    CUDA_NORM_TILE = 128,
    CUDA_NORM_BLOCKS = 2048,
};
TRI_KERNEL_INLINE int64_t cuda_norm_slice(const cuda_batch_norm *p) {
    int64_t tiles = (p->channels + CUDA_NORM_TILE - 1) / CUDA_NORM_TILE;
    int64_t slice = p->samples * p->inner * tiles / CUDA_NORM_BLOCKS;
    if (!p->channels_last) return CUDA_NORM_SLICE;
    if (slice < CUDA_NORM_LEAST_SLICE) return CUDA_NORM_LEAST_SLICE;
    return slice < CUDA_NORM_MOST_SLICE ? slice : (int64_t)CUDA_NORM_MOST_SLICE;
}
// How many slices a channel is cut into.
TRI_KERNEL_INLINE int64_t cuda_norm_slices(const cuda_batch_norm *p) {
    return (p->samples * p->inner + cuda_norm_slice(p) - 1) / cuda_norm_slice(p);
}

// y = x with dropout. If x is a slice of a larger tensor, its samples consist of runs of `run`
// consecutive elements, which begin at elements first, first + stride, first + 2 · stride, … of the
// full sample; run 0: x is no slice. All slices draw from the mask of the full sample.
typedef struct cuda_dropout {
    int64_t samples, elements; // number of samples, and of elements of one sample of x
    int64_t run, stride, first;
    int64_t channels; // x is an image of so many channels, which are last; 0: x is row-major
    cuda_mask mask;
    tri_dtype type;
    const void *x;
    void *y;
} cuda_dropout;

// y = (x / 255 - mean) / std for the bytes x: images of `channels` channels, each of `plane` bytes.
typedef struct cuda_normalize_bytes {
    int64_t count, plane; // count: the number of bytes of x
    int channels;
    bool channels_last; // of y; x is row-major
    float mean[TRI_MAX_PIXEL_CHANNELS], std[TRI_MAX_PIXEL_CHANNELS];
    const uint8_t *x;
    float *y;
} cuda_normalize_bytes;

// y [outer, axis.out, inner] from x [outer, axis.in, inner], resized along the axis; `gradient`: x
// is the gradient of the resized tensor, and y [outer, axis.in, inner] that of the other.
typedef struct cuda_interpolate {
    int64_t outer, inner;
    interpolate_axis axis;
    bool gradient;
    tri_dtype type;
    const void *x;
    void *y;
} cuda_interpolate;

#endif
