// `trireme scale`: how fast a recipe trains on more and more ranks. The command simulates the speed
// from plans for each number of ranks (scale_simulate.c). Where the job has enough ranks, it
// measures the speed too (train/bench.c). Read next: scale_show.c and scale_draw.c, which print and
// draw the speeds. A point of the sweep is the training with one number of ranks.
//
// Under a launcher, all ranks stay connected during the whole sweep. For each number of ranks, the
// first ones, host by host, form a group and train, while the others wait. So one allocation of a
// batch system is enough. Without a launcher, the command runs itself under `trireme run`
// (start_ranks).
#include "cli/scale_view.h"

#include "base/cores.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/program.h"
#include "comm/bench.h"
#include "comm/op.h"
#include "device/choose.h"
#include "launch/launch.h"
#include "train/tell.h"

#include <stdlib.h>
#include <string.h>

typedef struct sweep {
    scale_view view;
    const tri_recipe *recipe;
    const cli_context *context;
    const char *device, *svg; // svg NULL: no picture
    double seconds;           // how long each point is measured
    scale_machine machine;    // of --simulate
    tri_comm *world;
    tri_health *health;
    tri_identity identity;
    int position;  // this rank's index among all ranks, sorted host by host
    int *hosts_of; // hosts_of[n]: how many hosts the ranks at positions 0 to n are on
} sweep;

static tri_status bad_list(const char *text) {
    return TRI_FAIL(TRI_BAD_INPUT,
                    "--ranks: '%s' is not a rising list of up to %d numbers, such as 1,2,4", text,
                    SCALE_MAX_POINTS);
}

// Reads numbers of ranks, such as "1,2,4".
static tri_status read_ranks(const char *text, scale_view *v) {
    const char *at = text;
    for (v->count = 0; *at; v->count++) {
        char *end;
        long ranks = strtol(at, &end, 10);
        long before = v->count ? v->points[v->count - 1].ranks : 0;
        if (v->count == SCALE_MAX_POINTS || end == at || (*end && *end != ',') || ranks <= before)
            return bad_list(text);
        if (ranks > TRI_MAX_RANKS)
            return TRI_FAIL(TRI_BAD_INPUT, "--ranks: %ld is more than %d", ranks, TRI_MAX_RANKS);
        v->points[v->count].ranks = (int)ranks;
        at = *end ? end + 1 : end;
        if (*end && !*at) return bad_list(text);
    }
    return v->count ? TRI_OK : bad_list(text);
}

// Chooses the numbers of ranks if --ranks is not given: the powers of two below `most`, and `most`.
static void choose_ranks(int most, scale_view *v) {
    int ranks = 1;
    for (v->count = 0; v->count < SCALE_MAX_POINTS - 1 && ranks < most; ranks *= 2)
        v->points[v->count++].ranks = ranks;
    v->points[v->count++].ranks = most;
}

static tri_status gather_claims(sweep *s, tri_host_claim *all) {
    tri_host_claim own;
    tri_host_claim_make(&s->identity, &own);
    return tri_comm_run(s->world, &(tri_comm_op){.kind = TRI_COMM_ALL_GATHER,
                                                 .dtype = TRI_U8,
                                                 .count = sizeof own,
                                                 .send = &own,
                                                 .recv = all,
                                                 .label = "hosts of the sweep"});
}

// Arranges the ranks host by host, in the order of each host's first rank, so that small groups are
// on few hosts.
static tri_status arrange_ranks(sweep *s) {
    tri_arena *arena = s->view.arena;
    int ranks = s->world->size, hosts = 0, position = 0;
    tri_host_claim *claims = tri_arena_alloc(arena, (size_t)ranks * sizeof *claims);
    int *host = TRI_NEW_ARRAY(arena, int, ranks), *first = TRI_NEW_ARRAY(arena, int, ranks);
    s->hosts_of = TRI_NEW_ARRAY(arena, int, ranks);
    TRI_TRY(gather_claims(s, claims));
    for (int r = 0; r < ranks; r++) {
        int h = 0;
        while (h < hosts && !tri_host_claim_is_same_host(&claims[first[h]], &claims[r])) h++;
        if (h == hosts) first[hosts++] = r;
        host[r] = h;
    }
    for (int h = 0; h < hosts; h++)
        for (int r = first[h]; r < ranks; r++) {
            if (host[r] != h) continue;
            if (r == s->world->rank) s->position = position;
            s->hosts_of[position++] = h + 1;
        }
    return TRI_OK;
}

static tri_status open_world(sweep *s) {
    tri_comm_options options = s->recipe->comm;
    // While the first ranks train to measure one point of the sweep (one number of ranks), the
    // other ranks wait for them. So the time limit of operations is longer, by a generous estimate
    // of the time for preparing the training and measuring it.
    options.timeout_s += 60 + 4 * s->seconds;
    if (s->identity.size == 1)
        TRI_TRY(tri_comm_self_open(&s->world));
    else
        TRI_TRY(cli_backends.open_comm(&s->identity, &options, &s->world, &s->health));
    return arrange_ranks(s);
}

// Decides which points (numbers of ranks) can be measured. The first one must be measured, because
// the others are compared with it.
static tri_status mark_points(sweep *s) {
    scale_view *v = &s->view;
    int all_ranks = s->world->size, all_hosts = s->hosts_of[all_ranks - 1];
    for (int i = 0; i < v->count; i++) {
        scale_point *p = &v->points[i];
        p->is_measured = p->ranks <= all_ranks;
        // A point with more ranks than the job has is only simulated. Its number of hosts follows
        // from the job's average number of ranks on a host, rounded up.
        int each = (all_ranks + all_hosts - 1) / all_hosts;
        p->hosts = p->is_measured ? s->hosts_of[p->ranks - 1] : (p->ranks + each - 1) / each;
    }
    if (v->points[0].is_measured) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "--ranks: %d ranks are the fewest, but there are only %d to measure; begin the "
                    "list with a number up to that, or use trireme plan, which measures nothing",
                    v->points[0].ranks, all_ranks);
}

static tri_status measure_group(sweep *s, tri_comm *group, scale_point *p) {
    double seconds;
    TRI_TRY(tri_bench_train(&(tri_session_request){.backends = &cli_backends,
                                                   .recipe = &p->recipe,
                                                   .task = s->context->task,
                                                   .device = s->device,
                                                   .train = true,
                                                   .comm = group},
                            s->seconds, NULL, &p->measured));
    if (group->size == 1) return TRI_OK;
    return tri_comm_bench_one(group, TRI_COMM_ALL_REDUCE, (size_t)s->view.link_bytes, &seconds,
                              &p->link_bytes_per_s);
}

static tri_status measure_point(sweep *s, scale_point *p) {
    tri_comm *group = NULL, *world = s->world;
    bool takes_part = s->position < p->ranks;
    TRI_TRY(world->backend->split(world, takes_part ? 0 : -1, s->position, &group));
    tri_status status = takes_part ? measure_group(s, group, p) : TRI_OK;
    // Tells the other ranks of a failure, because they may still wait for this one in the group.
    status = tri_tell_failure(world, &s->identity, status);
    tri_comm_close(group);
    TRI_TRY(status);
    return tri_tell_and_agree(world, TRI_OK, "end of a measurement");
}

static tri_status plan(sweep *s) {
    TRI_TRY(cli_check_svg(s->svg, NULL));
    return scale_plan(&s->view, s->recipe, s->context, s->device);
}

// Plans all points (numbers of ranks). Only rank 0 does so, because plans of many ranks take time;
// it tells the other ranks the global batch of each point.
static tri_status plan_points(sweep *s) {
    scale_view *v = &s->view;
    int64_t told[SCALE_MAX_POINTS + 1] = {0};
    tri_status status = TRI_OK;
    if (s->world->rank == 0) {
        status = plan(s);
        if (status == TRI_OK) told[0] = scale_reduced_bytes(v);
        for (int i = 0; i < v->count; i++) told[1 + i] = scale_batch(&v->points[i]);
    }
    TRI_TRY(tri_tell_and_agree(s->world, status, "plans of the sweep"));
    TRI_TRY(tri_comm_run(s->world, &(tri_comm_op){.kind = TRI_COMM_BROADCAST,
                                                  .dtype = TRI_I64,
                                                  .count = SCALE_MAX_POINTS + 1,
                                                  .send = told,
                                                  .recv = told,
                                                  .label = "batches of the sweep"}));
    const int64_t most_bytes = 64 << 20; // more bytes would only take longer
    v->link_bytes = told[0] < most_bytes ? told[0] : most_bytes;
    for (int i = 0; i < v->count; i++) {
        v->points[i].recipe = *s->recipe;
        v->points[i].recipe.batch.global = told[1 + i];
    }
    return TRI_OK;
}

static tri_status measure_points(sweep *s) {
    scale_view *v = &s->view;
    TRI_TRY(tri_tell_and_agree(s->world, mark_points(s), "numbers of ranks"));
    TRI_TRY(plan_points(s));
    for (int i = 0; i < v->count; i++)
        if (v->points[i].is_measured) {
            TRI_TRY(measure_point(s, &v->points[i]));
            if (s->world->rank == 0)
                tri_log_line(TRI_LOG_INFO, "scale: %s measured",
                             tri_counted(v->points[i].ranks, "rank"));
        }
    return TRI_OK;
}

static void draw(const void *view, FILE *out) { scale_draw(view, out); }

static tri_status show(sweep *s, const cli_arguments *a) {
    if (!s->machine.is_given) scale_simulate(&s->view);
    if (s->svg) TRI_TRY(cli_write_svg(s->svg, draw, &s->view));
    if (cli_has(a, "json"))
        scale_print_json(&s->view, stdout);
    else if (s->machine.is_given)
        scale_print_machine(&s->view, &s->machine, stdout);
    else
        scale_print(&s->view, stdout);
    return TRI_OK;
}

static tri_status read_arguments(sweep *s, const cli_arguments *a, tri_recipe *recipe) {
    scale_view *v = &s->view;
    const char *ranks = cli_value(a, "ranks");
    if (ranks) TRI_TRY(read_ranks(ranks, v));
    TRI_TRY(cli_read_seconds(cli_value(a, "seconds"), 5, &s->seconds));
    TRI_TRY(tri_recipe_load(v->arena, a->words[0], (const char *const *)a->words + 1, a->count - 1,
                            s->context->task ? s->context->task->name : NULL, recipe));
    s->svg = cli_value(a, "svg");
    TRI_TRY(cli_check_output("svg", s->svg, a->words[0]));
    TRI_TRY(scale_read_machine(v, a, &s->machine));
    s->device = cli_has(a, "device") ? cli_value(a, "device") : "auto";
    if (s->machine.device && !cli_has(a, "device")) s->device = s->machine.device;
    s->recipe = recipe;
    v->name = recipe->name;
    v->is_weak = cli_has(a, "weak");
    return tri_identity_read((const char *(*)(const char *))getenv, &s->identity);
}

static tri_status scale(sweep *s, const cli_arguments *a) {
    int cores;
    TRI_TRY(cli_bind_rank(&cores));
    if (s->view.count == 0) choose_ranks(s->identity.size, &s->view);
    tri_status status = open_world(s);
    if (status == TRI_OK) {
        status = measure_points(s);
        status = tri_tell_failure(s->world, &s->identity, status);
    }
    // tri_comm_close frees the memory from which s->health reads what this rank does, so s->health
    // stops reading first.
    tri_health_drop_ring(s->health);
    tri_comm_close(s->world);
    tri_health_stop(s->health);
    if (status == TRI_OK && s->identity.rank == 0) status = show(s, a);
    scale_end_plans(&s->view);
    return status;
}

// Simulates a machine that is not here: by itself, whatever ranks a launcher has started.
static tri_status simulate(sweep *s, const cli_arguments *a) {
    tri_status status = plan(s);
    if (status == TRI_OK)
        status = scale_simulate_machine(&s->view, &s->machine, s->context, s->device);
    if (status == TRI_OK && s->identity.rank == 0) status = show(s, a);
    scale_end_plans(&s->view);
    return status;
}

// How many ranks this command starts by itself; 1: only this one, because a launcher has started
// them or one is enough.
static int ranks_to_start(const sweep *s) {
    int most = tri_cores(), chosen = 1;
    if (s->machine.is_given) return 1;
    if (s->identity.size > 1 || strcmp(s->identity.launcher, "none") != 0) return 1;
    if (s->view.count == 0) return most;
    for (int i = 0; i < s->view.count && s->view.points[i].ranks <= most; i++)
        chosen = s->view.points[i].ranks;
    return chosen;
}

// Rejects, before the ranks are started, what all of them would reject, so that there is one
// message instead of many.
static tri_status check_alone(sweep *s) {
    tri_dataset *data;
    tri_device_description device;
    tri_status status = plan(s);
    scale_end_plans(&s->view);
    TRI_TRY(status);
    // A device model (cuda:h200) can be planned for on any host, but only be measured on a host
    // that has such a device.
    const char *here =
        tri_arena_printf(s->view.arena, "%.*s", (int)strcspn(s->device, ":"), s->device);
    TRI_TRY(tri_device_describe(cli_backends.devices, here, &device));
    TRI_TRY(tri_dataset_open(&s->recipe->data, TRI_DATA_TRAIN, (uint64_t)s->recipe->seed, &data));
    tri_dataset_close(data);
    return TRI_OK;
}

// Runs the same command once for each of `ranks` ranks, which share this host's cores.
static int start_ranks(int ranks, int argc, char **argv) {
    char path[PATH_MAX], count[16];
    if (!tri_program_start(path))
        return cli_fail(TRI_FAIL(TRI_IO, "the path of this program cannot be read"));
    snprintf(count, sizeof count, "%d", ranks);
    const char *head[] = {
        "run", "--standalone", "--nproc-per-node", count, "--numa-binding", "auto", path, NULL};
    enum { HEAD = sizeof head / sizeof *head - 1 };
    char **all = calloc((size_t)(HEAD + argc + 1), sizeof *all);
    if (!all) return cli_fail(TRI_FAIL(TRI_NO_MEMORY, "no memory for the command line"));
    memcpy(all, head, sizeof head);
    memcpy(all + HEAD, argv, (size_t)argc * sizeof *all);
    int code = tri_launch_main(HEAD + argc, all);
    free(all);
    return code;
}

static const cli_flag flags[] = {
    {"ranks", "LIST", "numbers of ranks, such as 1,2,4,8 (powers of two, and all ranks)", 0},
    {"weak", NULL, "weak scaling: the global batch grows with the ranks", 0},
    {"seconds", "S", "measuring time of each number of ranks (5)", 0},
    CLI_DEVICE_FLAG("the device that computes"),
    {"simulate", NULL, "measure nothing: simulate a machine that is not here", 0},
    {"site", "NAME", "with --simulate: the machine, by its profile (trireme submit --list)", 0},
    {"rate", "R", "with --simulate: samples/s of one rank's steps (bench train on one rank)", 0},
    {"loader", "R", "with --simulate: samples/s of a host's loaders together (bench data)", 0},
    {"cold-loader", NULL, "with --simulate: loaders begin again in each epoch, as PyTorch's do", 0},
    {"start", "S", "with --simulate: seconds from the job's start to the first step (0)", 0},
    {"samples", "N", "with --simulate: training samples, to simulate the whole run", 0},
    {"val-samples", "N", "with --simulate: samples of an evaluation, after each epoch (0)", 0},
    {"svg", "FILE", "draw samples per second and efficiency over the number of ranks", 0},
    {"json", NULL, "print everything as one JSON object", 0},
    {0}};

static int run(const cli_context *context, int argc, char **argv) {
    cli_arguments a;
    // A copy of the command line for start_ranks, because cli_parse changes argv.
    char **given = malloc((size_t)(argc + 1) * sizeof *given);
    TRI_ASSERT(given);
    memcpy(given, argv, (size_t)argc * sizeof *given);
    int code = cli_parse(&cli_scale, argc, argv, &a);
    if (code < 0 && a.count < 1) code = cli_usage(&cli_scale, "scale: which recipe?");
    if (code >= 0) {
        free(given);
        return code;
    }
    tri_recipe recipe;
    sweep s = {.view = {.arena = tri_arena_create(NULL, "command")}, .context = context};
    tri_status status = read_arguments(&s, &a, &recipe);
    int ranks = status == TRI_OK ? ranks_to_start(&s) : 1;
    if (ranks > 1 && s.view.count == 0) choose_ranks(ranks, &s.view);
    if (status == TRI_OK)
        status = s.machine.is_given ? simulate(&s, &a)
                 : ranks > 1        ? check_alone(&s)
                                    : scale(&s, &a);
    if (status == TRI_OK && ranks > 1)
        code = start_ranks(ranks, argc, given);
    else
        code = status == TRI_OK ? 0 : cli_fail(status);
    tri_arena_destroy(s.view.arena);
    free(given);
    return code;
}

const cli_command cli_scale = {
    .name = "scale",
    .arguments = "RECIPE [key.path=value ...]",
    .help = "Measure and simulate how training scales with the number of ranks.",
    .flags = flags,
    .more =
        "Under a launcher, each number of ranks up to all of them is measured, host by host, while "
        "the\n"
        "other ranks wait; larger numbers are only simulated, as trireme plan does it, with the "
        "speed\n"
        "that was measured. Alone, the command starts ranks on this host, one for each core at "
        "most.\n"
        "Nothing is saved. The global batch is the recipe's; with --weak it is that of the first\n"
        "number of ranks, and grows with the others.\n"
        "With --simulate nothing is measured: the machine is described by --site and by what one\n"
        "of its hosts gives (--rate, --loader), and --samples asks for the whole run.\n",
    .examples = "trireme scale recipes/mnist-cnn.yaml batch.global=512 batch.micro=8 --ranks "
                "1,2,8,64\n"
                "trireme scale recipes/mlp-jax.yaml --weak --ranks 1,2,4 --svg weak.svg\n"
                "srun --nodes 4 --ntasks-per-node 2 trireme scale recipes/mlp-jax.yaml --json\n",
    .run = run};
