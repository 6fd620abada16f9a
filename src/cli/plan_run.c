// The part of `trireme plan` about the whole run: steps, epochs, hours, and checkpoints on disk.
#include "cli/plan_view.h"

#include "base/limits.h"
#include "data/split.h"
#include "recipe/steps.h"

#include <string.h>

// Returns how many training samples there are, without those that are split off for validation. The
// number is from --samples or the recipe, because `plan` does not open the data. 0: not known.
static int64_t training_samples(const plan_view *v) {
    const tri_data_options *d = &v->recipe->data;
    int64_t samples = v->samples;
    if (samples == 0 && !strcmp(d->name, "synthetic")) samples = d->samples;
    if (samples > 0 && d->limit > 0 && d->limit < samples) samples = d->limit;
    if (samples == 0 || d->val_fraction == 0) return samples;
    uint64_t seed = (uint64_t)v->recipe->seed;
    return samples - tri_validation_split_make(seed, samples, d->val_fraction).validation_samples;
}

static int64_t steps_of_epoch(const plan_view *v, int64_t samples) {
    int64_t global = v->request.step_samples[TRI_STEP_FULL];
    int64_t steps = samples / global + (samples % global && !v->recipe->data.drop_last);
    return tri_steps_of_epoch(&v->recipe->trainer, steps);
}

static void size_checkpoint(const plan_view *v, plan_run *run) {
    const tri_graph *g = v->pipeline.plans[0]->graph;
    for (int i = 0; i < g->parameter_count; i++) {
        const tri_parameter_info *p = &g->parameters[i];
        const tri_shape *shape = p->slice.count ? &p->slice.full : &p->shape;
        int64_t bytes = tri_shape_count(shape) * (int64_t)tri_dtype_bytes(p->dtype);
        run->model_bytes += bytes;
        if (p->role == TRI_ROLE_TRAINED)
            run->optimizer_bytes += bytes * v->pipeline.plans[0]->optimizer_states;
    }
}

static int64_t common_divisor(int64_t a, int64_t b) {
    return b == 0 ? a : common_divisor(b, a % b);
}

// How many steps of the run are followed by a save. One for which several settings ask is one.
static int64_t count_saves(const tri_checkpoint_options *c, const plan_run *run) {
    int64_t a = c->every_n_steps, b = 0, both = 0;
    if (c->every_n_epochs > 0 && c->every_n_epochs <= run->steps / run->steps_per_epoch)
        b = c->every_n_epochs * run->steps_per_epoch;
    if (a > 0 && b > 0) both = run->steps / b / (a / common_divisor(a, b));
    bool last =
        run->steps > 0 && ((a > 0 && run->steps % a == 0) || (b > 0 && run->steps % b == 0));
    return (a > 0 ? run->steps / a : 0) + (b > 0 ? run->steps / b : 0) - both +
           (c->save_last && !last);
}

// The largest number of checkpoints that are on disk at one time: after a save the save_top_k best,
// the newest and TRI_CHECKPOINT_SPARES before it, and then the one that the next save is writing.
// -1: not known. It decides how much space on disk the run needs.
static int64_t most_checkpoints(const plan_view *v, const plan_run *run) {
    const tri_checkpoint_options *c = &v->recipe->checkpoint;
    int64_t most = c->save_top_k < 0 ? -1 : c->save_top_k + 1 + TRI_CHECKPOINT_SPARES + 1;
    if (v->recipe->trainer.fast_dev_run > 0) return 0;
    if (run->steps < 0 || run->steps_per_epoch <= 0) return most;
    int64_t saved = count_saves(c, run);
    return most >= 0 && most < saved ? most : saved;
}

plan_run plan_whole_run(const plan_view *v) {
    plan_run run = {.samples = training_samples(v)};
    if (run.samples > 0) run.steps_per_epoch = steps_of_epoch(v, run.samples);
    run.steps = tri_steps_of_run(&v->recipe->trainer, run.steps_per_epoch, 0);
    run.hours = run.steps >= 0 ? (double)run.steps * v->estimate.step_s / 3600 : -1;
    size_checkpoint(v, &run);
    run.checkpoints = most_checkpoints(v, &run);
    return run;
}
