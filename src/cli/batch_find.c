// `trireme batch-find`: finds the fastest micro-batch that fits into memory (train/batch_find.h);
// this file reads the command line, connects the ranks and prints the result.
#include "train/batch_find.h"
#include "cli/cli.h"

#include "train/tell.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_json(tri_arena *arena, const tri_batch_found *found) {
    tri_tree *map = tri_tree_map(arena), *batch = tri_tree_map(arena);
    tri_tree *trials = tri_tree_list(arena);
    tri_tree_put_int(arena, batch, "global", found->global);
    tri_tree_put_int(arena, batch, "micro", found->trials[found->best].micro);
    tri_tree_put(arena, map, "batch", batch);
    for (int i = 0; i < found->count; i++) {
        const tri_batch_trial *t = &found->trials[i];
        tri_tree *trial = tri_tree_map(arena);
        tri_tree_put_int(arena, trial, "micro", t->micro);
        if (t->refusal) {
            tri_tree_put_string(arena, trial, "refused", t->refusal);
        } else {
            tri_tree_put_int(arena, trial, "memory_bytes", t->peak_bytes);
            tri_tree_put_digits(arena, trial, "samples_per_s", t->samples_per_s, 6);
            tri_tree_put(arena, trial, "disturbed", tri_tree_bool(arena, t->is_disturbed));
        }
        tri_tree_append(arena, trials, trial);
    }
    tri_tree_put(arena, map, "trials", trials);
    printf("%s\n", tri_json_emit(arena, map));
}

static void print_text(const cli_context *context, const cli_arguments *a, tri_arena *arena,
                       const tri_batch_found *found) {
    long long global = found->global, micro = found->trials[found->best].micro;
    printf("%11s %12s %14s   batch.global=%lld on %s\n", "batch.micro", "memory", "samples/s",
           global, tri_counted(found->replicas, "replica"));
    for (int i = 0; i < found->count; i++) {
        const tri_batch_trial *t = &found->trials[i];
        printf("%11lld ", (long long)t->micro);
        if (t->refusal) // without the advice that follows the cause
            printf("  refused: %.*s\n", (int)strcspn(t->refusal, ";"), t->refusal);
        else
            printf("%12s %14s%s%s\n", tri_bytes_text((double)t->peak_bytes),
                   tri_grouped(t->samples_per_s), i == found->best ? "   the fastest" : "",
                   t->is_disturbed ? "   too low: other programs used the machine" : "");
    }
    const char *settings = tri_arena_printf(arena, "batch.micro=%lld", micro);
    if (found->gives_rounds)
        settings = tri_arena_printf(
            arena, "batch.global=%lld trainer.accumulate_grad_batches=%lld batch.micro=%lld",
            global, global / (micro * found->replicas), micro);
    printf("%-11s ", "next");
    cli_print_training(context, a, settings);
}

// Several ranks keep one connection for all sessions, in which they may wait for each other.
static tri_status connect_and_find(tri_arena *arena, tri_session_request *request, double seconds,
                                   tri_batch_found *out) {
    tri_identity identity;
    tri_health *health = NULL;
    TRI_TRY(tri_identity_read((const char *(*)(const char *))getenv, &identity));
    if (identity.size > 1)
        TRI_TRY(cli_backends.open_comm(&identity, &request->recipe->comm, &request->comm, &health));
    // A rank that refuses the recipe must not end before the others are connected.
    tri_status status = request->comm
                            ? tri_tell_and_agree(request->comm, TRI_OK, "connection of all ranks")
                            : TRI_OK;
    if (status == TRI_OK) status = tri_batch_find(arena, request, seconds, out);
    if (request->comm) status = tri_tell_failure(request->comm, &identity, status);
    // tri_comm_close frees what `health` reads, so that stops reading first.
    tri_health_drop_ring(health);
    tri_comm_close(request->comm);
    tri_health_stop(health);
    return status;
}

static tri_status find(const cli_context *context, tri_arena *arena, const cli_arguments *a) {
    tri_recipe recipe;
    tri_batch_found found = {.rank = 0};
    double seconds;
    int cores;
    TRI_TRY(cli_read_seconds(cli_value(a, "seconds"), 2, &seconds));
    TRI_TRY(tri_recipe_load(arena, a->words[0], (const char *const *)a->words + 1, a->count - 1,
                            context->task ? context->task->name : NULL, &recipe));
    TRI_TRY(cli_bind_rank(&cores));
    tri_session_request request = {.backends = &cli_backends,
                                   .recipe = &recipe,
                                   .task = context->task,
                                   .device = cli_has(a, "device") ? cli_value(a, "device") : "auto",
                                   .train = true,
                                   .evaluate = true};
    TRI_TRY(connect_and_find(arena, &request, seconds, &found));
    if (found.rank != 0) return TRI_OK;
    cli_warn_of_null(a, "the rates mean nothing");
    if (cli_has(a, "json"))
        print_json(arena, &found);
    else
        print_text(context, a, arena, &found);
    return TRI_OK;
}

static const cli_flag flags[] = {
    {"seconds", "S", "time of each micro-batch, but at least three steps (2)", 0},
    CLI_DEVICE_FLAG("the device that computes"),
    {"json", NULL, "print the batch and what was tried as one JSON object", 0},
    {0}};

static int run(const cli_context *context, int argc, char **argv) {
    cli_arguments a;
    int code = cli_parse(&cli_batch_find, argc, argv, &a);
    if (code >= 0) return code;
    if (a.count < 1) return cli_usage(&cli_batch_find, "batch-find: which recipe?");
    tri_arena *arena = tri_arena_create(NULL, "command");
    tri_status status = find(context, arena, &a);
    code = status == TRI_OK ? 0 : cli_fail(status);
    tri_arena_destroy(arena);
    return code;
}

const cli_command cli_batch_find = {
    .name = "batch-find",
    .arguments = "RECIPE [key.path=value ...]",
    .help = "Find the fastest batch.micro that fits into memory.",
    .flags = flags,
    .more =
        "batch.global stays as it is, and so does the result of a run. What fits is decided by\n"
        "the plan's memory, then each micro-batch that fits is trained for some steps. Nothing\n"
        "is saved. A model with batch norm is refused: its result depends on the micro-batch.\n",
    .examples = "trireme batch-find recipes/mlp-jax.yaml batch.global=512\n"
                "trireme run --standalone --nproc-per-node 2 trireme batch-find "
                "recipes/mlp-jax.yaml --json\n",
    .run = run};
