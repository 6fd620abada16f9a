// What the kernels of batch norm (norm.c) share with their loops over pixels (norm_planes.c). A
// plane is 16 channels of one sample, over all its pixels.
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
    int64_t samples, channels, blocks, pixels;
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
    // [samples][channels]: the two results that cpu_norm_moments or cpu_norm_gradient_sums computes
    // for each channel of a sample.
    double *mean_or_dy_sum, *squares_or_product_sum;
    // [channels]: the coefficients in the formulas of cpu_norm_affine, which computes y, and of
    // cpu_norm_gradient, which computes dx.
    const float *scale, *shift, *slope;
    cpu_pool_job pool; // used if pooling is fused
} norm_job;

// Tables of functions that loop over a range of planes (cpu_range) of a norm_job: [0] for F32, [1]
// for BF16. The tables of the gradients also have [2] and [3], for F32 and BF16 with a fused
// pooling.

// Computes each channel's mean (mean_or_dy_sum) and sum of squared deviations from it
// (squares_or_product_sum), over the pixels of one sample.
extern const cpu_range cpu_norm_moments[2];
// Computes out = x · scale + shift, and applies ReLU to it if norm_state.relu is set.
extern const cpu_range cpu_norm_affine[2];
// Computes each channel's sums of dy (mean_or_dy_sum) and of dy · (x − mean)
// (squares_or_product_sum), over the pixels of one sample.
extern const cpu_range cpu_norm_gradient_sums[4];
// Computes out = scale · dy + slope · (x − mean) + shift: the gradient of x.
extern const cpu_range cpu_norm_gradient[4];

#endif
