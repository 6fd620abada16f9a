// How many steps a run has, by the limits of the recipe's section `trainer`: the same for a run and
// for what is planned.
#ifndef TRIREME_RECIPE_STEPS_H
#define TRIREME_RECIPE_STEPS_H

#include "recipe/trainer.h"

// The steps of an epoch whose data fill `steps` of them, as limited by limit_train_batches,
// overfit_batches and fast_dev_run; at least 1 if `steps` is.
int64_t tri_steps_of_epoch(const tri_trainer_options *trainer, int64_t steps);
// The steps that max_epochs allows: at most TRI_MAX_STEPS, which no run reaches; -1: any number.
// steps_per_epoch 0: it is not known, so that epochs set no limit. `extra`: how many more steps the
// epochs so far had, before the data changed.
int64_t tri_steps_of_epochs(const tri_trainer_options *trainer, int64_t steps_per_epoch,
                            int64_t extra);
// The steps of the whole run, by max_steps, max_epochs and fast_dev_run; -1: any number.
int64_t tri_steps_of_run(const tri_trainer_options *trainer, int64_t steps_per_epoch,
                         int64_t extra);

#endif
