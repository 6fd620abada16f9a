// The settings of the recipe's section `log`. metrics.jsonl is always written, so there is no
// setting for it.
#ifndef TRIREME_OBSERVE_OPTIONS_H
#define TRIREME_OBSERVE_OPTIONS_H

#include "base/option.h"

typedef struct tri_wandb_options {
    const char *project, *group; // empty: no files for W&B; no group
} tri_wandb_options;

typedef struct tri_log_options {
    bool tensorboard; // write event files in the run folder
    bool csv;         // write metrics.csv in the run folder
    bool prometheus;  // write metrics.prom in the run folder
    bool progress;    // show messages and the progress line on standard error
    bool summary;     // show a table of the model's blocks at the start
    bool samples;     // log which samples each step takes (train/sample_log.c)
    tri_wandb_options wandb;
} tri_log_options;

extern const tri_option_table tri_log_table;

#endif
