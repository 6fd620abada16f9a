// The option tables of the recipe's sections `trainer` and `schedule`, from which recipes are read,
// checked and documented.
#include "recipe/trainer.h"

#include <string.h>

static const char *const precisions[] = {"32-true", "bf16-mixed", "16-mixed", "bf16-true", NULL};
static const char *const convolutions[] = {"auto", "direct", NULL};
static const char *const fp32_precisions[] = {"ieee", "tf32", NULL};
static const char *const units[] = {"epoch", "step", NULL};
static const char *const anneals[] = {"cos", "linear", NULL};
static const char *const warmups[] = {"log", "linear", NULL};
static const char *const threshold_modes[] = {"rel", "abs", NULL};

#define E tri_early_stopping_options
static const tri_option early_rows[] = {
    TRI_OPTION_STRING(E, monitor, NULL,
                      "the metric that has to improve; not set: no early stopping"),
    TRI_OPTION_INT(E, patience, "3", 0, 1e9, "evaluations without improvement until the run ends"),
    TRI_OPTION_FLOAT(E, min_delta, "0", 0, 1e30, "a smaller change is no improvement"),
    TRI_OPTION_CHOICE(E, mode, "min", tri_monitor_modes,
                      "min: lower is better; max: higher is; not set: as the metric's name says, "
                      "max for accuracy and its like (guide/train.md)"),
    TRI_OPTION_FLOAT_OR_NULL(E, stopping_threshold, -1e300, 1e300,
                             "ends the run as soon as the metric is better"),
    TRI_OPTION_FLOAT_OR_NULL(E, divergence_threshold, -1e300, 1e300,
                             "ends the run as soon as the metric is worse"),
};
static const tri_option_table early_table =
    TRI_OPTION_TABLE("early_stopping", E, early_rows, "when to end a run that stops improving");

#define L tri_loss_scale_options
static const tri_option loss_scale_rows[] = {
    TRI_OPTION_FLOAT(L, initial, "65536", 1e-30, 1e30, "the first loss scale"),
    TRI_OPTION_INT(L, window, "1000", 1, 1e15, "steps without overflow until the scale doubles"),
    TRI_OPTION_INT(L, hysteresis, "2", 1, 1e9,
                   "the scale is halved from this overflow on; 2: the first one is ignored"),
    TRI_OPTION_BOOL(L, consecutive_hysteresis, "false",
                    "every step without overflow resets hysteresis, not only a doubled scale"),
    TRI_OPTION_FLOAT(L, minimum, "1", 1e-30, 1e30,
                     "the smallest scale; an overflow at this scale ends the run"),
    TRI_OPTION_FLOAT(L, fixed, "0", 0, 1e30, "a scale that never changes; 0: adapt the scale"),
};
static const tri_option_table loss_scale_table =
    TRI_OPTION_TABLE("loss_scale", L, loss_scale_rows, "the factor on the loss with 16-mixed");

static const char *const timeouts[] = {"none", "requeue", "chain", NULL};

#define T tri_trainer_options
static const tri_option trainer_rows[] = {
    TRI_OPTION_INT(T, max_epochs, "3", -1, 1e9, "epochs of the run; -1: no limit",
                   .change = TRI_CHANGE_FREELY),
    TRI_OPTION_INT(T, max_steps, "-1", -1, 1e15, "steps of the run; -1: no limit",
                   .change = TRI_CHANGE_FREELY),
    TRI_OPTION_DURATION(T, max_time, "0",
                        "time after which this process stops: a run that is not complete ends with "
                        "a checkpoint and exit code 75; 0: no limit",
                        .change = TRI_CHANGE_FREELY),
    TRI_OPTION_CHOICE(T, on_timeout, "none", timeouts,
                      "in a job of Slurm whose time ends before the run: requeue the job, or chain "
                      "another one to it",
                      .change = TRI_CHANGE_FREELY),
    TRI_OPTION_AMOUNT(T, limit_train_batches, "1.0", "training steps per epoch"),
    TRI_OPTION_AMOUNT(T, limit_val_batches, "1.0", "micro-batches per evaluation; 0: no evaluation",
                      .change = TRI_CHANGE_FREELY),
    TRI_OPTION_AMOUNT(
        T, val_check_interval, "1.0",
        "evaluate whenever this fraction of an epoch, or this many steps, are done; "
        "both count from each epoch's beginning, steps of more than an epoch from the "
        "run's",
        .change = TRI_CHANGE_FREELY),
    TRI_OPTION_INT(T, check_val_every_n_epoch, "1", 1, 1e9, "evaluate only in every n-th epoch",
                   .change = TRI_CHANGE_FREELY),
    TRI_OPTION_INT(T, accumulate_grad_batches, "1", 1, 1e9,
                   "micro-batches per step on each replica; an alternative to batch.micro",
                   .change = TRI_CHANGE_ON_ORDER),
    TRI_OPTION_CHOICE(T, precision, "32-true", precisions,
                      "number formats of computation; bf16-true: all activations in BF16. The "
                      "optimizer and its weights stay F32 in each"),
    TRI_OPTION_NESTED(T, loss_scale, L, &loss_scale_table, "the factor on the loss with 16-mixed"),
    TRI_OPTION_FLOAT(T, gradient_clip_val, "0", 0, 1e30,
                     "clip the norm of all gradients together to this value; 0: off",
                     .change = TRI_CHANGE_ON_ORDER),
    TRI_OPTION_INT(T, log_every_n_steps, "50", 1, 1e15, "log metrics every so many steps",
                   .change = TRI_CHANGE_FREELY),
    TRI_OPTION_INT(T, num_sanity_val_steps, "0", -1, 1e9,
                   "not 0: evaluate once before training, so that errors show early",
                   .change = TRI_CHANGE_FREELY),
    TRI_OPTION_BOOL_OR_INT(T, fast_dev_run, "false", 0, 1e9,
                           "N: try only N steps and N micro-batches of evaluation, save nothing; "
                           "true: 1",
                           .change = TRI_CHANGE_FREELY),
    TRI_OPTION_AMOUNT(T, overfit_batches, "0",
                      "train and evaluate on the same few steps of samples; 0: off"),
    TRI_OPTION_BOOL(T, detect_anomaly, "false",
                    "check every value, and stop at the first op whose result is not finite",
                    .change = TRI_CHANGE_FREELY),
    TRI_OPTION_BOOL(T, deterministic, "false",
                    "bit-identical results for any number of ranks and threads; needs batch.micro"),
    TRI_OPTION_BOOL(T, sync_batchnorm, "false",
                    "normalise over the samples of the whole step, on all ranks"),
    TRI_OPTION_CHOICE(T, convolution, "auto", convolutions,
                      "algorithms of convolutions; direct: without Winograd"),
    TRI_OPTION_CHOICE(
        T, fp32_precision, "ieee", fp32_precisions,
        "products and convolutions of float32 on a GPU; tf32: their inputs are rounded "
        "to 10 bits behind the point, which is several times faster; a CPU computes "
        "as with ieee"),
    TRI_OPTION_NESTED(T, early_stopping, E, &early_table, "when to end a run that stops improving",
                      .change = TRI_CHANGE_FREELY),
};

static tri_status check_trainer(const void *options, const tri_tree *map) {
    const T *o = options;
    if (o->max_epochs == -1 && o->max_steps == -1 && o->max_time == 0)
        return tri_tree_fail(
            tri_tree_get(map, "max_epochs"),
            "the run has no end: set one of trainer.max_epochs, max_steps, max_time");
    if (o->val_check_interval.value == 0)
        return tri_tree_fail(tri_tree_get(map, "val_check_interval"),
                             "'trainer.val_check_interval' has to be more than 0; no evaluation: "
                             "trainer.limit_val_batches=0");
    if (o->limit_train_batches.value == 0 && o->overfit_batches.value == 0)
        return tri_tree_fail(tri_tree_get(map, "limit_train_batches"),
                             "'trainer.limit_train_batches' has to be more than 0");
    if (o->loss_scale.initial < o->loss_scale.minimum)
        return tri_tree_fail(tri_tree_find(map, "loss_scale"),
                             "'trainer.loss_scale.initial' is less than its 'minimum'");
    return TRI_OK;
}

const tri_option_table tri_trainer_table = TRI_OPTION_TABLE(
    "trainer", T, trainer_rows, "how long to train, in which precision, when to evaluate",
    .check = check_trainer);

#define S tri_schedule_options
static const tri_option schedule_rows[] = {
    TRI_OPTION_NAME(S, name, "constant", "how the learning rate changes"),
    TRI_OPTION_AMOUNT(S, warmup_steps, "0",
                      "updates over which the learning rate first rises, or a fraction of the run; "
                      "a schedule of steps begins after them, one of epochs with the run"),
};
static const tri_option step_rows[] = {
    TRI_OPTION_FLOAT(S, gamma, "0.7", 0, 1e6, "factor of each decrease"),
    TRI_OPTION_INT(S, step_size, "1", 1, 1e15, "epochs or steps between decreases"),
    TRI_OPTION_CHOICE(S, every, "epoch", units, "unit of step_size; step: updates"),
};
static const tri_option linear_rows[] = {
    TRI_OPTION_FLOAT(S, start_factor, "1.0", 0, 1e6, "factor on optimizer.lr at the start"),
    TRI_OPTION_FLOAT(S, end_factor, "0.0", 0, 1e6, "factor on optimizer.lr at the end"),
    TRI_OPTION_INT(S, total_iters, "0", 0, 1e15,
                   "how long the rate changes; 0: until the end of the run"),
    TRI_OPTION_CHOICE(S, every, "step", units, "unit of total_iters; step: updates"),
};
static const tri_option polynomial_rows[] = {
    TRI_OPTION_FLOAT(S, power, "1.0", 0, 1e3, "exponent of the part of the time that is left"),
    TRI_OPTION_FLOAT(S, end_lr, "0", 0, 1e6, "the learning rate at the end"),
    TRI_OPTION_INT(S, total_iters, "0", 0, 1e15,
                   "how long the rate falls; 0: until the end of the run"),
    TRI_OPTION_CHOICE(S, every, "step", units, "unit of total_iters; step: updates"),
};
static const tri_option restarts_rows[] = {
    TRI_OPTION_INT(S, T_0, "10", 1, 1e15, "length of the first cycle"),
    TRI_OPTION_INT(S, T_mult, "1", 1, 1e6,
                   "how many times as long as the one before each further cycle is"),
    TRI_OPTION_FLOAT(S, eta_min, "0", 0, 1e6, "the smallest learning rate"),
    TRI_OPTION_CHOICE(S, every, "epoch", units, "unit of T_0; step: updates"),
};
static const tri_option inverse_sqrt_rows[] = {
    TRI_OPTION_INT(S, timescale, "0", 0, 1e15,
                   "updates after which the rate is the first one divided by the root of 2; 0: "
                   "warmup_steps or, without them, 10,000"),
    TRI_OPTION_CHOICE(S, every, "step", units, "unit of timescale; has to be step"),
};
static const tri_option plateau_rows[] = {
    TRI_OPTION_STRING(S, monitor, "val_loss", "the metric that has to improve"),
    TRI_OPTION_CHOICE(S, mode, "min", tri_monitor_modes,
                      "min: lower is better; max: higher is; not set: as the metric's name says"),
    TRI_OPTION_FLOAT(S, factor, "0.1", 0, 1, "factor on the rate where the metric stays"),
    TRI_OPTION_INT(S, patience, "10", 0, 1e9,
                   "evaluations without improvement that change nothing yet"),
    TRI_OPTION_FLOAT(S, threshold, "1e-4", 0, 1e30, "a smaller change is no improvement"),
    TRI_OPTION_CHOICE(S, threshold_mode, "rel", threshold_modes,
                      "rel: the threshold is a fraction of the best value; abs: a difference"),
    TRI_OPTION_INT(S, cooldown, "0", 0, 1e9, "evaluations that are ignored after each change"),
    TRI_OPTION_FLOAT(S, min_lr, "0", 0, 1e6, "the lowest learning rate"),
    TRI_OPTION_FLOAT(S, eps, "1e-8", 0, 1e6, "a smaller change of the rate is not made"),
};
static const tri_option cosine_rows[] = {
    TRI_OPTION_INT(
        S, T_max, "0", 0, 1e15,
        "when the rate reaches its minimum, after which it rises again; 0: at the end of "
        "the run"),
    TRI_OPTION_FLOAT(S, eta_min, "0", 0, 1e6, "the smallest learning rate"),
    TRI_OPTION_CHOICE(S, every, "epoch", units, "unit of T_max; step: updates"),
};
static const tri_option onecycle_rows[] = {
    TRI_OPTION_FLOAT(S, max_lr, "0", 0, 1e6, "the peak; 0: optimizer.lr"),
    TRI_OPTION_FLOAT(S, pct_start, "0.3", 0, 1, "fraction of the cycle in which the rate rises"),
    TRI_OPTION_FLOAT(S, div_factor, "25", 1e-6, 1e12, "the peak divided by the first rate"),
    TRI_OPTION_FLOAT(S, final_div_factor, "1e4", 1e-6, 1e12,
                     "the first rate divided by the last rate"),
    TRI_OPTION_CHOICE(S, anneal_strategy, "cos", anneals, "shape of rise and fall"),
    TRI_OPTION_INT(S, total_steps, "0", 0, 1e15, "updates of the cycle; 0: the whole run"),
    TRI_OPTION_BOOL(S, cycle_momentum, "false",
                    "vary momentum opposite to the learning rate; true is not supported"),
    TRI_OPTION_CHOICE(S, every, "step", units, "unit of the cycle; has to be step"),
};
static const tri_option warmup_rows[] = {
    TRI_OPTION_CHOICE(S, warmup_type, "log", warmups, "the shape of the rise"),
    TRI_OPTION_FLOAT(S, warmup_min_lr, "0", 0, 1e6, "the learning rate at the start"),
    TRI_OPTION_FLOAT(S, max_lr, "0", 0, 1e6, "the peak; 0: optimizer.lr"),
};
static const tri_option warmup_decay_rows[] = {
    TRI_OPTION_CHOICE(S, warmup_type, "log", warmups, "the shape of the rise"),
    TRI_OPTION_FLOAT(S, warmup_min_lr, "0", 0, 1e6, "the learning rate at the start and the end"),
    TRI_OPTION_FLOAT(S, max_lr, "0", 0, 1e6, "the peak; 0: optimizer.lr"),
    TRI_OPTION_INT(S, total_steps, "0", 0, 1e15, "updates of rise and fall; 0: the whole run"),
};
static const tri_option warmup_cosine_rows[] = {
    TRI_OPTION_CHOICE(S, warmup_type, "log", warmups, "the shape of the rise"),
    TRI_OPTION_FLOAT(S, warmup_min_ratio, "0", 0, 1, "factor on optimizer.lr at the start"),
    TRI_OPTION_FLOAT(S, cos_min_ratio, "0.0001", 0, 1, "factor on optimizer.lr at the end"),
    TRI_OPTION_INT(S, total_steps, "0", 0, 1e15, "updates of rise and fall; 0: the whole run"),
};
static const tri_option triangle_rows[] = {
    TRI_OPTION_FLOAT(S, min_lr, "0", 0, 1e6, "the learning rate at both ends of the cycle"),
    TRI_OPTION_FLOAT(S, max_lr, "0", 0, 1e6, "the peak; 0: optimizer.lr"),
    TRI_OPTION_INT(S, first_steps, "2000", 1, 1e15, "updates of the rise"),
    TRI_OPTION_INT(S, second_steps, "0", 0, 1e15, "updates of the fall; 0: as many as first_steps"),
    TRI_OPTION_INT(S, first_stairs, "0", 0, 1e15, "stairs of the rise; 0: a straight line"),
    TRI_OPTION_INT(S, second_stairs, "-1", -1, 1e15,
                   "stairs of the fall; -1: as many as first_stairs"),
    TRI_OPTION_INT(S, decay_steps, "0", 0, 1e15,
                   "after the cycle, updates to which decay_rate refers; 0: no decay"),
    TRI_OPTION_FLOAT(S, decay_rate, "0", 0, 1e6,
                     "after the cycle: min_lr / (1 + decay_rate * t / decay_steps)"),
};
static const tri_option_variant schedules[] = {
    {.name = "constant", .help = "always optimizer.lr"},
    TRI_OPTION_VARIANT("step", step_rows, "multiplied by gamma at regular intervals"),
    TRI_OPTION_VARIANT("linear", linear_rows, "changes along a straight line"),
    TRI_OPTION_VARIANT("polynomial", polynomial_rows,
                       "falls as a power of the time left: PyTorch's PolynomialLR"),
    TRI_OPTION_VARIANT("cosine", cosine_rows, "falls along half a cosine"),
    TRI_OPTION_VARIANT("cosine_restarts", restarts_rows,
                       "falls along half a cosine, again and again: PyTorch's "
                       "CosineAnnealingWarmRestarts"),
    TRI_OPTION_VARIANT("inverse_sqrt", inverse_sqrt_rows,
                       "falls as the inverse root of the number of updates"),
    TRI_OPTION_VARIANT("plateau", plateau_rows,
                       "falls where a metric stops improving: PyTorch's ReduceLROnPlateau"),
    TRI_OPTION_VARIANT("onecycle", onecycle_rows, "rises, then falls: PyTorch's OneCycleLR"),
    TRI_OPTION_VARIANT("warmup", warmup_rows, "rises, then is constant: DeepSpeed's WarmupLR"),
    TRI_OPTION_VARIANT("warmup-decay", warmup_decay_rows,
                       "rises, then falls along a straight line: DeepSpeed's WarmupDecayLR"),
    TRI_OPTION_VARIANT("warmup-cosine", warmup_cosine_rows,
                       "rises, then falls along half a cosine: DeepSpeed's WarmupCosineLR"),
    TRI_OPTION_VARIANT("triangle", triangle_rows,
                       "rises and falls along straight lines, then decays: DeepSpeed's OneCycle"),
};

static tri_status check_schedule(const void *options, const tri_tree *map) {
    const S *o = options;
    bool counts_steps =
        o->name && (!strcmp(o->name, "onecycle") || !strcmp(o->name, "inverse_sqrt"));
    if (counts_steps && o->every != TRI_EVERY_STEP)
        return tri_tree_fail(tri_tree_get(map, "every"), "'schedule.every' of %s has to be step",
                             o->name);
    return TRI_OK;
}

const tri_option_table tri_schedule_table = TRI_OPTION_TABLE(
    "schedule", S, schedule_rows, "the learning rate over time", .variants = schedules,
    .variant_count = TRI_OPTION_COUNT(schedules), .check = check_schedule);
