// Writes the script of a job for a site (a supercomputer with Slurm). The code is the same for all
// sites, because their differences are in their profiles. Read next: sbatch.c, which submits it.
#include "launch/job.h"

#include "base/shell.h"
#include "launch/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// How long before the job's end Slurm sends SIGUSR1: SIGNAL_BEFORE_END_S, or a tenth of a shorter
// time. Slurm may send it a minute earlier, so a job of less than SIGNAL_LEAST_TIME_S would be
// ended when it has just begun; it only has what the run asks Slurm for.
enum { SIGNAL_BEFORE_END_S = 120, SIGNAL_PART = 10, SIGNAL_LEAST_TIME_S = 300 };
enum { LINE_COLUMNS = 96, FIRST_PORT = 20000, PORTS = 10000 };

// A script that is being written.
typedef struct script {
    tri_arena *arena;
    const tri_job *job;
    FILE *out;
    int column; // width so far of the current line of a command; 0: the line is empty
} script;

// Adds a word to the command that is being written. If the line gets too long, continues on the
// next one.
static void put_raw(script *s, const char *word) {
    int length = (int)strlen(word);
    if (s->column && s->column + length > LINE_COLUMNS) s->column = fprintf(s->out, " \\\n   ") - 3;
    s->column += fprintf(s->out, "%s%s", s->column ? " " : "", word);
}

static void put_word(script *s, const char *word) { put_raw(s, tri_shell_word(s->arena, word)); }

static void put_number(script *s, const char *flag, int64_t value) {
    put_raw(s, tri_arena_printf(s->arena, "%s%lld", flag, (long long)value));
}

static void end_command(script *s) {
    fputc('\n', s->out);
    s->column = 0;
}

// Adds an option of sbatch. Leaves it out if it has a placeholder, such as {cpus}, for which this
// job has no value, because sbatch would reject the option.
static void put_option(script *s, const char *option) {
    const char *text = tri_site_expand(s->arena, option, &s->job->values);
    if (text) fprintf(s->out, "#SBATCH %s\n", tri_shell_word(s->arena, text));
}

static void put_options(script *s, const tri_strings *options) {
    for (int i = 0; i < options->count; i++) put_option(s, options->items[i]);
}

static void put_words(script *s, const tri_strings *words) {
    for (int i = 0; i < words->count; i++) {
        const char *text = tri_site_expand(s->arena, words->items[i], &s->job->values);
        if (text) put_word(s, text);
    }
}

__attribute__((format(printf, 2, 3))) static void put_setting(script *s, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(s->out, "#SBATCH %s\n", text);
}

static void write_options(script *s) {
    const tri_job *job = s->job;
    const tri_site *site = job->site;
    fprintf(s->out, "#SBATCH %s\n",
            tri_shell_word(s->arena,
                           tri_arena_printf(s->arena, "--job-name=%.200s", job->request->name)));
    if (job->request->account) put_setting(s, "--account=%s", job->request->account);
    if (job->partition_name)
        put_setting(s, "--%s=%s", tri_site_partition_flags[site->partition_flag],
                    job->partition_name);
    if (job->qos_name) put_setting(s, "--qos=%s", job->qos_name);
    put_setting(s, "--nodes=%lld", (long long)job->nodes);
    put_setting(s, "--ntasks-per-node=%lld", (long long)job->values.tasks);
    if (job->values.cpus) put_setting(s, "--cpus-per-task=%lld", (long long)job->values.cpus);
    put_setting(s, "--time=%s", tri_job_time_text(s->arena, job->time_s));
    put_options(s, &site->sbatch);
    if (job->partition) put_options(s, &job->partition->sbatch);
    if (job->qos) put_options(s, &job->qos->sbatch);
    if (job->container) put_options(s, &job->container->sbatch);
    put_setting(s, "--output=%%x-%%j.log");
    put_setting(s, "--open-mode=append");
    put_setting(s, "--requeue");
    if (job->time_s >= SIGNAL_LEAST_TIME_S)
        put_setting(s, "--signal=USR1@%lld",
                    (long long)(job->time_s < SIGNAL_PART * SIGNAL_BEFORE_END_S
                                    ? job->time_s / SIGNAL_PART
                                    : SIGNAL_BEFORE_END_S));
}

static void write_variables(script *s, const tri_tree *map) {
    for (int i = 0; map && i < map->count; i++) {
        const char *text = tri_site_expand(s->arena, map->items[i]->text, &s->job->values);
        if (text)
            fprintf(s->out, "export %s=%s\n", map->items[i]->key, tri_shell_word(s->arena, text));
    }
}

static void write_environment(script *s) {
    const tri_job *job = s->job;
    int64_t threads = job->cpus_per_rank / job->site->node.threads_per_core;
    if (threads) fprintf(s->out, "export OMP_NUM_THREADS=%lld\n", (long long)threads);
    write_variables(s, job->site->environment);
    if (job->nodes > 1) write_variables(s, job->site->environment_between_nodes);
    for (int i = 0; i < job->site->setup.count; i++)
        fprintf(s->out, "%s\n", job->site->setup.items[i]);
}

// Writes the lines that set $host and $port, the address at the job's first node where the ranks
// find each other. `trireme run` gets them as flags. Ranks that srun starts find the first node in
// Slurm's variables, and need these lines only if the node has another name on the fast network.
static void write_meeting(script *s) {
    const tri_job *job = s->job;
    const char *suffix = job->site->host_suffix;
    bool is_run = job->launcher == TRI_JOB_RUN;
    if (!is_run && (!suffix || job->nodes == 1)) return;
    fprintf(s->out,
            "\n# The first node, and a port of this job's own.\n"
            "host=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)%s\n"
            "port=$((%d + SLURM_JOB_ID %% %d))\n",
            suffix && job->nodes > 1 ? suffix : "", FIRST_PORT, PORTS);
    if (!is_run) fprintf(s->out, "export MASTER_ADDR=\"$host\" MASTER_PORT=\"$port\"\n");
}

static void put_binding(script *s) {
    const tri_strings *binding = &s->job->site->binding;
    if (s->job->launcher != TRI_JOB_SRUN || s->job->ranks_per_node != binding->count) return;
    const tri_site_node *node = &s->job->site->node;
    const char *text = "--cpu-bind=mask_cpu:";
    for (int i = 0; i < binding->count; i++) {
        launch_cpus cpus;
        TRI_ASSERT(launch_cpus_read(binding->items[i], &cpus));
        text = tri_arena_printf(
            s->arena, "%s%s%s", text, i ? "," : "",
            launch_cpus_mask(s->arena, &cpus, (int)(node->cores * node->threads_per_core)));
    }
    put_raw(s, text);
}

static void put_launcher(script *s, const char *program) {
    put_word(s, program);
    put_raw(s, "run");
    put_raw(s, "--nnodes");
    put_number(s, "", s->job->nodes);
    put_raw(s, "--nproc-per-node");
    put_number(s, "", s->job->ranks_per_node);
    put_raw(s, "--numa-binding auto");
    put_raw(s, "--show-binding");
    put_raw(s, "--rdzv-backend c10d");
    put_raw(s, "--rdzv-endpoint \"$host:$port\"");
    put_raw(s, "--rdzv-id \"$SLURM_JOB_ID\"");
}

static void write_command(script *s) {
    const tri_job *job = s->job;
    const char *program = job->container ? "trireme" : job->request->program;
    bool is_run = job->launcher == TRI_JOB_RUN;
    fprintf(s->out, "\n# %s\n",
            is_run ? "One launcher on each node starts the node's ranks."
                   : "srun starts every rank and tells it its number.");
    put_raw(s, "srun --kill-on-bad-exit=1");
    if (job->values.cpus) put_number(s, "--cpus-per-task=", job->values.cpus);
    put_words(s, &job->site->srun);
    put_binding(s);
    if (job->container) put_words(s, &job->container->srun);
    if (job->container) put_words(s, &job->container->command);
    if (is_run) put_launcher(s, program);
    put_word(s, program);
    for (int i = 0; i < job->request->words; i++) put_word(s, job->request->command[i]);
    end_command(s);
}

char *tri_job_script(tri_arena *arena, const tri_job *job) {
    char *text = NULL;
    size_t size = 0;
    script s = {.arena = arena, .job = job, .out = open_memstream(&text, &size)};
    TRI_ASSERT(s.out);
    fprintf(s.out, "#!/bin/bash\n# %s on %s: %lld %s on each of %lld %s.\n", job->request->name,
            job->site->title, (long long)job->ranks_per_node,
            job->ranks_per_node == 1 ? "rank" : "ranks", (long long)job->nodes,
            job->nodes == 1 ? "node" : "nodes");
    write_options(&s);
    fprintf(s.out, "set -eu\n\n");
    write_environment(&s);
    write_meeting(&s);
    write_command(&s);
    TRI_ASSERT(fclose(s.out) == 0);
    char *out = tri_arena_strdup(arena, text);
    free(text);
    return out;
}
