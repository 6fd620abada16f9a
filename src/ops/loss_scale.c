// The loss scale of a 16-mixed run: halved by overflows, doubled after good steps.
#include "ops/loss_scale.h"

static const double FACTOR = 2;

tri_loss_scale tri_loss_scale_start(const tri_loss_scale_options *options) {
    return (tri_loss_scale){.scale = options->fixed > 0 ? options->fixed : options->initial,
                            .hysteresis_left = options->hysteresis};
}

static tri_loss_scale_verdict overflowed(const tri_loss_scale_options *options,
                                         tri_loss_scale *state) {
    state->good_steps = 0;
    if (state->hysteresis_left > 1) {
        state->hysteresis_left--;
        return TRI_LOSS_SCALE_SKIP;
    }
    if (state->scale <= options->minimum) return TRI_LOSS_SCALE_EXHAUSTED;
    state->scale /= FACTOR;
    if (state->scale < options->minimum) state->scale = options->minimum;
    return TRI_LOSS_SCALE_SKIP;
}

tri_loss_scale_verdict tri_loss_scale_update(const tri_loss_scale_options *options,
                                             tri_loss_scale *state, bool overflow) {
    if (options->fixed > 0) return overflow ? TRI_LOSS_SCALE_SKIP : TRI_LOSS_SCALE_APPLY;
    if (overflow) return overflowed(options, state);
    bool doubles = state->good_steps > 0 && state->good_steps % options->window == 0;
    if (doubles) state->scale *= FACTOR;
    if (doubles || options->consecutive_hysteresis) state->hysteresis_left = options->hysteresis;
    state->good_steps++;
    return TRI_LOSS_SCALE_APPLY;
}
