// The option table of a recipe's section `checkpoint`. Recipes are read and checked with the table,
// and the manual is printed from it.
#include "checkpoint/options.h"

#include <string.h>
#include <strings.h>

#define S tri_checkpoint_options

const char *const tri_monitor_modes[] = {"min", "max", NULL};

// The words of names of metrics that fall, and of those that rise, as a model learns. '*': a word
// may end in this, too, as "diceloss" does. A number behind a word is no part of it ("top5").
static const char *const falling[] = {
    "*loss",    "losses",   "*error",     "errors", "err", "mae",   "mse",        "rmse",
    "mape",     "l1",       "l2",         "nll",    "ce",  "bce",   "perplexity", "ppl",
    "cer",      "wer",      "brier",      "ece",    "fid", "kl",    "bpb",        "bpc",
    "*entropy", "distance", "divergence", "regret", "ctc", "huber", NULL};
static const char *const rising[] = {"*accuracy",   "acc",         "*auc",    "auroc", "auprc",
                                     "ap",          "bleu",        "correct", "match", "dice",
                                     "f1",          "*iou",        "jaccard", "kappa", "map",
                                     "mcc",         "mrr",         "ndcg",    "psnr",  "precision",
                                     "r2",          "recall",      "reward",  "rouge", "*score",
                                     "sensitivity", "specificity", "ssim",    "top",   NULL};

// Whether the word, of `length` bytes, is one of `words`.
static bool is_one_of(const char *word, size_t length, const char *const *words) {
    for (int i = 0; words[i]; i++) {
        bool is_ending = *words[i] == '*';
        size_t wanted = strlen(words[i] + is_ending);
        if (wanted > length || (wanted < length && !is_ending)) continue;
        if (!strncasecmp(word + length - wanted, words[i] + is_ending, wanted)) return true;
    }
    size_t letters = length;
    while (letters > 0 && word[letters - 1] >= '0' && word[letters - 1] <= '9') letters--;
    return letters > 0 && letters < length && is_one_of(word, letters, words);
}

bool tri_monitor_mode_known(const char *monitor, tri_monitor_mode *mode) {
    bool falls = false, rises = false, ends_falling = false;
    for (const char *word = monitor; word && *word;) {
        size_t length = strcspn(word, "_-@./ ");
        ends_falling = is_one_of(word, length, falling);
        falls = falls || ends_falling;
        rises = rises || (!ends_falling && is_one_of(word, length, rising));
        word += length + (word[length] != 0);
    }
    // "dice_loss" falls, because a name's last word says what it is; "error_recall" may do either.
    bool is_clear = ends_falling || falls != rises;
    *mode = is_clear && !ends_falling && rises ? TRI_MONITOR_MAX : TRI_MONITOR_MIN;
    return is_clear;
}

tri_monitor_mode tri_monitor_mode_of(const char *monitor) {
    tri_monitor_mode mode;
    tri_monitor_mode_known(monitor, &mode);
    return mode;
}

static const tri_option rows[] = {
    TRI_OPTION_INT(S, every_n_epochs, "1", 0, 1e9, "save after every so many epochs; 0: never"),
    TRI_OPTION_INT(S, every_n_steps, "0", 0, 1e15, "save after every so many steps; 0: never"),
    TRI_OPTION_DURATION(S, train_time_interval, "0", "save when so much time has passed; 0: never"),
    TRI_OPTION_BOOL(S, save_last, "true", "save when the run is complete"),
    TRI_OPTION_BOOL(S, async, "true",
                    "copy the state, and write the copy while training continues"),
    TRI_OPTION_INT(
        S, save_top_k, "1", -1, 1e6,
        "best checkpoints to keep, also saved between those that are due; -1: all that are "
        "due, 0: none"),
    TRI_OPTION_STRING(S, monitor, "val_loss", "the metric that decides which is best"),
    TRI_OPTION_CHOICE(S, mode, "min", tri_monitor_modes,
                      "min: lower is better; max: higher is; not set: as the metric's name says, "
                      "max for accuracy and its like (guide/train.md)"),
};

const tri_option_table tri_checkpoint_table =
    TRI_OPTION_TABLE("checkpoint", S, rows, "when to save, and what to keep");
