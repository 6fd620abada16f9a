// The parameters of the module's kernels that compute one step of recurrent layers.
#ifndef TRIREME_DEVICE_CUDA_PARAMS_RECURRENT_H
#define TRIREME_DEVICE_CUDA_PARAMS_RECURRENT_H

#include <stdbool.h>
#include <stdint.h>

#define CUDA_RECURRENT_KERNEL_LIST(X)                                                              \
    X(recurrent_units)                                                                             \
    X(recurrent_units_grad)

// One step of `samples` samples, of `units` units each; `kind` is a tri_recurrent_kind. The rows of
// sequences that belong to the step begin at row `row`, `next_sample` rows apart. All are F32;
// NULL: the kind or the mode has none.
typedef struct cuda_recurrent_units {
    int kind;
    int64_t samples, units, row, next_sample;
    const float *gates;   // what the input adds, of the whole sequence
    const float *product; // what the states before add, [samples, gates · units]
    float *y, *h, *c;     // y of the whole sequence; the states [samples, units], which are changed
    float *saved, *cell;  // [samples, 4 · units] and [samples, units] of this step; c after it
} cuda_recurrent_units;

// The gradient of one step. dh and dc [samples, units] are those of the states after the step, dh
// without that of y, and become those of the states before it, dh without what the product adds.
typedef struct cuda_recurrent_units_grad {
    int kind;
    int64_t samples, units, row, next_sample;
    int64_t row_before;     // the row of the step before
    const float *y, *dy;    // of the whole sequence
    const float *h;         // the states before the first step [samples, units]; only for that step
    bool is_first;          // this is the first step
    const float *saved;     // [samples, 4 · units] of this step
    const float *cell;      // of the step before; this step's lie behind them
    float *dh, *dc;         // see above
    float *dgates, *before; // of the whole sequence
    float *dproduct;        // of the whole sequence, where it differs from dgates
    float *dp;              // the gradient of `product`, [samples, gates · units]
} cuda_recurrent_units_grad;

#endif
