// The loss scale of a run that computes in F16 (16-mixed): halved by overflows, doubled after many
// good steps. loss_scale.h explains why. The rule itself is in step_rule.h.
#include "ops/step_rule.h"

tri_loss_scale tri_loss_scale_start(const tri_loss_scale_options *options) {
    return (tri_loss_scale){.scale = options->fixed > 0 ? options->fixed : options->initial,
                            .hysteresis_left = options->hysteresis};
}

tri_loss_scale_verdict tri_loss_scale_update(const tri_loss_scale_options *options,
                                             tri_loss_scale *state, bool overflow) {
    return step_rule_scale(options, state, overflow);
}
