// `trireme bench kernels`: times each kernel of a model's training step and compares it with the
// machine's peak. A row is the measurement of one node of the model's graph, that is, of one call
// of a kernel.
#include "cli/cli.h"

#include "base/limits.h"
#include "cli/bench_peak.h"
#include "device/choose.h"
#include "nn/models/models.h"
#include "plan/program.h"
#include "recipe/batch.h"
#include "train/session.h"
#include "train/task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The batch size with which a model is measured: that of its recipe in recipes/; 64 for llama.
static int64_t batch_of(const char *model) {
    if (!strcmp(model, "mnist-convnet")) return 100;
    if (!strcmp(model, "denoise-cnn")) return 32;
    if (!strcmp(model, "mlp-jax")) return 128;
    return 64;
}

enum { FRACTION_BYTES = 32 };

// Writes which fraction of the machine's peak a kernel reaches, and returns the text. `fraction` is
// the result of tri_bench_fraction; 0: not known.
static const char *fraction_text(double fraction, bool json, char text[FRACTION_BYTES]) {
    snprintf(text, FRACTION_BYTES, json ? "%.3f" : "%.0f%%", fraction * (json ? 1 : 100));
    if (fraction == 0) snprintf(text, FRACTION_BYTES, "%s", json ? "null" : "-");
    return text;
}

static double billions(double count, double seconds) {
    return seconds > 0 ? count / seconds * 1e-9 : 0;
}

// For a kernel that computes a convolution by Winograd's algorithm, prints how long the direct
// algorithm takes: in the row's JSON object, or as a line below the row. Also ends the JSON object
// of the row, whatever the kernel.
static void print_direct(const tri_bench_row *row, bool json) {
    char text[FRACTION_BYTES];
    const char *fraction = fraction_text(row->direct_fraction, json, text);
    double us = row->direct_seconds * 1e6, gflops = billions(row->flops, row->direct_seconds);
    double times = row->seconds > 0 ? row->direct_seconds / row->seconds : 0;
    if (json && row->direct_kernel)
        printf(",\"direct_kernel\":\"%s\",\"direct_time_us\":%.2f,\"direct_share\":%s}\n",
               row->direct_kernel, us, fraction);
    else if (json)
        printf("}\n");
    else if (row->direct_kernel)
        printf("%-37s %-37s %10.1f us %8.1f GFLOP/s %12s %6s; %.2f times as long\n",
               "  by the direct algorithm", row->direct_kernel, us, gflops, "", fraction, times);
}

static void print_row(const tri_graph *g, const char *model, const tri_bench_row *row, bool json) {
    const tri_node *node = &g->nodes[row->node];
    char shape[128] = "";
    if (node->output_count)
        tri_shape_text(&tri_value_get(g, node->outputs[0])->shape, shape, sizeof shape);
    const char *name = node->name ? node->name : "";
    char text[FRACTION_BYTES];
    const char *fraction = fraction_text(row->fraction, json, text);
    double us = row->seconds * 1e6, gflops = billions(row->flops, row->seconds);
    double gbytes = billions(row->bytes, row->seconds);
    if (json)
        printf(
            "{\"model\":\"%s\",\"op\":\"%s\",\"layer\":\"%s\",\"kernel\":\"%s\",\"shape\":\"%s\","
            "\"time_us\":%.2f,\"gflops\":%.2f,\"gb_s\":%.2f,\"share\":%s",
            model, node->op->name, name, row->kernel, shape, us, gflops, gbytes, fraction);
    else
        printf("%-22s %-14s %-16s %-20s %10.1f us %8.1f GFLOP/s %7.1f GB/s %6s\n", node->op->name,
               name, row->kernel, shape, us, gflops, gbytes, fraction);
    print_direct(row, json);
}

// The sum of all rows that have the same op and the same kernel.
typedef struct op_sum {
    const char *op, *kernel;
    int count;
    // seconds: the measured time; least: the shortest time that the machine's peak allows.
    double seconds, least;
} op_sum;

static double saved(const op_sum *sum) { return sum->seconds - sum->least; }
static int most_saved_first(const void *a, const void *b) {
    double left = saved(a), right = saved(b);
    return left < right ? 1 : left > right ? -1 : 0;
}

// Adds up the times of the rows by op and kernel, as measured and as they would be at the machine's
// peak (`least`). Returns how many sums there are. If it is not known how near to the peak a kernel
// is (fraction 0), its measured time counts as the least possible.
static int sum_by_op(const tri_graph *g, const tri_bench_row *rows, op_sum *sums) {
    int count = 0;
    for (int i = 0; i < g->node_count; i++) {
        const char *op = g->nodes[i].op->name;
        int k = 0;
        while (k < count && (strcmp(sums[k].op, op) || strcmp(sums[k].kernel, rows[i].kernel))) k++;
        if (k == count) sums[count++] = (op_sum){.op = op, .kernel = rows[i].kernel};
        sums[k].count++;
        sums[k].seconds += rows[i].seconds;
        sums[k].least += rows[i].seconds * (rows[i].fraction > 0 ? rows[i].fraction : 1);
    }
    qsort(sums, (size_t)count, sizeof *sums, most_saved_first);
    return count;
}

static void print_sums(const char *model, const op_sum *sums, int count, bool json) {
    double all = 0;
    for (int i = 0; i < count; i++) all += sums[i].seconds;
    if (!json) printf("\nby op: what perfect kernels would save, the most first\n");
    for (int i = 0; i < count; i++) {
        const op_sum *s = &sums[i];
        double fraction = s->seconds > 0 ? s->least / s->seconds : 1;
        double of_all = all > 0 ? s->seconds / all : 0;
        if (json)
            printf("{\"model\":\"%s\",\"all_of\":\"%s\",\"kernel\":\"%s\",\"count\":%d,"
                   "\"time_us\":%.2f,\"share\":%.3f,\"saved_us\":%.2f}\n",
                   model, s->op, s->kernel, s->count, s->seconds * 1e6, fraction, saved(s) * 1e6);
        else
            printf("%-26s %-16s %4d times %10.1f us, %4.1f%% of all; %3.0f%% of what is possible; "
                   "saves %10.1f us\n",
                   s->op, s->kernel, s->count, s->seconds * 1e6, of_all * 100, fraction * 100,
                   saved(s) * 1e6);
    }
}

// What is the same for all models that one command measures.
typedef struct kernel_bench {
    tri_arena *arena;
    tri_device *device;
    tri_bench_peak peak;
    double seconds;
    bool json;
} kernel_bench;

static tri_status bench_request(const kernel_bench *b, const tri_model_request *request,
                                int64_t batch) {
    const char *name = request->task->name;
    tri_program *program;
    TRI_TRY(tri_program_create(b->arena, &b->device->description,
                               &(tri_program_request){.model = request, .batch = batch}, &program));
    const tri_graph *g = program->graph;
    tri_bench_row *rows = TRI_NEW_ARRAY(b->arena, tri_bench_row, g->node_count + 1);
    tri_status status = tri_bench_graph(b->device, g, &b->peak, b->seconds, rows);
    double sum = 0;
    if (status == TRI_OK && !b->json) printf("%s, batch %lld\n", name, (long long)batch);
    for (int i = 0; i < g->node_count && status == TRI_OK; i++) {
        print_row(g, name, &rows[i], b->json);
        sum += rows[i].seconds;
    }
    if (status == TRI_OK && !b->json)
        printf("%-75s %10.1f us, %.0f samples/s without updates\n", "sum", sum * 1e6,
               sum > 0 ? (double)batch / sum : 0);
    if (status == TRI_OK) {
        op_sum *sums = TRI_NEW_ARRAY(b->arena, op_sum, g->node_count + 1);
        print_sums(name, sums, sum_by_op(g, rows, sums), b->json);
        if (!b->json) printf("\n");
    }
    tri_program_destroy(program);
    return status;
}

static tri_status bench_model(const kernel_bench *b, const tri_task *task) {
    tri_model_request request = {.task = task, .fields = task->fields};
    request.options = (tri_graph_options){.training = true, .seed = 1};
    for (int i = 0; i < TRI_TASK_MAX_FIELDS && task->fields[i].name; i++) request.field_count++;
    return bench_request(b, &request, batch_of(task->name));
}

// What is measured for a recipe: the recipe's model on one micro-batch of one rank, in the recipe's
// precision.
typedef struct recipe_bench {
    tri_field fields[TRI_MAX_DATA_FIELDS];
    tri_task_options options;
    tri_model_request request;
    int64_t batch;
} recipe_bench;

static tri_status read_recipe(const cli_context *context, tri_arena *arena, int count, char **words,
                              recipe_bench *out) {
    tri_recipe recipe;
    *out = (recipe_bench){.request.fields = out->fields};
    TRI_TRY(tri_recipe_load(arena, words[0], (const char *const *)words + 1, count - 1,
                            context->task ? context->task->name : NULL, &recipe));
    TRI_TRY(tri_task_find(&recipe, context->task, &out->request.task));
    TRI_TRY(tri_session_describe_fields(&recipe, out->request.task, out->fields,
                                        &out->request.field_count));
    TRI_TRY(tri_task_graph_options(arena, &recipe, &out->options, &out->request.options));
    out->request.options.training = true;
    tri_batch_options batch = tri_recipe_batch_without_steps(&recipe);
    out->batch = batch.micro > 0 ? batch.micro : batch.global;
    // The graph is built once before anything is measured or printed, so that a model with an error
    // is rejected first.
    tri_graph *graph;
    tri_arena *trial = tri_arena_create(arena, "trial");
    tri_status status = tri_model_build(trial, &out->request, out->batch, &graph);
    tri_arena_destroy(trial);
    return status == TRI_OK ? tri_task_check_options(&out->options, out->request.task->name)
                            : status;
}

// Checks the names of the models to be measured. Without a recipe only built-in models are
// possible, because only these tell what their samples look like.
static tri_status check_models(const cli_context *context, int count, char **models) {
    if (count == 0 && context->task)
        return TRI_FAIL(TRI_BAD_INPUT, "bench kernels: which recipe of model %s?",
                        context->task->name);
    for (int i = 0; i < count; i++) {
        if (tri_model_find(models[i])) continue;
        const char *known[64];
        int known_count = 0;
        for (const tri_task *const *m = tri_models; *m && known_count < 64; m++)
            known[known_count++] = (*m)->name;
        const char *near = tri_option_nearest(models[i], known, known_count);
        return TRI_FAIL(TRI_BAD_INPUT, "bench kernels: there is no built-in model '%s'%s%s%s",
                        models[i], near ? " (did you mean '" : "", near ? near : "",
                        near ? "'?)" : "");
    }
    return TRI_OK;
}

static tri_status bench_models(const kernel_bench *b, int count, char **models) {
    for (const tri_task *const *task = tri_models; *task; task++) {
        bool wanted = count == 0;
        for (int i = 0; i < count; i++) wanted = wanted || !strcmp(models[i], (*task)->name);
        if (wanted) TRI_TRY(bench_model(b, *task));
    }
    return TRI_OK;
}

tri_status cli_bench_kernels(const cli_context *context, const char *device, tri_arena *arena,
                             int count, char **words, double seconds, bool json) {
    kernel_bench b = {.arena = arena, .seconds = seconds, .json = json};
    recipe_bench recipe;
    bool of_recipe = count > 0 && strchr(words[0], '.');
    const char *end = of_recipe ? strrchr(words[0], '.') : "";
    if (!strcmp(end, ".so"))
        return TRI_FAIL(TRI_BAD_INPUT, "bench kernels: name a recipe, and model.name=%s behind it",
                        words[0]);
    TRI_TRY(of_recipe ? read_recipe(context, arena, count, words, &recipe)
                      : check_models(context, count, words));
    TRI_TRY(tri_device_open(cli_backends.devices, device, 0, &b.device));
    tri_status status = cli_measure_peak(b.device, &b.peak);
    if (status == TRI_OK)
        printf(json ? "{\"threads\":%d,\"peak_gflops\":%.1f,\"peak_bf16_gflops\":%.1f,"
                      "\"peak_gb_s\":%.1f}\n"
                    : "threads %d; peak %.1f GFLOP/s, of BF16 %.1f GFLOP/s, memory %.1f GB/s; the "
                      "percentages are of what these, or the caches, allow the plain algorithm\n\n",
               b.device->description.threads, b.peak.flops_per_s * 1e-9,
               b.peak.bf16_flops_per_s * 1e-9, b.peak.bytes_per_s * 1e-9);
    if (status == TRI_OK)
        status = of_recipe ? bench_request(&b, &recipe.request, recipe.batch)
                           : bench_models(&b, count, words);
    b.device->backend->close(b.device);
    return status;
}
