// The factor on a loss whose gradients travel in 16-bit floats: as large as can be without
// overflow. The rule is that of DeepSpeed's DynamicLossScaler (deepspeed/runtime/fp16/
// loss_scaler.py), with its factor of 2; a step whose gradients overflow is not applied. Kernels of
// step_numbers follow this rule.
#ifndef TRIREME_OPS_LOSS_SCALE_H
#define TRIREME_OPS_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tri_loss_scale_options {
    double initial;     // the first scale
    int64_t window;     // good steps in a row before the scale doubles
    int64_t hysteresis; // the overflow that halves it: 2 lets one pass
    // A good step gives all of hysteresis back; else only a doubling does.
    bool consecutive_hysteresis;
    double minimum; // an overflow at this scale that is not let pass ends the run
    double fixed;   // not 0: the scale, always
} tri_loss_scale_options;

// What a checkpoint has to keep.
typedef struct tri_loss_scale {
    double scale;
    int64_t good_steps; // in a row, since the last overflow
    int64_t hysteresis_left;
} tri_loss_scale;

typedef enum tri_loss_scale_verdict {
    TRI_LOSS_SCALE_APPLY, // the step
    TRI_LOSS_SCALE_SKIP,
    TRI_LOSS_SCALE_EXHAUSTED, // an overflow at the least scale: the run has to end
} tri_loss_scale_verdict;

tri_loss_scale tri_loss_scale_start(const tri_loss_scale_options *options);
// After each step: whether any gradient of any rank was not finite. The scale is that of the next
// step.
tri_loss_scale_verdict tri_loss_scale_update(const tri_loss_scale_options *options,
                                             tri_loss_scale *state, bool overflow);

#endif
