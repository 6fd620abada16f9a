// Signals that ask a run to end: SIGTERM, SIGINT, SIGUSR1, and SIGHUP unless it was ignored. Their
// handler only records them; the training loop checks after each step, so that it can end with a
// checkpoint.
#ifndef TRIREME_TRAIN_SIGNALS_H
#define TRIREME_TRAIN_SIGNALS_H

// Installs the handlers. A second SIGINT ends the process at once, for a user who does not want to
// wait.
void tri_signals_watch(void);
// Gets the latest signal that was received, or 0: the loop looks after each step, because a handler
// may do hardly anything.
int tri_signals_seen(void);
// Restores the handlers from before tri_signals_watch.
void tri_signals_unwatch(void);

#endif
