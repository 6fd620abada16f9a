// The end of this job's time: when the run has to stop so that its last checkpoint is complete
// before the job is ended, and how the job is started again. Rank 0 watches the time for all ranks,
// because all have to stop after the same step.
#ifndef TRIREME_TRAIN_DEADLINE_H
#define TRIREME_TRAIN_DEADLINE_H

#include "train/slurm.h"

#include <stdint.h>

typedef struct train_deadline {
    bool is_job; // this rank watches a job of Slurm
    train_slurm_job job;
    double end_s;           // when the job ends, by tri_os_seconds; 0: it has no such time
    double asked_s;         // when Slurm last told it
    double step_s, pause_s; // the slowest of the latest steps; the longest evaluation
    double save_s;          // what a checkpoint takes: measured, or estimated before the first
    bool (*ask)(void *context, double *left_s); // how much time is left; false: unknown
    void *context;
} train_deadline;

// Note what a step, an evaluation or a checkpoint took, from which follows how much time the last
// ones need. Old steps count less and less.
void train_deadline_note_step(train_deadline *deadline, double seconds);
void train_deadline_note_pause(train_deadline *deadline, double seconds);
void train_deadline_note_save(train_deadline *deadline, double seconds);
// Whether no more step may be issued at the time `now_s`, with `in_flight` steps not yet done, and
// an evaluation due or not. Asks Slurm again before it answers yes, because a user may have made
// the job's time longer.
bool train_deadline_is_due(train_deadline *deadline, double now_s, int in_flight, bool evaluates);

#endif
