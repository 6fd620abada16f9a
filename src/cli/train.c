#include "cli/cli.h"

#include "train/train.h"

#include <stdio.h>
#include <string.h>

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
    if (r->has_val) tri_tree_put(arena, map, "val_loss", tri_tree_double(arena, r->val_loss));
    for (int i = 0; r->has_val && i < r->val_count; i++)
        tri_tree_put(arena, map, tri_arena_printf(arena, "val_%s", r->val[i].name),
                     tri_tree_double(arena, r->val[i].value));
    printf("%s\n", tri_json_emit(arena, map));
    tri_arena_destroy(arena);
}

static void print_summary(const tri_train_request *request, const tri_train_result *r,
                          const char *recipe) {
    const char *name = request->recipe->name;
    if (r->was_complete)
        printf("%s: is complete already, %s steps; raise trainer.max_epochs to go on\n", name,
               cli_number((double)r->steps));
    else
        printf("%s: %s steps, %s samples/s on %d rank%s, %.1f s\n", name,
               cli_number((double)r->steps), cli_number(r->samples_per_s), r->ranks,
               r->ranks == 1 ? "" : "s", r->wall_s);
    if (r->has_val) {
        printf("test: loss %.4f", r->val_loss);
        for (int i = 0; i < r->val_count; i++) printf(", %s %.4f", r->val[i].name, r->val[i].value);
        printf(" (%s samples)\n", cli_number((double)r->val_samples));
    }
    if (request->recipe->trainer.fast_dev_run > 0) return;
    printf("run directory: %s\n", request->run_dir);
    if (request->recipe->log.tensorboard)
        printf("  curves:    tensorboard --logdir %s/tensorboard\n", request->run_dir);
    printf("  evaluate:  trireme eval %s --checkpoint %s/checkpoints/last\n", recipe,
           request->run_dir);
    printf("  go on:     trireme train %s trainer.max_epochs=%lld --run-dir %s\n", recipe,
           (long long)(r->epochs + 2), request->run_dir);
    printf("  all cores: trireme run --standalone --nproc-per-node auto trireme train %s\n",
           recipe);
}

int cli_train(const cli_context *context, int argc, char **argv) {
    const cli_command *self = cli_find("train");
    const char *run_dir = NULL, *resume = "auto", *device = "auto";
    bool json = false, keys = false;
    const cli_flag flags[] = {
        {"run-dir", "DIR", "where the run's files go (runs/<name>)", &run_dir, NULL},
        {"resume", "auto|never|PATH", "auto: go on from the newest whole checkpoint", &resume,
         NULL},
        {"device", "auto|cpu|ref|null", "what computes", &device, NULL},
        {"json", NULL, "print the summary as JSON", NULL, &json},
        {"keys", NULL, "list every key of a recipe, its default and its bounds", NULL, &keys},
        {0}};
    int count, code = cli_parse(self, flags, argc, argv, &count, NULL);
    if (code >= 0) return code;
    if (keys) {
        tri_option_print(&tri_recipe_table, stdout);
        return 0;
    }
    if (count < 1) return cli_usage(self, "train: which recipe?");
    tri_arena *arena = tri_arena_create(NULL, "command");
    tri_recipe recipe;
    tri_status status = tri_recipe_load(arena, argv[1], (const char *const *)argv + 2, count - 1,
                                        context->task ? context->task->name : NULL, &recipe);
    tri_train_result result;
    tri_train_request request = {.backends = &cli_backends,
                                 .recipe = &recipe,
                                 .task = context->task,
                                 .device = device,
                                 .resume = resume};
    if (status == TRI_OK) {
        request.run_dir = run_dir ? run_dir : tri_arena_printf(arena, "runs/%s", recipe.name);
        status = tri_train(&request, &result);
    }
    if (status == TRI_OK && result.rank == 0) {
        if (json)
            print_json(&request, &result);
        else
            print_summary(&request, &result, argv[1]);
    }
    code = status == TRI_OK ? 0 : cli_fail(status);
    tri_arena_destroy(arena);
    return code;
}

int cli_eval(const cli_context *context, int argc, char **argv) {
    const cli_command *self = cli_find("eval");
    const char *checkpoint = NULL, *device = "auto";
    bool json = false;
    const cli_flag flags[] = {{"checkpoint", "PATH",
                               "a checkpoint, a run directory or a .safetensors file", &checkpoint,
                               NULL},
                              {"device", "auto|cpu|ref|null", "what computes", &device, NULL},
                              {"json", NULL, "print the result as JSON", NULL, &json},
                              {0}};
    int count, code = cli_parse(self, flags, argc, argv, &count, NULL);
    if (code >= 0) return code;
    if (count < 1) return cli_usage(self, "eval: which recipe?");
    if (!checkpoint) return cli_usage(self, "eval: --checkpoint is missing");
    tri_arena *arena = tri_arena_create(NULL, "command");
    tri_recipe recipe;
    tri_status status = tri_recipe_load(arena, argv[1], (const char *const *)argv + 2, count - 1,
                                        context->task ? context->task->name : NULL, &recipe);
    tri_train_result r;
    if (status == TRI_OK)
        status = tri_evaluate(&(tri_eval_request){.backends = &cli_backends,
                                                  .recipe = &recipe,
                                                  .task = context->task,
                                                  .device = device,
                                                  .checkpoint = checkpoint},
                              &r);
    if (status == TRI_OK && r.rank == 0) {
        printf(json ? "{\"loss\":%.9g" : "loss %.6g", r.val_loss);
        for (int i = 0; i < r.val_count; i++)
            printf(json ? ",\"%s\":%.9g" : ", %s %.6g", r.val[i].name, r.val[i].value);
        printf(json ? ",\"samples\":%lld}\n" : " (%lld samples)\n", (long long)r.val_samples);
    }
    code = status == TRI_OK ? 0 : cli_fail(status);
    tri_arena_destroy(arena);
    return code;
}
