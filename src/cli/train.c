// `trireme train` and `trireme eval`: run a recipe, or evaluate a checkpoint, and print the
// results. Read next: recipe/recipe.c, which reads the recipe.
#include "train/train.h"
#include "cli/cli.h"

#include "base/option_manual.h"
#include "base/os.h"
#include "base/quantity.h"
#include "cli/class_table.h"
#include "cli/hints.h"
#include "device/choose.h"
#include "recipe/resumed.h"
#include "train/signals.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A number as metrics.jsonl has it.
static tri_tree *number(tri_arena *arena, double value) {
    return tri_metric_tree(arena, &(tri_metric_value){.value = value});
}

static void print_json(const tri_train_request *request, const tri_train_result *r) {
    tri_arena *arena = tri_arena_create(NULL, "summary");
    tri_tree *map = tri_tree_map(arena);
    tri_tree_put(arena, map, "name", tri_tree_string(arena, request->recipe->name));
    tri_tree_put(arena, map, "run_dir", tri_tree_string(arena, request->run_dir));
    tri_tree_put(arena, map, "status",
                 tri_tree_string(arena, r->was_complete ? "was complete" : "completed"));
    tri_tree_put(arena, map, "ranks", tri_tree_int(arena, r->ranks));
    tri_tree_put(arena, map, "steps", tri_tree_int(arena, r->steps));
    tri_tree_put(arena, map, "epochs", tri_tree_int(arena, r->epochs));
    tri_tree_put(arena, map, "samples", tri_tree_int(arena, r->samples));
    tri_tree_put(arena, map, "wall_s", tri_tree_double(arena, r->wall_s));
    tri_tree_put(arena, map, "samples_per_s", tri_tree_double(arena, r->samples_per_s));
    if (r->waiting_fraction > 0)
        tri_tree_put(arena, map, "waiting", tri_tree_double(arena, r->waiting_fraction));
    if (r->starved_cores > 0)
        tri_tree_put(arena, map, "cores", tri_tree_double(arena, r->starved_cores));
    if (r->has_loss) {
        tri_tree_put(arena, map, "loss", number(arena, r->loss));
        tri_tree_put(arena, map, "grad_norm", number(arena, r->grad_norm));
    }
    if (r->has_val) tri_tree_put(arena, map, "val_step", tri_tree_int(arena, r->val_step));
    if (r->has_val) tri_tree_put(arena, map, "val_loss", number(arena, r->val_loss));
    for (int i = 0; r->has_val && i < r->val_count; i++)
        tri_tree_put(arena, map, tri_arena_printf(arena, "val_%s", r->val[i].name),
                     number(arena, r->val[i].value));
    if (r->has_test) tri_tree_put(arena, map, "test_step", tri_tree_int(arena, r->steps));
    if (r->has_test) tri_tree_put(arena, map, "test_loss", number(arena, r->test_loss));
    for (int i = 0; r->has_test && i < r->val_count; i++)
        tri_tree_put(arena, map, tri_arena_printf(arena, "test_%s", r->val[i].name),
                     number(arena, r->test[i]));
    if (r->has_best) {
        tri_tree *best = tri_tree_map(arena);
        tri_tree_put(arena, best, "step", tri_tree_int(arena, r->best.step));
        tri_tree_put(arena, best, request->recipe->checkpoint.monitor,
                     number(arena, r->best.value));
        tri_tree_put(arena, map, "best", best);
    }
    tri_tree_put(
        arena, map, "evaluated_on",
        tri_tree_string(arena, tri_val_source_names[r->has_val ? r->val_source : TRI_VAL_NONE]));
    printf("%s\n", tri_json_emit(arena, map));
    tri_arena_destroy(arena);
}

// Returns text such as "; 2 threads got 0.9 of a core" if other programs, or too many threads, kept
// the cores busy; else "".
static const char *cores_text(const tri_train_result *r) {
    static char text[80];
    if (r->starved_cores == 0 || !r->device_is_host) return "";
    snprintf(text, sizeof text,
             r->starved_cores < 0.95 ? "; %s got %.1f of a core" : "; %s got %.1f cores",
             tri_counted(r->threads, "thread"), r->starved_cores);
    return text;
}

enum { MOST_WAITING_PERCENT = 20, LEAST_S = 5 };

// Prints in which fraction of the time the rank waited for data, and ranks of several hosts for
// each other, if it is large. In the latter case the network is slow, or one rank is slow
// (observe/straggler.c names such a rank). In a short run it prints nothing, because the first
// steps, which are slower, would dominate.
static void print_waiting(const tri_train_result *r) {
    if (r->wall_s <= LEAST_S) return;
    if (100 * r->data_fraction > MOST_WAITING_PERCENT)
        printf("data: training waited for them in %.0f%% of the steps' time; `trireme bench data "
               "RECIPE` says what would help\n",
               100 * r->data_fraction);
    if (r->hosts > 1 && 100 * r->waiting_fraction > MOST_WAITING_PERCENT)
        printf("waiting: %.0f%% of the steps' time, for ranks of other hosts or the network; "
               "`trireme preflight` measures the links\n",
               100 * r->waiting_fraction);
}

// Prints the result of an evaluation, and of which weights it is. `metrics` NULL: those of r->val.
static void print_evaluation(const tri_train_result *r, const char *name, int64_t step, double loss,
                             const double *metrics) {
    printf("%s: loss %s", name, tri_decimal(loss));
    for (int i = 0; i < r->val_count; i++)
        printf(", %s %s", r->val[i].name, tri_decimal(metrics ? metrics[i] : r->val[i].value));
    int64_t samples = metrics ? r->test_samples : r->val_samples;
    printf(" (%s), ", tri_counted(samples, "sample"));
    if (step == r->steps)
        printf("the final weights");
    else
        printf("the weights of step %s", tri_grouped((double)step));
    printf(r->uses_averages ? ", averaged\n" : "\n");
}

static void print_summary(const cli_context *context, const tri_train_request *request,
                          const tri_train_result *r, const cli_arguments *a) {
    const char *name = request->recipe->name;
    const tri_trainer_options *t = &request->recipe->trainer;
    if (r->was_complete)
        printf("%s: is complete already, %s; change %s to go on\n", name,
               tri_counted(r->steps, "step"),
               t->max_steps >= 0 && r->steps >= t->max_steps ? "trainer.max_steps"
               : r->stopped_by                               ? r->stopped_by
                                                             : "trainer.max_epochs");
    else
        printf("%s: %s, %s samples/s on %s, %s%s\n", name, tri_counted(r->steps, "step"),
               tri_grouped(r->samples_per_s), tri_counted(r->ranks, "rank"),
               tri_duration_text(r->wall_s), cores_text(r));
    if (*r->end_reason) printf("stopped early: %s\n", r->end_reason);
    print_waiting(r);
    if (r->has_val)
        print_evaluation(r, tri_val_source_names[r->val_source], r->val_step, r->val_loss, NULL);
    if (r->has_test) print_evaluation(r, "test", r->steps, r->test_loss, r->test);
    if (r->has_best)
        printf("best: %s %s at step %s (checkpoints/%s)\n", request->recipe->checkpoint.monitor,
               tri_decimal(r->best.value), tri_grouped((double)r->best.step), r->best.name);
    else if (request->recipe->checkpoint.save_top_k < 0)
        printf("best: none, because no evaluation was of a step whose checkpoint was due "
               "(checkpoint.save_top_k=-1)\n");
    if (r->has_loss && !r->has_val && !r->has_test)
        printf("training: loss %s, that of the last step\n", tri_decimal(r->loss));
    cli_hints hints = {context, request, r, a};
    if (t->fast_dev_run == 0) cli_print_hints(&hints);
    if (r->has_val && r->val_source == TRI_VAL_TEST && t->fast_dev_run == 0)
        printf("the epochs were evaluated on the test data%s%s; "
               "data.val or data.val_fraction=0.1 keeps test data for the end\n",
               r->has_best ? ", which also chose checkpoints/" : "", r->best.name);
}

static const cli_flag train_flags[] = {
    {"run-dir", "DIR", "folder for the run's files (runs/<name>)", 0},
    {"resume", "auto|never|PATH", "auto: resume from the newest complete checkpoint", 0},
    {"until-epoch", "N", "stop after so many epochs of the run, with code 75", 0},
    {"resume-with", CLI_SETTINGS, "resume with other values of keys such as optimizer.lr", 0},
    CLI_DEVICE_FLAG("the device that computes"),
    {"trace", "FILE", "write the actions of all ranks and lanes for ui.perfetto.dev", 0},
    {"json", NULL, "print the summary as JSON", 0},
    {"quiet", NULL, "only warnings and errors on standard error, no progress", 0},
    {"keys", NULL, "list the keys of a recipe: all, or those of the sections named", 0},
    {0}};

// Prints the keys that begin with one of the words; without words, all keys. The options of a
// user's own model cannot be listed, because the model's code reads them only while the graph is
// built.
static int print_keys(const cli_context *context, const cli_arguments *a) {
    bool of_model = a->count == 0;
    for (int i = 0; i < a->count; i++)
        of_model = of_model || !strncmp(a->words[i], "model", strlen("model"));
    if (context->task && of_model)
        printf("This program's model is %s; the options under `model` are those that its build "
               "function reads\nby tri_model_int, tri_model_float, tri_model_bool and "
               "tri_model_text.\n\n",
               context->task->name);
    for (int i = 0; i < a->count; i++)
        if (!tri_option_print(&tri_recipe_table, a->words[i], stdout))
            return cli_usage(&cli_train,
                             access(a->words[i], F_OK) == 0
                                 ? "--keys: %s is a file, but all recipes have the same keys; "
                                   "leave it out, or name sections such as optimizer"
                                 : "--keys: no key begins with '%s'",
                             a->words[i]);
    if (a->count == 0) tri_option_print(&tri_recipe_table, "", stdout);
    return 0;
}

void cli_warn_of_null(const cli_arguments *a, const char *consequence) {
    tri_device_description device;
    const char *name = cli_value(a, "device");
    if (!name || tri_device_describe(cli_backends.devices, name, &device) != TRI_OK) return;
    if (!strcmp(device.backend->name, "null"))
        cli_warn("--device %s computes nothing: %s", name, consequence);
}

static void warn_idle_flags(const cli_arguments *a, const tri_recipe *recipe) {
    static const char *const of_the_folder[] = {"run-dir", "resume"};
    for (size_t i = 0; recipe->trainer.fast_dev_run && i < 2; i++)
        if (cli_has(a, of_the_folder[i]))
            cli_warn("--%s has no effect: trainer.fast_dev_run saves nothing", of_the_folder[i]);
}

// Loads the recipe that the first word names, as the run in the run folder, if there is one, has
// changed it.
static tri_status load_to_train(tri_arena *arena, const cli_context *context,
                                const cli_arguments *a, tri_recipe *out) {
    return tri_recipe_resume(
        arena,
        &(tri_recipe_resumption){.path = a->words[0],
                                 .overrides = (const char *const *)a->words + 1,
                                 .count = a->count - 1,
                                 .task = context->task ? context->task->name : NULL,
                                 .run_dir = cli_value(a, "run-dir"),
                                 .resume = cli_has(a, "resume") ? cli_value(a, "resume") : "auto",
                                 .changes = a->settings,
                                 .change_count = a->setting_count},
        out);
}

static int run_train(const cli_context *context, int argc, char **argv) {
    cli_arguments a;
    int code = cli_parse(&cli_train, argc, argv, &a);
    if (code >= 0) return code;
    if (cli_has(&a, "keys")) return print_keys(context, &a);
    if (a.count < 1) return cli_usage(&cli_train, "train: which recipe?");
    tri_arena *arena = tri_arena_create(NULL, "command");
    tri_recipe recipe;
    tri_status status = load_to_train(arena, context, &a, &recipe);
    tri_train_result result;
    tri_train_request request = {.backends = &cli_backends,
                                 .recipe = &recipe,
                                 .task = context->task,
                                 .device = cli_has(&a, "device") ? cli_value(&a, "device") : "auto",
                                 .resume = cli_has(&a, "resume") ? cli_value(&a, "resume") : "auto",
                                 .trace = cli_value(&a, "trace")};
    if (status == TRI_OK)
        status = cli_read_whole(&a, "until-epoch", 1, 1000000000, &request.until_epoch);
    if (status == TRI_OK) status = cli_check_output("trace", request.trace, a.words[0]);
    if (status == TRI_OK) {
        warn_idle_flags(&a, &recipe);
        request.run_dir = cli_value(&a, "run-dir");
        if (!request.run_dir) request.run_dir = tri_arena_printf(arena, "runs/%s", recipe.name);
        request.quiet = cli_has(&a, "quiet");
        status = cli_bind_rank(&request.bound_cores);
    }
    if (status == TRI_OK) status = tri_train(&request, &result);
    if (status == TRI_OK && result.rank == 0) {
        cli_warn_of_null(&a, "neither losses nor checkpoints mean anything");
        if (cli_has(&a, "json"))
            print_json(&request, &result);
        else
            print_summary(context, &request, &result, &a);
    }
    code = status == TRI_OK ? 0 : cli_fail(status);
    // Signals were caught up to here, so that none could end a run that is complete, or that has
    // failed and not printed why.
    tri_signals_unwatch();
    tri_arena_destroy(arena);
    return code;
}

const cli_command cli_train = {
    .name = "train",
    .arguments = "RECIPE [key.path=value ...]",
    .help = "Train a recipe's model.",
    .flags = train_flags,
    .more =
        "Ctrl-C, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU and a closed terminal save a checkpoint and "
        "end "
        "the run\nwith exit code 75; the same command resumes it. --resume-with resumes it with "
        "other values of the "
        "keys that\n--keys marks so. --until-epoch ends the run early too, but with the schedules "
        "of its whole\nlength. A recipe may name a shared object as its model. That is code "
        "which runs with\nyour rights, so read recipes of other people before you train them.\n",
    .examples =
        "trireme train recipes/mnist-cnn.yaml\n"
        "trireme train recipes/mnist-cnn.yaml optimizer.name=adam trainer.max_epochs=1 --run-dir "
        "runs/adam\n"
        "trireme train recipes/mnist-cnn.yaml trainer.fast_dev_run=true\n"
        "trireme train recipes/mnist-cnn.yaml --resume-with optimizer.lr=0.1\n"
        "trireme train --keys optimizer\n",
    .keeps_results = true,
    .run = run_train};

// Finds the recipe.yaml of a run. `path` is the run folder, a checkpoint in it, or a file of a
// checkpoint. *out is NULL if there is none.
static tri_status recipe_of_run(tri_arena *arena, const char *path, const char **out) {
    enum { LEVELS = 5 }; // RUN/checkpoints/abandoned-N/step-N/FILE
    char folder[PATH_MAX];
    *out = NULL;
    if (!realpath(path, folder)) return tri_os_fail("open", path);
    for (int i = 0; i < LEVELS && *folder; i++) {
        bool is_there;
        const char *file = tri_arena_printf(arena, "%s/recipe.yaml", folder);
        TRI_TRY(tri_os_exists(file, &is_there));
        if (is_there) {
            *out = file;
            return TRI_OK;
        }
        *strrchr(folder, '/') = 0;
    }
    return TRI_OK;
}

tri_status cli_load_evaluated(tri_arena *arena, const cli_context *context, const cli_arguments *a,
                              tri_recipe *out) {
    const char *checkpoint = cli_value(a, "checkpoint");
    const char *const *words = (const char *const *)a->words;
    bool is_named = a->count > 0 && (!strchr(words[0], '=') || access(words[0], F_OK) == 0);
    const char *path = words[0];
    if (!is_named) {
        tri_status status = recipe_of_run(arena, checkpoint, &path);
        if (status != TRI_OK) return tri_status_context(status, "--checkpoint");
    }
    if (!path)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "--checkpoint: %s is not in a run folder, so its recipe is not known: name "
                        "it, trireme %s RECIPE --checkpoint PATH",
                        checkpoint, a->command->name);
    return tri_recipe_load(arena, path, words + is_named, a->count - is_named,
                           context->task ? context->task->name : NULL, out);
}

static const cli_flag eval_flags[] = {
    {"checkpoint", "PATH", "a checkpoint, a run folder or a .safetensors file", 0},
    CLI_DEVICE_FLAG("the device that computes"),
    {"json", NULL, "print the result as JSON", 0},
    {0}};

static int run_eval(const cli_context *context, int argc, char **argv) {
    cli_arguments a;
    int code = cli_parse(&cli_eval, argc, argv, &a);
    if (code >= 0) return code;
    if (!cli_has(&a, "checkpoint")) return cli_usage(&cli_eval, "eval: --checkpoint is missing");
    tri_arena *arena = tri_arena_create(NULL, "command");
    tri_recipe recipe;
    tri_status status = cli_load_evaluated(arena, context, &a, &recipe);
    tri_train_result r;
    int cores;
    if (status == TRI_OK) status = cli_bind_rank(&cores);
    if (status == TRI_OK) {
        status = tri_evaluate(
            &(tri_eval_request){.backends = &cli_backends,
                                .recipe = &recipe,
                                .task = context->task,
                                .device = cli_has(&a, "device") ? cli_value(&a, "device") : "auto",
                                .checkpoint = cli_value(&a, "checkpoint"),
                                .arena = arena},
            &r);
    }
    if (status == TRI_OK && r.rank == 0) {
        cli_warn_of_null(&a, "the results mean nothing");
        bool json = cli_has(&a, "json");
        tri_tree *map = tri_tree_map(arena);
        tri_tree_put(arena, map, "loss", number(arena, r.val_loss));
        tri_metrics_put(arena, map, r.val, r.val_count);
        tri_tree_put(arena, map, "samples", tri_tree_int(arena, r.val_samples));
        tri_tree_put(arena, map, "evaluated_on",
                     tri_tree_string(arena, tri_val_source_names[r.val_source]));
        if (json) {
            printf("%s\n", tri_json_emit(arena, map));
        } else {
            printf("%s: loss %.6g", tri_val_source_names[r.val_source], r.val_loss);
            for (int i = 0; i < r.val_count; i++)
                if (!r.val[i].figures) printf(", %s %.6g", r.val[i].name, r.val[i].value);
            printf(" (%s)\n", tri_counted(r.val_samples, "sample"));
            cli_print_classes(arena, &r);
        }
    }
    code = status == TRI_OK ? 0 : cli_fail(status);
    tri_arena_destroy(arena);
    return code;
}

const cli_command cli_eval = {
    .name = "eval",
    .arguments = "[RECIPE] --checkpoint PATH [key.path=value ...]",
    .help = "Evaluate a checkpoint on the recipe's test data.",
    .flags = eval_flags,
    .more = "Without RECIPE, the recipe in the checkpoint's run folder is used.\n",
    .examples = "trireme eval --checkpoint runs/mnist-cnn/checkpoints/best\n"
                "trireme eval recipes/mnist-cnn.yaml --checkpoint mnist-cnn.safetensors --json\n",
    .run = run_eval};
