// Counts the steps of an epoch and of a run: steps.h has the rules.
#include "recipe/steps.h"

#include "base/limits.h"

int64_t tri_steps_of_epoch(const tri_trainer_options *trainer, int64_t steps) {
    bool overfits = trainer->overfit_batches.value > 0;
    int64_t most =
        tri_amount_of(overfits ? trainer->overfit_batches : trainer->limit_train_batches, steps);
    if (trainer->fast_dev_run > 0 && trainer->fast_dev_run < most) most = trainer->fast_dev_run;
    if (most < 1) most = 1;
    return most < steps ? most : steps;
}

int64_t tri_steps_of_epochs(const tri_trainer_options *trainer, int64_t steps_per_epoch,
                            int64_t extra) {
    int64_t steps;
    if (trainer->max_epochs < 0 || steps_per_epoch == 0) return -1;
    if (__builtin_mul_overflow(trainer->max_epochs, steps_per_epoch, &steps) ||
        steps > TRI_MAX_STEPS)
        return TRI_MAX_STEPS;
    steps += extra;
    return steps > 0 ? steps : 0;
}

int64_t tri_steps_of_run(const tri_trainer_options *trainer, int64_t steps_per_epoch,
                         int64_t extra) {
    int64_t by_epochs = tri_steps_of_epochs(trainer, steps_per_epoch, extra);
    int64_t last = trainer->max_steps;
    if (by_epochs >= 0 && (last < 0 || by_epochs < last)) last = by_epochs;
    if (trainer->fast_dev_run > 0 && (last < 0 || trainer->fast_dev_run < last))
        last = trainer->fast_dev_run;
    return last;
}
