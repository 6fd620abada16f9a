// The end of this job's time: decides when the run has to stop so that its last checkpoint is
// complete before the batch system ends the job. Rank 0 watches the time for all ranks, because all
// have to stop after the same step.
#ifndef TRIREME_TRAIN_DEADLINE_H
#define TRIREME_TRAIN_DEADLINE_H

#include "train/slurm.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct train_deadline {
    bool is_job; // this rank watches how much time the Slurm job has left
    train_slurm_job job;
    double end_s;   // when the job ends, as tri_os_seconds counts; 0: it has no time limit
    double asked_s; // when Slurm was last asked
    // step_s: time of the slowest of the latest steps; after each step, the times of the steps
    // before it count 5 % less. pause_s: time of the longest evaluation.
    double step_s, pause_s;
    double save_s; // seconds to save a checkpoint: measured, or estimated before the first save
    // Asks Slurm how much time the job has left; false: not known.
    bool (*ask)(void *context, double *left_s);
    void *context;
} train_deadline;

// Record how long a step, an evaluation (pause) or a checkpoint took, because the time that the end
// of the run needs is computed from these.
void train_deadline_note_step(train_deadline *deadline, double seconds);
void train_deadline_note_pause(train_deadline *deadline, double seconds);
void train_deadline_note_save(train_deadline *deadline, double seconds);
// What has to be done before the run can stop. What every run needs is not counted here: the step
// that is about to be issued, the step after it, and the last checkpoint.
typedef struct train_remaining {
    // Steps that are issued and not finished, and those that are still issued before all ranks know
    // the decision to stop.
    int steps;
    bool evaluates; // an evaluation comes due before the run can stop
    bool saves;     // a checkpoint besides the last one is being written, or comes due
} train_remaining;

// Decides at time `now_s` whether the run has to stop. If so, the step that is about to be issued
// tells all ranks. Before the function returns true, it asks Slurm for the time that is left,
// unless it has just done so, because somebody may have extended the job's time.
bool train_deadline_is_due(train_deadline *deadline, double now_s, train_remaining remaining);

#endif
