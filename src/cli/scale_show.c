// Computes what `trireme scale` shows (speedups, efficiencies, errors of the simulation), and
// prints it as a table or as a JSON object.
#include "cli/scale_view.h"

#include <math.h>
#include <stdio.h>

int64_t scale_batch(const scale_point *point) { return point->recipe.batch.global; }

double scale_step_s(const scale_point *point) {
    if (!point->is_measured) return point->simulated_step_s;
    return (double)scale_batch(point) / point->measured.samples_per_s;
}

static double simulated_samples_per_s(const scale_point *point) {
    return (double)scale_batch(point) / point->simulated_step_s;
}

double scale_samples_per_s(const scale_point *point) {
    return point->is_measured ? point->measured.samples_per_s : simulated_samples_per_s(point);
}

double scale_waiting(const scale_point *point) {
    return point->is_measured ? point->measured.waiting_fraction : point->simulated_waiting;
}

double scale_speedup(const scale_view *v, int point) {
    return scale_samples_per_s(&v->points[point]) / scale_samples_per_s(&v->points[0]);
}

double scale_efficiency(const scale_view *v, int point) {
    return scale_speedup(v, point) * v->points[0].ranks / v->points[point].ranks;
}

double scale_error(const scale_point *point) {
    return simulated_samples_per_s(point) / point->measured.samples_per_s - 1;
}

// Finds the simulation's largest error, as an absolute value, over all measured points (numbers of
// ranks). The first point is left out if the simulation was calibrated with it. The error shows how
// far the simulation can be trusted. False: there is no such point.
static bool worst_error(const scale_view *v, double *out) {
    bool found = false;
    *out = 0;
    for (int i = v->is_calibrated; i < v->count; i++) {
        if (!v->points[i].is_measured) continue;
        *out = fmax(*out, fabs(scale_error(&v->points[i])));
        found = true;
    }
    return found;
}

const char *scale_title(const scale_view *v) {
    long long first = (long long)scale_batch(&v->points[0]),
              last = (long long)scale_batch(&v->points[v->count - 1]);
    if (!v->is_weak || v->count == 1)
        return tri_arena_printf(v->arena, "%s (%s): %s scaling, %lld samples a step", v->name,
                                v->strategy, v->is_weak ? "weak" : "strong", first);
    return tri_arena_printf(v->arena, "%s (%s): weak scaling, %lld to %lld samples a step", v->name,
                            v->strategy, first, last);
}

// Where the rates of computation are from.
static const char *compute_source(const scale_view *v) {
    if (v->rates_source) return v->is_calibrated ? "--rate" : v->rates_source;
    if (!v->is_calibrated) return "assumed";
    return v->points[0].ranks == 1
               ? "so that 1 rank is as fast as measured"
               : tri_arena_printf(v->arena, "so that %d ranks are as fast as measured",
                                  v->points[0].ranks);
}

const char *scale_method(const scale_view *v) {
    double error;
    const char *compute = tri_arena_printf(
        v->arena, "simulated with %.4g GFLOP/s and %.4g GB/s of memory (%s)",
        v->rates.flops_per_s * 1e-9, v->rates.memory_bytes_per_s * 1e-9, compute_source(v));
    const char *link = tri_arena_printf(
        v->arena, "%.4g GB/s between ranks (%s)", v->rates.link_bytes_per_s * 1e-9,
        v->link_ranks     ? tri_arena_printf(v->arena, "an all-reduce of %s among %d on %s",
                                             tri_bytes_text((double)v->link_bytes), v->link_ranks,
                                             tri_counted(v->link_hosts, "host"))
        : v->rates_source ? "the devices' links; between hosts the profile's network"
                          : "assumed");
    const char *both = tri_arena_printf(v->arena, "%s, %s", compute, link);
    if (!worst_error(v, &error)) return both;
    return tri_arena_printf(v->arena, "%s; it differs from the measurements by up to %.1f%%", both,
                            100 * error);
}

static void print_row(const scale_view *v, int i, FILE *out) {
    const scale_point *p = &v->points[i];
    double waiting = scale_waiting(p);
    char spread[40] = "", hidden[16] = "-", error[40] = "";
    double batch_ms = 1e3 * (double)scale_batch(p);
    if (p->is_measured) {
        snprintf(spread, sizeof spread, "%.4g .. %.4g", batch_ms / p->measured.samples_per_s_high,
                 batch_ms / p->measured.samples_per_s_low);
        snprintf(error, sizeof error, "%s %+7.1f%%", tri_grouped(simulated_samples_per_s(p)),
                 100 * scale_error(p));
    }
    if (isfinite(waiting)) snprintf(hidden, sizeof hidden, "%.1f%%", 100 * waiting);
    fprintf(out, "%-9s %6d %6d %8lld %13s %11.4g %19s %9.2f %10.1f%% %8s %22s\n",
            p->is_measured ? "measured" : "simulated", p->ranks, p->hosts,
            (long long)scale_batch(p), tri_grouped(scale_samples_per_s(p)), 1e3 * scale_step_s(p),
            spread, scale_speedup(v, i), 100 * scale_efficiency(v, i), hidden, error);
}

void scale_print(const scale_view *v, FILE *out) {
    fprintf(out, "%s\n\n%-9s %6s %6s %8s %13s %11s %19s %9s %11s %8s %22s\n", scale_title(v), "",
            "ranks", "hosts", "batch", "samples/s", "a step (ms)", "p10 .. p90 (ms)", "speed-up",
            "efficiency", "waiting", "simulation, its error");
    for (int i = 0; i < v->count; i++) print_row(v, i, out);
    fprintf(out,
            "\nefficiency: samples/s of a rank, compared with the first row; waiting: fraction of "
            "a step in which\nranks wait for communication that computation does not hide\n%s\n",
            scale_method(v));
}

static tri_tree *number(tri_arena *arena, double value) {
    return isfinite(value) ? tri_tree_double(arena, value) : tri_tree_null(arena);
}

static tri_tree *measured_tree(tri_arena *arena, const scale_point *p) {
    const tri_bench_result *m = &p->measured;
    double batch = (double)scale_batch(p);
    tri_tree *map = tri_tree_map(arena);
    tri_tree_put(arena, map, "samples_per_s", number(arena, m->samples_per_s));
    tri_tree_put(arena, map, "samples_per_s_low", number(arena, m->samples_per_s_low));
    tri_tree_put(arena, map, "samples_per_s_high", number(arena, m->samples_per_s_high));
    tri_tree_put(arena, map, "step_s", number(arena, batch / m->samples_per_s));
    tri_tree_put(arena, map, "step_s_low", number(arena, batch / m->samples_per_s_high));
    tri_tree_put(arena, map, "step_s_high", number(arena, batch / m->samples_per_s_low));
    tri_tree_put(arena, map, "chunks", tri_tree_int(arena, m->chunks));
    tri_tree_put(arena, map, "waiting", number(arena, m->waiting_fraction));
    tri_tree_put(arena, map, "threads", tri_tree_int(arena, m->threads));
    tri_tree_put(arena, map, "link_bytes_per_s",
                 p->link_bytes_per_s > 0 ? number(arena, p->link_bytes_per_s)
                                         : tri_tree_null(arena));
    return map;
}

static tri_tree *simulated_tree(tri_arena *arena, const scale_point *p) {
    tri_tree *map = tri_tree_map(arena);
    tri_tree_put(arena, map, "samples_per_s", number(arena, simulated_samples_per_s(p)));
    tri_tree_put(arena, map, "step_s", number(arena, p->simulated_step_s));
    tri_tree_put(arena, map, "waiting", number(arena, p->simulated_waiting));
    return map;
}

static tri_tree *point_tree(const scale_view *v, int i) {
    tri_arena *arena = v->arena;
    const scale_point *p = &v->points[i];
    tri_tree *map = tri_tree_map(arena);
    tri_tree_put(arena, map, "ranks", tri_tree_int(arena, p->ranks));
    tri_tree_put(arena, map, "hosts", tri_tree_int(arena, p->hosts));
    tri_tree_put(arena, map, "batch", tri_tree_int(arena, scale_batch(p)));
    tri_tree_put(arena, map, "from",
                 tri_tree_string(arena, p->is_measured ? "measured" : "simulated"));
    tri_tree_put(arena, map, "speedup", number(arena, scale_speedup(v, i)));
    tri_tree_put(arena, map, "efficiency", number(arena, scale_efficiency(v, i)));
    tri_tree_put(arena, map, "measured",
                 p->is_measured ? measured_tree(arena, p) : tri_tree_null(arena));
    tri_tree_put(arena, map, "simulated", simulated_tree(arena, p));
    scale_put_run(v, map, p);
    tri_tree_put(arena, map, "simulation_error",
                 p->is_measured ? number(arena, scale_error(p)) : tri_tree_null(arena));
    return map;
}

void scale_print_json(const scale_view *v, FILE *out) {
    tri_arena *arena = v->arena;
    tri_tree *map = tri_tree_map(arena), *rates = tri_tree_map(arena),
             *points = tri_tree_list(arena);
    tri_tree_put(arena, map, "name", tri_tree_string(arena, v->name));
    tri_tree_put(arena, map, "strategy", tri_tree_string(arena, v->strategy));
    if (v->site) tri_tree_put_string(arena, map, "site", v->site);
    tri_tree_put(arena, map, "scaling", tri_tree_string(arena, v->is_weak ? "weak" : "strong"));
    tri_tree_put(arena, rates, "calibrated", tri_tree_bool(arena, v->is_calibrated));
    tri_tree_put(arena, rates, "flops_per_s", number(arena, v->rates.flops_per_s));
    tri_tree_put(arena, rates, "memory_bytes_per_s", number(arena, v->rates.memory_bytes_per_s));
    tri_tree_put(arena, rates, "link_bytes_per_s", number(arena, v->rates.link_bytes_per_s));
    tri_tree_put(arena, rates, "link_ranks", tri_tree_int(arena, v->link_ranks));
    tri_tree_put(arena, rates, "link_hosts", tri_tree_int(arena, v->link_hosts));
    tri_tree_put(arena, rates, "link_bytes", tri_tree_int(arena, v->link_bytes));
    tri_tree_put(arena, map, "simulation", rates);
    for (int i = 0; i < v->count; i++) tri_tree_append(arena, points, point_tree(v, i));
    tri_tree_put(arena, map, "points", points);
    fprintf(out, "%s\n", tri_json_emit(arena, map));
}
