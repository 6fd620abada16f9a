// The recipe's sections `trainer` and `schedule`. They are declared here because a recipe contains
// them; src/train is in a higher layer, which this one may not include.
#ifndef TRIREME_RECIPE_TRAINER_H
#define TRIREME_RECIPE_TRAINER_H

#include "base/option.h"
#include "checkpoint/options.h"
#include "graph/graph.h"
#include "ops/loss_scale.h"

// What to do with a Slurm job whose time is over before the run is complete: it can be put back
// into the queue, or its script can be submitted once more (a chain of jobs).
typedef enum tri_on_timeout {
    TRI_ON_TIMEOUT_NONE,
    TRI_ON_TIMEOUT_REQUEUE,
    TRI_ON_TIMEOUT_CHAIN
} tri_on_timeout;

typedef enum tri_convolution { TRI_CONVOLUTION_AUTO, TRI_CONVOLUTION_DIRECT } tri_convolution;
typedef enum tri_fp32_precision { TRI_FP32_IEEE, TRI_FP32_TF32 } tri_fp32_precision;

typedef struct tri_early_stopping_options {
    const char *monitor; // NULL: no early stopping
    int64_t patience;    // number of evaluations without improvement after which the run ends
    double min_delta;    // the smallest change that counts as an improvement
    tri_monitor_mode mode;
    // The run ends as soon as the metric is better than the first, or worse than the second.
    tri_number stopping_threshold, divergence_threshold;
} tri_early_stopping_options;

// Names and meanings are Lightning's, for options that Lightning has:
// https://lightning.ai/docs/pytorch
typedef struct tri_trainer_options {
    int64_t max_epochs, max_steps; // -1: no limit; the limit that is reached first ends the run
    double max_time;               // seconds; 0: no limit
    tri_on_timeout on_timeout;
    // How much is used of the steps of an epoch, and of the micro-batches of an evaluation: a
    // fraction (1.0: all) or a number.
    tri_amount limit_train_batches, limit_val_batches;
    tri_amount val_check_interval; // a fraction of an epoch, or a number of steps
    int64_t check_val_every_n_epoch;
    // Micro-batches of a step on each replica; 1: they follow from batch.micro.
    int64_t accumulate_grad_batches;
    tri_precision precision;
    tri_loss_scale_options loss_scale; // settings of the loss scale for precision 16-mixed
    double gradient_clip_val;          // the largest global norm of gradients; 0: no clipping
    int64_t log_every_n_steps;
    int64_t num_sanity_val_steps;
    // 0: off; N: only N steps and N micro-batches of evaluation, and nothing is saved.
    int64_t fast_dev_run;
    tri_amount overfit_batches; // trains and evaluates on only the samples of so many steps; 0: off
    bool detect_anomaly;
    bool deterministic;
    bool sync_batchnorm;
    tri_convolution convolution;
    tri_fp32_precision fp32_precision;
    tri_early_stopping_options early_stopping;
} tri_trainer_options;

typedef enum tri_schedule_unit { TRI_EVERY_EPOCH, TRI_EVERY_STEP } tri_schedule_unit;
typedef enum tri_anneal { TRI_ANNEAL_COS, TRI_ANNEAL_LINEAR } tri_anneal;
typedef enum tri_warmup_type { TRI_WARMUP_LOG, TRI_WARMUP_LINEAR } tri_warmup_type;
typedef enum tri_threshold_mode { TRI_THRESHOLD_REL, TRI_THRESHOLD_ABS } tri_threshold_mode;

// The options of all schedules of the learning rate. Those that the named schedule does not use are
// zero. The schedules step, linear, polynomial, cosine, cosine_restarts and onecycle are PyTorch's
// StepLR, LinearLR, PolynomialLR, CosineAnnealingLR, CosineAnnealingWarmRestarts and OneCycleLR,
// with the time t counted in the unit `every`; plateau is its ReduceLROnPlateau, which follows a
// metric; inverse_sqrt is get_inverse_sqrt_schedule of Hugging Face's transformers. The schedules
// warmup, warmup-decay, warmup-cosine and triangle count updates; they are DeepSpeed's WarmupLR,
// WarmupDecayLR, WarmupCosineLR and OneCycle (without momentum). Factors are relative to
// optimizer.lr.
typedef struct tri_schedule_options {
    // Which schedule: constant, step, linear, polynomial, cosine, cosine_restarts, inverse_sqrt,
    // plateau, onecycle, warmup, warmup-decay, warmup-cosine or triangle. Each uses some of the
    // members below, whose comments begin with the schedules' names.
    const char *name;
    // For how long the rate rises linearly to the schedule's first value before the schedule
    // begins: a number of updates, or a fraction of the run's updates.
    tri_amount warmup_steps;
    tri_schedule_unit every;
    double gamma; // step: the factor is gamma^floor(t / step_size)
    int64_t step_size;
    // Linear: the factor goes from start_factor to end_factor over total_iters.
    double start_factor, end_factor;
    int64_t total_iters; // linear, polynomial; 0: until the end of the run
    // Polynomial: the rate is end_lr + (lr - end_lr) (1 - t / total_iters)^power.
    double power, end_lr;
    // Cosine_restarts: the first cycle is T_0 long, each one T_mult times as long as the one
    // before.
    int64_t T_0, T_mult;
    // Inverse_sqrt: the factor is sqrt(timescale / (t + timescale)); 0: as long as the warm-up or,
    // without one, 10,000.
    int64_t timescale;
    // Plateau: the rate is multiplied by `factor`, down to min_lr, after more than `patience`
    // evaluations whose metric was not better than the best one by the threshold (relative to the
    // best, or absolute). After that, `cooldown` evaluations are ignored. A change of at most eps
    // is not made.
    const char *monitor;
    tri_monitor_mode mode;
    double factor, threshold, eps;
    tri_threshold_mode threshold_mode;
    int64_t patience, cooldown;
    int64_t T_max;  // cosine: the time t at which the rate is eta_min; 0: the run's end
    double eta_min; // cosine, cosine_restarts: the smallest learning rate, not a factor
    double max_lr;  // onecycle, warmup, warmup-decay, triangle: the peak; 0: optimizer.lr
    double pct_start, div_factor, final_div_factor; // onecycle: as in PyTorch
    tri_anneal anneal_strategy;                     // onecycle: how the rate rises and falls
    int64_t total_steps; // onecycle, warmup-decay, warmup-cosine; 0: until the end of the run
    bool cycle_momentum; // onecycle: PyTorch's name; true is not supported
    tri_warmup_type warmup_type;            // warmup, warmup-decay, warmup-cosine
    double warmup_min_lr;                   // warmup, warmup-decay: the rate at the start
    double warmup_min_ratio, cos_min_ratio; // warmup-cosine: factors of optimizer.lr
    double min_lr; // triangle: the rate at both ends of the cycle; plateau: the lowest rate
    // Triangle: for how many steps the learning rate rises (first) and falls (second); second_steps
    // 0: for as many as first_steps.
    int64_t first_steps, second_steps;
    // Triangle: in how many stairs the learning rate rises (first) and falls (second); 0: in a
    // straight line; second_stairs -1: as many as first_stairs.
    int64_t first_stairs, second_stairs;
    int64_t decay_steps; // triangle: see decay_rate; 0: no decay
    // Triangle: t updates after the end of the cycle, the learning rate is
    // min_lr / (1 + decay_rate * t / decay_steps).
    double decay_rate;
} tri_schedule_options;

extern const tri_option_table tri_trainer_table, tri_schedule_table;

#endif
