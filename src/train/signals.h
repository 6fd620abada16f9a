// Signals that ask a run to end: SIGTERM, SIGINT, SIGUSR1, and SIGHUP unless it was ignored. Their
// handler only records the signal. The training loop checks after each step, so that it can end
// with a checkpoint.
#ifndef TRIREME_TRAIN_SIGNALS_H
#define TRIREME_TRAIN_SIGNALS_H

// Installs the handlers. A second SIGINT ends the process at once, for users who do not want to
// wait.
void tri_signals_watch(void);
// Gets the latest signal that was received; 0: none. The training loop calls it after each step.
int tri_signals_seen(void);
// Restores the handlers from before tri_signals_watch.
void tri_signals_unwatch(void);

#endif
