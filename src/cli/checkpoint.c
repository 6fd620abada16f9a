#include "cli/cli.h"

#include "train/state.h"

#include <stdio.h>
#include <string.h>

// The initial weights of a recipe and its seed. The data stays closed.
static tri_status write_initial(const cli_context *context, tri_arena *arena,
                                const tri_recipe *recipe, const char *out) {
    const tri_task *task;
    tri_field fields[TRI_MAX_DATA_FIELDS];
    int field_count = 0;
    tri_task_options options;
    TRI_TRY(tri_task_find(recipe, context->task, &task));
    TRI_TRY(tri_session_describe_fields(recipe, task, fields, &field_count));
    tri_model_request model = {.task = task, .fields = fields, .field_count = field_count};
    TRI_TRY(tri_task_graph_options(arena, recipe, &options, &model.options));
    tri_device *device;
    tri_comm *comm;
    TRI_TRY(tri_session_open_device(&cli_backends, "ref", 0, &device));
    TRI_TRY(tri_comm_self_open(&comm));
    tri_plan_request request = {.model = &model,
                                .strategy = &tri_strategy_single,
                                .mesh = {.size = {1, 1, 1, 1}, .ranks = 1},
                                .step_samples = {[TRI_STEP_FULL] = 2}};
    tri_plan *plan = NULL;
    tri_engine *engine = NULL;
    tri_optimizer optimizer = {.op = &tri_op_sgd};
    tri_status status = tri_plan_create(arena, device, &request, &plan);
    if (status == TRI_OK) status = tri_task_check_options(&options, task->name);
    if (status == TRI_OK)
        status = tri_engine_create(
            &(tri_engine_config){
                .plan = plan, .device = device, .replicas = comm, .optimizer = &optimizer},
            &engine);
    if (status == TRI_OK) {
        tri_engine_initialize(engine, (uint64_t)recipe->seed);
        tri_state_view view;
        tri_state_view_model(arena, engine, &view);
        status = tri_checkpoint_write_weights(out, &view.source);
    }
    tri_engine_destroy(engine);
    tri_plan_destroy(plan);
    tri_comm_close(comm);
    device->backend->close(device);
    return status;
}

static int initial(const cli_context *context, const cli_command *self, int count, char **words,
                   const char *out) {
    if (count < 1) return cli_usage(self, "checkpoint init: which recipe?");
    if (!out) return cli_usage(self, "checkpoint init: --out FILE.safetensors is missing");
    tri_arena *arena = tri_arena_create(NULL, "command");
    tri_recipe recipe;
    tri_status status = tri_recipe_load(arena, words[0], (const char *const *)words + 1, count - 1,
                                        context->task ? context->task->name : NULL, &recipe);
    if (status == TRI_OK) status = write_initial(context, arena, &recipe, out);
    tri_arena_destroy(arena);
    return status == TRI_OK ? 0 : cli_fail(status);
}

int cli_checkpoint(const cli_context *context, int argc, char **argv) {
    const cli_command *self = cli_find("checkpoint");
    const char *out = NULL, *dtype = NULL;
    bool json = false;
    const cli_flag flags[] = {{"out", "FILE", "of export and init: what to write", &out, NULL},
                              {"dtype", "F32|F16|BF16|F64", "of export: convert to", &dtype, NULL},
                              {"json", NULL, "one JSON object a line", NULL, &json},
                              {0}};
    int count, code = cli_parse(self, flags, argc, argv, &count,
                                "list RUN_DIR            steps, monitored values, links\n"
                                "verify PATH             every byte against its SHA-256\n"
                                "export PATH --out FILE  the weights as one .safetensors file\n"
                                "diff PATH PATH          tensor by tensor; exit code 1 when they "
                                "differ\n"
                                "init RECIPE --out FILE  the initial weights of a recipe's seed\n");
    if (code >= 0) return code;
    const char *verb = count ? argv[1] : "";
    char **words = argv + 2;
    bool differ = false;
    tri_status status;
    count--;
    if (!strcmp(verb, "init")) return initial(context, self, count, words, out);
    if (!strcmp(verb, "list") && count == 1) {
        status = tri_checkpoint_list(words[0], json, stdout);
    } else if (!strcmp(verb, "verify") && count == 1) {
        status = tri_checkpoint_verify(words[0], json, stdout);
    } else if (!strcmp(verb, "export") && count == 1 && out) {
        status = tri_checkpoint_export(words[0], out, dtype);
    } else if (!strcmp(verb, "diff") && count == 2) {
        status = tri_checkpoint_diff(words[0], words[1], json, stdout, &differ);
    } else {
        return cli_usage(self,
                         "checkpoint: list RUN_DIR, verify PATH, export PATH --out FILE, diff "
                         "PATH PATH or init RECIPE --out FILE");
    }
    return status == TRI_OK ? differ : cli_fail(status);
}
