// Counts a step's update, and adjusts the loss scale of a 16-mixed run. The last stop of the tour
// of a step.
#include "base/log.h"
#include "train/loop.h"

double train_loss_scale(const tri_session *session, tri_progress *p) {
    const tri_trainer_options *t = &session->recipe->trainer;
    if (t->precision == TRI_PRECISION_16_MIXED && p->scale.scale == 0)
        p->scale = tri_loss_scale_start(&t->loss_scale);
    return p->scale.scale;
}

tri_status train_update_loss_scale(const tri_session *session, tri_progress *p, bool overflowed) {
    if (p->scale.scale == 0) { // not 16-mixed: every step is an update
        p->updates++;
        return TRI_OK;
    }
    double before = p->scale.scale;
    const tri_loss_scale_options *options = &session->recipe->trainer.loss_scale;
    switch (tri_loss_scale_update(options, &p->scale, overflowed)) {
    case TRI_LOSS_SCALE_APPLY:
        p->updates++;
        break;
    case TRI_LOSS_SCALE_SKIP:
        if (session->identity.rank == 0 && p->scale.scale != before)
            tri_log(TRI_LOG_INFO, "step %lld: gradients overflowed; the loss scale is now %g",
                    (long long)p->step + 1, p->scale.scale);
        if (session->identity.rank == 0 && options->fixed > 0)
            tri_log(TRI_LOG_WARNING,
                    "step %lld: gradients overflowed, so that the step changed nothing; try a "
                    "trainer.loss_scale.fixed of less than %g, or 0",
                    (long long)p->step + 1, options->fixed);
        break;
    case TRI_LOSS_SCALE_EXHAUSTED:
        return TRI_FAIL(TRI_NOT_FINITE,
                        "step %lld: gradients overflow at the smallest loss scale (%g); try a "
                        "smaller optimizer.lr, or trainer.precision=bf16-mixed",
                        (long long)p->step + 1, before);
    }
    return TRI_OK;
}
