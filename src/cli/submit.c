// `trireme submit`: writes the job script of a recipe for a site and passes it to sbatch; or lists
// the sites. A site is a supercomputer or cluster; its profile is a YAML file with its partitions,
// limits and settings. src/launch reads profiles (site.c) and makes job scripts (job.c).
#include "cli/plan_view.h"

#include "base/module.h"
#include "base/program.h"
#include "data/sampler.h"
#include "device/cuda/cuda.h"
#include "launch/job.h"
#include "recipe/batch.h"
#include "train/known_fields.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static tri_tree *queue_tree(tri_arena *arena, const tri_site_queues *queues) {
    tri_tree *list = tri_tree_list(arena);
    for (int i = 0; i < queues->count; i++) {
        const tri_site_queue *q = &queues->items[i];
        tri_tree *entry = tri_tree_map(arena);
        tri_tree_put(arena, entry, "name", tri_tree_string(arena, q->name));
        if (q->nodes) tri_tree_put(arena, entry, "nodes", tri_tree_int(arena, q->nodes));
        if (q->gpus) tri_tree_put(arena, entry, "gpus", tri_tree_int(arena, q->gpus));
        if (q->time > 0) tri_tree_put(arena, entry, "time_s", tri_tree_double(arena, q->time));
        tri_tree_append(arena, list, entry);
    }
    return list;
}

static void print_json(tri_arena *arena, const tri_site *sites, int count) {
    tri_tree *list = tri_tree_list(arena);
    for (int i = 0; i < count; i++) {
        const tri_site *s = &sites[i];
        tri_tree *entry = tri_tree_map(arena), *runtimes = tri_tree_list(arena);
        for (int k = 0; k < s->container_count; k++)
            tri_tree_append(arena, runtimes, tri_tree_string(arena, s->container_list[k].name));
        tri_tree_put(arena, entry, "name", tri_tree_string(arena, s->name));
        tri_tree_put(arena, entry, "title", tri_tree_string(arena, s->title));
        tri_tree_put(arena, entry, "closed",
                     s->closed ? tri_tree_string(arena, s->closed) : tri_tree_null(arena));
        tri_tree_put(arena, entry, "cores", tri_tree_int(arena, s->node.cores));
        tri_tree_put(arena, entry, "threads_per_core",
                     tri_tree_int(arena, s->node.threads_per_core));
        tri_tree_put(arena, entry, "gpus", tri_tree_int(arena, s->node.gpus));
        tri_tree_put(arena, entry, "gpu",
                     s->node.gpu ? tri_tree_string(arena, s->node.gpu) : tri_tree_null(arena));
        tri_tree_put(arena, entry, "account_required", tri_tree_bool(arena, s->account.required));
        tri_tree_put(arena, entry, "qos_required", tri_tree_bool(arena, s->qos_required));
        tri_tree_put(arena, entry, "partitions", queue_tree(arena, &s->partition_list));
        tri_tree_put(arena, entry, "qos", queue_tree(arena, &s->qos_list));
        tri_tree_put(arena, entry, "containers", runtimes);
        tri_tree_append(arena, list, entry);
    }
    printf("%s\n", tri_json_emit(arena, list));
}

static tri_status list_sites(tri_arena *arena, bool json) {
    tri_site *sites;
    int count;
    TRI_TRY(tri_site_list(arena, &sites, &count));
    if (json) return print_json(arena, sites, count), TRI_OK;
    for (int i = 0; i < count; i++) {
        const tri_site *s = &sites[i];
        const char *node = s->node.gpus
                               ? tri_arena_printf(arena, "%lld x %s", (long long)s->node.gpus,
                                                  s->node.gpu ? s->node.gpu : "GPU")
                               : "";
        printf("%-15s %-42s %-12s", s->name, s->title, node);
        for (int k = 0; k < s->partition_list.count; k++)
            printf(" %s", s->partition_list.items[k].name);
        printf("%s%s\n", s->closed ? " (closed " : "",
               s->closed ? tri_arena_printf(arena, "%s)", s->closed) : "");
    }
    return TRI_OK;
}

// The device of a job's ranks: `name` for the script's --device, and `planned` for the plan, which
// is made on this host.
typedef struct job_device {
    const char *name, *planned;
} job_device;

static const tri_device_model *gpu_of(const tri_site *site) {
    for (const tri_device_model *m = tri_device_cuda.models; site->node.gpu && m->name; m++)
        if (!strcmp(m->name, site->node.gpu)) return m;
    return NULL;
}

// Names the device in the script: with --device auto, ranks on a node whose GPUs this program
// cannot drive would train on its cores, at the price of the GPUs.
static tri_status choose_device(tri_arena *arena, const tri_site *site, const cli_arguments *a,
                                job_device *out) {
    const char *given = cli_has(a, "device") ? cli_value(a, "device") : "auto";
    bool is_auto = !strcmp(given, "auto"), has_gpus = site->node.gpus > 0;
    out->name = !is_auto ? given : has_gpus ? "cuda" : "cpu";
    out->planned = out->name;
    if (strcmp(out->name, "cuda") != 0) return TRI_OK;
    const tri_device_model *gpu = gpu_of(site);
    const char *module = gpu ? gpu->module : "cuda";
    // Of a GPU that the table does not have, no memory is known.
    out->planned = gpu ? tri_arena_printf(arena, "cuda:%s", gpu->name) : "cpu";
    bool is_insisted = !is_auto && cli_has(a, "container");
    if (is_insisted || tri_module_is_installed(module)) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: this build cannot drive %s GPUs: it has no module %s (docs/gpu.md); "
                    "--device cpu runs on the cores%s",
                    site->name, site->node.gpu ? site->node.gpu : "the site's", module,
                    cli_has(a, "container") ? ", --device cuda trusts the image to have it" : "");
}

// Rejects, as far as possible without the data, what every rank of the job would reject when it
// starts, so that the job does not wait in a queue in vain.
static tri_status check_recipe(tri_arena *arena, const tri_recipe *r, const tri_task *task,
                               int ranks) {
    tri_optimizer optimizer;
    tri_mesh mesh;
    tri_batch_options batch;
    TRI_TRY(tri_task_find(arena, r, task, &task));
    TRI_TRY(tri_optimizer_make(arena, &r->optimizer, &optimizer));
    TRI_TRY(tri_session_make_mesh(r, ranks, &mesh));
    int64_t replicas = tri_mesh_replicas(&mesh);
    TRI_TRY(tri_recipe_settle_batch(r, replicas, &batch));
    return tri_sampler_check_step(batch.global, batch.micro, replicas);
}

// Rejects what `trireme plan` would reject for these ranks. Where only the data tell the shapes of
// samples, there is no plan.
static tri_status check_plan(tri_arena *arena, const cli_context *context, const tri_recipe *r,
                             const char *device, int ranks) {
    plan_view v = {
        .arena = arena, .recipe = r, .device_name = device, .ranks = ranks, .is_elsewhere = true};
    int fields = 0;
    TRI_TRY(tri_task_find(arena, r, context->task, &v.task));
    if (train_describe_fields(arena, r, v.task, v.fields, &fields) != TRI_OK) {
        cli_warn("memory and layers are not checked: %s", tri_error_message());
        return TRI_OK;
    }
    tri_status status = plan_make(&v, context);
    if (status == TRI_OK) status = plan_check_fits(&v);
    tri_pipeline_plans_destroy(&v.pipeline);
    return status;
}

// Fills in the words of `trireme train` in the job: the recipe, its overrides, and the flags for
// training.
static void fill_command(tri_arena *arena, const cli_arguments *a, const char *device,
                         tri_job_request *request) {
    const char *const flags[][2] = {{"--run-dir", cli_value(a, "run-dir")}, {"--device", device}};
    const char **words = TRI_NEW_ARRAY(arena, const char *, a->count + 8);
    int count = 0;
    words[count++] = "train";
    for (int i = 0; i < a->count; i++) words[count++] = a->words[i];
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (!flags[i][1]) continue;
        words[count++] = flags[i][0];
        words[count++] = flags[i][1];
    }
    request->command = words;
    request->words = count;
}

static tri_status submit(tri_arena *arena, const cli_context *context, const cli_arguments *a) {
    tri_site site;
    tri_recipe recipe;
    tri_job job;
    job_device device;
    char program[PATH_MAX], folder[PATH_MAX];
    TRI_TRY(tri_site_find(arena, cli_value(a, "site"), &site));
    TRI_TRY(tri_recipe_load(arena, a->words[0], (const char *const *)a->words + 1, a->count - 1,
                            context->task ? context->task->name : NULL, &recipe));
    if (!tri_program_start(program) || !getcwd(folder, sizeof folder))
        return TRI_FAIL(TRI_IO, "the paths of this program and folder cannot be read");
    tri_job_request request = {
        .site = &site,
        .nodes = cli_value(a, "nodes"),
        .ranks_per_node = cli_value(a, "ranks-per-node"),
        .time = cli_value(a, "time"),
        .account = cli_value(a, "account"),
        .partition = cli_value(a, "partition"),
        .qos = cli_value(a, "qos"),
        .launcher = cli_value(a, "launcher"),
        .container = cli_value(a, "container"),
        .name = recipe.name,
        .program = program,
        .folder = folder,
    };
    TRI_TRY(choose_device(arena, &site, a, &device));
    fill_command(arena, a, device.name, &request);
    TRI_TRY(tri_job_make(arena, &request, &job));
    int ranks = (int)(job.nodes * job.ranks_per_node);
    TRI_TRY(check_recipe(arena, &recipe, context->task, ranks));
    TRI_TRY(check_plan(arena, context, &recipe, device.planned, ranks));
    tri_recipe_log_notes(&recipe);
    if (site.closed) cli_warn("%s was shut down in %s", site.title, site.closed);
    const char *script = tri_job_script(arena, &job);
    if (!cli_has(a, "dry-run")) return tri_job_submit(&job, script);
    fputs(script, stdout);
    return TRI_OK;
}

static const cli_flag flags[] = {
    {"site", "NAME|FILE", "a site of --list, or a profile of your own", 0},
    {"nodes", "N", "nodes of the job", 0},
    {"ranks-per-node", "N", "ranks on each node (all GPUs of a node; without GPUs 1)", 0},
    {"time", "HH:MM:SS", "time of the job, or D-HH:MM:SS (one hour, or what is allowed)", 0},
    {"account", "A", "the project that pays", 0},
    {"partition", "P", "partition, or what the site has in its place (its first)", 0},
    {"qos", "Q", "quality of service", 0},
    {"launcher", "srun|run", "what starts the ranks: srun, or one trireme run per node (srun)", 0},
    {"container", "IMAGE|RUNTIME:IMAGE", "run inside this image", 0},
    {"run-dir", "DIR", "as of trireme train", 0},
    CLI_DEVICE_FLAG("as of trireme train; auto is the site's GPUs, else its cores"),
    {"dry-run", NULL, "print the script, submit nothing", 0},
    {"list", NULL, "list the sites", 0},
    {"json", NULL, "print --list as JSON", 0},
    {0}};

static int run(const cli_context *context, int argc, char **argv) {
    cli_arguments a;
    int code = cli_parse(&cli_submit, argc, argv, &a);
    if (code >= 0) return code;
    bool lists = cli_has(&a, "list");
    if (lists && a.count) return cli_usage(&cli_submit, "submit: --list takes no recipe");
    if (!lists && a.count < 1) return cli_usage(&cli_submit, "submit: which recipe?");
    if (!lists && !cli_has(&a, "site"))
        return cli_usage(&cli_submit, "submit: --site is required; --list lists the sites");
    if (!lists && cli_has(&a, "json")) cli_warn("--json has no effect without --list");
    tri_arena *arena = tri_arena_create(NULL, "command");
    tri_status status = lists ? list_sites(arena, cli_has(&a, "json")) : submit(arena, context, &a);
    tri_arena_destroy(arena);
    return status == TRI_OK ? 0 : cli_fail(status);
}

const cli_command cli_submit = {
    .name = "submit",
    .arguments = "RECIPE [key.path=value ...]",
    .help = "Submit a recipe as a Slurm job, with the flags and settings of a supercomputer.",
    .flags = flags,
    .more =
        "The data is not opened. The recipe, its plan for the job's ranks and GPUs, and what the\n"
        "site demands and allows are checked before anything is submitted. A site whose GPUs this\n"
        "build cannot drive is refused, unless --device cpu is given.\n"
        "A job saves a checkpoint before its time is over and ends with exit code 75; submitted\n"
        "again, it goes on from there, and with trainer.on_timeout=requeue by itself. Profiles "
        "are\n"
        "YAML files in share/trireme/sites; --site ./mine.yaml takes one of your own. In a\n"
        "container, trireme has to be on the image's PATH.\n",
    .examples = "trireme submit --list\n"
                "trireme submit recipes/mnist-cnn.yaml --site leonardo --nodes 2 --account proj_0 "
                "--dry-run\n"
                "trireme submit recipes/mnist-cnn.yaml --site generic --nodes 4 --ranks-per-node 2 "
                "--launcher run --dry-run\n",
    .run = run};
