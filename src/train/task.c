// Finds the model that a recipe names, and passes the recipe's model options to it. A task is a
// model with its name and fields (tri_task): a built-in one or one that a user wrote. While a task
// builds its graph, it asks for options by name, and this file records for which ones it asks.
#include "train/task.h"

#include "base/limits.h"
#include "base/log.h"
#include "nn/exported/exported.h"
#include "nn/models/models.h"
#include "rendezvous/rendezvous.h"
#include "train/object.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/trireme.h>

tri_status tri_task_check(const tri_task *task, const char *whose) {
    if (!task->build || !task->name)
        return TRI_FAIL(TRI_BAD_INPUT, "the task of %s has no %s", whose,
                        task->build ? "name" : "build function");
    for (int i = 0; i < TRI_TASK_MAX_FIELDS && task->fields[i].name; i++) {
        const tri_field *f = &task->fields[i];
        if ((unsigned)f->dtype >= TRI_DTYPE_COUNT)
            return TRI_FAIL(TRI_BAD_INPUT, "the task of %s: field '%s' has no tri_dtype, but %d",
                            whose, f->name, (int)f->dtype);
        if (f->shape.rank < 0 || f->shape.rank >= TRI_MAX_RANK)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "the task of %s: the shape of field '%s' has 0 to %d axes, not %d",
                            whose, f->name, TRI_MAX_RANK - 1, f->shape.rank);
        int64_t elements = tri_shape_count(&f->shape);
        if (elements < 1 || elements > TRI_MAX_SAMPLE_ELEMENTS)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "the task of %s: field '%s' has 1 to %d elements per sample, which its "
                            "shape does not",
                            whose, f->name, TRI_MAX_SAMPLE_ELEMENTS);
    }
    return TRI_OK;
}

static tri_status load_object(const char *path, const tri_task **out) {
    TRI_TRY(tri_task_load_object(path, out));
    tri_status status = tri_task_check(*out, path);
    return status == TRI_OK ? TRI_OK : tri_status_context(status, "model.name");
}

static bool is_object(const char *name) {
    return strchr(name, '/') || (strlen(name) > 3 && !strcmp(name + strlen(name) - 3, ".so"));
}

const char *tri_task_file(const tri_recipe *recipe, const tri_task *task) {
    if (tri_model_find(task->name) == task || nn_exported_of(task)) return NULL;
    const char *name = recipe->model.name;
    return name && is_object(name) ? name : "/proc/self/exe";
}

// Prints a line for each thing that stands in the way of training, on the first rank; the error is
// the last of them, or says how many more there are.
static tri_status refuse_exported(const char *const *lines, int count) {
    tri_identity identity;
    bool is_other = tri_identity_read((const char *(*)(const char *))getenv, &identity) == TRI_OK &&
                    identity.rank > 0;
    int listed = count > NN_EXPORTED_MAX_LINES ? NN_EXPORTED_MAX_LINES : count;
    for (int i = 0; i < listed - 1 && !is_other; i++) tri_log_line(TRI_LOG_ERROR, "%s", lines[i]);
    if (count > listed)
        return TRI_FAIL(TRI_BAD_INPUT, "and %d more operations that are not supported",
                        count - listed + 1);
    return TRI_FAIL(TRI_BAD_INPUT, "%s", lines[count - 1]);
}

static tri_status open_exported(tri_arena *arena, const tri_recipe *recipe, const tri_task **out) {
    nn_exported *network;
    int count;
    TRI_TRY(nn_exported_open(arena, recipe->model.options, &network));
    const char *const *lines = nn_exported_refusals(network, &count);
    if (count > 0) return refuse_exported(lines, count);
    *out = nn_exported_task(network);
    return TRI_OK;
}

tri_status tri_task_find(tri_arena *arena, const tri_recipe *recipe, const tri_task *own,
                         const tri_task **out) {
    const char *name = recipe->model.name;
    if (own && (!name || !strcmp(name, own->name))) {
        *out = own;
        return TRI_OK;
    }
    if (!name) return TRI_FAIL(TRI_BAD_INPUT, "model.name: the recipe names no model");
    if (is_object(name)) return load_object(name, out);
    if (!strcmp(name, NN_EXPORTED_NAME)) return open_exported(arena, recipe, out);
    *out = tri_model_find(name);
    if (*out) return TRI_OK;
    const char *known[64] = {NN_EXPORTED_NAME};
    int count = 1;
    for (const tri_task *const *m = tri_models; *m && count < 64; m++) known[count++] = (*m)->name;
    const char *near = tri_option_nearest(name, known, count);
    char list[512] = "";
    for (int i = 0; i < count; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", known[i]);
    }
    return TRI_FAIL(TRI_BAD_INPUT,
                    "model.name: there is no model '%s'%s%s%s; there are %s, and your own: "
                    "./FILE.so, or the program that brings it in place of trireme",
                    name, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "",
                    list);
}

static const char DROPOUT[] = "dropout"; // the option that tri_dropout asks for

static bool was_asked(const tri_task_options *options, const char *key) {
    for (int i = 0; i < options->asked_count; i++)
        if (!strcmp(options->asked[i], key)) return true;
    return false;
}

static void keep_asked(void *context, const char *key) {
    tri_task_options *options = context;
    if (!was_asked(options, key))
        TRI_PUSH(options->arena, options->asked, options->asked_count, options->asked_capacity) =
            tri_arena_strdup(options->arena, key);
}

tri_status tri_task_graph_options(tri_arena *arena, const tri_recipe *recipe,
                                  tri_task_options *context, tri_graph_options *out) {
    const tri_tree *map = recipe->model.options;
    *context = (tri_task_options){.arena = arena, .map = map};
    *out = (tri_graph_options){
        .seed = (uint64_t)recipe->seed,
        .precision = recipe->trainer.precision,
        .direct_convolution = recipe->trainer.convolution == TRI_CONVOLUTION_DIRECT,
        .tf32 = recipe->trainer.fp32_precision == TRI_FP32_TF32,
        .deterministic = recipe->trainer.deterministic,
        .label_smoothing = recipe->loss.label_smoothing,
        .lora = recipe->lora,
        .metrics = recipe->metrics,
        .model_options = map,
        .model_asks = keep_asked,
        .model_context = context,
    };
    TRI_TRY(tri_losses_read(arena, &recipe->loss, &out->losses, &out->loss_count));
    if (out->loss_count > 0) out->label_smoothing = 0; // they have their own
    const tri_tree *dropout = tri_tree_get(map, DROPOUT);
    double rate;
    if (dropout && !(tri_tree_to_double(dropout, &rate) && rate >= 0 && rate < 1))
        return tri_tree_fail(dropout, "model.dropout must be a number in [0, 1)");
    return TRI_OK;
}

static bool has_statistics(const tri_graph *graph) {
    for (int i = 0; i < graph->parameter_count; i++)
        if (graph->parameters[i].role == TRI_ROLE_STATISTIC) return true;
    return false;
}

void tri_task_warn_idle(const tri_task_options *context, const tri_recipe *recipe,
                        const tri_graph *graph, const char *model) {
    double rate;
    if (recipe->trainer.sync_batchnorm && !has_statistics(graph))
        tri_log_line(TRI_LOG_WARNING, "trainer.sync_batchnorm has no effect: %s has no batch norm",
                     model);
    if (tri_tree_to_double(tri_tree_get(context->map, DROPOUT), &rate) && rate > 0 &&
        !was_asked(context, DROPOUT))
        tri_log_line(TRI_LOG_WARNING, "model.dropout has no effect: %s has no dropout layer",
                     model);
    tri_task_warn_of_batch(graph);
}

void tri_task_warn_of_batch(const tri_graph *graph) {
    const nn_exported *n = nn_exported_of(graph->options.task);
    int64_t fixed = n ? nn_exported_other_batch(n, graph) : 0;
    if (fixed)
        tri_log_line(
            TRI_LOG_WARNING,
            "%s was exported with a batch of %lld and not with dynamic_shapes: where %lld "
            "stands in it for the samples, another number is put, but a division by the "
            "number of samples, or a tensor of that many rows, cannot be told from others; "
            "batch.micro=%lld is certain",
            nn_exported_file(n)->path, (long long)fixed, (long long)fixed, (long long)fixed);
}

void tri_task_warn_idle_patterns(const tri_parameter_group *groups, int count,
                                 const tri_graph *graph) {
    for (int i = 0; i < count; i++)
        for (int k = 0; k < groups[i].match.count; k++)
            if (!tri_graph_has_match(graph, groups[i].match.items[k]))
                tri_log_line(TRI_LOG_WARNING,
                             "%s: '%s' has no effect: it matches no parameter's name (trireme plan "
                             "RECIPE --show graph prints them)",
                             groups[i].key, groups[i].match.items[k]);
}

tri_status tri_task_check_options(const tri_task_options *context, const char *model) {
    for (int i = 0; context->map && i < context->map->count; i++) {
        const tri_tree *entry = context->map->items[i];
        // Every model accepts a rate of dropout; one without such layers does not ask for it.
        if (was_asked(context, entry->key) || !strcmp(entry->key, DROPOUT)) continue;
        const char *near = tri_option_nearest(entry->key, context->asked, context->asked_count),
                   *list = "";
        if (near)
            return tri_tree_fail(entry,
                                 "model.%s: the model %s has no such option (did you mean "
                                 "'%s'?)",
                                 entry->key, model, near);
        for (int k = 0; k < context->asked_count; k++)
            list =
                tri_arena_printf(context->arena, "%s%s%s", list, k ? ", " : "", context->asked[k]);
        return tri_tree_fail(entry, "model.%s: the model %s has no such option (known: %s)",
                             entry->key, model, *list ? list : "none");
    }
    return TRI_OK;
}
