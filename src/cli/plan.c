#include "cli/cli.h"

#include "plan/timeline.h"
#include "recipe/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What a timeline assumes when nothing was measured: one core's worth.
static const tri_rates assumed_rates = {.flops_per_s = 60e9, .bytes_per_s = 10e9};

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
        .strategy = tri_strategy_find(tri_strategy_names[r->strategy.name]),
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

static void print_schedule(const plan_view *v) {
    const tri_step_plan *step = &v->plan->steps[TRI_STEP_FULL];
    printf("schedule of rank 0: %s, %d rank%s, %d round%s of up to %lld samples\n",
           v->plan->strategy->name, v->ranks, v->ranks == 1 ? "" : "s", step->rounds,
           step->rounds == 1 ? "" : "s", (long long)step->items[0].size);
    tri_schedule_print(&step->schedule, v->plan->graph->blocks, stdout);
    printf("\n");
}

static void print_gantt(const plan_view *v) {
    const tri_step_plan *step = &v->plan->steps[TRI_STEP_FULL];
    tri_moment *moments = TRI_NEW_ARRAY(v->arena, tri_moment, step->schedule.count);
    double end = tri_timeline_make(v->plan, step, assumed_rates, moments);
    printf("one step, %.1f ms if a rank computes %.0f GFLOP/s and moves %.0f GB/s\n", end * 1e3,
           assumed_rates.flops_per_s * 1e-9, assumed_rates.bytes_per_s * 1e-9);
    tri_timeline_draw(v->plan, step, moments, end, 84, stdout);
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
        if (a->block >= 0)
            tri_tree_put(v->arena, map, "block",
                         tri_tree_string(v->arena, v->plan->graph->blocks[a->block]));
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
    tri_tree_put(v->arena, map, "strategy", tri_tree_string(v->arena, v->plan->strategy->name));
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
