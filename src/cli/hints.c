// Prints, after a run, commands that the user can paste. They show the run's curves, evaluate it,
// train it longer, or repeat it on all cores. Each is one row of a table; tests/cli/test_hints.py
// runs every printed command.
#include "cli/hints.h"

#include "base/cores.h"
#include "base/os.h"
#include "base/shell.h"
#include "data/dataset.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void print_word(const char *word) {
    tri_arena *arena = tri_arena_create(NULL, "word");
    printf(" %s", tri_shell_word(arena, word));
    tri_arena_destroy(arena);
}

static void print_path(const cli_hints *h, const char *below) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", h->request->run_dir, below);
    print_word(path);
}

static bool steps_are_done(const cli_hints *h) {
    int64_t most = h->request->recipe->trainer.max_steps;
    return most >= 0 && h->result->steps >= most;
}

static bool epochs_are_done(const cli_hints *h) {
    int64_t most = h->request->recipe->trainer.max_epochs;
    return most >= 0 && h->result->epochs >= most;
}

static bool is_stopped_by(const cli_hints *h, const char *key) {
    const char *by = h->result->stopped_by;
    return by && !strcmp(by, key);
}
static bool has_waited(const cli_hints *h) {
    return is_stopped_by(h, "trainer.early_stopping.patience");
}
static bool has_reached(const cli_hints *h) {
    return is_stopped_by(h, "trainer.early_stopping.stopping_threshold");
}
static bool has_diverged(const cli_hints *h) {
    return is_stopped_by(h, "trainer.early_stopping.divergence_threshold");
}

static int64_t more_steps(const cli_hints *h) { return 2 * h->result->steps; }
static int64_t more_epochs(const cli_hints *h) { return h->result->epochs + 2; }
static int64_t more_patience(const cli_hints *h) {
    return h->request->recipe->trainer.early_stopping.patience + 2;
}

// The limits that may have ended the run. The command that trains longer raises those that have,
// and leaves the others as they are. trainer.max_time is not one of them, because it limits a
// process, not the run.
static const struct {
    const char *key;
    bool (*is_reached)(const cli_hints *hints);
    int64_t (*raised)(const cli_hints *hints); // NULL: it is taken away
} limits[] = {
    {"trainer.max_steps", steps_are_done, more_steps},
    {"trainer.max_epochs", epochs_are_done, more_epochs},
    {"trainer.early_stopping.patience", has_waited, more_patience},
    {"trainer.early_stopping.stopping_threshold", has_reached, NULL},
    {"trainer.early_stopping.divergence_threshold", has_diverged, NULL},
};
enum { LIMITS = sizeof limits / sizeof *limits };

// Whether the override sets a limit that the command that trains longer raises.
static bool sets_end(const cli_hints *h, const char *word) {
    for (int i = 0; i < LIMITS; i++) {
        size_t length = strlen(limits[i].key);
        if (!strncmp(word, limits[i].key, length) && word[length] == '=')
            return limits[i].is_reached(h);
    }
    return false;
}

// Prints the recipe and the overrides that the user gave, so that the printed command does the same
// training. `without_end` leaves out overrides of limits that are raised.
static void print_recipe(const cli_hints *h, bool without_end) {
    const cli_arguments *a = h->arguments;
    for (int i = 0; i < a->count; i++) {
        bool is_end = sets_end(h, a->words[i]);
        if (!(i > 0 && is_end && without_end)) print_word(a->words[i]);
    }
}

static void print_device(const cli_hints *h) {
    if (!cli_has(h->arguments, "device")) return;
    printf(" --device");
    print_word(cli_value(h->arguments, "device"));
}

static bool has_curves(const cli_hints *h) { return h->request->recipe->log.tensorboard; }

static void print_curves(const cli_hints *h) {
    printf(" tensorboard --logdir");
    print_path(h, "/tensorboard");
}

// Whether the run folder has the symbolic link, and it leads to a checkpoint. A folder in its place
// is a copy that goes out of date.
static bool has_link(const cli_hints *h, const char *below) {
    char path[PATH_MAX];
    struct stat info;
    snprintf(path, sizeof path, "%s%s", h->request->run_dir, below);
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode) && access(path, F_OK) == 0;
}

static bool has_checkpoint(const cli_hints *h) {
    const tri_recipe *recipe = h->request->recipe;
    bool has_data =
        tri_data_has(&recipe->data, TRI_DATA_TEST) || tri_data_has(&recipe->data, TRI_DATA_VAL);
    return has_data && recipe->trainer.limit_val_batches.value > 0 &&
           (h->result->has_best || has_link(h, "/checkpoints/last"));
}

// Prints how to evaluate the run. The recipe can be left out, because `eval` finds it in the run
// folder of the checkpoint.
static void print_evaluate(const cli_hints *h) {
    print_word(h->context->program);
    printf(" eval --checkpoint");
    char below[64] = "/checkpoints/last";
    const tri_train_result *r = h->result;
    if (r->has_best) snprintf(below, sizeof below, "/checkpoints/%s", r->best.name);
    print_path(h, below);
    print_device(h);
}

// Whether a command that continues the run can be shown. It cannot for a run on several hosts,
// because the command that started ranks on all of them is not known here.
static bool can_go_on(const cli_hints *h) {
    return has_link(h, "/checkpoints/last") && h->result->hosts == 1;
}

static void print_go_on(const cli_hints *h) {
    const tri_train_result *r = h->result;
    print_word(h->context->program);
    if (r->ranks > 1) {
        printf(" run --standalone --nproc-per-node %d", r->ranks);
        print_word(h->context->program);
    }
    printf(" train");
    print_recipe(h, true);
    for (int i = 0; i < LIMITS; i++)
        if (limits[i].is_reached(h) && limits[i].raised)
            printf(" %s=%lld", limits[i].key, (long long)limits[i].raised(h));
        else if (limits[i].is_reached(h))
            printf(" %s=null", limits[i].key);
    printf(" --run-dir");
    print_path(h, "");
    print_device(h);
}

// Whether the run leaves cores idle, and one rank on each core could do the same training. If the
// model has batch norm, the printed command normalises over the whole step
// (trainer.sync_batchnorm). Then the epoch's last step, which may be smaller, must have a sample
// for each rank.
static bool leaves_cores(const cli_hints *h) {
    const tri_train_result *r = h->result;
    const tri_recipe *recipe = h->request->recipe;
    int64_t cores = tri_cores();
    bool has_tail = r->tail_samples > 0 && r->tail_samples < cores;
    return r->ranks == 1 && r->threads < cores && r->device_is_host &&
           recipe->strategy.name != TRI_STRATEGY_SINGLE && recipe->batch.global >= cores &&
           !(r->has_statistics && has_tail);
}

static void print_all_cores(const cli_hints *h) {
    const tri_recipe *recipe = h->request->recipe;
    print_word(h->context->program);
    printf(" run --standalone --nproc-per-node auto");
    print_word(h->context->program);
    printf(" train");
    print_recipe(h, false);
    if (h->result->has_statistics && recipe->batch.micro == 0 && !recipe->trainer.sync_batchnorm)
        printf(" trainer.sync_batchnorm=true");
    printf(" --run-dir");
    print_path(h, "-all-cores");
    print_device(h);
}

static const struct {
    const char *label;
    bool (*applies)(const cli_hints *hints);
    void (*print)(const cli_hints *hints);
} rows[] = {
    {"curves", has_curves, print_curves},
    {"evaluate", has_checkpoint, print_evaluate},
    {"go on", can_go_on, print_go_on},
    {"all cores", leaves_cores, print_all_cores},
};

void cli_print_hints(const cli_hints *hints) {
    printf("run folder: %s\n", hints->request->run_dir);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].applies(hints)) continue;
        printf("  %s:%*s", rows[i].label, (int)(9 - strlen(rows[i].label)), "");
        rows[i].print(hints);
        printf("\n");
    }
}
