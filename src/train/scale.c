// The loss scale of a 16-mixed run (computed in F16) and the count of updates, which the engine
// carries from step to step. The training loop calls train_carry before the first step, which gives
// these numbers to the engine, and train_take_carried after each step, which reads them back.
// The tour of a step in ARCHITECTURE.md ends here. Read next, for resuming: engine/results.c, which
// writes these numbers to the device, and session.c, which makes the loader.
#include "base/log.h"
#include "train/loop.h"

tri_status train_carry(const tri_session *session, tri_progress *p) {
    const tri_trainer_options *t = &session->recipe->trainer;
    if (t->precision == TRI_PRECISION_16_MIXED && p->scale.scale == 0)
        p->scale = tri_loss_scale_start(&t->loss_scale);
    return tri_engine_carry(session->engine,
                            &(tri_carried){.scale = p->scale, .updates = p->updates});
}

tri_status train_take_carried(const tri_session *session, tri_progress *p,
                              const tri_step_output *out) {
    const tri_loss_scale_options *options = &session->recipe->trainer.loss_scale;
    double before = p->scale.scale;
    long long step = (long long)p->step + 1;
    p->scale = out->carried.scale;
    p->updates = out->carried.updates;
    if (out->exhausted)
        return TRI_FAIL(TRI_NOT_FINITE,
                        "step %lld: gradients overflow at the smallest loss scale (%g); try a "
                        "smaller optimizer.lr, or trainer.precision=bf16-mixed",
                        step, before);
    if (session->identity.rank != 0) return TRI_OK;
    if (!out->overflowed) return TRI_OK;
    if (p->scale.scale != before)
        tri_log_line(TRI_LOG_INFO, "step %lld: gradients overflowed; the loss scale is now %g",
                     step, p->scale.scale);
    else if (options->fixed <= 0)
        tri_log_line(
            TRI_LOG_INFO,
            "step %lld: gradients overflowed, so that the step changed nothing; the loss scale "
            "stays %g until that happens again (trainer.loss_scale.hysteresis)",
            step, before);
    if (options->fixed > 0)
        tri_log_line(TRI_LOG_WARNING,
                     "step %lld: gradients overflowed, so that the step changed nothing; try a "
                     "trainer.loss_scale.fixed of less than %g, or 0",
                     step, options->fixed);
    return TRI_OK;
}

static bool has_labels(const tri_graph *g) {
    for (int i = 0; i < g->term_count; i++)
        if (g->metrics[g->first_term + i].term.has_labels) return true;
    const tri_node *loss = g->term_count == 0 ? tri_value_node(g, g->metrics[0].value) : NULL;
    return loss && loss->op->labels && !loss->op->sums_labels;
}

void train_tell_empty_step(train_loop *loop, const tri_step_output *out) {
    const tri_session *s = loop->session;
    if (!out->is_empty || loop->has_told_empty || s->identity.rank != 0) return;
    loop->has_told_empty = true;
    tri_log_line(TRI_LOG_INFO,
                 "step %lld: %s, so that the step changed nothing; later steps of this kind are "
                 "not reported",
                 (long long)loop->progress.step + 1,
                 has_labels(s->plan->graph) ? "all labels are ignored"
                                            : "the loss counts nothing, its divisor is 0");
}
