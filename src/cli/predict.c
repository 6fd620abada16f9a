// `trireme predict`: writes what a model computes of the recipe's test data. Read next:
// train/predict.c.
#include "train/predict.h"
#include "cli/cli.h"

#include "base/quantity.h"
#include "train/signals.h"

#include <signal.h>
#include <stdio.h>

static const cli_flag predict_flags[] = {
    {"checkpoint", "PATH", "a checkpoint, a run folder or a .safetensors file", 0},
    {"out", "FILE", "the .safetensors file to write", 0},
    CLI_DEVICE_FLAG("the device that computes"),
    {0}};

static int run_predict(const cli_context *context, int argc, char **argv) {
    cli_arguments a;
    int code = cli_parse(&cli_predict, argc, argv, &a), cores;
    if (code >= 0) return code;
    if (!cli_has(&a, "checkpoint"))
        return cli_usage(&cli_predict, "predict: --checkpoint is missing");
    if (!cli_has(&a, "out")) return cli_usage(&cli_predict, "predict: --out is missing");
    tri_arena *arena = tri_arena_create(NULL, "command");
    tri_recipe recipe;
    tri_predict_result r;
    tri_predict_request request = {.backends = &cli_backends,
                                   .recipe = &recipe,
                                   .task = context->task,
                                   .device =
                                       cli_has(&a, "device") ? cli_value(&a, "device") : "auto",
                                   .checkpoint = cli_value(&a, "checkpoint"),
                                   .out = cli_value(&a, "out")};
    tri_status status = cli_load_evaluated(arena, context, &a, &recipe);
    if (status == TRI_OK)
        status = cli_check_output("out", request.out, a.count > 0 ? a.words[0] : NULL);
    if (status == TRI_OK) status = cli_bind_rank(&cores);
    if (status == TRI_OK) status = tri_predict(&request, &r);
    if (status == TRI_STOPPED && tri_signals_seen()) raise(tri_signals_seen());
    if (status == TRI_OK && r.rank == 0) {
        cli_warn_of_null(&a, "what is written means nothing");
        printf("%s: %s (%s, %s)\n", request.out, r.outputs, tri_counted(r.samples, "sample"),
               tri_val_source_names[r.source]);
    }
    code = status == TRI_OK ? 0 : cli_fail(status);
    tri_arena_destroy(arena);
    return code;
}

const cli_command cli_predict = {
    .name = "predict",
    .arguments = "[RECIPE] --checkpoint PATH --out FILE.safetensors [key.path=value ...]",
    .help = "Write a model's outputs for the recipe's test data.",
    .flags = predict_flags,
    .more =
        "The file has a tensor for each output that the model names, such as logits, with a row "
        "for each\nsample in the order of the data. Labels are not needed. Without RECIPE, the "
        "recipe in the\ncheckpoint's run folder is used.\n",
    .examples =
        "trireme predict --checkpoint runs/mnist-cnn/checkpoints/best --out logits.safetensors\n"
        "trireme predict recipes/mnist-cnn.yaml --checkpoint mnist-cnn.safetensors --out "
        "logits.safetensors\n",
    .keeps_results = true,
    .run = run_predict};
