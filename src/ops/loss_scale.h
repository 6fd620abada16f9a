// The factor on a loss whose gradients travel in F16: as large as possible without overflow,
// because small gradients would become zero there. The rule is that of DeepSpeed's
// DynamicLossScaler (deepspeed/runtime/fp16/loss_scaler.py), with its factor of 2; a step whose
// gradients overflow is not applied. Kernels of step_numbers follow this rule.
#ifndef TRIREME_OPS_LOSS_SCALE_H
#define TRIREME_OPS_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tri_loss_scale_options {
    double initial;     // the first scale
    int64_t window;     // good steps in a row before the scale doubles
    int64_t hysteresis; // which overflow halves the scale: 2 lets the first pass
    // Whether a good step sets hysteresis_left back to hysteresis. If not, only a doubling of the
    // scale does.
    bool consecutive_hysteresis;
    double minimum; // the least scale; an overflow that would halve it ends the run
    double fixed;   // not 0: the scale never changes from this
} tri_loss_scale_options;

// The state of the rule. Checkpoints keep it, because a resumed run has to go on with the same
// scale.
typedef struct tri_loss_scale {
    double scale;
    int64_t good_steps; // in a row, since the last overflow
    int64_t hysteresis_left;
} tri_loss_scale;

typedef enum tri_loss_scale_verdict {
    TRI_LOSS_SCALE_APPLY, // apply the step's gradients
    TRI_LOSS_SCALE_SKIP,
    TRI_LOSS_SCALE_EXHAUSTED, // an overflow at the least scale: the run has to end
} tri_loss_scale_verdict;

tri_loss_scale tri_loss_scale_start(const tri_loss_scale_options *options);
// Applies the rule after a step. `overflow`: some gradient of some rank was not finite. Leaves the
// scale of the next step in `state`.
tri_loss_scale_verdict tri_loss_scale_update(const tri_loss_scale_options *options,
                                             tri_loss_scale *state, bool overflow);

#endif
