// `trireme plan`: plans a recipe without running it: what each rank does in a step, how long that
// takes, and how much memory it needs. Prints the plan (plan_show.c, plan_json.c) with the length
// of the whole run (plan_run.c) or, with --fit, settings of the recipe that need no more than a
// given amount of memory.
#include "cli/plan_view.h"

#include "base/module.h"
#include "base/quantity.h"
#include "base/shell.h"
#include "device/choose.h"
#include "plan/fit.h"
#include "recipe/batch.h"
#include "recipe/idle.h"
#include "train/known_fields.h"
#include "train/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tri_status plan_make(plan_view *v, const cli_context *context) {
    tri_field *fields = v->fields;
    int field_count = 0;
    const tri_recipe *r = v->recipe;
    TRI_TRY(tri_task_find(v->arena, r, context->task, &v->task));
    TRI_TRY(train_describe_fields(v->arena, r, v->task, fields, &field_count));
    tri_model_request model = {.task = v->task, .fields = fields, .field_count = field_count};
    TRI_TRY(tri_task_graph_options(v->arena, r, &v->task_options, &model.options));
    tri_optimizer optimizer;
    TRI_TRY(tri_optimizer_make(v->arena, &r->optimizer, &optimizer));
    tri_optimizer_add_average(&optimizer, &r->average);
    TRI_TRY(tri_session_make_mesh(r, v->ranks, &v->mesh));
    int64_t replicas = tri_mesh_replicas(&v->mesh);
    tri_batch_options batch;
    TRI_TRY(tri_recipe_settle_batch(r, replicas, &batch));
    TRI_TRY(tri_sampler_check_step(batch.global, batch.micro, replicas));
    // `eval` is the number of samples in a full evaluation batch of one replica. It is read from a
    // sampler of endless data, so that no lack of data makes the batch smaller.
    tri_sampler evaluation;
    TRI_TRY(tri_sampler_make_evaluation(INT64_MAX, batch.eval, batch.global, batch.micro, 1,
                                        &evaluation));
    int64_t eval = evaluation.options.micro;
    TRI_TRY(tri_device_describe(cli_backends.devices, v->device_name, &v->device));
    v->model = model;
    tri_session_plan_request(r, &batch, &v->model, &optimizer, &v->request);
    v->request.mesh = v->mesh;
    v->request.step_samples[TRI_STEP_FULL] = batch.global;
    v->request.step_samples[TRI_STEP_EVALUATE] = eval * replicas;
    v->request.eval_micro = eval;
    TRI_TRY(tri_pipeline_plans_create(v->arena, &v->device, &v->request, &v->pipeline));
    return tri_task_check_options(&v->task_options, v->task->name);
}

// Turns "replicate=64,pipeline=4" into overrides of the recipe. *ranks is the product of the sizes.
static tri_status read_mesh(tri_arena *arena, const char *text, const char **overrides, int *count,
                            int *ranks) {
    *ranks = 1;
    for (char *axis = tri_arena_strdup(arena, text), *rest; axis; axis = rest) {
        rest = strchr(axis, ',');
        if (rest) *rest++ = 0;
        char *equals = strchr(axis, '='), *end = NULL;
        long size = equals ? strtol(equals + 1, &end, 10) : 0;
        if (size < 1 || size > TRI_MAX_RANKS || *end)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "--mesh: '%s' is not of the form AXIS=N, such as replicate=4", axis);
        *ranks *= (int)size;
        if (*ranks > TRI_MAX_RANKS || *count >= TRI_AXIS_COUNT)
            return TRI_FAIL(TRI_BAD_INPUT, "--mesh: more than %d ranks or %d axes", TRI_MAX_RANKS,
                            TRI_AXIS_COUNT);
        overrides[(*count)++] = tri_arena_printf(arena, "strategy.mesh.%s", axis);
    }
    return TRI_OK;
}

// Sets v->rates, the speeds (FLOP/s, bytes/s) with which the plan's time is estimated: those of
// v->device, except where the command line gives others.
static tri_status read_rates(plan_view *v, const cli_arguments *a) {
    struct {
        const char *flag;
        double *rate;
    } const rows[] = {{"flops", &v->rates.flops_per_s},
                      {"bandwidth", &v->rates.memory_bytes_per_s},
                      {"link", &v->rates.link_bytes_per_s},
                      {"disk", &v->rates.disk_bytes_per_s}};
    const int count = sizeof rows / sizeof *rows;
    // The disk's rate, the last row, is used only if state is offloaded.
    const int wanted = v->recipe->strategy.offload != TRI_OFFLOAD_NONE ? count : count - 1;
    const char *from;
    v->rates = tri_rates_of(&v->device, &from);
    int given = 0;
    for (int i = 0; i < count; i++) {
        const char *text = cli_value(a, rows[i].flag);
        if (!text) continue;
        given += i < wanted;
        if (!tri_quantity_read(text, rows[i].rate) || *rows[i].rate <= 0)
            return TRI_FAIL(TRI_BAD_INPUT, "--%s: '%s' is not a rate such as 60G or 1.5T",
                            rows[i].flag, text);
    }
    if (cli_value(a, "flops")) v->rates.half_flops_per_s = v->rates.flops_per_s;
    v->rates_source = given == 0 ? from
                      : given == wanted
                          ? "given"
                          : tri_arena_printf(v->arena, "given in part, else %s", from);
    return TRI_OK;
}

static tri_status read_samples(plan_view *v, const cli_arguments *a) {
    double samples;
    const char *text = cli_value(a, "samples");
    if (!text) return TRI_OK;
    if (!tri_quantity_read(text, &samples) || samples < 1 || samples > 1e15)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "--samples: '%s' is not a number of samples such as 60000 or "
                        "1.2M",
                        text);
    v->samples = (int64_t)samples;
    return TRI_OK;
}

static tri_status read_recipe(plan_view *v, const cli_context *context, const cli_arguments *a,
                              tri_recipe *recipe) {
    const char *mesh = cli_value(a, "mesh"), *ranks_text = cli_value(a, "ranks");
    const char *memory = cli_value(a, "memory");
    const char **overrides = TRI_NEW_ARRAY(v->arena, const char *, a->count + TRI_AXIS_COUNT + 1);
    int count = 0;
    if (mesh) TRI_TRY(read_mesh(v->arena, mesh, overrides, &count, &v->ranks));
    for (int i = 1; i < a->count; i++) overrides[count++] = a->words[i];
    if (memory) overrides[count++] = tri_arena_printf(v->arena, "strategy.memory=%s", memory);
    if (ranks_text) {
        char *end;
        long ranks = strtol(ranks_text, &end, 10);
        if (ranks < 1 || ranks > TRI_MAX_RANKS || *end)
            return TRI_FAIL(TRI_BAD_INPUT, "--ranks: '%s' is not a number from 1 to %d", ranks_text,
                            TRI_MAX_RANKS);
        v->ranks = (int)ranks;
    }
    v->recipe = recipe;
    v->program = tri_shell_word(v->arena, context->program);
    v->path = a->words[0];
    v->overrides = overrides;
    v->override_count = count;
    return tri_recipe_load(v->arena, a->words[0], overrides, count,
                           context->task ? context->task->name : NULL, recipe);
}

// For several ranks the hosts are not known, and so neither is their free memory.
tri_device_memory plan_memory(const plan_view *v) {
    tri_device_memory there = tri_device_memory_of(&v->device, NULL, 1);
    if (!there.is_own && (v->ranks > 1 || v->is_elsewhere)) there.bytes = 0;
    return tri_fit_memory(&v->request, &there);
}

tri_status plan_check_fits(const plan_view *v) {
    tri_device_memory memory = plan_memory(v);
    int64_t peak = tri_pipeline_plans_fullest(&v->pipeline)->memory.peak;
    return tri_fit_check(&v->device, &v->request, peak, &memory);
}

static tri_status measure(plan_view *v) {
    const double seconds = 2;
    tri_optimizer optimizer;
    tri_measured *out = TRI_NEW(v->arena, tri_measured);
    tri_device *device;
    TRI_TRY(tri_optimizer_make(v->arena, &v->recipe->optimizer, &optimizer));
    tri_optimizer_add_average(&optimizer, &v->recipe->average);
    TRI_TRY(tri_device_open(cli_backends.devices, v->device_name, 0, &device));
    tri_status status = tri_measure_compute(v->arena, device, &v->request, &optimizer,
                                            v->pipeline.plans[0]->programs[0]->batch, seconds, out);
    device->backend->close(device);
    TRI_TRY(status);
    v->measured = out;
    v->rates_source = tri_arena_printf(v->arena, "measured in part, else %s", v->rates_source);
    return TRI_OK;
}

static tri_status search_fitting(plan_view *v, const cli_arguments *a) {
    double bytes;
    const char *text = cli_value(a, "fit");
    tri_candidate found[TRI_MAX_CANDIDATES], least;
    if (!tri_quantity_read(text, &bytes) || bytes < 1 || bytes > (double)(INT64_MAX / 2))
        return TRI_FAIL(TRI_BAD_INPUT, "--fit: '%s' is not a number of bytes such as 64G or 80GiB",
                        text);
    int64_t memory = (int64_t)bytes, most = tri_strategy_memory(&v->recipe->strategy);
    if (most && memory > most)
        return TRI_FAIL(TRI_BAD_INPUT, "--fit: %s is more than strategy.memory: %s allows", text,
                        v->recipe->strategy.memory);
    if (v->device.memory_bytes && memory > v->device.memory_bytes)
        return TRI_FAIL(TRI_BAD_INPUT, "--fit: %s is more than the %s of --device %s", text,
                        tri_bytes_text((double)v->device.memory_bytes), v->device_name);
    tri_device_memory there = tri_device_memory_of(&v->device, NULL, 1); // without the reserve
    if (there.is_own && memory > there.bytes) memory = there.bytes;
    int count = tri_fit_search(v->arena, &v->device, &v->request, &v->rates, v->measured, memory,
                               found, &least);
    double samples = (double)v->request.step_samples[TRI_STEP_FULL];
    if (count == 0)
        return TRI_FAIL(TRI_BAD_INPUT, "--fit: nothing tried fits into %s; the least is %s with %s",
                        tri_bytes_text((double)memory), tri_bytes_text((double)least.peak_bytes),
                        least.overrides && *least.overrides ? least.overrides : "the recipe as is");
    if (cli_has(a, "json")) return plan_print_candidates_json(v, found, count), TRI_OK;
    printf("%10s %12s %14s   settings that fit into %s, the fastest first (%s rates)\n", "peak",
           "a step", "samples/s", tri_bytes_text((double)memory), v->rates_source);
    for (int i = 0; i < count; i++)
        printf("%10s %12s %14s   %s\n", tri_bytes_text((double)found[i].peak_bytes),
               tri_duration_text(found[i].step_s),
               tri_grouped(found[i].step_s > 0 ? samples / found[i].step_s : 0),
               *found[i].overrides ? found[i].overrides : "the recipe as it is");
    return TRI_OK;
}

static tri_status show_plan(plan_view *v, const cli_arguments *a) {
    tri_recipe_log_notes(v->recipe);
    tri_recipe_warn_idle(v->recipe, &v->request.mesh);
    const tri_graph *graph = v->pipeline.plans[0]->graph;
    tri_task_warn_idle(&v->task_options, v->recipe, graph, v->task->name);
    tri_task_warn_idle_patterns(v->request.groups, v->request.group_count, graph);
    if (cli_has(a, "disk") && v->recipe->strategy.offload == TRI_OFFLOAD_NONE)
        cli_warn("--disk has no effect: strategy.offload is none");
    TRI_TRY(cli_check_output("svg", cli_value(a, "svg"), a->words[0]));
    if (cli_has(a, "measure")) TRI_TRY(measure(v));
    if (cli_value(a, "fit")) return search_fitting(v, a);
    tri_estimate_step(v->arena, &v->pipeline, &v->rates, v->measured, &v->estimate);
    v->memory = plan_memory(v);
    if (cli_value(a, "svg")) TRI_TRY(plan_write_svg(v, cli_value(a, "svg")));
    if (cli_has(a, "json"))
        plan_print_json(v);
    else
        TRI_TRY(plan_print(v, cli_value(a, "show")));
    fflush(stdout);
    TRI_TRY(plan_check_fits(v));
    const tri_device_model *model = v->device.model;
    if (model && model->module && !tri_module_is_installed(model->module))
        cli_warn("--device %s can be planned for, but this build cannot drive it: it has no module "
                 "%s (docs/gpu.md)",
                 v->device_name, model->module);
    return TRI_OK;
}

// Rejects flags that contradict each other: --fit gives the memory itself, and lists several
// settings, so that there is no single plan to show or draw.
static tri_status check_flags(const cli_arguments *a) {
    static const char *const others[] = {"show", "svg", "memory"};
    for (size_t i = 0; cli_has(a, "fit") && i < sizeof others / sizeof *others; i++)
        if (cli_has(a, others[i]))
            return TRI_FAIL(TRI_BAD_INPUT,
                            "--fit and --%s exclude each other: plan one of the settings that "
                            "--fit lists",
                            others[i]);
    return TRI_OK;
}

static tri_status plan(plan_view *v, const cli_context *context, const cli_arguments *a) {
    tri_recipe recipe;
    TRI_TRY(check_flags(a));
    TRI_TRY(read_recipe(v, context, a, &recipe));
    TRI_TRY(read_samples(v, a));
    v->device_name = cli_has(a, "device") ? cli_value(a, "device") : "auto";
    TRI_TRY(tri_device_describe(cli_backends.devices, v->device_name, &v->device));
    TRI_TRY(read_rates(v, a));
    tri_status status = plan_make(v, context);
    if (status == TRI_OK) status = show_plan(v, a);
    tri_pipeline_plans_destroy(&v->pipeline);
    return status;
}

static const cli_flag flags[] = {
    {"ranks", "N", "plan for N ranks (1)", 0},
    {"mesh", "AXIS=N,...", "plan for a mesh, for instance replicate=64,pipeline=4", 0},
    {"show", "summary|blocks|memory|schedule|gantt|graph|dot", "what to print (summary)", 0},
    CLI_DEVICE_FLAG("the device to plan for"),
    {"flops", "RATE", "FLOP/s that a rank computes (60G; of a device model: its maker's)", 0},
    {"bandwidth", "RATE", "bytes/s of memory that a rank reads and writes (10G)", 0},
    {"link", "RATE", "bytes/s that a rank sends to others (5G)", 0},
    {"disk", "RATE", "bytes/s that strategy.offload reads and writes (1G)", 0},
    {"samples", "N", "number of training samples, for the length of the run", 0},
    {"measure", NULL, "measure the model's blocks on this machine, for the times of the plan", 0},
    {"memory", "BYTES", "memory that a rank may use (one rank: what is free here)", 0},
    {"fit", "BYTES", "search for settings that fit, the fastest first, as overrides", 0},
    {"svg", "FILE", "draw the Gantt chart of all ranks", 0},
    {"json", NULL, "print everything as one JSON object", 0},
    {0}};

static int run(const cli_context *context, int argc, char **argv) {
    cli_arguments a;
    int code = cli_parse(&cli_plan, argc, argv, &a);
    if (code >= 0) return code;
    if (a.count < 1) return cli_usage(&cli_plan, "plan: which recipe?");
    plan_view v = {.arena = tri_arena_create(NULL, "command"), .ranks = 1};
    tri_status status = plan(&v, context, &a);
    tri_arena_destroy(v.arena);
    return status == TRI_OK ? 0 : cli_fail(status);
}

const cli_command cli_plan = {
    .name = "plan",
    .arguments = "RECIPE [key.path=value ...]",
    .help = "Tell what a run will need: memory, time, disk; without running it.",
    .flags = flags,
    .more =
        "The data is not opened. The memory is that of the rank that needs most; --show memory\n"
        "lists all ranks, with one row for ranks that do the same. --show gantt draws what each\n"
        "rank does when, --show schedule lists it, and --show blocks lists the network. Rates may\n"
        "end in k, M, G or T for powers of 1000. --measure runs steps of zeros on one rank with "
        "whole layers and the\n"
        "plan's micro-batch. A plan that does not fit into memory is printed, then refused with\n"
        "exit code 2 and settings that would fit, as trireme train refuses it. --fit never "
        "changes\n"
        "what is learned: neither the batch of a step nor the samples that batch norm sees.\n"
        "--device cuda:MODEL plans for a GPU that need not be here, with the rates of its maker's\n"
        "data sheet, such as h200, a100-64 or mi250x (64 GB for each of its two devices). A\n"
        "message lists all models if there is none with the name.\n",
    .examples = "trireme plan recipes/mnist-cnn.yaml --ranks 8\n"
                "trireme plan recipes/mnist-cnn.yaml batch.micro=16 --show gantt\n"
                "trireme plan recipes/llama-tiny.yaml --mesh pipeline=4 batch.micro=2 --svg "
                "step.svg\n"
                "trireme plan recipes/llama-tiny.yaml --ranks 4 --fit 40M\n"
                "trireme plan recipes/llama-tiny.yaml --ranks 2 --measure\n"
                "trireme plan recipes/codellama-7b.yaml --device cuda:a100-64 --ranks 4\n"
                "trireme plan recipes/denoise-cnn.yaml --json\n",
    .run = run};
