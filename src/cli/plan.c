#include "cli/cli.h"

#include "plan/simulate.h"
#include "recipe/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct plan_view {
    tri_arena *arena;
    const tri_recipe *recipe;
    const tri_task *task;
    tri_device *device;
    tri_plan *plan;
    int ranks;
    tri_mesh mesh;
} plan_view;

static tri_status make_plan(plan_view *v, const cli_context *context, const char *device) {
    tri_field fields[TRI_MAX_DATA_FIELDS];
    int field_count = 0;
    tri_task_options options;
    const tri_recipe *r = v->recipe;
    TRI_TRY(tri_task_find(r, context->task, &v->task));
    TRI_TRY(tri_session_describe_fields(r, v->task, fields, &field_count));
    tri_model_request model = {.task = v->task, .fields = fields, .field_count = field_count};
    TRI_TRY(tri_task_graph_options(v->arena, r, &options, &model.options));
    tri_optimizer optimizer;
    TRI_TRY(tri_optimizer_make(&r->optimizer, &optimizer));
    TRI_TRY(tri_session_make_mesh(r, v->ranks, &v->mesh));
    int64_t replicas = tri_mesh_replicas(&v->mesh);
    tri_batch_options batch;
    TRI_TRY(tri_recipe_settle_batch(r, replicas, &batch));
    TRI_TRY(tri_sampler_check_step(batch.global, batch.micro, replicas));
    tri_sampler pass; // of evaluation, as long as any data would make it, on every replica
    TRI_TRY(
        tri_sampler_make_evaluation(INT64_MAX, batch.eval, batch.global, batch.micro, 1, &pass));
    int64_t eval = pass.options.micro;
    TRI_TRY(tri_session_open_device(&cli_backends, device, 0, &v->device));
    tri_plan_request request = {
        .model = &model,
        .options = &r->strategy,
        .deterministic = r->trainer.deterministic,
        .freeze = r->optimizer.freeze.items,
        .freeze_count = r->optimizer.freeze.count,
        .mesh = v->mesh,
        .step_samples = {[TRI_STEP_FULL] = batch.global, [TRI_STEP_EVALUATE] = eval * replicas},
        .micro = batch.micro,
        .sync_batchnorm = r->trainer.sync_batchnorm,
        .eval_micro = eval,
        .optimizer_states = optimizer.state_count};
    TRI_TRY(tri_plan_create(v->arena, v->device, &request, &v->plan));
    return tri_task_check_options(&options, v->task->name);
}

static int64_t block_parameters(const tri_graph *g, int block) {
    int64_t count = 0;
    for (int i = 0; i < g->parameter_count; i++)
        if (g->parameters[i].block == block && g->parameters[i].role == TRI_ROLE_TRAINED)
            count += tri_shape_count(&g->parameters[i].shape);
    return count;
}

static double block_flops(const tri_plan *plan, int block, tri_phase phase) {
    const tri_program *p = plan->programs[0];
    return tri_program_flops(p, block, phase) / (double)p->batch;
}

static void print_blocks(const plan_view *v) {
    const tri_graph *g = v->plan->graph;
    double forward = 0, backward = 0;
    printf("%-20s %14s %18s %18s\n", "block", "parameters", "forward flops", "backward flops");
    for (int b = 0; b < g->block_count; b++) {
        double f = block_flops(v->plan, b, TRI_PHASE_FORWARD);
        double w = block_flops(v->plan, b, TRI_PHASE_BACKWARD);
        printf("%-20s %14s %18s %18s\n", g->blocks[b], cli_number((double)block_parameters(g, b)),
               cli_number(f), cli_number(w));
        forward += f;
        backward += w;
    }
    printf("%-20s %14s %18s %18s  a sample\n\n", "sum",
           cli_number((double)tri_graph_trained_count(g)), cli_number(forward),
           cli_number(backward));
}

// X(member, words)
#define MEMORY_LIST(X)                                                                             \
    X(parameters) X(gradients) X(optimizer) X(activations) X(workspace) X(communication) X(peak)

static void print_memory(const plan_view *v) {
    const tri_memory_plan *m = &v->plan->memory;
    printf("memory of the fullest rank\n");
#define X(member) printf("  %-14s %10s\n", #member, cli_bytes((double)m->member));
    MEMORY_LIST(X)
#undef X
    printf("\n");
}

static const char *const *unit_names(const plan_view *v) {
    const tri_flat *flat = &v->plan->flat;
    const char **names = TRI_NEW_ARRAY(v->arena, const char *, flat->unit_count);
    for (int u = 0; u < flat->unit_count; u++) names[u] = flat->units[u].name;
    return names;
}

static void print_schedule(const plan_view *v) {
    const tri_step_plan *step = &v->plan->steps[TRI_STEP_FULL];
    printf("schedule of rank 0: %s, %d rank%s, %d round%s of up to %lld samples\n",
           v->plan->named->name, v->ranks, v->ranks == 1 ? "" : "s", step->rounds,
           step->rounds == 1 ? "" : "s", (long long)step->items[0].size);
    tri_schedule_print(&step->schedule, unit_names(v), stdout);
    printf("\n");
}

// What an action costs when nothing was measured: one core's worth.
static const double assumed_flops_per_s = 60e9, assumed_bytes_per_s = 10e9;

static double cost_s(const tri_plan *plan, const tri_step_plan *step, const tri_action *a) {
    tri_subject subject = tri_action_subject(a->kind);
    const tri_program *p = a->round >= 0 ? step->items[a->round].program : NULL;
    if (subject == TRI_SUBJECT_EDGE)
        return (double)step->request.edges[a->subject].bytes * (double)p->batch /
               assumed_bytes_per_s;
    if (subject == TRI_SUBJECT_UNIT)
        return a->kind == TRI_ACTION_RELEASE
                   ? 0
                   : (double)plan->units[a->subject].bytes / assumed_bytes_per_s;
    if (subject != TRI_SUBJECT_BLOCK) return 0;
    double flops = 0;
    if (a->kind == TRI_ACTION_FORWARD || a->kind == TRI_ACTION_RECOMPUTE)
        flops += tri_program_flops(p, a->subject, TRI_PHASE_FORWARD);
    if (a->kind == TRI_ACTION_BACKWARD || a->kind == TRI_ACTION_BACKWARD_INPUT)
        flops += tri_program_flops(p, a->subject, TRI_PHASE_BACKWARD);
    if (a->kind == TRI_ACTION_BACKWARD || a->kind == TRI_ACTION_BACKWARD_WEIGHT)
        flops += tri_program_flops(p, a->subject, TRI_PHASE_WEIGHT);
    return flops / assumed_flops_per_s;
}

static char letter(int index) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    return letters[index % (int)(sizeof letters - 1)];
}

// One row a lane, a letter a block.
static void draw(const plan_view *v, const tri_moment *moments, double end_s) {
    enum { COLUMNS = 84 };
    const tri_schedule *s = &v->plan->steps[TRI_STEP_FULL].schedule;
    for (int lane = 0; lane < TRI_LANE_COUNT; lane++) {
        char row[COLUMNS + 1];
        bool any = false;
        memset(row, '.', COLUMNS);
        row[COLUMNS] = 0;
        for (int i = 0; i < s->count; i++) {
            const tri_action *a = &s->actions[i];
            bool shown = tri_action_lane(a->kind) == (tri_lane)lane && a->subject >= 0;
            if (!shown || moments[i].end_s <= moments[i].start_s) continue;
            any = true;
            int from = (int)(moments[i].start_s / end_s * COLUMNS);
            int to = (int)(moments[i].end_s / end_s * COLUMNS);
            for (int c = from; c < COLUMNS && (c < to || c == from); c++)
                row[c] = letter(a->subject);
        }
        if (any) printf("  %-9s %s\n", tri_lane_name((tri_lane)lane), row);
    }
    printf("  blocks:  ");
    for (int b = 0; b < v->plan->graph->block_count; b++)
        printf(" %c %s", letter(b), v->plan->graph->blocks[b]);
    printf("\n");
}

static void print_gantt(const plan_view *v) {
    const tri_step_plan *step = &v->plan->steps[TRI_STEP_FULL];
    double *costs = TRI_NEW_ARRAY(v->arena, double, step->schedule.count);
    tri_moment *moments = TRI_NEW_ARRAY(v->arena, tri_moment, step->schedule.count);
    for (int i = 0; i < step->schedule.count; i++)
        costs[i] = cost_s(v->plan, step, &step->schedule.actions[i]);
    tri_mesh alone = {.size = {1, 1, 1, 1}, .ranks = 1};
    tri_simulated_rank rank = {&step->schedule, costs, moments};
    double bubble, end = tri_simulate(&alone, &rank, &bubble);
    printf("one step, %.1f ms if a rank computes %.0f GFLOP/s and moves %.0f GB/s\n", end * 1e3,
           assumed_flops_per_s * 1e-9, assumed_bytes_per_s * 1e-9);
    if (end > 0) draw(v, moments, end);
}

static tri_tree *memory_tree(tri_arena *arena, const tri_memory_plan *m) {
    tri_tree *map = tri_tree_map(arena);
#define X(member) tri_tree_put(arena, map, #member, tri_tree_int(arena, m->member));
    MEMORY_LIST(X)
#undef X
    return map;
}

static tri_tree *blocks_tree(const plan_view *v) {
    const tri_graph *g = v->plan->graph;
    tri_tree *list = tri_tree_list(v->arena);
    for (int b = 0; b < g->block_count; b++) {
        tri_tree *map = tri_tree_map(v->arena);
        tri_tree_put(v->arena, map, "name", tri_tree_string(v->arena, g->blocks[b]));
        tri_tree_put(v->arena, map, "parameters", tri_tree_int(v->arena, block_parameters(g, b)));
        tri_tree_put(v->arena, map, "forward_flops",
                     tri_tree_double(v->arena, block_flops(v->plan, b, TRI_PHASE_FORWARD)));
        tri_tree_put(v->arena, map, "backward_flops",
                     tri_tree_double(v->arena, block_flops(v->plan, b, TRI_PHASE_BACKWARD)));
        tri_tree_append(v->arena, list, map);
    }
    return list;
}

static tri_tree *schedule_tree(const plan_view *v) {
    const tri_schedule *s = &v->plan->steps[TRI_STEP_FULL].schedule;
    tri_tree *list = tri_tree_list(v->arena);
    for (int i = 0; i < s->count; i++) {
        const tri_action *a = &s->actions[i];
        tri_tree *map = tri_tree_map(v->arena), *after = tri_tree_list(v->arena);
        tri_tree_put(v->arena, map, "action", tri_tree_string(v->arena, tri_action_name(a->kind)));
        tri_subject subject = tri_action_subject(a->kind);
        if (subject == TRI_SUBJECT_BLOCK || subject == TRI_SUBJECT_UNIT)
            tri_tree_put(v->arena, map, "block",
                         tri_tree_string(v->arena, v->plan->flat.units[a->subject].name));
        if (a->round >= 0) tri_tree_put(v->arena, map, "round", tri_tree_int(v->arena, a->round));
        for (int d = 0; d < a->dependency_count; d++)
            tri_tree_append(v->arena, after,
                            tri_tree_int(v->arena, s->dependencies[a->first_dependency + d]));
        if (a->dependency_count) tri_tree_put(v->arena, map, "after", after);
        tri_tree_append(v->arena, list, map);
    }
    return list;
}

static void print_json(const plan_view *v) {
    tri_tree *map = tri_tree_map(v->arena);
    const tri_graph *g = v->plan->graph;
    tri_tree_put(v->arena, map, "name", tri_tree_string(v->arena, v->recipe->name));
    tri_tree_put(v->arena, map, "ranks", tri_tree_int(v->arena, v->ranks));
    tri_tree_put(v->arena, map, "strategy", tri_tree_string(v->arena, v->plan->named->name));
    tri_tree_put(v->arena, map, "parameters", tri_tree_int(v->arena, tri_graph_trained_count(g)));
    tri_tree_put(v->arena, map, "memory", memory_tree(v->arena, &v->plan->memory));
    tri_tree_put(v->arena, map, "blocks", blocks_tree(v));
    tri_tree_put(v->arena, map, "schedule", schedule_tree(v));
    printf("%s\n", tri_json_emit(v->arena, map));
}

static const struct {
    const char *name;
    void (*print)(const plan_view *v);
} shows[] = {{"blocks", print_blocks},
             {"memory", print_memory},
             {"schedule", print_schedule},
             {"gantt", print_gantt}};

static void print_graph(const plan_view *v) { tri_graph_print(v->plan->graph, stdout); }

static void print_dot(const plan_view *v) { tri_graph_dot(v->plan->graph, stdout); }

static bool print_shown(const plan_view *v, const char *show) {
    bool any = false;
    char mesh[256];
    if (!show && v->mesh.ranks > 1)
        printf("mesh: %s\n\n", tri_mesh_text(&v->mesh, mesh, sizeof mesh));
    for (size_t i = 0; i < sizeof shows / sizeof *shows; i++) {
        if (show && strcmp(shows[i].name, show) != 0) continue;
        shows[i].print(v);
        any = true;
    }
    return any;
}

// "replicate=64,pipeline=4" as overrides of the recipe; the ranks are their product.
static tri_status read_mesh(tri_arena *arena, const char *text, const char **overrides, int *count,
                            int *ranks) {
    *ranks = 1;
    for (char *part = tri_arena_strdup(arena, text), *rest; part; part = rest) {
        rest = strchr(part, ',');
        if (rest) *rest++ = 0;
        char *equals = strchr(part, '='), *end = NULL;
        long size = equals ? strtol(equals + 1, &end, 10) : 0;
        if (size < 1 || size > TRI_MAX_RANKS || *end)
            return TRI_FAIL(TRI_BAD_INPUT, "--mesh: '%s' is no axis=ranks", part);
        *ranks *= (int)size;
        if (*ranks > TRI_MAX_RANKS || *count >= TRI_AXIS_COUNT)
            return TRI_FAIL(TRI_BAD_INPUT, "--mesh: more than %d ranks or %d axes", TRI_MAX_RANKS,
                            TRI_AXIS_COUNT);
        overrides[(*count)++] = tri_arena_printf(arena, "strategy.mesh.%s", part);
    }
    return TRI_OK;
}

static tri_status plan(const cli_context *context, tri_arena *arena, int count, char **words,
                       const char *ranks_text, const char *mesh, const char *device,
                       const char *show, bool json) {
    plan_view v = {.arena = arena, .ranks = 1};
    tri_recipe recipe;
    const char **overrides = TRI_NEW_ARRAY(arena, const char *, count + TRI_AXIS_COUNT);
    int override_count = 0;
    if (mesh) TRI_TRY(read_mesh(arena, mesh, overrides, &override_count, &v.ranks));
    for (int i = 1; i < count; i++) overrides[override_count++] = words[i];
    if (ranks_text) {
        char *end;
        long ranks = strtol(ranks_text, &end, 10);
        if (ranks < 1 || ranks > TRI_MAX_RANKS || *end)
            return TRI_FAIL(TRI_BAD_INPUT, "--ranks: '%s' is no number from 1 to %d", ranks_text,
                            TRI_MAX_RANKS);
        v.ranks = (int)ranks;
    }
    TRI_TRY(tri_recipe_load(arena, words[0], overrides, override_count,
                            context->task ? context->task->name : NULL, &recipe));
    v.recipe = &recipe;
    tri_status status = make_plan(&v, context, device);
    if (status == TRI_OK) {
        tri_recipe_say_notes(&recipe);
        bool known = true;
        if (json)
            print_json(&v);
        else if (show && !strcmp(show, "graph"))
            print_graph(&v);
        else if (show && !strcmp(show, "dot"))
            print_dot(&v);
        else
            known = print_shown(&v, show);
        if (!known)
            status = TRI_FAIL(TRI_BAD_INPUT,
                              "--show: '%s' is none of blocks, memory, schedule, "
                              "gantt, graph, dot",
                              show);
    }
    tri_plan_destroy(v.plan);
    if (v.device) v.device->backend->close(v.device);
    return status;
}

static const cli_flag flags[] = {
    {"ranks", "N", "plan for so many ranks (1)", 0},
    {"mesh", "AXIS=N,...", "or for a mesh, e.g. replicate=64", 0},
    {"show", "blocks|memory|schedule|gantt|graph|dot", "this alone", 0},
    CLI_DEVICE_FLAG("what would compute"),
    {"json", NULL, "print everything as one JSON object", 0},
    {0}};

static int run(const cli_context *context, int argc, char **argv) {
    cli_arguments a;
    int code = cli_parse(&cli_plan, argc, argv, &a);
    if (code >= 0) return code;
    if (a.count < 1) return cli_usage(&cli_plan, "plan: which recipe?");
    tri_arena *arena = tri_arena_create(NULL, "command");
    tri_status status =
        plan(context, arena, a.count, a.words, cli_value(&a, "ranks"), cli_value(&a, "mesh"),
             cli_has(&a, "device") ? cli_value(&a, "device") : "auto", cli_value(&a, "show"),
             cli_has(&a, "json"));
    tri_arena_destroy(arena);
    return status == TRI_OK ? 0 : cli_fail(status);
}

const cli_command cli_plan = {
    .name = "plan",
    .arguments = "RECIPE [key.path=value ...]",
    .help = "Show blocks, memory and schedule of a run without running it.",
    .flags = flags,
    .more = "The data is not opened. Memory is that of the fullest rank.\n",
    .examples = "trireme plan recipes/mnist-cnn.yaml --ranks 8\n"
                "trireme plan recipes/mnist-cnn.yaml batch.micro=16 --show gantt\n"
                "trireme plan recipes/denoise-cnn.yaml --json\n",
    .run = run};
