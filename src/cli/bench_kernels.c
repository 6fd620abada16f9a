// trireme bench kernels: each kernel of the models' training steps beside the machine's peak.
#include "cli/cli.h"

#include "device/cpu/cpu.h"
#include "nn/models/models.h"
#include "plan/program.h"

#include <stdio.h>
#include <string.h>

// The batches of the recipes.
static int64_t batch_of(const char *model) {
    if (!strcmp(model, "mnist-convnet")) return 100;
    if (!strcmp(model, "denoise-cnn")) return 32;
    if (!strcmp(model, "mlp-jax")) return 128;
    return 64;
}

static void print_row(const tri_graph *g, const char *model, const tri_bench_row *row, bool json) {
    const tri_node *node = &g->nodes[row->node];
    char shape[128] = "";
    if (node->output_count)
        tri_shape_text(&tri_value_get(g, node->outputs[0])->shape, shape, sizeof shape);
    const char *name = node->name ? node->name : "";
    double us = row->seconds * 1e6;
    double gflops = row->seconds > 0 ? row->flops / row->seconds * 1e-9 : 0;
    double gbytes = row->seconds > 0 ? row->bytes / row->seconds * 1e-9 : 0;
    if (json)
        printf(
            "{\"model\":\"%s\",\"op\":\"%s\",\"layer\":\"%s\",\"kernel\":\"%s\",\"shape\":\"%s\","
            "\"time_us\":%.2f,\"gflops\":%.2f,\"gb_s\":%.2f,\"share\":%.3f}\n",
            model, node->op->name, name, row->kernel, shape, us, gflops, gbytes, row->share);
    else
        printf("%-22s %-14s %-16s %-20s %10.1f us %8.1f GFLOP/s %7.1f GB/s %5.0f%%\n",
               node->op->name, name, row->kernel, shape, us, gflops, gbytes, row->share * 100);
}

static tri_status bench_model(tri_arena *parent, tri_device *device, const tri_bench_peak *peak,
                              const tri_task *task, double seconds, bool json) {
    tri_model_request request = {.task = task, .fields = task->fields};
    request.options = (tri_graph_options){.training = true, .seed = 1};
    for (int i = 0; i < TRI_TASK_MAX_FIELDS && task->fields[i].name; i++) request.field_count++;
    tri_program *program;
    int64_t batch = batch_of(task->name);
    TRI_TRY(tri_program_create(
        parent, device, &(tri_program_request){.model = &request, .batch = batch}, &program));
    const tri_graph *g = program->graph;
    tri_bench_row *rows = TRI_NEW_ARRAY(parent, tri_bench_row, g->node_count + 1);
    tri_status status = tri_bench_graph(device, g, peak, seconds, rows);
    double sum = 0;
    if (status == TRI_OK && !json) printf("%s, batch %lld\n", task->name, (long long)batch);
    for (int i = 0; i < g->node_count && status == TRI_OK; i++) {
        print_row(g, task->name, &rows[i], json);
        sum += rows[i].seconds;
    }
    if (status == TRI_OK && !json)
        printf("%-75s %10.1f us, %.0f samples/s without updates\n\n", "sum", sum * 1e6,
               sum > 0 ? (double)batch / sum : 0);
    tri_program_destroy(program);
    return status;
}

tri_status cli_bench_kernels(tri_arena *arena, int count, char **models, double seconds,
                             bool json) {
    for (int i = 0; i < count; i++)
        if (!tri_model_find(models[i]))
            return TRI_FAIL(TRI_BAD_INPUT, "bench kernels: there is no built-in model '%s'",
                            models[i]);
    tri_device *device;
    TRI_TRY(tri_device_cpu.open(&(tri_device_config){0}, &device));
    tri_bench_peak peak;
    tri_status status = cpu_measure_peak(device, &peak);
    if (status == TRI_OK)
        printf(
            json ? "{\"threads\":%d,\"peak_gflops\":%.1f,\"peak_gb_s\":%.1f}\n"
                 : "%d thread(s); peak %.1f GFLOP/s, memory %.1f GB/s; the share is of what these "
                   "allow the plain algorithm\n\n",
            device->threads, peak.flops_per_s * 1e-9, peak.bytes_per_s * 1e-9);
    for (const tri_task *const *task = tri_models; *task && status == TRI_OK; task++) {
        bool wanted = count == 0;
        for (int i = 0; i < count; i++) wanted = wanted || !strcmp(models[i], (*task)->name);
        if (wanted) status = bench_model(arena, device, &peak, *task, seconds, json);
    }
    tri_device_cpu.close(device);
    return status;
}
