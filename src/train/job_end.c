// The end of a Slurm job: finds when it is, stops the run in time before it, and starts the job
// again if the recipe asks for that (trainer.on_timeout). The training loop calls train_watch_job
// before the first step, train_job_ends before each step, and train_start_again after the run. Only
// rank 0 watches the job. Read next: deadline.c (when to stop), slurm.c (commands to Slurm).
#include "base/limits.h"
#include "base/log.h"
#include "base/os.h"
#include "train/loop.h"

#include <stdlib.h>

static const char *variable(const char *name) { return getenv(name); }

static bool ask(void *context, double *left_s) {
    return train_slurm_seconds_left(context, left_s) == TRI_OK;
}

// Estimates how long the first checkpoint takes, before one has been measured: divides the size of
// the state by a speed of writing that most file systems reach, and adds a second.
static double estimated_save_s(const train_loop *loop) {
    const tri_session *s = loop->session;
    double floats =
        (double)tri_graph_trained_count(s->plan->graph) * (1 + (double)s->optimizer.state_count);
    return floats * sizeof(float) / (TRI_STATE_WRITTEN_MB_S * 1e6) + 1;
}

bool train_job_may_start_again(const tri_recipe *recipe) {
    train_slurm_job job;
    return recipe->trainer.on_timeout != TRI_ON_TIMEOUT_NONE && train_slurm_find(variable, &job);
}

void train_watch_job(train_loop *loop) {
    train_deadline *d = &loop->deadline;
    bool again = loop->recipe->trainer.on_timeout != TRI_ON_TIMEOUT_NONE;
    *d = (train_deadline){.save_s = estimated_save_s(loop), .ask = ask, .context = &d->job};
    if (loop->session->identity.rank != 0 || !loop->saves) return;
    d->is_job = train_slurm_find(variable, &d->job);
    if (!d->is_job) {
        if (again)
            tri_log_line(TRI_LOG_WARNING,
                         "trainer.on_timeout has no effect: this is no job of Slurm");
        return;
    }
    double left_s;
    d->asked_s = tri_os_seconds();
    if (train_slurm_seconds_left(&d->job, &left_s) != TRI_OK)
        tri_log_line(TRI_LOG_WARNING, "the end of job %s is not known: %s", d->job.id,
                     tri_error_message());
    else if (left_s >= 0)
        d->end_s = d->asked_s + left_s;
}

bool train_job_ends(train_loop *loop) {
    if (loop->deadline.end_s == 0 || loop->job_ends) return false;
    train_remaining remaining = {.steps = loop->in_flight +
                                          tri_engine_steps_ahead(loop->session->engine),
                                 .saves = loop->saving != NULL};
    for (int ahead = 1; ahead <= remaining.steps + 2; ahead++) {
        remaining.evaluates |= train_evaluation_is_due(loop, ahead);
        remaining.saves |= train_checkpoint_is_due(loop, ahead);
    }
    return train_deadline_is_due(&loop->deadline, tri_os_seconds(), remaining);
}

// Whether the run ended because the time of its job was over, so that the job should be started
// again. Slurm sends SIGTERM then, but also when a user cancels the job, and a cancelled job must
// not start again. So a signal counts only if it came shortly before the end of the job's time.
static bool ended_in_time(const train_loop *loop) {
    double left_s = loop->deadline.end_s - tri_os_seconds();
    return loop->job_ends || (loop->deadline.end_s != 0 && left_s < TRI_JOB_END_SIGTERM_MS / 1e3);
}

bool train_starts_again(const train_loop *loop) {
    bool asked = loop->recipe->trainer.on_timeout != TRI_ON_TIMEOUT_NONE;
    return loop->deadline.is_job && asked && ended_in_time(loop);
}

void train_start_again(train_loop *loop) {
    const train_deadline *d = &loop->deadline;
    if (!train_starts_again(loop)) return;
    tri_on_timeout how = loop->recipe->trainer.on_timeout;
    train_slurm_job next = d->job;
    tri_status status;
    if (how == TRI_ON_TIMEOUT_REQUEUE) {
        tri_log_line(TRI_LOG_INFO, "job %s goes back into the queue", d->job.id);
        status = train_slurm_requeue(&d->job);
    } else {
        status = train_slurm_chain(&d->job, &next);
        if (status == TRI_OK)
            tri_log_line(TRI_LOG_INFO, "job %s follows when job %s has ended", next.id, d->job.id);
        if (status == TRI_OK && train_note_start(loop, next.id) != TRI_OK)
            tri_log_line(TRI_LOG_WARNING, "job %s will take --resume as this one did: %s", next.id,
                         tri_error_message());
    }
    if (status == TRI_TIMEOUT)
        tri_log_line(
            TRI_LOG_ERROR,
            "whether job %s is started again is not known: %s; look with 'squeue --me' before you "
            "submit it once more: two jobs must not train into one run folder",
            d->job.id, tri_error_message());
    else if (status != TRI_OK)
        tri_log_line(
            TRI_LOG_ERROR,
            "job %s is not started again: %s; submit it once more%s, the run goes on from its "
            "checkpoint",
            d->job.id, tri_error_message(), train_flag_to_drop(loop));
}
