// The Slurm job in which this process runs: how much time it has left, and how to start it again.
// Everything is asked by Slurm's own commands, so that no library of Slurm is needed.
#ifndef TRIREME_TRAIN_SLURM_H
#define TRIREME_TRAIN_SLURM_H

#include "base/status.h"

#include <stdbool.h>

typedef struct train_slurm_job {
    char id[32];   // "77"; of a task of a job array "77_2"
    char task[16]; // the number of the task, "2"; "": the job is no task of an array
} train_slurm_job;

// Finds whether this process is part of a Slurm job; reads the environment through `get`.
bool train_slurm_find(const char *(*get)(const char *name), train_slurm_job *out);
// Gets the seconds until the job's time is over; a negative number if it has no limit.
tri_status train_slurm_seconds_left(const train_slurm_job *job, double *out);
// Reads a time as squeue prints it: "59", "02:03", "1:02:03", "1-02:03:04". False: anything else,
// such as UNLIMITED.
bool train_slurm_read_time(const char *text, double *seconds);
// Puts the job back into the queue, under the same number. Slurm then ends all processes of the
// job, so this function may not return. TRI_TIMEOUT: whether it is in the queue is not known.
tri_status train_slurm_requeue(const train_slurm_job *job);
// Submits the job's batch script once more, as a new job that starts when this one has ended.
// `next` gets the new job's number. TRI_TIMEOUT: whether it was submitted is not known.
tri_status train_slurm_chain(const train_slurm_job *job, train_slurm_job *next);

#endif
