// What the kernels of batch norm (norm.c) share with their loops over pixels: of tensors in blocks
// of 16 channels (norm_planes.c), and of plain ones (norm_plain.c). A plane is what lies together
// of one sample, 16 channels or one, over all its pixels.
#ifndef TRIREME_DEVICE_CPU_NORM_H
#define TRIREME_DEVICE_CPU_NORM_H

#include "device/cpu/pool.h"

// How max pooling uses a pixel of a plane. pooled: the pixel of the pooled plane that is computed
// from this pixel's window. position: where the pixel lies in its window, row · width of the window
// + column.
typedef struct norm_window_pixel {
    uint32_t pooled;
    uint8_t position;
} norm_window_pixel;
enum { NORM_NO_WINDOW = 254 }; // the position of a pixel that lies in no pooling window

typedef struct norm_state {
    const cpu_device *device;
    int64_t samples, channels, pixels;
    int64_t block;    // channels of a plane
    int64_t replicas; // number of replicas whose moments a node of synchronised batch norm joins
    double eps;
    bool relu;
    bool bf16; // x, y and their gradients are BF16, else F32
    // [pixels]: each pixel's pooling window; NULL: no pooling is fused.
    norm_window_pixel *window_pixels;
    cpu_pool pool;
} norm_state;

typedef struct norm_job {
    const norm_state *state;
    const void *x, *y, *dy;
    void *out;
    const float *mean;
    // [samples][channels]: the two results of NORM_MOMENTS or NORM_GRADIENT_SUMS for each channel
    // of a sample.
    double *mean_or_dy_sum, *squares_or_product_sum;
    // [channels]: the coefficients in the formulas of NORM_AFFINE, which computes y, and of
    // NORM_GRADIENT, which computes dx.
    const float *scale, *shift, *slope;
    cpu_pool_job pool; // used if pooling is fused
} norm_job;

// What is computed over the planes of a norm_job.
typedef enum norm_loop {
    // Each channel's mean (mean_or_dy_sum) and sum of squared deviations from it
    // (squares_or_product_sum), over the pixels of one sample.
    NORM_MOMENTS,
    // out = x · scale + shift, with ReLU if norm_state.relu is set.
    NORM_AFFINE,
    // Each channel's sums of dy (mean_or_dy_sum) and of dy · (x − mean) (squares_or_product_sum),
    // over the pixels of one sample.
    NORM_GRADIENT_SUMS,
    // out = scale · dy + slope · (x − mean) + shift: the gradient of x.
    NORM_GRADIENT,
} norm_loop;

// The functions that loop over a range of planes. pools: the gradients are those of a norm into
// which pooling is fused.
cpu_range cpu_norm_blocked_loop(norm_loop loop, bool bf16, bool pools);
cpu_range cpu_norm_plain_loop(const cpu_device *device, norm_loop loop, bool bf16);

#endif
