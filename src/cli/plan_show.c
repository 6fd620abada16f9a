// The text that `trireme plan` prints, and the Gantt chart that --svg draws. Ranks share a plan if
// they do the same in every step; only the ranks along the mesh's axis `pipeline` differ.
#include "cli/plan_view.h"

#include "base/quantity.h"

#include <stdio.h>
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

// What is shown of a block.
typedef struct block_row {
    double parameters, forward, backward;
} block_row;

static block_row row_of(const plan_view *v, int block) {
    const tri_plan *plan = first_plan(v);
    return (block_row){(double)plan_block_parameters(plan->graph, block),
                       plan_block_flops(plan, block, TRI_PHASE_FORWARD),
                       plan_block_flops(plan, block, TRI_PHASE_BACKWARD) +
                           plan_block_flops(plan, block, TRI_PHASE_WEIGHT)};
}

// Whether two names differ at most in one number: "layers.0" and "layers.31". *first and *second
// are these numbers, and *length how many bytes of the names come before them.
static bool are_alike(const char *a, const char *b, int *length, long *first, long *second) {
    int at = 0;
    while (a[at] && a[at] == b[at]) at++;
    while (at > 0 && a[at - 1] >= '0' && a[at - 1] <= '9') at--;
    char *rest_a, *rest_b;
    *first = strtol(a + at, &rest_a, 10);
    *second = strtol(b + at, &rest_b, 10);
    *length = at;
    return rest_a > a + at && rest_b > b + at && !strcmp(rest_a, rest_b);
}

// Counts the blocks from `block` on that are the same block again and again, numbered one after the
// other.
static int count_repeated(const plan_view *v, int block) {
    const tri_graph *g = first_plan(v)->graph;
    block_row row = row_of(v, block);
    int count = 1, length;
    for (long first, now; block + count < g->block_count; count++) {
        block_row next = row_of(v, block + count);
        if (!are_alike(g->blocks[block], g->blocks[block + count], &length, &first, &now) ||
            now != first + count || memcmp(&row, &next, sizeof row) != 0)
            break;
    }
    return count;
}

// Writes the name of `count` repeated blocks, as "layers.0-31".
static const char *blocks_name(const plan_view *v, int block, int count) {
    const tri_graph *g = first_plan(v)->graph;
    int length;
    long first, last;
    if (count == 1) return g->blocks[block];
    are_alike(g->blocks[block], g->blocks[block + count - 1], &length, &first, &last);
    char *rest;
    (void)strtol(g->blocks[block] + length, &rest, 10);
    return tri_arena_printf(v->arena, "%.*s%ld-%ld%s", length, g->blocks[block], first, last, rest);
}

static void print_blocks(const plan_view *v) {
    const tri_plan *plan = first_plan(v);
    const tri_graph *g = plan->graph;
    block_row sum = {0};
    printf("%-20s %6s %16s %16s %16s\n", "block", "count", "parameters", "forward", "backward");
    for (int b = 0, count; b < g->block_count; b += count) {
        block_row row = row_of(v, b);
        count = count_repeated(v, b);
        printf("%-20s %6d %16s %16s %16s%s\n", blocks_name(v, b, count), count,
               tri_grouped(row.parameters), tri_rate_text(row.forward, "FLOP"),
               tri_rate_text(row.backward, "FLOP"), count > 1 ? "  each" : "");
        sum.forward += count * row.forward;
        sum.backward += count * row.backward;
    }
    printf("%-20s %6d %16s %16s %16s  of a sample\n", "sum", g->block_count,
           tri_grouped((double)tri_graph_trained_count(g)), tri_rate_text(sum.forward, "FLOP"),
           tri_rate_text(sum.backward, "FLOP"));
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
    TRI_MEMORY_PLAN_LIST(X)
#undef X
    printf("\n");
    for (int pipeline_rank = 0; pipeline_rank < v->pipeline.count; pipeline_rank++) {
        const tri_memory_plan *m = &v->pipeline.plans[pipeline_rank]->memory;
        printf("%-12s", ranks_text(v, pipeline_rank, ranks, sizeof ranks));
#define X(member) printf(" %13s", tri_bytes_text((double)m->member));
        TRI_MEMORY_PLAN_LIST(X)
#undef X
        printf("\n");
    }
    printf("\n");
}

static void print_fullest(const plan_view *v) {
    const tri_plan *fullest = tri_pipeline_plans_fullest(&v->pipeline);
    const tri_memory_plan *m = &fullest->memory;
    printf("memory of the fullest rank (1 GB = 10^9 bytes)\n");
#define X(member) printf("  %-14s %10s\n", #member, tri_bytes_text((double)m->member));
    TRI_MEMORY_PLAN_LIST(X)
#undef X
    if (m->nccl_estimate > 0)
        printf("  %-14s %10s  an estimate of what NCCL takes for itself, part of the peak\n",
               "NCCL", tri_bytes_text((double)m->nccl_estimate));
    if (m->caches > 0) printf("  %-14s %10s\n", "caches", tri_bytes_text((double)m->caches));
    if (m->offloaded > 0)
        printf("  %-14s %10s%s\n", fullest->offload.in_host_memory ? "on the host" : "in a file",
               tri_bytes_text((double)m->offloaded),
               fullest->offload.steps_on_host ? "  the host's CPU runs the optimizer there" : "");
    printf("\n");
}

// Prints what the fullest rank needs, and a chart of memory over the step. If not all ranks have
// the same plan, there is a row for each group of ranks in between.
static void print_memory(const plan_view *v) {
    enum { COLUMNS = 84 };
    plan_print_time(v);
    printf("\n");
    print_fullest(v);
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
}

static void print_gantt(const plan_view *v) {
    plan_print_time(v);
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
} shows[] = {{"summary", plan_print_summary},
             {"blocks", print_blocks},
             {"memory", print_memory},
             {"schedule", print_schedule},
             {"gantt", print_gantt},
             {"graph", print_graph},
             {"dot", print_dot}};

tri_status plan_print(const plan_view *v, const char *show) {
    if (!show) show = "summary";
    for (size_t i = 0; i < sizeof shows / sizeof *shows; i++)
        if (!strcmp(shows[i].name, show)) return shows[i].print(v), TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "--show: '%s' is not one of summary, blocks, memory, schedule, gantt, graph, "
                    "dot",
                    show);
}

static void draw(const void *drawing, FILE *out) { tri_draw_svg(drawing, out); }

tri_status plan_write_svg(const plan_view *v, const char *path) {
    const tri_plan *plan = first_plan(v);
    const char *title = tri_arena_printf(
        v->arena, "%s: %s%s%s on %s, %s a step, bubble %.1f%% (%s rates)", v->recipe->name,
        plan->strategy->name, v->pipeline.count > 1 ? ", " : "",
        v->pipeline.count > 1 ? plan->order->name : "", tri_counted(v->ranks, "rank"),
        tri_duration_text(v->estimate.step_s), 100 * v->estimate.bubble, v->rates_source);
    tri_drawing drawing = {.pipeline = &v->pipeline, .estimate = &v->estimate, .title = title};
    return cli_write_svg(path, draw, &drawing);
}
