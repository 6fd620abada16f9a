// The settings of the recipe's section `checkpoint`.
#ifndef TRIREME_CHECKPOINT_OPTIONS_H
#define TRIREME_CHECKPOINT_OPTIONS_H

#include "base/option.h"

// Whether smaller or larger values of the monitored metric are better: losses fall, accuracies
// rise.
typedef enum tri_monitor_mode { TRI_MONITOR_MIN, TRI_MONITOR_MAX } tri_monitor_mode;
extern const char *const tri_monitor_modes[]; // "min", "max", NULL

typedef struct tri_checkpoint_options {
    int64_t every_n_epochs;     // 0: not by epochs
    int64_t every_n_steps;      // 0: not by steps
    double train_time_interval; // seconds; 0: not by time
    bool save_last;             // save when the run ends
    bool async;                 // write a copy of the state while training continues
    int64_t save_top_k;         // how many of the best by `monitor` to keep; -1: all
    const char *monitor;
    tri_monitor_mode mode;
} tri_checkpoint_options;

extern const tri_option_table tri_checkpoint_table;

#endif
