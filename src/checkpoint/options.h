// The settings of the recipe's section `checkpoint`.
#ifndef TRIREME_CHECKPOINT_OPTIONS_H
#define TRIREME_CHECKPOINT_OPTIONS_H

#include "base/option.h"

// Whether smaller or larger values of the monitored metric are better: losses fall, accuracies
// rise.
typedef enum tri_monitor_mode { TRI_MONITOR_MIN, TRI_MONITOR_MAX } tri_monitor_mode;
extern const char *const tri_monitor_modes[]; // "min", "max", NULL
// Finds the mode by the words of the metric's name: MAX for one that rises as a model learns, such
// as "val_accuracy". False: no word tells it, two contradict each other, or `monitor` is NULL;
// *mode is then MIN.
bool tri_monitor_mode_known(const char *monitor, tri_monitor_mode *mode);
// The same mode, whether a word tells it or not.
tri_monitor_mode tri_monitor_mode_of(const char *monitor);

typedef struct tri_checkpoint_options {
    int64_t every_n_epochs;     // a checkpoint after every so many epochs; 0: none by epochs
    int64_t every_n_steps;      // a checkpoint after every so many steps; 0: none by steps
    double train_time_interval; // a checkpoint every so many seconds; 0: none by time
    bool save_last;             // a checkpoint when the run ends
    bool async;                 // copy the state and write the copy while training continues
    int64_t save_top_k; // how many of the best (by `monitor`) to keep besides the newest; -1: all
    const char *monitor;
    tri_monitor_mode mode;
} tri_checkpoint_options;

extern const tri_option_table tri_checkpoint_table;

#endif
