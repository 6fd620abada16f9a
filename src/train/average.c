// Averages of the weights over steps (the recipe's section `average`): when they begin, how much a
// step counts, when evaluations use them. The engine keeps them beside the optimizer's states.
#include "base/log.h"
#include "base/quantity.h"
#include "train/loop.h"

#include <string.h>

static bool is_swa(const tri_average_options *o) { return o->name && !strcmp(o->name, "swa"); }

bool train_averages(const train_loop *loop) {
    return tri_optimizer_averages(&loop->session->optimizer);
}

tri_status train_settle_average(train_loop *loop) {
    const tri_average_options *o = &loop->recipe->average;
    if (loop->last_step < 0 && is_swa(o))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "average.start: is a fraction of the run, but the run has no end; set "
                        "trainer.max_epochs or max_steps");
    loop->average_start = tri_average_start(o, loop->last_step);
    return TRI_OK;
}

static bool counts(const train_loop *loop, int64_t step) {
    return tri_average_counts(&loop->recipe->average, loop->average_start, step);
}

void train_average_step(const train_loop *loop, tri_step_input *input) {
    const tri_average_options *o = &loop->recipe->average;
    int64_t counted = loop->progress.averaged, step = input->step + 1;
    if (!train_averages(loop) || !counts(loop, step)) return;
    for (int64_t i = loop->progress.step + 1; i < step; i++) counted += counts(loop, i);
    input->average_weight = tri_average_weight(o, counted);
    for (int i = 0; i <= TRI_MAX_STEPS_AHEAD && o->lr > 0; i++) input->lr[i] = o->lr;
}

void train_count_average(train_loop *loop) {
    tri_progress *p = &loop->progress;
    if (!train_averages(loop) || !counts(loop, p->step)) return;
    if (p->averaged++ == 0)
        tri_observe_message(loop->observer, "the average of the weights begins with step %lld%s",
                            (long long)p->step,
                            p->evaluates_average ? "; evaluations use it from now on" : "");
}

tri_status train_exchange_averages(const train_loop *loop) {
    const tri_progress *p = &loop->progress;
    bool uses = p->averaged > 0 && p->evaluates_average;
    return uses ? tri_engine_exchange_averages(loop->session->engine) : TRI_OK;
}

bool train_has_average(const train_loop *loop) {
    const tri_progress *p = &loop->progress;
    return train_averages(loop) && p->averaged > 0 && p->average_name &&
           !strcmp(p->average_name, loop->recipe->average.name);
}

void train_go_on_averaging(train_loop *loop) {
    tri_progress *p = &loop->progress;
    bool has_average = train_has_average(loop);
    bool is_early = has_average && p->step <= loop->average_start;
    if (is_early && loop->session->identity.rank == 0)
        tri_log_line(TRI_LOG_WARNING,
                     "the averages of the weights over %s are dropped, and begin again after step "
                     "%lld of the run, which is longer now (average.start)",
                     tri_counted(p->averaged, "step"), (long long)loop->average_start);
    if (!has_average || is_early) p->averaged = 0;
    p->average_name = loop->recipe->average.name;
    p->evaluates_average = loop->recipe->average.evaluate;
}

void train_warn_of_average(const train_loop *loop) {
    const tri_average_options *o = &loop->recipe->average;
    const tri_graph *g = loop->session->plan->graph;
    bool averages = train_averages(loop) && loop->saves, has_statistics = false;
    int64_t every = o->every_n_steps > 0 ? o->every_n_steps : 1;
    int64_t first = (loop->average_start / every + 1) * every;
    if (averages && loop->last_step >= 0 && first > loop->last_step)
        tri_log_line(
            TRI_LOG_WARNING,
            "average.name=%s has no effect: the run of %s ends before step %lld, the first "
            "that counts",
            o->name, tri_counted(loop->last_step, "step"), (long long)first);
    for (int i = 0; i < g->parameter_count; i++)
        has_statistics = has_statistics || tri_role_is_average(g->parameters[i].role);
    if (averages && has_statistics && is_swa(o))
        tri_log_line(TRI_LOG_WARNING,
                     "average.name=swa: batch norm's running statistics are not averaged, and "
                     "those of the last step may not fit the averaged weights; average.name=ema "
                     "stays near them");
}
