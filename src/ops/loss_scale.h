// The loss scale: the factor by which the loss is multiplied where gradients are computed in F16.
// It should be as large as possible without overflow, because F16 rounds small gradients to zero.
// It is found by trial, by the rule of DeepSpeed's DynamicLossScaler
// (deepspeed/runtime/fp16/loss_scaler.py): overflows halve it, and many good steps in a row, that
// is, steps without overflow, double it. A step whose gradients overflow changes no parameter. The
// device applies this rule in each step, in kernels of the op step_numbers.
#ifndef TRIREME_OPS_LOSS_SCALE_H
#define TRIREME_OPS_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tri_loss_scale_options {
    double initial; // the first scale
    int64_t window; // good steps in a row before the scale doubles
    // Which overflow is the first that halves the scale: with 2, the first overflow has no effect
    // on the scale, and every further one halves it.
    int64_t hysteresis;
    // When the count of overflows goes back to 0. True: after each good step, so that only
    // overflows in succession count; false: only after the scale has doubled.
    bool consecutive_hysteresis;
    double minimum; // the smallest scale; an overflow that would halve it further ends the run
    double fixed;   // not 0: the scale always has this value
} tri_loss_scale_options;

// The state of the rule. Checkpoints contain it, because a resumed run has to continue with the
// same scale.
typedef struct tri_loss_scale {
    double scale;
    int64_t good_steps;      // steps without overflow since the last overflow
    int64_t hysteresis_left; // 1: the next overflow halves the scale; n: the n-th one from now on
} tri_loss_scale;

typedef enum tri_loss_scale_verdict {
    TRI_LOSS_SCALE_APPLY, // apply the step's gradients
    TRI_LOSS_SCALE_SKIP,
    TRI_LOSS_SCALE_EXHAUSTED, // there was an overflow at the smallest scale: the run has to end
} tri_loss_scale_verdict;

tri_loss_scale tri_loss_scale_start(const tri_loss_scale_options *options);
// Applies the rule after a step. `overflow`: some gradient of some rank was not finite. Afterwards
// `state` has the scale of the next step.
tri_loss_scale_verdict tri_loss_scale_update(const tri_loss_scale_options *options,
                                             tri_loss_scale *state, bool overflow);

#endif
