// Max pooling of nChw16c tensors. Batch norm (norm.c) uses it too, where pooling is fused into
// batch norm.
#ifndef TRIREME_DEVICE_CPU_POOL_H
#define TRIREME_DEVICE_CPU_POOL_H

#include "device/cpu/simd.h"

// The sizes and options of a max pooling. A plane is the pixels of 16 channels of one sample.
typedef struct cpu_pool {
    // Number of planes of all samples; number of blocks of 16 channels of a sample.
    int64_t planes, blocks;
    int64_t in[2], out[2], kernel[2], stride[2], padding[2];
    bool relu;
    // True: the result of pooling has the plain layout; false: blocks of 16 channels, which the
    // tensor of the maxima's indices always has.
    bool plain;
    // True: tensors are BF16, and each plane is converted to F32 before it is pooled, and its
    // result back; false: F32.
    bool bf16;
    bool has_dropout; // dropout is applied to the pooled values
    cpu_dropout dropout;
} cpu_pool;

// One run of the pooling, or of its gradient.
typedef struct cpu_pool_job {
    const cpu_pool *pool;
    cpu_dropout dropout;
    uint32_t first_sample; // for dropout: position of the first sample in the step's global batch
    const void *from;      // x; for the gradient, dy
    void *to;              // y; for the gradient, dx
    // By element of y: the position of the maximum in its window, kh · kernel width + kw, or
    // TRI_POOL_NO_GRADIENT if ReLU or dropout has set y to zero. NULL: no gradient follows, so the
    // positions are not written.
    uint8_t *index;
    // [channels], for the forward pass: x · scale + shift is pooled instead of x. NULL: x itself.
    const float *scale, *shift;
    char *workspace; // cpu_pool_workspace bytes
} cpu_pool_job;

// Describes a pooling of tensors of the shape `x`. `pooled` is its result in the graph (or, in the
// gradient, dy), from which size, layout and type are taken.
cpu_pool cpu_pool_of(const tri_max_pool2d_attr *attr, const tri_shape *x,
                     const tri_value_info *pooled);
size_t cpu_pool_workspace(const cpu_pool *pool, int threads);
// Pools planes [begin, end) of a cpu_pool_job.
void cpu_pool_planes(void *job, int64_t begin, int64_t end, int thread);
// Gives plane number `plane` of dy, which is job->from, as F32 in blocks of 16 channels. The result
// may lie in the workspace of this thread, where the thread's next call overwrites it.
const float *cpu_pool_dy(const cpu_pool_job *job, int64_t plane, int thread);
// Whether the pooling windows are 2 × 2 and do not overlap, which is the most common case.
bool cpu_pool_is_2x2(const cpu_pool *pool);

static inline int64_t cpu_pooled_pixels(const cpu_pool *pool) {
    return pool->out[0] * pool->out[1];
}

#endif
