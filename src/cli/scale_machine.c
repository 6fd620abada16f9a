// `trireme scale --simulate`: how a recipe scales on a machine that is not here. Nothing is
// measured. The speeds are the makers' and the site's profile's, and what one host of the machine
// gives: the training steps of a rank, and what its loaders deliver.
#include "cli/scale_view.h"

#include "base/quantity.h"
#include "launch/site.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

static tri_status read_number(const cli_arguments *a, const char *flag, const char *example,
                              double *out) {
    const char *text = cli_value(a, flag);
    if (!text) return TRI_OK;
    if (tri_quantity_read(text, out) && *out > 0 && *out < 1e15) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "--%s: '%s' is not a number above 0, such as %s", flag, text,
                    example);
}

static tri_status read_site(scale_view *v, const char *name, scale_machine *out) {
    tri_site site;
    TRI_TRY(tri_site_find(v->arena, name, &site));
    v->site = site.name;
    out->ranks_per_host = site.node.gpus ? site.node.gpus : 1;
    out->network_bytes_per_s = (double)site.node.network_gbit * 1e9 / 8;
    out->device = site.node.gpu ? tri_arena_printf(v->arena, "cuda:%s", site.node.gpu) : NULL;
    return TRI_OK;
}

// The flags of a machine. Those that `are_of_run` describe a whole run, and need --samples.
static const struct {
    const char *flag, *example; // NULL: no number
    size_t at;
    bool are_of_run;
} rows[] = {
    {"site", NULL, 0, false},
    {"rate", "2500", offsetof(scale_machine, rank_samples_per_s), false},
    {"samples", "1.28M", offsetof(scale_machine, samples), false},
    {"val-samples", "50000", offsetof(scale_machine, val_samples), true},
    {"loader", "9600", offsetof(scale_machine, loader_samples_per_s), true},
    {"cold-loader", NULL, 0, true},
    {"start", "20", offsetof(scale_machine, start_s), true},
};

tri_status scale_read_machine(scale_view *v, const cli_arguments *a, scale_machine *out) {
    *out = (scale_machine){.is_given = cli_has(a, "simulate")};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!cli_has(a, rows[i].flag)) continue;
        const char *needed = !out->is_given                                 ? "simulate"
                             : rows[i].are_of_run && !cli_has(a, "samples") ? "samples"
                                                                            : NULL;
        if (needed)
            return TRI_FAIL(TRI_BAD_INPUT, "--%s has no effect without --%s", rows[i].flag, needed);
        double *number = (double *)(void *)((char *)out + rows[i].at);
        if (rows[i].example) TRI_TRY(read_number(a, rows[i].flag, rows[i].example, number));
    }
    if (!out->is_given) return TRI_OK;
    out->has_cold_loader = cli_has(a, "cold-loader");
    if (v->count == 0)
        return TRI_FAIL(TRI_BAD_INPUT, "--simulate needs --ranks, such as --ranks 1,4,16");
    if (cli_has(a, "seconds"))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "--seconds has no effect with --simulate, which measures nothing");
    return cli_has(a, "site") ? read_site(v, cli_value(a, "site"), out) : TRI_OK;
}

// How much of a training step's arithmetic its forward pass is.
static double forward_fraction(const tri_plan *plan) {
    double forward = 0, all = 0;
    for (int b = 0; b < plan->block_count; b++)
        for (int phase = 0; phase < TRI_PHASE_COUNT; phase++) {
            double flops = plan_block_flops(plan, b, (tri_phase)phase);
            if (phase == TRI_PHASE_FORWARD) forward += flops;
            all += flops;
        }
    return all > 0 ? forward / all : 0;
}

static void simulate_run(const scale_view *v, const scale_machine *m, scale_point *p) {
    plan_view *view = &p->plan;
    const tri_plan *plan = view->pipeline.plans[0];
    view->samples = (int64_t)m->samples;
    plan_run run = plan_whole_run(view);
    if (run.steps < 0 || run.steps_per_epoch <= 0) return;
    scale_point alone = *p;
    alone.link_bytes_per_s = 1e30; // communication takes no time
    double computing_s = scale_simulate_point(v, &alone, 1);
    double replicas = (double)tri_mesh_replicas(&view->mesh), global = (double)scale_batch(p);
    double batch = (double)plan->programs[0]->batch, steps = (double)run.steps_per_epoch;
    double passes = global / replicas / batch; // micro-batches of a replica in a step
    double eval = (double)view->request.eval_micro;
    const tri_trainer_options *trainer = &p->recipe.trainer;
    tri_run_model model = {
        .epochs = (run.steps + run.steps_per_epoch - 1) / run.steps_per_epoch,
        .epochs_between = trainer->check_val_every_n_epoch,
        .train = {.samples = fmin((double)run.samples, steps * global) / replicas,
                  .batch = batch,
                  .batch_s = p->simulated_step_s / passes},
        .evaluate = {.samples = m->val_samples / replicas,
                     .batch = eval,
                     .batch_s = computing_s * forward_fraction(plan) * eval * replicas / global},
        .start_s = m->start_s,
        .workers = p->recipe.data.workers,
        .is_cold = m->has_cold_loader};
    double loaders = (double)(m->ranks_per_host * (model.workers > 0 ? model.workers : 1));
    if (m->loader_samples_per_s > 0) model.sample_s = loaders / m->loader_samples_per_s;
    p->run = tri_run_time_of(&model);
    p->network_s = p->run.train_s * (1 - computing_s / p->simulated_step_s);
}

tri_status scale_simulate_machine(scale_view *v, const scale_machine *m, const cli_context *context,
                                  const char *device) {
    const tri_device_description *there = &v->points[0].plan.device;
    v->rates = tri_rates_of(there, &v->rates_source);
    v->rates.network_bytes_per_s = m->network_bytes_per_s;
    v->rates.host_ranks = (int)m->ranks_per_host;
    for (int i = 0; i < v->count; i++) {
        scale_point *p = &v->points[i];
        int each = v->rates.host_ranks;
        p->hosts = each > 0 ? (p->ranks + each - 1) / each : 1;
    }
    if (m->rank_samples_per_s > 0)
        TRI_TRY(scale_calibrate_rank(v, &v->points[0], context, device, m->rank_samples_per_s));
    for (int i = 0; i < v->count; i++) {
        scale_simulate_point(v, &v->points[i], 1);
        if (m->samples > 0) simulate_run(v, m, &v->points[i]);
    }
    return TRI_OK;
}

static bool all_have_runs(const scale_view *v) {
    for (int i = 0; i < v->count; i++)
        if (!(v->points[i].run.total_s > 0)) return false;
    return true;
}

static double run_speedup(const scale_view *v, const scale_point *p) {
    return v->points[0].run.total_s / p->run.total_s;
}

static double run_efficiency(const scale_view *v, const scale_point *p) {
    return run_speedup(v, p) * v->points[0].ranks / p->ranks;
}

void scale_put_run(const scale_view *v, tri_tree *map, const scale_point *p) {
    tri_arena *arena = v->arena;
    if (!all_have_runs(v)) return;
    const struct {
        const char *key;
        double value;
    } parts[] = {
        {"total_s", p->run.total_s},          {"computing_s", p->run.train_s - p->network_s},
        {"network_s", p->network_s},          {"data_s", p->run.data_s},
        {"evaluations_s", p->run.evaluate_s}, {"start_s", p->run.start_s},
        {"speedup", run_speedup(v, p)},       {"efficiency", run_efficiency(v, p)}};
    tri_tree *run = tri_tree_map(arena);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        tri_tree_put(arena, run, parts[i].key, tri_tree_double(arena, parts[i].value));
    tri_tree_put(arena, map, "run", run);
}

static void print_run(const scale_view *v, const scale_point *p, FILE *out) {
    const tri_run_time *t = &p->run;
    const double parts[] = {t->train_s - p->network_s, p->network_s, t->data_s, t->evaluate_s,
                            t->start_s};
    fprintf(out, " %13s %9.2f %10.1f%% ", tri_duration_text(t->total_s), run_speedup(v, p),
            100 * run_efficiency(v, p));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        fprintf(out, " %9.1f%%", 100 * parts[i] / t->total_s);
}

void scale_print_machine(const scale_view *v, const scale_machine *m, FILE *out) {
    bool has_run = all_have_runs(v);
    fprintf(out, "%s%s%s, simulated\n\n%6s %6s %8s %13s %11s", scale_title(v),
            v->site ? " on " : "", v->site ? v->site : "", "ranks", "hosts", "batch", "samples/s",
            "a step (ms)");
    if (has_run)
        fprintf(out, " %13s %9s %11s  %10s %10s %10s %10s %10s", "the run", "speed-up",
                "efficiency", "computing", "network", "data", "evaluating", "start");
    else
        fprintf(out, " %9s %11s %9s", "speed-up", "efficiency", "waiting");
    for (int i = 0; i < v->count; i++) {
        const scale_point *p = &v->points[i];
        fprintf(out, "\n%6d %6d %8lld %13s %11.4g", p->ranks, p->hosts, (long long)scale_batch(p),
                tri_grouped(scale_samples_per_s(p)), 1e3 * p->simulated_step_s);
        if (has_run)
            print_run(v, p, out);
        else
            fprintf(out, " %9.2f %10.1f%% %8.1f%%", scale_speedup(v, i),
                    100 * scale_efficiency(v, i), 100 * p->simulated_waiting);
    }
    bool is_several = v->points[v->count - 1].hosts > 1;
    fprintf(out, "\n\nranks: %s%s; between them %s%s%s\n", v->rates_source,
            v->is_calibrated ? ", made as fast as --rate says" : "",
            tri_rate_text(v->rates.link_bytes_per_s, "B/s"),
            !is_several                   ? ""
            : m->network_bytes_per_s == 0 ? " also between hosts, because the profile does not "
                                            "know the network"
                                          : ", and between hosts, whose ranks share it, ",
            is_several && m->network_bytes_per_s > 0 ? tri_rate_text(m->network_bytes_per_s, "B/s")
                                                     : "");
    if (has_run)
        fprintf(out, "data: %s\n",
                m->loader_samples_per_s > 0 ? "what training and evaluations wait for the loaders"
                                            : "are always there, because --loader was not given");
    else
        fprintf(out, m->samples > 0
                         ? "steps alone: the recipe sets no end of the run, or a step takes more "
                           "samples than there are\n"
                         : "steps alone: --samples N also simulates the whole run\n");
}
