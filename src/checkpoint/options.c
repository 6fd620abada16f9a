// The option table of a recipe's section `checkpoint`. Recipes are read and checked with the table,
// and the manual is printed from it.
#include "checkpoint/options.h"

#include <string.h>
#include <strings.h>

#define S tri_checkpoint_options

const char *const tri_monitor_modes[] = {"min", "max", NULL};

static bool has_word(const char *name, const char *const *words) {
    for (const char *word = name; word && *word;) {
        size_t length = strcspn(word, "_");
        for (int i = 0; words[i]; i++)
            if (strlen(words[i]) == length && !strncasecmp(word, words[i], length)) return true;
        word += length + (word[length] != 0);
    }
    return false;
}

bool tri_monitor_mode_known(const char *monitor, tri_monitor_mode *mode) {
    // "val_dice_loss" falls: what is lost, or wrong, decides before what it is measured by.
    static const char *const falling[] = {"loss", "error",      "err", "mae", "mse", "rmse",
                                          "nll",  "perplexity", "ppl", "cer", "wer", NULL};
    static const char *const rising[] = {
        "accuracy", "acc",       "auc", "auroc",  "bleu",  "correct", "dice", "f1",   "iou",  "map",
        "psnr",     "precision", "r2",  "recall", "rouge", "score",   "ssim", "top1", "top5", NULL};
    bool falls = has_word(monitor, falling), rises = !falls && has_word(monitor, rising);
    *mode = rises ? TRI_MONITOR_MAX : TRI_MONITOR_MIN;
    return falls || rises;
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
    TRI_OPTION_BOOL(S, save_last, "true", "save when the run ends"),
    TRI_OPTION_BOOL(S, async, "true",
                    "copy the state, and write the copy while training continues"),
    TRI_OPTION_INT(
        S, save_top_k, "1", -1, 1e6,
        "best checkpoints to keep, also saved between those that are due; -1: all that are "
        "due, 0: none"),
    TRI_OPTION_STRING(S, monitor, "val_loss", "the metric that decides which is best"),
    TRI_OPTION_CHOICE(S, mode, "min", tri_monitor_modes,
                      "min: lower is better; max: higher is; not set: as the metric's name says, "
                      "max for accuracy and its like"),
};

const tri_option_table tri_checkpoint_table =
    TRI_OPTION_TABLE("checkpoint", S, rows, "when to save, and what to keep");
