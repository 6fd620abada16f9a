// What the ops step_numbers and loss_seeds compute: how the numbers that updates read (the step
// scalars, such as the learning rate) and those that the next step needs (the carried numbers, such
// as the loss scale) follow from a step's sums. The functions are in a header, so that the host and
// a GPU use the same code.
#ifndef TRIREME_OPS_STEP_RULE_H
#define TRIREME_OPS_STEP_RULE_H

#include "base/kernel_inline.h"
#include "ops/ops.h"

#include <math.h>

// The factor by which a loss scale grows and shrinks. It is a power of two, so that scaling does
// not round.
#define STEP_RULE_FACTOR 2.0

TRI_KERNEL_INLINE tri_loss_scale_verdict step_rule_overflow(const tri_loss_scale_options *options,
                                                            tri_loss_scale *state) {
    state->good_steps = 0;
    if (state->hysteresis_left > 1) {
        state->hysteresis_left--;
        return TRI_LOSS_SCALE_SKIP;
    }
    if (state->scale <= options->minimum) return TRI_LOSS_SCALE_EXHAUSTED;
    state->scale /= STEP_RULE_FACTOR;
    if (state->scale < options->minimum) state->scale = options->minimum;
    return TRI_LOSS_SCALE_SKIP;
}

// Applies the rule of the loss scale after a step, as loss_scale.h describes it: overflows halve
// the scale, and many steps in a row without overflow double it.
TRI_KERNEL_INLINE tri_loss_scale_verdict step_rule_scale(const tri_loss_scale_options *options,
                                                         tri_loss_scale *state, bool overflow) {
    if (options->fixed > 0) return overflow ? TRI_LOSS_SCALE_SKIP : TRI_LOSS_SCALE_APPLY;
    if (overflow) return step_rule_overflow(options, state);
    bool doubles = state->good_steps > 0 && state->good_steps % options->window == 0;
    if (doubles) state->scale *= STEP_RULE_FACTOR;
    if (doubles || options->consecutive_hysteresis) state->hysteresis_left = options->hysteresis;
    state->good_steps++;
    return TRI_LOSS_SCALE_APPLY;
}

// What a step's sums tell.
typedef struct step_rule_sums {
    bool finite_losses;    // if not, no loss scale helps: losses are summed without it
    bool finite_gradients; // if not, a smaller loss scale may help
    bool is_empty;         // no sample counts, because all labels are ignored
} step_rule_sums;

// Decides what becomes of a step that is not halted, and applies the rule of the loss scale. The
// scale learns nothing from an empty step.
TRI_KERNEL_INLINE tri_loss_scale_verdict step_rule_decide(const tri_loss_scale_options *options,
                                                          const step_rule_sums *sums,
                                                          tri_loss_scale *state) {
    bool overflow = !sums->finite_gradients;
    if (!sums->finite_losses || (overflow && state->scale <= 0)) return TRI_LOSS_SCALE_EXHAUSTED;
    if (sums->is_empty && !overflow) return TRI_LOSS_SCALE_SKIP;
    return state->scale > 0 ? step_rule_scale(options, state, overflow) : TRI_LOSS_SCALE_APPLY;
}

// Computes the carried numbers that a step hands to the next: the loss scale with its counters, the
// count of updates, and whether the device has halted. The device halts after a step whose loss is
// not finite, and after one whose gradients are not finite if there is no loss scale or it is
// already the smallest allowed one. Then it skips all steps until the host clears the halt. Also
// writes to the step scalars `step` whether this step is skipped.
TRI_KERNEL_INLINE void step_rule_carry(const tri_loss_scale_options *options, const double *before,
                                       const step_rule_sums *sums, double *after, double *step) {
    bool halted = before[TRI_CARRIED_HALTED] != 0;
    double updates = before[TRI_CARRIED_UPDATES];
    tri_loss_scale scale;
    scale.scale = before[TRI_CARRIED_SCALE];
    scale.good_steps = (int64_t)before[TRI_CARRIED_GOOD_STEPS];
    scale.hysteresis_left = (int64_t)before[TRI_CARRIED_HYSTERESIS_LEFT];
    tri_loss_scale_verdict verdict = TRI_LOSS_SCALE_SKIP;
    if (!halted) verdict = step_rule_decide(options, sums, &scale);
    bool applies = verdict == TRI_LOSS_SCALE_APPLY;
    bool halts = verdict == TRI_LOSS_SCALE_EXHAUSTED;
    step[TRI_STEP_SKIP] = !applies;
    step[TRI_STEP_HALTS] = halts;
    step[TRI_STEP_EMPTY] = sums->is_empty;
    step[TRI_STEP_UPDATE] = updates + 1;
    for (int i = 0; i < TRI_CARRIED_COUNT; i++) after[i] = 0;
    after[TRI_CARRIED_SCALE] = scale.scale;
    after[TRI_CARRIED_GOOD_STEPS] = (double)scale.good_steps;
    after[TRI_CARRIED_HYSTERESIS_LEFT] = (double)scale.hysteresis_left;
    after[TRI_CARRIED_UPDATES] = updates + applies;
    after[TRI_CARRIED_HALTED] = halted || halts;
}

// Gets the learning rate of the next update (step that changes the parameters). When the host
// issued this step, it did not know how many of the steps issued before would be updates, because
// it had not read their results. So it has supplied a rate for each possible count.
TRI_KERNEL_INLINE double step_rule_rate(const double *control, const double *carried) {
    double ahead = carried[TRI_CARRIED_UPDATES] - control[TRI_CONTROL_UPDATES];
    int index = ahead > TRI_MAX_STEPS_AHEAD ? TRI_MAX_STEPS_AHEAD : ahead > 0 ? (int)ahead : 0;
    return control[TRI_CONTROL_RATES + index];
}

// Does everything that the op step_numbers does for one step: computes the step scalars `step` and
// the carried numbers `after` from the carried numbers of the step before (`carried`), the host's
// numbers (`control`, tri_step_control), the losses' (sum, count) in `sums`, and the sum of squares
// of all gradients. `after` may be the same memory as `carried`.
TRI_KERNEL_INLINE void step_rule(const tri_step_numbers_attr *a, const double *carried,
                                 const double *control, const double *sums, const double *squares,
                                 double *after, double *step) {
    double scale = 1;
    step_rule_sums told = {true, isfinite(squares[0]), true};
    for (int64_t i = 0; i < a->losses; i++) {
        const double *loss = sums + a->loss + i * a->stride; // (sum, count)
        told.finite_losses = told.finite_losses && isfinite(loss[0]);
        told.is_empty = told.is_empty && loss[1] == 0;
    }
    if (a->count >= 0)
        scale = sums[a->count] > 0 ? control[TRI_CONTROL_NOMINAL] / sums[a->count] : 0;
    if (carried[TRI_CARRIED_SCALE] > 0) scale /= carried[TRI_CARRIED_SCALE];
    double norm = sqrt(squares[0]) * scale;
    if (control[TRI_CONTROL_CLIP] > 0 && norm > 0) {
        double factor = control[TRI_CONTROL_CLIP] / (norm + 1e-6);
        if (factor < 1) scale *= factor;
    }
    for (int i = 0; i < TRI_STEP_SCALAR_COUNT; i++) step[i] = 0;
    step[TRI_STEP_LR] = step_rule_rate(control, carried);
    step[TRI_STEP_GRADIENT_SCALE] = scale;
    step[TRI_STEP_STATISTIC_SCALE] = 1 / control[TRI_CONTROL_SAMPLES];
    step[TRI_STEP_NORM] = norm;
    step_rule_carry(&a->loss_scale, carried, &told, after, step);
    // A step that changes nothing is averaged as others are, but nothing changes after a halt.
    if (after[TRI_CARRIED_HALTED] == 0) step[TRI_STEP_AVERAGE] = control[TRI_CONTROL_AVERAGE];
}

// Computes the seed of a loss, the gradient with which its backward pass begins: loss scale ×
// weight / count. `loss` is the pair (weight, count).
TRI_KERNEL_INLINE float step_rule_seed(const double *carried, const double *loss) {
    double scale = carried[TRI_CARRIED_SCALE] > 0 ? carried[TRI_CARRIED_SCALE] : 1;
    double weight = scale * loss[0], count = loss[1];
    return (float)(count > 0 ? weight / count : 0);
}

#endif
