// What `trireme plan` prints first: whether a run fits, what it needs in memory, time and on disk,
// and which command comes next.
#include "cli/plan_view.h"

#include "base/shell.h"

#include <stdio.h>
#include <string.h>

static const tri_memory_plan *fullest_memory(const plan_view *v) {
    return &tri_pipeline_plans_fullest(&v->pipeline)->memory;
}

// Gets the highest possible FLOP/s of a rank, in the type in which the run computes its products.
static double most_flops(const plan_view *v) {
    return v->recipe->trainer.precision == TRI_PRECISION_32_TRUE ? v->rates.flops_per_s
                                                                 : v->rates.half_flops_per_s;
}

// Writes the FLOP/s of a rank: as a number if the model's blocks were measured (--measure), else as
// a percentage of the rate that the estimate assumes ("40% of 60 GFLOP/s").
static const char *speed_text(const plan_view *v) {
    double seconds = v->ranks * v->estimate.step_s;
    double rate = seconds > 0 ? v->estimate.flops / seconds : 0;
    if (v->measured) return tri_rate_text(rate, "FLOP/s");
    return tri_arena_printf(v->arena, "%.0f%% of %s", 100 * rate / most_flops(v),
                            tri_rate_text(most_flops(v), "FLOP/s"));
}

static void print_step(const plan_view *v) {
    double step_s = v->estimate.step_s;
    double samples = (double)v->pipeline.plans[0]->steps[TRI_STEP_FULL].samples;
    printf("%-8s %s for %s, %s samples/s, %s on each rank; compute stands still for %.1f%% of "
           "it%s\n",
           "step", tri_duration_text(step_s), tri_counted((int64_t)samples, "sample"),
           tri_grouped(step_s > 0 ? samples / step_s : 0), speed_text(v), 100 * v->estimate.bubble,
           v->pipeline.count > 1 ? " (the bubble)" : "");
}

static void print_rates(const plan_view *v) {
    printf("%-8s %s: %s, %s of memory", "rates", v->rates_source,
           tri_rate_text(most_flops(v), "FLOP/s"),
           tri_rate_text(v->rates.memory_bytes_per_s, "B/s"));
    if (v->ranks > 1) printf(", %s between ranks", tri_rate_text(v->rates.link_bytes_per_s, "B/s"));
    printf(v->measured || strchr(v->device_name, ':') ? "\n" : "; --measure uses this machine's\n");
}

static void print_length(const plan_view *v, const plan_run *run) {
    printf("%-8s ", "run");
    if (run->steps >= 0)
        printf("%s, %s of training", tri_counted(run->steps, "step"),
               tri_duration_text(run->hours * 3600));
    else
        printf("the number of steps depends on the data: give its size with --samples N");
    if (run->steps_per_epoch > 0)
        printf(": %.4g x %s, an epoch", (double)run->steps / (double)run->steps_per_epoch,
               tri_counted(run->steps_per_epoch, "step"));
    printf("\n");
}

static void print_disk(const plan_run *run) {
    double one = (double)(run->model_bytes + run->optimizer_bytes);
    printf("%-8s a checkpoint: %s (%s of weights, %s of the optimizer); ", "disk",
           tri_bytes_text(one), tri_bytes_text((double)run->model_bytes),
           tri_bytes_text((double)run->optimizer_bytes));
    if (run->checkpoints >= 0)
        printf("at most %lld at once, %s\n", (long long)run->checkpoints,
               tri_bytes_text(one * (double)run->checkpoints));
    else
        printf("all are kept\n");
}

void plan_print_time(const plan_view *v) {
    plan_run run = plan_whole_run(v);
    print_step(v);
    print_rates(v);
    print_length(v, &run);
    print_disk(&run);
}

static void print_head(const plan_view *v) {
    const tri_plan *plan = v->pipeline.plans[0];
    char device[TRI_DEVICE_NAME_BYTES];
    printf("%s: %s parameters, %s%s%s on %s of %s", v->recipe->name,
           tri_grouped((double)tri_graph_trained_count(plan->graph)), plan->strategy->name,
           v->pipeline.count > 1 ? ", " : "", v->pipeline.count > 1 ? plan->order->name : "",
           tri_counted(v->ranks, "rank"), tri_device_name(&v->device, device));
    const char *between = ": ";
    for (int axis = 0; axis < TRI_AXIS_COUNT; axis++) {
        if (v->mesh.size[axis] == 1) continue;
        printf("%s%s %d", between, tri_axis_name(axis), v->mesh.size[axis]);
        between = " x ";
    }
    printf("\n");
}

static bool fits(const plan_view *v) {
    return v->memory.bytes == 0 || fullest_memory(v)->peak <= v->memory.bytes;
}

static void print_fits(const plan_view *v) {
    const char *peak = tri_bytes_text((double)fullest_memory(v)->peak);
    if (v->memory.bytes == 0)
        printf("%-8s not known: a rank needs %s (1 GB = 10^9 bytes); --memory BYTES says what it "
               "may use\n",
               "fits", peak);
    else
        printf("%-8s %s: a rank needs %s of the %s %s (1 GB = 10^9 bytes)\n", "fits",
               fits(v) ? "yes" : "no", peak, tri_bytes_text((double)v->memory.bytes),
               v->memory.whose);
}

static void print_memory(const plan_view *v) {
    const tri_memory_plan *m = fullest_memory(v);
    const struct {
        const char *name;
        int64_t bytes;
    } rows[] = {
#define X(member) {#member, m->member},
        TRI_MEMORY_PLAN_LIST(X)
#undef X
    };
    const char *between = "";
    printf("%-8s ", "memory");
    for (size_t i = 0; i + 1 < sizeof rows / sizeof *rows; i++) { // the last row is the peak
        if (rows[i].bytes == 0) continue;
        printf("%s%s %s", between, rows[i].name, tri_bytes_text((double)rows[i].bytes));
        between = ", ";
    }
    printf("\n");
}

// Writes the recipe and its overrides as words of a command line.
static const char *words_text(const plan_view *v) {
    const char *text = tri_shell_word(v->arena, v->path);
    for (int i = 0; i < v->override_count; i++)
        text = tri_arena_printf(v->arena, "%s %s", text, tri_shell_word(v->arena, v->overrides[i]));
    return text;
}

// Writes the flags that say where the run would be, and of how many samples an epoch is.
static const char *flags_text(const plan_view *v, int ranks) {
    bool is_given = strcmp(v->device_name, "auto") != 0;
    const char *text = is_given ? tri_arena_printf(v->arena, " --device %s",
                                                   tri_shell_word(v->arena, v->device_name))
                                : "";
    if (fits(v)) return text; // so it is a training, which counts the ranks and samples itself
    if (ranks > 1) text = tri_arena_printf(v->arena, " --ranks %d%s", ranks, text);
    if (v->samples > 0)
        text = tri_arena_printf(v->arena, "%s --samples %lld", text, (long long)v->samples);
    return text;
}

// Whether some settings make the run fit on as many ranks; otherwise it needs more of them.
static bool can_fit(const plan_view *v) {
    tri_candidate found[TRI_MAX_CANDIDATES], least;
    return tri_fit_search(v->arena, &v->device, &v->request, &v->rates, v->measured,
                          v->memory.bytes, found, &least) > 0;
}

static void print_next(const plan_view *v) {
    bool is_fitting = fits(v), needs_ranks = !is_fitting && !can_fit(v);
    const char *words = words_text(v);
    const char *flags = flags_text(v, needs_ranks ? 2 * v->ranks : v->ranks);
    bool is_elsewhere = strchr(v->device_name, ':') != NULL;
    printf("%-8s %s ", "next", v->program);
    if (needs_ranks)
        printf("plan %s%s\n", words, flags);
    else if (!is_fitting)
        printf("plan %s%s --fit %lld\n", words, flags, (long long)v->memory.bytes);
    else if (is_elsewhere || v->ranks > tri_os_cpus())
        printf("submit %s --site NAME --nodes N --dry-run (%s submit --list)\n", words, v->program);
    else if (v->ranks > 1)
        printf("run --standalone --nproc-per-node %d %s train %s%s\n", v->ranks, v->program, words,
               flags);
    else
        printf("train %s%s\n", words, flags);
}

void plan_print_summary(const plan_view *v) {
    print_head(v);
    print_fits(v);
    print_memory(v);
    plan_print_time(v);
    print_next(v);
    printf("%-8s --show blocks, memory, schedule or gantt\n", "more");
}
