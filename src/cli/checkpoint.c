// `trireme checkpoint`: lists, verifies, exports and compares checkpoints, and writes initial
// weights.
#include "cli/checkpoint_folder.h"

#include "base/log.h"
#include "base/quantity.h"
#include "device/choose.h"
#include "train/known_fields.h"
#include "train/state.h"

#include <stdio.h>
#include <string.h>

// Writes the initial weights with which a run of the recipe would begin. It does not open the data,
// which may be on another host.
static tri_status write_initial(const cli_context *context, tri_arena *arena,
                                const tri_recipe *recipe, const char *out) {
    const tri_task *task;
    tri_field fields[TRI_MAX_DATA_FIELDS];
    int field_count = 0;
    tri_task_options options;
    TRI_TRY(tri_task_find(arena, recipe, context->task, &task));
    TRI_TRY(train_describe_fields(arena, recipe, task, fields, &field_count));
    tri_model_request model = {.task = task, .fields = fields, .field_count = field_count};
    TRI_TRY(tri_task_graph_options(arena, recipe, &options, &model.options));
    tri_device *device;
    tri_comm *comm;
    TRI_TRY(tri_comm_self_open(&comm));
    tri_status opened = tri_device_open(cli_backends.devices, "ref", 0, &device);
    if (opened != TRI_OK) {
        tri_comm_close(comm);
        return opened;
    }
    tri_optimizer optimizer = {.op = &tri_op_sgd, .attrs = {{.sgd = {.lr_factor = 1}}}};
    // Initial weights do not depend on ranks or batches, so the plan of one rank with a small step
    // is enough.
    tri_strategy_options alone = {.name = TRI_STRATEGY_SINGLE};
    tri_plan_request request;
    tri_session_plan_request(recipe, &(tri_batch_options){0}, &model, &optimizer, &request);
    request.options = &alone;
    request.deterministic = false;
    request.mesh = (tri_mesh){.size = {1, 1, 1, 1}, .ranks = 1};
    request.step_samples[TRI_STEP_FULL] = 2;
    tri_plan *plan = NULL;
    tri_engine *engine = NULL;
    tri_status status = tri_plan_create(arena, &device->description, &request, &plan);
    if (status == TRI_OK) status = tri_task_check_options(&options, task->name);
    if (status == TRI_OK)
        status = tri_engine_create(
            &(tri_engine_config){
                .plan = plan, .device = device, .world = comm, .optimizer = &optimizer},
            &engine);
    if (status == TRI_OK) status = tri_engine_initialize(engine, (uint64_t)recipe->seed);
    if (status == TRI_OK) {
        tri_state_view view;
        tri_state_view_model(arena, engine, false, &view);
        status = tri_checkpoint_write_weights(out, &view.source);
        if (status == TRI_OK)
            printf("%s: %s, %s parameters, the initial weights of seed %lld\n", out,
                   tri_counted(view.source.count, "tensor"),
                   tri_grouped((double)tri_graph_trained_count(plan->graph)),
                   (long long)recipe->seed);
    }
    tri_engine_destroy(engine);
    tri_plan_destroy(plan);
    tri_comm_close(comm);
    device->backend->close(device);
    return status;
}

static int initial(const cli_context *context, const cli_arguments *a) {
    const char *out = cli_value(a, "out");
    if (a->count < 2) return cli_usage(&cli_checkpoint, "checkpoint init: which recipe?");
    if (!out)
        return cli_usage(&cli_checkpoint, "checkpoint init: --out FILE.safetensors is missing");
    tri_arena *arena = tri_arena_create(NULL, "command");
    tri_recipe recipe;
    tri_status status =
        tri_recipe_load(arena, a->words[1], (const char *const *)a->words + 2, a->count - 2,
                        context->task ? context->task->name : NULL, &recipe);
    if (status == TRI_OK) status = cli_check_output("out", out, a->words[1]);
    if (status == TRI_OK && recipe.init.path)
        tri_log_line(TRI_LOG_WARNING,
                     "init is left out: these are the fresh weights of the seed, not those of %s "
                     "(init=null says so)",
                     recipe.init.path);
    if (status == TRI_OK) status = write_initial(context, arena, &recipe, out);
    tri_arena_destroy(arena);
    return status == TRI_OK ? 0 : cli_fail(status);
}

// What the flags ask of `checkpoint export`; NULL: they fit together.
static const char *misused(const cli_arguments *a) {
    bool out = cli_has(a, "out"), lora = cli_has(a, "lora"), folder = cli_has(a, "huggingface");
    if (a->count != 2 || out + lora + folder != 1)
        return "write it as: trireme checkpoint export PATH --out FILE, or --huggingface DIR, or "
               "--lora DIR";
    if (lora && cli_has(a, "merged"))
        return "checkpoint export: --lora DIR writes adapters alone, without --merged: write the "
               "weights with another command";
    if (!folder && cli_has(a, "max-shard-size"))
        return "checkpoint export: --max-shard-size is of --huggingface";
    return NULL;
}

static int export(const cli_context *context, const cli_arguments *a) {
    const char *wrong = misused(a), *out = cli_value(a, "out"), *lora = cli_value(a, "lora");
    if (wrong) return cli_usage(&cli_checkpoint, "%s", wrong);
    tri_export_kind kind = lora                   ? TRI_EXPORT_ADAPTERS
                           : cli_has(a, "merged") ? TRI_EXPORT_MERGED
                                                  : TRI_EXPORT_ALL;
    tri_arena *arena = tri_arena_create(NULL, "command");
    const char *program = NULL;
    tri_status status = cli_check_output("out", out, NULL);
    if (status == TRI_OK && out) status = cli_find_program(context, arena, a, &program);
    if (status == TRI_OK)
        status = out || lora ? tri_checkpoint_export(a->words[1], kind, out ? out : lora,
                                                     cli_value(a, "dtype"), program, stdout)
                             : cli_export_folder(context, arena, a);
    tri_arena_destroy(arena);
    return status == TRI_OK ? 0 : cli_fail(status);
}

static const cli_flag flags[] = {
    {"out", "FILE", "export, init: the file to write", 0},
    {"lora", "DIR", "export: write adapters alone, as a folder of peft", 0},
    {"merged", NULL, "export: merge the adapters into the weights", 0},
    {"huggingface", "DIR", "export: a folder for transformers, or torchvision (resnet, vit)", 0},
    {"max-shard-size", "SIZE", "export --huggingface: larger weights are several files (5GB)", 0},
    {"dtype", "F32|F16|BF16|F64", "export: convert the weights to this type", 0},
    {"program", "FILE", "export: the exported network, where it lies elsewhere now", 0},
    {"json", NULL, "list, verify, diff: one JSON object per line", 0},
    {0}};
static const cli_verb verbs[] = {
    {"list", "RUN_DIR", "list steps, monitored values and links"},
    {"verify", "PATH", "check every byte against its SHA-256"},
    {"export", "PATH --out FILE", "write the weights as one .safetensors file, or as a folder"},
    {"diff", "PATH PATH", "compare all tensors; exit code 1 if they differ"},
    {"init", "RECIPE --out FILE", "write the initial weights of a recipe's seed"},
    {0}};

static const cli_verb_flags verb_flags[] = {
    {"list", "json"},
    {"verify", "json"},
    {"export", "out lora merged huggingface max-shard-size dtype program"},
    {"diff", "json"},
    {"init", "out"},
    {0}};

static int run(const cli_context *context, int argc, char **argv) {
    const cli_command *self = &cli_checkpoint;
    cli_arguments a;
    int code = cli_parse(self, argc, argv, &a);
    if (code >= 0) return code;
    const char *verb = a.count ? a.words[0] : "";
    char **words = a.words + 1;
    bool differ = false, json = cli_has(&a, "json");
    tri_status status;
    int count = a.count - 1;
    if (!strcmp(verb, "init")) return initial(context, &a);
    if (!strcmp(verb, "export")) return export(context, &a);
    if (!strcmp(verb, "list") && count == 1) {
        status = tri_checkpoint_list(words[0], json, stdout);
    } else if (!strcmp(verb, "verify") && count == 1) {
        status = tri_checkpoint_verify(words[0], json, stdout);
    } else if (!strcmp(verb, "diff") && count == 2) {
        status = tri_checkpoint_diff(words[0], words[1], json, stdout, &differ);
    } else {
        for (const cli_verb *v = verbs; v->name; v++)
            if (!strcmp(v->name, verb))
                return cli_usage(self, "write it as: trireme checkpoint %s %s", v->name,
                                 v->arguments);
        return cli_usage(self, "checkpoint: list, verify, export, diff or init?");
    }
    return status == TRI_OK ? differ : cli_fail(status);
}

const cli_command cli_checkpoint = {
    .name = "checkpoint",
    .arguments = "list | verify | export | diff PATH ... | init RECIPE",
    .help = "Look at, verify, convert, compare or make checkpoints.",
    .flags = flags,
    .verbs = verbs,
    .verb_flags = verb_flags,
    .more = "PATH is a checkpoint, a run folder (its last checkpoint) or a .safetensors file.\n",
    .examples = "trireme checkpoint list runs/mnist-cnn\n"
                "trireme checkpoint verify runs/mnist-cnn/checkpoints/best\n"
                "trireme checkpoint export runs/mnist-cnn --out mnist-cnn.safetensors\n"
                "trireme checkpoint init recipes/mnist-cnn.yaml seed=7 --out start.safetensors\n",
    .run = run};
