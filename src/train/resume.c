// Resumes a run: compares the run folder's recipe with this run's, finds the checkpoint and
// restores the state from it. If there is no checkpoint, begins a new run. Read next:
// checkpoint/find.c.
#include "base/log.h"
#include "base/os.h"
#include "recipe/resumed.h"
#include "train/compare.h"
#include "train/loop.h"
#include "train/numbering.h"
#include "train/origin.h"
#include "train/tell.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Returns the path that a message advises as the value of the option `init`, from which a run takes
// its first weights. `where` is a checkpoint, which is returned itself, or a run folder, of which
// the newest checkpoint is returned.
static const char *weights_in(train_loop *loop, const char *where) {
    const char *last = tri_arena_printf(loop->arena, "%s/checkpoints/last", where);
    return access(last, F_OK) == 0 ? last : where;
}

// Rejects a folder of another run: the keys that define a run must have the same values in both
// recipes, because a run that began with some values and continued with others could be repeated
// from neither recipe. The option tables say which keys may differ (tri_option_change).
static tri_status compare_recipe(train_loop *loop, const tri_recipe *other, const char *where) {
    tri_strings keys = tri_recipe_differences(loop->arena, other, loop->recipe);
    if (keys.count == 0) return TRI_OK;
    // The keys, those with their values in the other recipe, and those that never change.
    char list[512] = "", old[512] = "", fixed[512] = "";
    const tri_tree *tree = tri_recipe_tree(loop->arena, other);
    for (int i = 0; i < keys.count; i++) {
        tri_option_change change;
        tri_option_find(&tri_recipe_table, keys.items[i], &change);
        size_t used = strlen(fixed);
        if (change == TRI_CHANGE_NEVER)
            snprintf(fixed + used, sizeof fixed - used, "%s%s", used ? ", " : "", keys.items[i]);
        used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", keys.items[i]);
        const tri_tree *value = tri_tree_find(tree, keys.items[i]);
        if (!value) continue;
        used = strlen(old);
        snprintf(old + used, sizeof old - used, "%s%s=%s", used ? " " : "", keys.items[i],
                 tri_yaml_flow(loop->arena, value));
    }
    return TRI_FAIL(
        TRI_BAD_INPUT,
        "%s: holds a run whose recipe differs in %s; use the old values (%s)%s%s%s, or begin a new "
        "run in another --run-dir, from these weights with init=%s",
        where, list, old, *fixed ? ", as --resume-with cannot change " : "", fixed,
        *fixed ? "" : ", or change them with --resume-with", weights_in(loop, where));
}

static tri_status compare_folder(train_loop *loop) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/recipe.yaml", loop->request->run_dir) >= (int)sizeof path)
        return TRI_FAIL(TRI_BAD_INPUT, "--run-dir: the path is too long");
    bool is_there;
    TRI_TRY(tri_os_exists(path, &is_there));
    if (!is_there) return TRI_OK;
    tri_recipe other;
    const char *own = loop->request->task ? loop->request->task->name : NULL;
    tri_status status = tri_recipe_load(loop->arena, path, NULL, 0, own, &other);
    if (status != TRI_OK) return tri_status_context(status, "the folder's own recipe");
    return compare_recipe(loop, &other, loop->request->run_dir);
}

// The fixed names of files that a run writes in its folder, and that may exist there already.
static const struct {
    const char *name;
    bool is_folder;
} outputs[] = {{".lock", false},       {"recipe.yaml", false}, {"metrics.jsonl", false},
               {"metrics.csv", false}, {"checkpoints", true},  {"tensorboard", true}};

// Rejects an output file that is a symbolic link, because the run would write to a file that the
// user did not name. An output folder may be a link, so that checkpoints can lie on another disk.
static tri_status check_output(const char *path, bool is_folder) {
    struct stat own, target;
    // If lstat fails, nothing exists there, or the run will report the error when it first tries to
    // write there.
    if (lstat(path, &own) < 0) return TRI_OK;
    bool is_link = S_ISLNK(own.st_mode);
    if (is_link && !is_folder)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: is a symbolic link, and a run does not write through one: remove it, "
                        "or choose another --run-dir",
                        path);
    bool exists = stat(path, &target) == 0;
    if (is_link && !exists)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: is a symbolic link to a folder that cannot be reached (%s): is its "
                        "disk mounted?",
                        path, strerror(errno));
    if (!exists || (is_folder ? S_ISDIR(target.st_mode) : S_ISREG(target.st_mode))) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "%s: is not a %s: remove it, or choose another --run-dir", path,
                    is_folder ? "folder" : "regular file");
}

tri_status train_check_outputs(const train_loop *loop) {
    char path[PATH_MAX];
    if (!loop->saves || loop->session->identity.rank != 0) return TRI_OK;
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        if (snprintf(path, sizeof path, "%s/%s", loop->request->run_dir, outputs[i].name) <
            (int)sizeof path)
            TRI_TRY(check_output(path, outputs[i].is_folder));
    return TRI_OK;
}

typedef tri_status load_function(tri_arena *arena, const char *path,
                                 const tri_checkpoint_sinks *sinks, tri_checkpoint_info *out);

// Warns if the data have another number of samples than when the checkpoint was saved. Then an
// epoch that goes on has them in another order.
static void tell_other_data(train_loop *loop) {
    const tri_sampler_options *sampler = &loop->session->train_sampler.options;
    tri_progress *p = &loop->progress;
    bool differs = p->data_samples > 0 && p->data_samples != sampler->samples;
    bool mixes = p->step_in_epoch > 0 && !sampler->keep_order;
    if (differs && loop->session->identity.rank == 0)
        tri_log_line(
            TRI_LOG_WARNING,
            "the training data have %lld samples, and had %lld when the checkpoint was saved: "
            "%s",
            (long long)sampler->samples, (long long)p->data_samples,
            mixes ? "their order differs, so this epoch repeats some samples and misses others"
                  : "epochs have another length from here on");
    p->data_samples = sampler->samples;
}

// Refuses training data whose classes or columns have other numbers than those of the checkpoint.
static tri_status compare_numbering(train_loop *loop, const char *path) {
    tri_progress *p = &loop->progress;
    TRI_TRY(train_numbering_compare(loop->arena, p->data_names, path, loop->session->train_data,
                                    "the training data"));
    if (loop->session->identity.rank == 0)
        train_numbering_warn(loop->arena, p->data_names, path, loop->session->train_data,
                             "the training data");
    p->data_names = train_numbering_tree(loop->arena, loop->session->train_data);
    return TRI_OK;
}

static tri_status restore(train_loop *loop, const char *path, load_function *load) {
    tri_checkpoint_info info;
    TRI_TRY(tri_checkpoint_read_info(loop->arena, path, &info));
    if (info.recipe) {
        tri_recipe other;
        const char *own = loop->request->task ? loop->request->task->name : NULL;
        tri_status status = tri_recipe_parse(loop->arena, info.recipe, strlen(info.recipe), path,
                                             NULL, 0, own, &other);
        if (status != TRI_OK) return tri_status_context(status, "the checkpoint's own recipe");
        TRI_TRY(compare_recipe(loop, &other, path));
        loop->changes = tri_recipe_changes(loop->arena, &other, loop->recipe);
    }
    TRI_TRY(tri_progress_read(info.training, loop->session->plan->graph, &loop->progress));
    tri_checkpoint_sinks sinks = {.model = &loop->model.sink};
    if (loop->optimizer.sink.count > 0) sinks.optimizer = &loop->optimizer.sink;
    if (train_has_average(loop)) sinks.average = &loop->average.sink;
    TRI_TRY(load(loop->arena, path, &sinks, &info));
    TRI_TRY(compare_numbering(loop, path));
    tell_other_data(loop);
    // If the data have fewer samples than when the checkpoint was saved, the checkpoint's position
    // in its epoch may lie at or beyond the end of the epoch. Training then continues in a later
    // epoch.
    loop->progress.epoch += loop->progress.step_in_epoch / loop->steps_per_epoch;
    loop->progress.step_in_epoch %= loop->steps_per_epoch;
    loop->extra_steps = loop->progress.step - loop->progress.epoch * loop->steps_per_epoch -
                        loop->progress.step_in_epoch;
    loop->saved_step = loop->progress.step;
    return TRI_OK;
}

void train_tell_changes(const train_loop *loop) {
    for (int i = 0; loop->changes && i < loop->changes->count; i++) {
        const tri_tree *change = loop->changes->items[i];
        tri_observe_change(loop->observer,
                           (tri_change_event){.step = loop->progress.step,
                                              .key = tri_tree_get(change, "key")->text,
                                              .from = tri_tree_get(change, "from"),
                                              .to = tri_tree_get(change, "to")});
    }
}

bool train_resumes_by_path(const train_loop *loop) {
    const char *resume = loop->resume;
    return strcmp(resume, "auto") != 0 && strcmp(resume, "never") != 0;
}

const char *train_flag_to_drop(const train_loop *loop) {
    bool names_one = strcmp(loop->request->resume, "auto") != 0;
    if (train_reaches_until_epoch(loop))
        return names_one ? ", without --resume and --until-epoch," : ", without --until-epoch,";
    return names_one ? ", without --resume," : "";
}

// Restores the newest checkpoint, and verifies it while loading, which is faster than reading the
// files twice. This is done only in a run of one rank, because several ranks would have to agree
// beforehand which checkpoint is intact. A failure is not reported here: the caller then calls
// tri_checkpoint_find, which reports the damage or finds the checkpoint before this one.
static bool restore_first(train_loop *loop, const char **path) {
    const tri_train_request *r = loop->request;
    return loop->session->comm->size == 1 &&
           tri_checkpoint_find_first(loop->arena, r->run_dir, loop->resume, path) == TRI_OK &&
           *path && restore(loop, *path, tri_checkpoint_load_whole) == TRI_OK;
}

// Finds an intact checkpoint and restores it. Each rank reads only what it holds and may fail
// alone, so all ranks have to agree on the result.
static tri_status find_and_restore(train_loop *loop, const char **path) {
    const tri_train_request *r = loop->request;
    tri_comm *comm = loop->session->comm;
    if (restore_first(loop, path)) return TRI_OK;
    tri_status status = tri_checkpoint_find(loop->arena, comm, r->run_dir, loop->resume, path);
    bool named = train_resumes_by_path(loop);
    if (status != TRI_OK) return named ? tri_status_context(status, "--resume") : status;
    if (!*path) return TRI_OK;
    return tri_tell_and_agree(comm, restore(loop, *path, tri_checkpoint_load), "restored state");
}

// Says which values an earlier --resume-with has changed, because the command may show others.
static void tell_kept_changes(const train_loop *loop) {
    const tri_tree *began = loop->recipe->began_with;
    const tri_tree *now = tri_recipe_tree(loop->arena, loop->recipe);
    for (int i = 0; began && i < began->count; i++)
        tri_log_line(TRI_LOG_INFO, "%s is %s since a --resume-with; the run began with %s",
                     began->items[i]->key,
                     tri_yaml_flow(loop->arena, tri_tree_find(now, began->items[i]->key)),
                     tri_yaml_flow(loop->arena, began->items[i]));
}

tri_status train_initialize(tri_session *s, const tri_task *task, tri_state_view *model) {
    // All ranks fail if one of them failed; otherwise they would wait for that one in the first
    // step.
    tri_status status = tri_engine_initialize(s->engine, (uint64_t)s->recipe->seed);
    TRI_TRY(tri_tell_and_agree(s->comm, status, "initial weights"));
    const tri_start_options *init = &s->recipe->init;
    if (!init->path) return TRI_OK;
    TRI_TRY(train_compare_weights(&(train_ranks){s->arena, s->comm, s->host_claims}, init->path,
                                  "init"));
    status = train_check_origin(s, task, init->path);
    model->sink.lists_mismatches = s->identity.rank == 0;
    if (status == TRI_OK)
        status = tri_checkpoint_load_weights(init->path, &init->ignore, &model->sink);
    if (status != TRI_OK) status = tri_status_context(status, "init");
    return tri_tell_and_agree(s->comm, status, "init");
}

tri_status train_restore(train_loop *loop) {
    const tri_train_request *r = loop->request;
    tri_session *s = loop->session;
    const char *path = NULL;
    loop->saved_step = -1;
    loop->progress.data_samples = s->train_sampler.options.samples;
    loop->progress.data_names = train_numbering_tree(loop->arena, s->train_data);
    if (loop->saves && strcmp(loop->resume, "never") != 0) {
        TRI_TRY(tri_tell_and_agree(s->comm, compare_folder(loop), "recipe of the run folder"));
        // Locks the folder before anything in it is cleaned up or read, because another process may
        // still be writing there. The recipes are compared before that, because a start that is
        // rejected must leave the folder unchanged.
        TRI_TRY(tri_tell_and_agree(s->comm, train_lock_folder(loop), "lock of the run folder"));
    }
    if (loop->saves) TRI_TRY(find_and_restore(loop, &path));
    loop->resumed_from = path;
    if (path) {
        if (s->identity.rank != 0) return TRI_OK;
        tri_log_line(TRI_LOG_INFO, "resuming from %s, step %lld", path,
                     (long long)loop->progress.step);
        tell_kept_changes(loop);
        return TRI_OK;
    }
    return train_initialize(s, r->task, &loop->model);
}
