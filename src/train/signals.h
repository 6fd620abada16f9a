// Signals that ask a run to end: SIGTERM, SIGINT, those by which batch systems announce the end of
// a job's time (SIGUSR1; SIGUSR2: LSF's run limit, Grid Engine's -notify, OAR; SIGXCPU: limits of
// processor time), and SIGHUP unless it was ignored. While the run trains, their handler only
// records the signal, so that the run can end with a checkpoint:
// the training loop looks at it after each step, and an evaluation between its blocks. Before that,
// while data are opened, a plan is made and a checkpoint is loaded, there is nothing to save, so
// the handler ends the process at once, unless the job is to start again after the signal. The exit
// code is then 75 too, because scripts start a job again that ends with it: also without a
// checkpoint, so that a job which is preempted while it loads its data is not lost. Only Ctrl-C
// before there is a checkpoint ends the process as if it had not been caught, because a user who
// presses it then wants no second start, and a shell ends its loop.
#ifndef TRIREME_TRAIN_SIGNALS_H
#define TRIREME_TRAIN_SIGNALS_H

#include <stdbool.h>

// Installs the handlers for the time before the first step, in which `end`, called by the handler,
// ends the process with exit code 75; NULL: the run saves nothing, and a signal ends it as if it
// had not been caught. `last`, which is copied, is the run's link to its last checkpoint. With
// `tells`, this rank says on standard error why it ends and, later, what the run waits for. With
// `keeps`, a signal that announces the end of the job's time is only recorded: the run makes a step
// and then starts its job again. tri_signals_watch has to follow.
void tri_signals_watch_start(const char *last, void (*end)(int code), bool tells, bool keeps);
// Only records signals from now on. A second SIGINT ends the process at once, for users who do not
// want to wait.
void tri_signals_watch(void);
// Gets the latest signal that was received; 0: none.
int tri_signals_seen(void);
// Whether one of the signals announced the end of the job's time. The one that follows at that end,
// SIGTERM, does not change it.
bool tri_signals_job_ends(void);
// Sets what the first SIGINT says that it waits for, such as "the running step", and returns what
// was set before. The text must be a constant.
const char *tri_signals_wait_for(const char *what);
// Restores the handlers from before tri_signals_watch_start.
void tri_signals_unwatch(void);

#endif
