// Runs a recipe on the device `null`, which computes nothing. So a test can quickly try whether
// plans, schedules and the training loop accept the recipe's numbers. The data are synthetic, and
// no file is written.
#ifndef TESTS_SUPPORT_NULL_TRAIN_H
#define TESTS_SUPPORT_NULL_TRAIN_H

#include "device/null/null.h"
#include "train/signals.h"
#include "train/train.h"

#include <string.h>

// Whether null_train can run the recipe: only if it needs no files, so with synthetic data and a
// built-in model, and without initial weights and offloaded state. The number of micro-batches of a
// step is limited, because each takes time.
static inline bool null_train_takes(const tri_recipe *r) {
    enum { MOST_ROUNDS = 64 };
    bool has_files = r->init.path || strcmp(r->data.name, "synthetic") != 0 ||
                     strchr(r->model.name, '/') || r->strategy.offload != TRI_OFFLOAD_NONE;
    bool is_long = r->batch.micro > 0 && r->batch.global / r->batch.micro > MOST_ROUNDS;
    return !has_files && !is_long && r->trainer.accumulate_grad_batches <= MOST_ROUNDS;
}

// Runs one step and one evaluation of the recipe on the device null, by trainer.fast_dev_run.
static inline tri_status null_train(const tri_recipe *recipe) {
    static const tri_device_backend *const devices[] = {&tri_device_null, NULL};
    static const tri_backends backends = {.devices = devices};
    tri_recipe dry = *recipe;
    tri_train_result result;
    dry.trainer.fast_dev_run = 1;
    dry.data.workers = 0;
    dry.log.progress = false;
    if (!strcmp(dry.strategy.memory, "auto")) dry.strategy.memory = "64M";
    tri_status status = tri_train(&(tri_train_request){.backends = &backends,
                                                       .recipe = &dry,
                                                       .run_dir = "/nowhere/at/all",
                                                       .device = "null",
                                                       .resume = "auto"},
                                  &result);
    tri_signals_unwatch();
    return status;
}

#endif
