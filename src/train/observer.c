// Opens what reports a run: tells how the run begins, on the screen and in metrics.jsonl.
#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"
#include "base/variable.h"
#include "plan/estimate.h"
#include "train/loop.h"
#include "views/csv.h"
#include "views/prometheus.h"
#include "views/wandb.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

// Warns if the run will end before it logs its first training loss, because there will be no curve
// to look at.
static void report_unlogged(const train_loop *loop) {
    int64_t every = loop->recipe->trainer.log_every_n_steps, last = loop->last_step;
    if (!loop->saves || last <= loop->progress.step || last / every > loop->progress.step / every)
        return;
    tri_observe_message(
        loop->observer,
        "no training loss will be logged: the run ends at step %lld, before the "
        "next multiple of trainer.log_every_n_steps=%lld; a lower one gives a curve",
        (long long)last, (long long)every);
}

// Finds how many seconds a sample takes at the peak of all ranks' devices: the user's, of one rank,
// from environment variables, or that of the device's maker. 0: the peak is not known.
static void find_least_times(const tri_session *s, tri_run_info *info) {
    double flops = 0, bytes = 0;
    const char *from;
    tri_rates peak = tri_rates_of(&s->device->description, &from);
    bool is_stated = strcmp(from, "assumed") != 0;
    // tri_main has refused variables that are no rates.
    (void)tri_variable_rate(NULL, "TRIREME_PEAK_FLOPS", &flops);
    (void)tri_variable_rate(NULL, "TRIREME_PEAK_BANDWIDTH", &bytes);
    if (flops > 0) peak.flops_per_s = peak.half_flops_per_s = flops;
    if (bytes > 0) peak.memory_bytes_per_s = bytes;
    tri_least_seconds least;
    tri_estimate_least(s->plan, &peak, &least);
    if (is_stated || flops > 0) info->arithmetic_s = least.arithmetic / s->mesh.ranks;
    if (is_stated || bytes > 0) info->traffic_s = least.traffic / s->mesh.ranks;
}

// What metrics.jsonl tells of the start of a process.
static const tri_tree *start_line(const train_loop *loop, const tri_tree *table) {
    const tri_session *s = loop->session;
    tri_arena *arena = loop->arena;
    tri_tree *line = tri_tree_map(arena);
    char text[TRI_DEVICE_NAME_BYTES];
    time_t now = (time_t)(tri_os.realtime_ns() / 1000000000);
    struct tm parts;
    if (loop->last_step >= 0) tri_tree_put_int(arena, line, "total_steps", loop->last_step);
    tri_tree_put_int(arena, line, "ranks", s->identity.size);
    tri_tree_put_string(arena, line, "device", tri_device_name(&s->device->description, text));
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    tri_tree_put_string(arena, line, "time", text);
    tri_tree *memory = tri_tree_map(arena); // bytes of this rank, by the plan
#define X(member) tri_tree_put_int(arena, memory, #member, s->plan->memory.member);
    TRI_MEMORY_PLAN_LIST(X)
#undef X
    tri_tree_put(arena, line, "memory", memory);
    tri_tree_put(arena, line, "model", tri_tree_copy(arena, table));
    return line;
}

void train_open_observer(train_loop *loop) {
    tri_session *s = loop->session;
    if (s->identity.rank != 0) return;
    const tri_graph *g = s->plan->graph;
    const char **names = TRI_NEW_ARRAY(loop->arena, const char *, g->metric_count);
    int named = 0;
    for (int i = 1; i < g->metric_count; i++)
        if (g->metrics[i].figures.rank == 0) names[named++] = g->metrics[i].name;
    tri_run_info *info = TRI_NEW(loop->arena, tri_run_info);
    *info = (tri_run_info){.name = loop->recipe->name,
                           .folder = loop->saves ? loop->request->run_dir : NULL,
                           .recipe = tri_recipe_tree(loop->arena, loop->recipe),
                           .first_step = loop->progress.step,
                           .total_steps = loop->last_step,
                           .steps_per_epoch = loop->steps_per_epoch,
                           .total_epochs = loop->recipe->trainer.max_epochs,
                           .log_every_n_steps = loop->recipe->trainer.log_every_n_steps,
                           .metrics = names,
                           .metric_count = named};
    find_least_times(s, info);
    const tri_event_sink *sinks[TRI_MAX_SINKS];
    tri_log_options log = loop->recipe->log;
    log.progress = log.progress && !loop->request->quiet;
    bool is_needed = info->folder || (log.progress && log.summary);
    const tri_tree *table = is_needed ? train_model_table(loop) : NULL;
    if (info->folder) info->start = start_line(loop, table);
    int count = tri_sinks_choose(&log, info, sinks);
    if (info->folder && log.csv) sinks[count++] = &views_sink_csv;
    if (info->folder && log.prometheus) sinks[count++] = &views_sink_prometheus;
    if (info->folder && *log.wandb.project) sinks[count++] = &views_sink_wandb;
    loop->observer = tri_observer_create(info, sinks, count);
    char device[TRI_DEVICE_NAME_BYTES];
    tri_observe_message(loop->observer, "%s on %s: %s of %s, %lld parameters", s->task->name,
                        tri_device_name(&s->device->description, device),
                        tri_counted(s->identity.size, "rank"),
                        tri_counted(s->device->description.threads, "thread"),
                        (long long)tri_graph_trained_count(g));
    if (loop->request->bound_cores)
        tri_observe_message(loop->observer,
                            "rank 0 is bound to %s, as the others of this host are to cores of "
                            "their own; TRIREME_BIND=none leaves them unbound",
                            tri_counted(loop->request->bound_cores, "core"));
    if (s->idle_outputs) tri_log_line(TRI_LOG_WARNING, "%s", s->idle_outputs);
    if (loop->recipe->trainer.precision == TRI_PRECISION_BF16_TRUE)
        tri_observe_message(
            loop->observer,
            "bf16-true: activations and the weights that kernels read are BF16; the "
            "optimizer's weights and state are F32");
    char mesh[256];
    if (s->mesh.ranks > 1)
        tri_observe_message(loop->observer, "mesh: %s", tri_mesh_text(&s->mesh, mesh, sizeof mesh));
    if (log.progress && log.summary) train_show_summary(loop, table);
    report_unlogged(loop);
}
