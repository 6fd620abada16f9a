// Signals that ask a run to end: SIGTERM, SIGINT, SIGUSR1. The handler sets a flag; the loop looks
// at it between steps.
#ifndef TRIREME_TRAIN_SIGNALS_H
#define TRIREME_TRAIN_SIGNALS_H

// From now on the signals are kept; a second SIGINT ends the process as it would without this.
void tri_signals_watch(void);
// The signal that came, or 0.
int tri_signals_seen(void);
void tri_signals_unwatch(void);

#endif
