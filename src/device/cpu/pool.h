// Max pooling of nChw16c tensors, which batch norm uses too, where pooling is fused into it.
#ifndef TRIREME_DEVICE_CPU_POOL_H
#define TRIREME_DEVICE_CPU_POOL_H

#include "device/cpu/simd.h"

// A plane is the pixels of 16 channels of one sample.
typedef struct cpu_pool {
    // Number of planes of all samples; number of blocks of 16 channels of a sample.
    int64_t planes, blocks;
    int64_t in[2], out[2], kernel[2], stride[2], padding[2];
    bool relu;
    // True: the result of pooling has the plain layout; false: blocks of 16 channels, which the
    // tensor of the maxima's indices always has.
    bool plain;
    bool bf16; // true: BF16, where each plane is converted to F32 before and back after; false: F32
    bool has_dropout;
    cpu_dropout dropout;
} cpu_pool;

// One run of the pooling, or of its gradient.
typedef struct cpu_pool_job {
    const cpu_pool *pool;
    cpu_dropout dropout;
    uint32_t first_sample;
    const void *from;
    void *to;
    uint8_t *index; // NULL: no gradient follows, and the indices are not written
    // [channels], for the forward pass: x · scale + shift is pooled instead of x. NULL: x itself.
    const float *scale, *shift;
    char *workspace; // cpu_pool_workspace bytes
} cpu_pool_job;

// Describes a pooling from tensors of the shape `x` to the value `pooled`, whose layout and type
// are those that it has in the graph.
cpu_pool cpu_pool_of(const tri_max_pool2d_attr *attr, const tri_shape *x,
                     const tri_value_info *pooled);
size_t cpu_pool_workspace(const cpu_pool *pool, int threads);
// Pools planes [begin, end) of a cpu_pool_job.
void cpu_pool_planes(void *job, int64_t begin, int64_t end, int thread);
// Gives plane number `plane` of dy, which is job->from, as F32 in blocks of 16 channels. It may lie
// in the workspace of this thread until the next call.
const float *cpu_pool_dy(const cpu_pool_job *job, int64_t plane, int thread);
// Whether the pooling windows are 2 × 2 and do not overlap, which is the most common case.
bool cpu_pool_is_2x2(const cpu_pool *pool);

static inline int64_t cpu_pooled_pixels(const cpu_pool *pool) {
    return pool->out[0] * pool->out[1];
}

#endif
