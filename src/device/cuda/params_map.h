// The parameters of the kernels of the module `cuda` for the general ops: map and reduce.
#ifndef TRIREME_DEVICE_CUDA_PARAMS_MAP_H
#define TRIREME_DEVICE_CUDA_PARAMS_MAP_H

#include "device/map_compiled.h"
#include "device/map_plan.h"

#include <stdint.h>
#include <trireme/tensor.h>

#define CUDA_MAP_KERNEL_LIST(X)                                                                    \
    X(map)                                                                                         \
    X(map_compiled)                                                                                \
    X(map_update)                                                                                  \
    X(reduce)

// Computes the plan's formula on each element, in the type `type`: F32, F64, F16, BF16, I64, I32 or
// U8. Other inputs are U8 (`bytes`: a bit for each), and the outputs if they are masks, which are 1
// where the formula is not 0.
typedef struct cuda_map {
    tri_map_plan plan;
    tri_dtype type;
    unsigned bytes;
    bool mask;
    const void *in[TRI_FORMULA_INPUTS];
    void *out[TRI_FORMULA_OUTPUTS];
} cuda_map;

// The same for a formula that is compiled ahead, with inputs of the outputs' shape.
typedef struct cuda_map_compiled {
    tri_compiled row;
    tri_dtype type;
    const void *in[TRI_COMPILED_INPUTS];
    void *out[TRI_COMPILED_OUTPUTS];
    int64_t count;
    double slope;
} cuda_map_compiled;

// Updates the plan's elements of a parameter, F32, and its states by the formula (the op
// map_update).
typedef struct cuda_map_update {
    tri_map_plan plan;
    int count_input; // tri_map_update_count
    double lr_factor;
    const double *step;                 // the step scalars
    float *arrays[TRI_FORMULA_OUTPUTS]; // the parameter and its states
    const float *grad;
} cuda_map_update;

// The values of tri_reduction.
enum {
    CUDA_REDUCE_SUM,
    CUDA_REDUCE_MAX,
    CUDA_REDUCE_MIN,
    CUDA_REDUCE_PROD,
    CUDA_REDUCE_SQUARES,
    CUDA_REDUCE_LOGSUMEXP
};

// y [outer, inner] = the reduction over the middle axis of x [outer, reduced, inner], by
// `kind`, CUDA_REDUCE_…. The middle axis is cut into parts by the shape alone; their results are in
// `room` [outer, parts, inner], F32 (F64 and I64 if x is F64 or integers; pairs of F64 of the last
// two kinds), and are joined in their order.
typedef struct cuda_reduce {
    int kind;
    tri_dtype type; // of x, and of y but for sums and products of integers, which are I64
    int64_t outer, reduced, inner, parts, part;
    const void *x;
    void *y, *room;
} cuda_reduce;

#endif
