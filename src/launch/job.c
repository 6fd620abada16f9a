// Makes a job for a batch system from the flags of `trireme submit` and the profile of a site (a
// supercomputer), and rejects what the site does not have or allow. Read next: job_script.c.
#include "launch/job.h"

#include "base/limits.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tri_job_time_text(tri_arena *arena, int64_t seconds) {
    int days = (int)(seconds / 86400), rest = (int)(seconds % 86400);
    const char *clock =
        tri_arena_printf(arena, "%02d:%02d:%02d", rest / 3600, rest / 60 % 60, rest % 60);
    return days ? tri_arena_printf(arena, "%d-%s", days, clock) : clock;
}

// Fails with a message that begins with the site and with the flag and its value, so that the user
// sees what to change.
#define JOB_FAIL(job, flag, text, format, ...)                                                     \
    TRI_FAIL(TRI_BAD_INPUT, "%s: --%s %.60s: " format, (job)->site->name, flag, text, __VA_ARGS__)

static tri_status read_count(const tri_job *job, const char *flag, const char *text, int64_t *out) {
    char *end;
    long value = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : 0;
    if (value < 1 || value > TRI_MAX_RANKS || *end)
        return JOB_FAIL(job, flag, text, "has to be a number from 1 to %d", TRI_MAX_RANKS);
    *out = value;
    return TRI_OK;
}

// Reads a time as Slurm writes it: [DAYS-]HH:MM:SS.
static bool read_time(const char *text, int64_t *out) {
    int days = 0, hours, minutes, seconds, used = 0;
    const char *clock = strchr(text, '-');
    if (clock && (sscanf(text, "%4d%n", &days, &used) != 1 || text + used != clock)) return false;
    clock = clock ? clock + 1 : text;
    if (!isdigit((unsigned char)*text) || !isdigit((unsigned char)*clock)) return false;
    used = 0;
    if (sscanf(clock, "%5d:%2d:%2d%n", &hours, &minutes, &seconds, &used) != 3 || clock[used] ||
        days < 0 || minutes < 0 || minutes > 59 || seconds < 0 || seconds > 59)
        return false;
    *out = ((days * INT64_C(24) + hours) * 60 + minutes) * 60 + seconds;
    return *out > 0;
}

// Lists the names of queues (partitions or QOS), for example "acc_debug, acc_ehpc".
static const char *list_queues(tri_arena *arena, const tri_site_queues *queues) {
    const char *text = "";
    for (int i = 0; i < queues->count; i++)
        text = tri_arena_printf(arena, "%s%s%s", text, i ? ", " : "", queues->items[i].name);
    return text;
}

static const tri_site_queue *find_queue(const tri_site_queues *queues, const char *name) {
    for (int i = 0; i < queues->count; i++)
        if (!strcmp(queues->items[i].name, name)) return &queues->items[i];
    return NULL;
}

// Checks a name that is copied into an option of sbatch, because with blanks or special characters
// it could become other options.
static tri_status check_word(const tri_job *job, const char *flag, const char *text) {
    for (const char *c = text; c && *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("_-.@+", *c))
            return JOB_FAIL(job, flag, text, "has to be one word, without %s", "blanks and signs");
    return TRI_OK;
}

static tri_status choose_partition(tri_arena *arena, tri_job *job) {
    const tri_site_queues *known = &job->site->partition_list;
    const char *name = job->request->partition;
    TRI_TRY(check_word(job, "partition", name));
    job->partition_name = name ? name : known->count ? known->items[0].name : NULL;
    job->partition = job->partition_name ? find_queue(known, job->partition_name) : NULL;
    if (name && known->count && !job->partition)
        return JOB_FAIL(job, "partition", name, "there are %s", list_queues(arena, known));
    return TRI_OK;
}

static tri_status choose_qos(tri_arena *arena, tri_job *job) {
    const tri_site *site = job->site;
    const tri_site_queues *known = &site->qos_list;
    const char *name = job->request->qos, *more = site->more_qos ? " and others" : "";
    TRI_TRY(check_word(job, "qos", name));
    if (name && !strcmp(tri_site_partition_flags[site->partition_flag], "qos"))
        return JOB_FAIL(job, "qos", name, "here --partition chooses the QOS: %s",
                        list_queues(arena, &site->partition_list));
    if (!name && site->qos_required)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: --qos is required here, such as %s%s", site->name,
                        list_queues(arena, known), more);
    job->qos_name = name;
    job->qos = name ? find_queue(known, name) : NULL;
    if (name && known->count && !job->qos && !site->more_qos)
        return JOB_FAIL(job, "qos", name, "there are %s", list_queues(arena, known));
    return TRI_OK;
}

static tri_status check_account(tri_job *job) {
    const tri_site_account *account = &job->site->account;
    const char *name = job->request->account, *suffix = account->suffix;
    TRI_TRY(check_word(job, "account", name));
    if (!name && account->required)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: --account is required here, such as --account %s",
                        job->site->name, account->example ? account->example : "PROJECT");
    size_t length = name ? strlen(name) : 0, end = suffix ? strlen(suffix) : 0;
    if (name && end && (length <= end || strcmp(name + length - end, suffix) != 0))
        return JOB_FAIL(job, "account", name, "accounts for these nodes end in %s, such as %s",
                        suffix, account->example ? account->example : suffix);
    return TRI_OK;
}

static tri_status settle_ranks(tri_job *job) {
    const tri_site *site = job->site;
    const char *text = job->request->ranks_per_node;
    const tri_site_queue *partition = job->partition;
    int64_t gpus = site->node.gpus, cores = site->node.usable_cores;
    if (!cores) cores = site->node.cores;
    int64_t most = gpus ? gpus : cores ? cores : TRI_MAX_LOCAL_RANKS;
    if (most > TRI_MAX_LOCAL_RANKS) most = TRI_MAX_LOCAL_RANKS;
    job->ranks_per_node = gpus ? gpus : 1;
    // A partition may allow a job fewer GPUs than its nodes have. Then the default is one rank for
    // each allowed GPU.
    if (gpus && partition && partition->gpus && partition->gpus / job->nodes < gpus)
        job->ranks_per_node = partition->gpus / job->nodes;
    if (job->ranks_per_node < 1) job->ranks_per_node = 1;
    if (text) TRI_TRY(read_count(job, "ranks-per-node", text, &job->ranks_per_node));
    if (job->ranks_per_node > most)
        return JOB_FAIL(job, "ranks-per-node", text, "a node has %lld %s", (long long)most,
                        gpus ? "GPUs, and a rank needs one" : "cores");
    if (gpus && partition && partition->whole_nodes && job->ranks_per_node != gpus)
        return JOB_FAIL(job, "ranks-per-node", text ? text : "(not given)",
                        "partition %s gives whole nodes, so it has to be %lld, one for each GPU",
                        partition->name, (long long)gpus);
    int64_t cpus = cores * site->node.threads_per_core;
    job->cpus_per_rank = site->cpus_per_rank ? site->cpus_per_rank : cpus / job->ranks_per_node;
    return TRI_OK;
}

static tri_status settle_time(tri_arena *arena, tri_job *job) {
    const char *text = job->request->time;
    const int64_t hour = 3600;
    int64_t most = job->partition ? (int64_t)job->partition->time : 0;
    if (job->qos && job->qos->time > 0 && (!most || job->qos->time < (double)most))
        most = (int64_t)job->qos->time;
    job->time_s = most && most < hour ? most : hour;
    if (text && !read_time(text, &job->time_s))
        return JOB_FAIL(job, "time", text, "has to be %s", "HH:MM:SS, or D-HH:MM:SS");
    if (most && job->time_s > most)
        return JOB_FAIL(job, "time", text, "at most %s in %s", tri_job_time_text(arena, most),
                        job->partition_name ? job->partition_name : job->qos_name);
    return TRI_OK;
}

static tri_status check_queue(const tri_job *job, const char *kind, const tri_site_queue *queue) {
    if (!queue) return TRI_OK;
    const char *nodes = job->request->nodes;
    int64_t ranks = job->nodes * job->ranks_per_node;
    if (queue->nodes && job->nodes > queue->nodes)
        return JOB_FAIL(job, "nodes", nodes, "%s %s has at most %lld for a job", kind, queue->name,
                        (long long)queue->nodes);
    if (queue->gpus && ranks > queue->gpus)
        return JOB_FAIL(job, "nodes", nodes,
                        "%lld nodes with %lld GPUs each: %s %s has at most %lld GPUs for a job",
                        (long long)job->nodes, (long long)job->ranks_per_node, kind, queue->name,
                        (long long)queue->gpus);
    return TRI_OK;
}

// Reads the flag --container: IMAGE, or RUNTIME:IMAGE with one of the profile's container runtimes.
static tri_status choose_container(tri_arena *arena, tri_job *job) {
    const tri_site *site = job->site;
    const char *text = job->request->container;
    if (!text) return TRI_OK;
    if (!site->container_count)
        return JOB_FAIL(job, "container", text, "the profile says nothing about %s", "containers");
    job->container = &site->container_list[0];
    job->image = text;
    for (int i = 0; i < site->container_count; i++) {
        size_t length = strlen(site->container_list[i].name);
        if (strncmp(text, site->container_list[i].name, length) != 0 || text[length] != ':')
            continue;
        job->container = &site->container_list[i];
        job->image = text + length + 1;
    }
    for (const char *c = job->image; *c; c++)
        if (iscntrl((unsigned char)*c) || isspace((unsigned char)*c))
            return JOB_FAIL(job, "container", text, "an image's name has no %s", "blanks");
    job->image = tri_arena_strdup(arena, job->image);
    return *job->image ? TRI_OK : JOB_FAIL(job, "container", text, "%s", "which image?");
}

static tri_status choose_launcher(tri_job *job) {
    const char *text = job->request->launcher;
    job->launcher = text && !strcmp(text, "run") ? TRI_JOB_RUN : TRI_JOB_SRUN;
    if (text && strcmp(text, "run") != 0 && strcmp(text, "srun") != 0)
        return JOB_FAIL(job, "launcher", text, "has to be %s", "srun or run");
    return TRI_OK;
}

static void fill_values(tri_arena *arena, tri_job *job) {
    const tri_site *site = job->site;
    bool is_run = job->launcher == TRI_JOB_RUN;
    int64_t ranks = job->ranks_per_node, tasks = is_run ? 1 : ranks;
    job->values = (tri_site_values){.tasks = tasks,
                                    .cpus = job->cpus_per_rank * (ranks / tasks),
                                    .gpus = site->node.gpus ? ranks : 0,
                                    .gpus_per_task = site->node.gpus ? ranks / tasks : 0,
                                    .image = job->image,
                                    .folder = job->request->folder};
    int64_t memory = tri_site_read_memory(site->memory_per_rank) * ranks;
    if (memory)
        job->values.memory =
            tri_arena_printf(arena, "%lld%s", (long long)(memory % 1024 ? memory : memory / 1024),
                             memory % 1024 ? "M" : "G");
}

// Rejects control characters in the texts that the script contains, because a line feed would end
// the script's line and begin a new command.
static tri_status check_words(const tri_job *job) {
    const tri_job_request *r = job->request;
    for (int i = -2; i < r->words; i++) {
        const char *word = i == -2 ? r->name : i == -1 ? r->folder : r->command[i];
        for (const char *c = word; *c; c++)
            if (iscntrl((unsigned char)*c))
                return TRI_FAIL(TRI_BAD_INPUT,
                                "%s: '%.60s' has a control character, which a job script "
                                "cannot have",
                                job->site->name, word);
    }
    return TRI_OK;
}

tri_status tri_job_make(tri_arena *arena, const tri_job_request *request, tri_job *out) {
    *out = (tri_job){.request = request, .site = request->site};
    if (!request->nodes)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: --nodes is required", request->site->name);
    TRI_TRY(read_count(out, "nodes", request->nodes, &out->nodes));
    TRI_TRY(check_words(out));
    TRI_TRY(choose_launcher(out));
    TRI_TRY(choose_partition(arena, out));
    TRI_TRY(choose_qos(arena, out));
    TRI_TRY(check_account(out));
    TRI_TRY(settle_ranks(out));
    TRI_TRY(settle_time(arena, out));
    TRI_TRY(check_queue(out, "partition", out->partition));
    TRI_TRY(check_queue(out, "QOS", out->qos));
    TRI_TRY(choose_container(arena, out));
    if (out->nodes * out->ranks_per_node > TRI_MAX_RUN_RANKS)
        return JOB_FAIL(out, "nodes", request->nodes,
                        "with %lld ranks a node, a run has at most %d ranks",
                        (long long)out->ranks_per_node, TRI_MAX_RUN_RANKS);
    fill_values(arena, out);
    return TRI_OK;
}
