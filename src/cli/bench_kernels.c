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
#include "train/known_fields.h"
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
static const char *fraction_text(double fraction, char text[FRACTION_BYTES]) {
    snprintf(text, FRACTION_BYTES, "%.0f%%", fraction * 100);
    return fraction == 0 ? "-" : text;
}

static tri_tree *fraction_tree(tri_arena *arena, double fraction) {
    return fraction == 0 ? tri_tree_null(arena) : tri_tree_digits(arena, fraction, 3);
}

static double billions(double count, double seconds) {
    return seconds > 0 ? count / seconds * 1e-9 : 0;
}

// What is printed of one row of the table.
typedef struct row_view {
    const char *model, *op, *layer, *block, *phase;
    char shape[128];
    double gflops, gbytes;
    const tri_bench_row *row;
} row_view;

// `direct_…` are of a convolution that is computed by Winograd's algorithm: what the direct
// algorithm takes.
static void print_row_json(const row_view *v) {
    const tri_bench_row *row = v->row;
    tri_arena *arena = tri_arena_create(NULL, "row");
    tri_tree *map = tri_tree_map(arena);
    tri_tree_put_string(arena, map, "model", v->model);
    tri_tree_put_string(arena, map, "op", v->op);
    tri_tree_put_string(arena, map, "layer", v->layer);
    tri_tree_put_string(arena, map, "block", v->block);
    tri_tree_put_string(arena, map, "phase", v->phase);
    tri_tree_put_string(arena, map, "kernel", row->kernel);
    tri_tree_put_string(arena, map, "shape", v->shape);
    tri_tree_put_digits(arena, map, "time_us", row->seconds * 1e6, 8);
    tri_tree_put_digits(arena, map, "fastest_us", row->fastest * 1e6, 8);
    tri_tree_put_digits(arena, map, "gflops", v->gflops, 5);
    tri_tree_put_digits(arena, map, "gb_s", v->gbytes, 5);
    tri_tree_put(arena, map, "share", fraction_tree(arena, row->fraction));
    if (row->direct_kernel) {
        tri_tree_put_string(arena, map, "direct_kernel", row->direct_kernel);
        tri_tree_put_digits(arena, map, "direct_time_us", row->direct_seconds * 1e6, 8);
        tri_tree_put(arena, map, "direct_share", fraction_tree(arena, row->direct_fraction));
    }
    printf("%s\n", tri_json_emit(arena, map));
    tri_arena_destroy(arena);
}

static void print_row_text(const row_view *v) {
    char text[FRACTION_BYTES];
    const tri_bench_row *row = v->row;
    printf("%-22s %-14s %-16s %-20s %10.1f us %8.1f GFLOP/s %7.1f GB/s %6s\n", v->op, v->layer,
           row->kernel, v->shape, row->seconds * 1e6, v->gflops, v->gbytes,
           fraction_text(row->fraction, text));
    if (!row->direct_kernel) return;
    printf("%-37s %-37s %10.1f us %8.1f GFLOP/s %12s %6s; %.2f times as long\n",
           "  by the direct algorithm", row->direct_kernel, row->direct_seconds * 1e6,
           billions(row->flops, row->direct_seconds), "", fraction_text(row->direct_fraction, text),
           row->seconds > 0 ? row->direct_seconds / row->seconds : 0);
}

static void print_row(const tri_graph *g, const char *model, const tri_bench_row *row, bool json) {
    const tri_node *node = &g->nodes[row->node];
    row_view v = {.model = model,
                  .op = node->op->name,
                  .layer = node->name ? node->name : "",
                  .block = g->blocks[node->block],
                  .phase = node->phase == TRI_PHASE_FORWARD ? "forward" : "backward",
                  .gflops = billions(row->flops, row->seconds),
                  .gbytes = billions(row->bytes, row->seconds),
                  .row = row};
    if (node->output_count)
        tri_shape_text(&tri_value_get(g, node->outputs[0])->shape, v.shape, sizeof v.shape);
    (json ? print_row_json : print_row_text)(&v);
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

static void print_sum_json(const char *model, const op_sum *s, double fraction) {
    tri_arena *arena = tri_arena_create(NULL, "sum");
    tri_tree *map = tri_tree_map(arena);
    tri_tree_put_string(arena, map, "model", model);
    tri_tree_put_string(arena, map, "all_of", s->op);
    tri_tree_put_string(arena, map, "kernel", s->kernel);
    tri_tree_put_int(arena, map, "count", s->count);
    tri_tree_put_digits(arena, map, "time_us", s->seconds * 1e6, 8);
    tri_tree_put_digits(arena, map, "share", fraction, 3);
    tri_tree_put_digits(arena, map, "saved_us", saved(s) * 1e6, 8);
    printf("%s\n", tri_json_emit(arena, map));
    tri_arena_destroy(arena);
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
            print_sum_json(model, s, fraction);
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

static void print_peak(const kernel_bench *b) {
    int threads = b->device->description.threads;
    double plain = b->peak.flops_per_s * 1e-9, bf16 = b->peak.bf16_flops_per_s * 1e-9;
    double memory = b->peak.bytes_per_s * 1e-9;
    if (!b->json) {
        printf("threads %d; peak %.1f GFLOP/s, of BF16 %.1f GFLOP/s, memory %.1f GB/s; the "
               "percentages are of what these, or the caches, allow the plain algorithm\n\n",
               threads, plain, bf16, memory);
        return;
    }
    tri_tree *map = tri_tree_map(b->arena);
    tri_tree_put_int(b->arena, map, "threads", threads);
    tri_tree_put_digits(b->arena, map, "peak_gflops", plain, 5);
    tri_tree_put_digits(b->arena, map, "peak_bf16_gflops", bf16, 5);
    tri_tree_put_digits(b->arena, map, "peak_gb_s", memory, 5);
    printf("%s\n", tri_json_emit(b->arena, map));
}

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
    TRI_TRY(tri_task_find(arena, &recipe, context->task, &out->request.task));
    TRI_TRY(train_describe_fields(arena, &recipe, out->request.task, out->fields,
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
    if (status == TRI_OK) print_peak(&b);
    if (status == TRI_OK)
        status = of_recipe ? bench_request(&b, &recipe.request, recipe.batch)
                           : bench_models(&b, count, words);
    b.device->backend->close(b.device);
    return status;
}
