// Decides when a run has to stop so that it ends before the time of its Slurm job is over. All
// steps that are still made, and a last checkpoint, have to fit into the time that the job has
// left. job_end.c calls train_deadline_is_due before each step.
#include "train/deadline.h"

#include "base/limits.h"

#include <math.h>

void train_deadline_note_step(train_deadline *d, double seconds) {
    d->step_s = fmax(seconds, d->step_s * 0.95);
}

void train_deadline_note_pause(train_deadline *d, double seconds) {
    d->pause_s = fmax(seconds, d->pause_s);
}

void train_deadline_note_save(train_deadline *d, double seconds) { d->save_s = seconds; }

// How many seconds the job must have left for the run to go on. Besides remaining.steps, two steps
// are counted. The first is the step that is about to be issued: it is made in any case, because
// the sums that it computes over all ranks tell them whether to stop. The second is the step after
// it, because a run that goes on now decides again only with that step.
static double needed_s(const train_deadline *d, train_remaining remaining) {
    // A checkpoint may take this many times as long as the last one, because file systems are not
    // always equally fast.
    const double slack = 1.5;
    return (remaining.steps + 2) * d->step_s + slack * d->save_s * (remaining.saves ? 2 : 1) +
           (remaining.evaluates ? d->pause_s : 0) + TRI_JOB_END_MARGIN_MS / 1e3;
}

bool train_deadline_is_due(train_deadline *d, double now_s, train_remaining remaining) {
    double needed = needed_s(d, remaining), left_s;
    if (d->end_s == 0 || now_s + needed < d->end_s) return false;
    if (!d->ask || now_s - d->asked_s < TRI_JOB_END_ASK_MS / 1e3) return true;
    d->asked_s = now_s;
    if (d->ask(d->context, &left_s)) d->end_s = left_s < 0 ? 0 : now_s + left_s;
    return d->end_s != 0 && now_s + needed >= d->end_s;
}
