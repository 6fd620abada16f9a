// The text that `trireme plan` prints, and the Gantt chart that --svg draws. Ranks share a plan if
// they do the same in every step; only the ranks along the mesh's axis `pipeline` differ.
#include "cli/plan_view.h"

#include "base/quantity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const tri_plan *first_plan(const plan_view *v) { return v->pipeline.plans[0]; }

int64_t plan_block_parameters(const tri_graph *g, int block) {
    int64_t count = 0;
    for (int i = 0; i < g->parameter_count; i++)
        if (g->parameters[i].block == block && g->parameters[i].role == TRI_ROLE_TRAINED)
            count += tri_shape_count(&g->parameters[i].shape);
    return count;
}

double plan_block_flops(const tri_plan *plan, int block, tri_phase phase) {
    const tri_program *p = plan->programs[0];
    return tri_program_flops(p, block, phase) / (double)p->batch;
}

static void print_blocks(const plan_view *v) {
    const tri_plan *plan = first_plan(v);
    const tri_graph *g = plan->graph;
    double forward = 0, backward = 0;
    printf("%-20s %14s %18s %18s\n", "block", "parameters", "forward flops", "backward flops");
    for (int b = 0; b < g->block_count; b++) {
        double f = plan_block_flops(plan, b, TRI_PHASE_FORWARD);
        double w = plan_block_flops(plan, b, TRI_PHASE_BACKWARD) +
                   plan_block_flops(plan, b, TRI_PHASE_WEIGHT);
        printf("%-20s %14s %18s %18s\n", g->blocks[b],
               tri_grouped((double)plan_block_parameters(g, b)), tri_grouped(f), tri_grouped(w));
        forward += f;
        backward += w;
    }
    printf("%-20s %14s %18s %18s  a sample\n\n", "sum",
           tri_grouped((double)tri_graph_trained_count(g)), tri_grouped(forward),
           tri_grouped(backward));
}

// Writes the numbers of the ranks that share a plan, as "0" or "64-127".
static char *ranks_text(const plan_view *v, int pipeline_rank, char *out, size_t size) {
    int first = pipeline_rank * v->pipeline.ranks_each, last = first + v->pipeline.ranks_each - 1;
    if (first == last)
        snprintf(out, size, "%d", first);
    else
        snprintf(out, size, "%d-%d", first, last);
    return out;
}

static void print_memory_rows(const plan_view *v) {
    char ranks[32];
    printf("%-12s", "ranks");
#define X(member) printf(" %13s", #member);
    PLAN_MEMORY_LIST(X)
#undef X
    printf("\n");
    for (int pipeline_rank = 0; pipeline_rank < v->pipeline.count; pipeline_rank++) {
        const tri_memory_plan *m = &v->pipeline.plans[pipeline_rank]->memory;
        printf("%-12s", ranks_text(v, pipeline_rank, ranks, sizeof ranks));
#define X(member) printf(" %13s", tri_bytes_text((double)m->member));
        PLAN_MEMORY_LIST(X)
#undef X
        printf("\n");
    }
    printf("\n");
}

static void print_memory(const plan_view *v) {
    const tri_plan *fullest = tri_pipeline_plans_fullest(&v->pipeline);
    const tri_memory_plan *m = &fullest->memory;
    printf("memory of the fullest rank\n");
#define X(member) printf("  %-14s %10s\n", #member, tri_bytes_text((double)m->member));
    PLAN_MEMORY_LIST(X)
#undef X
    if (m->nccl_estimate > 0)
        printf("  %-14s %10s  an estimate of what NCCL takes for itself, part of the peak\n",
               "NCCL", tri_bytes_text((double)m->nccl_estimate));
    if (m->offloaded > 0)
        printf("  %-14s %10s%s\n", fullest->offload.in_host_memory ? "on the host" : "in a file",
               tri_bytes_text((double)m->offloaded),
               fullest->offload.steps_on_host ? "  the host's CPU runs the optimizer there" : "");
    printf("\n");
}

// Prints, for `--show memory`, what print_memory prints and a chart of memory over the step. If not
// all ranks have the same plan, there is a row for each group of ranks in between.
static void print_memory_alone(const plan_view *v) {
    enum { COLUMNS = 84 };
    print_memory(v);
    if (v->pipeline.count > 1) print_memory_rows(v);
    printf("activations, gathered parameters and gradients over the step of the fullest rank\n");
    tri_draw_memory(tri_pipeline_plans_fullest(&v->pipeline), COLUMNS, stdout);
}

static void print_schedule(const plan_view *v) {
    const tri_plan *plan = first_plan(v);
    const tri_step_plan *step = &plan->steps[TRI_STEP_FULL];
    const char **names = TRI_NEW_ARRAY(v->arena, const char *, plan->flat.unit_count);
    for (int u = 0; u < plan->flat.unit_count; u++) names[u] = plan->flat.units[u].name;
    printf("schedule of rank 0: %s, %s, %s of up to %s\n", plan->strategy->name,
           tri_counted(v->ranks, "rank"), tri_counted(step->rounds, "round"),
           tri_counted(step->round_items[0].size, "sample"));
    tri_schedule_print(&step->schedule, names, stdout);
    printf("\n");
}

// Gets the highest possible FLOP/s of a rank, in the type in which the run computes its products.
static double most_flops(const plan_view *v) {
    return v->recipe->trainer.precision == TRI_PRECISION_32_TRUE ? v->rates.flops_per_s
                                                                 : v->rates.half_flops_per_s;
}

static const char *flops_text(const plan_view *v, double rate) {
    return rate >= 1e12 ? tri_arena_printf(v->arena, "%.4g TFLOP/s", rate * 1e-12)
                        : tri_arena_printf(v->arena, "%.4g GFLOP/s", rate * 1e-9);
}

// Writes the FLOP/s of a rank: as a number if the model's blocks were measured (--measure), else as
// a percentage of the rate that the estimate assumes ("40% of 60 GFLOP/s").
static const char *speed_text(const plan_view *v) {
    double seconds = v->ranks * v->estimate.step_s;
    double rate = seconds > 0 ? v->estimate.flops / seconds : 0;
    if (v->measured) return flops_text(v, rate);
    return tri_arena_printf(v->arena, "%.0f%% of %s", 100 * rate / most_flops(v),
                            flops_text(v, most_flops(v)));
}

static void print_time(const plan_view *v) {
    double step_s = v->estimate.step_s;
    double samples = (double)first_plan(v)->steps[TRI_STEP_FULL].samples;
    printf("one step: %.4g ms, %s samples/s, %s on each of %s; compute stands still for "
           "%.1f%% of it",
           step_s * 1e3, tri_grouped(step_s > 0 ? samples / step_s : 0), speed_text(v),
           tri_counted(v->ranks, "rank"), 100 * v->estimate.bubble);
    if (v->pipeline.count > 1) printf(" (the bubble)");
    printf("\nrates are %s: %.4g GFLOP/s, %.4g GB/s of memory", v->rates_source,
           most_flops(v) * 1e-9, v->rates.memory_bytes_per_s * 1e-9);
    if (v->ranks > 1) printf(", %.4g GB/s between ranks", v->rates.link_bytes_per_s * 1e-9);
    printf("\n");
    plan_print_run(v);
}

static void print_gantt(const plan_view *v) {
    print_time(v);
    tri_draw_gantt(&(tri_drawing){.pipeline = &v->pipeline,
                                  .estimate = &v->estimate,
                                  .columns = 84,
                                  .colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR")},
                   stdout);
}

static void print_graph(const plan_view *v) { tri_graph_print(first_plan(v)->graph, stdout); }

static void print_dot(const plan_view *v) { tri_graph_dot(first_plan(v)->graph, stdout); }

static const struct {
    const char *name;
    void (*print)(const plan_view *v);
    void (*print_alone)(const plan_view *v);
} shows[] = {{"blocks", print_blocks, print_blocks},
             {"memory", print_memory, print_memory_alone},
             {"schedule", print_schedule, print_schedule},
             {"gantt", print_gantt, print_gantt},
             {"graph", NULL, print_graph},
             {"dot", NULL, print_dot}};

tri_status plan_print(const plan_view *v, const char *show) {
    char mesh[256];
    bool any = false;
    if (!show && v->mesh.ranks > 1)
        printf("mesh: %s\n\n", tri_mesh_text(&v->mesh, mesh, sizeof mesh));
    for (size_t i = 0; i < sizeof shows / sizeof *shows; i++) {
        if (!show && shows[i].print) shows[i].print(v);
        bool wanted = show && !strcmp(shows[i].name, show);
        if (wanted) shows[i].print_alone(v);
        any = any || wanted || !show;
    }
    if (any) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "--show: '%s' is not one of blocks, memory, schedule, gantt, graph, dot", show);
}

tri_status plan_write_svg(const plan_view *v, const char *path) {
    char *picture = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&picture, &size);
    if (!out) return TRI_FAIL(TRI_NO_MEMORY, "--svg: no memory for the picture");
    const tri_plan *plan = first_plan(v);
    const char *title = tri_arena_printf(
        v->arena, "%s: %s%s%s on %s, %.4g ms a step, bubble %.1f%% (%s rates)", v->recipe->name,
        plan->strategy->name, v->pipeline.count > 1 ? ", " : "",
        v->pipeline.count > 1 ? plan->order->name : "", tri_counted(v->ranks, "rank"),
        v->estimate.step_s * 1e3, 100 * v->estimate.bubble, v->rates_source);
    tri_draw_svg(&(tri_drawing){.pipeline = &v->pipeline, .estimate = &v->estimate, .title = title},
                 out);
    fclose(out);
    tri_status status = tri_os_replace_file(path, picture, size);
    free(picture);
    return status;
}
