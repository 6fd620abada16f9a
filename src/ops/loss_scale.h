// The loss scale: the factor by which a loss is multiplied whose gradients travel in F16. It should
// be as large as possible without overflow, because small gradients would become zero in F16. The
// rule is that of DeepSpeed's DynamicLossScaler (deepspeed/runtime/fp16/loss_scaler.py), with its
// factor of 2; a step whose gradients overflow is not applied. Kernels of step_numbers follow this
// rule.
#ifndef TRIREME_OPS_LOSS_SCALE_H
#define TRIREME_OPS_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tri_loss_scale_options {
    double initial; // the first scale
    int64_t window; // good steps in a row before the scale doubles
    // After this many overflows in succession the scale is halved; with 2, a single overflow has no
    // effect on it.
    int64_t hysteresis;
    // Whether a good step sets hysteresis_left back to hysteresis. If not, only a doubling of the
    // scale does so.
    bool consecutive_hysteresis;
    double minimum; // the smallest scale; an overflow that would halve it further ends the run
    double fixed;   // not 0: the scale always has this value
} tri_loss_scale_options;

// The state of the rule. Checkpoints contain it, because a resumed run has to continue with the
// same scale.
typedef struct tri_loss_scale {
    double scale;
    int64_t good_steps; // good steps since the last overflow
    int64_t hysteresis_left;
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
