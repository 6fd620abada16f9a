// What norm.c, the kernels of batch norm, and norm_planes.c, their loops over pixels, share.
#ifndef TRIREME_DEVICE_CPU_NORM_H
#define TRIREME_DEVICE_CPU_NORM_H

#include "device/cpu/pool.h"

// For a pixel of a plane to which max pooling is applied: which pixel of the pooled plane its
// window makes, and the pixel's position in the window.
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
    // [samples][channels]: two sums over the pixels of each channel; the functions below say
    // which.
    double *first, *second;
    // [channels]: the factors and terms with which cpu_norm_affine computes y, and
    // cpu_norm_gradient dx.
    const float *scale, *shift, *slope;
    cpu_pool_job pool; // used if pooling is fused
} norm_job;

// Functions over a range of planes (cpu_range) of a norm_job: the first for F32, the second for
// BF16 and, of the gradients, two more for the same types with a fused pooling.

// Computes each channel's mean (first) and sum of squared deviations from it (second), over the
// pixels of one sample.
extern const cpu_range cpu_norm_moments[2];
// Computes out = x · scale + shift, then ReLU.
extern const cpu_range cpu_norm_affine[2];
// Computes each channel's sums of dy (first) and of dy · (x − mean) (second), over the pixels of
// one sample.
extern const cpu_range cpu_norm_gradient_sums[4];
// Computes out = scale · dy + slope · (x − mean) + shift: the gradient of x.
extern const cpu_range cpu_norm_gradient[4];

#endif
