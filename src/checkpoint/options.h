// The recipe's section `checkpoint`.
#ifndef TRIREME_CHECKPOINT_OPTIONS_H
#define TRIREME_CHECKPOINT_OPTIONS_H

#include "base/option.h"

// Whether less or more of a monitored metric is better.
typedef enum tri_monitor_mode { TRI_MONITOR_MIN, TRI_MONITOR_MAX } tri_monitor_mode;
extern const char *const tri_monitor_modes[]; // "min", "max", NULL

typedef struct tri_checkpoint_options {
    int64_t every_n_epochs;     // 0: not by epochs
    int64_t every_n_steps;      // 0: not by steps
    double train_time_interval; // seconds; 0: not by time
    bool save_last;             // one when the run ends, and the link `last`
    bool async;                 // written behind the training, from a copy
    int64_t save_top_k;         // best ones kept by `monitor`; -1: all are kept; 0: none
    const char *monitor;
    tri_monitor_mode mode;
} tri_checkpoint_options;

extern const tri_option_table tri_checkpoint_table;

#endif
