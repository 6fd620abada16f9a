// Asks Slurm about the job in which this process runs, and starts the job again, by Slurm's
// commands squeue, scontrol and sbatch, so that no library of Slurm is needed. job_end.c calls it.
#include "train/slurm.h"

#include "base/command.h"
#include "base/limits.h"
#include "base/os.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_number(const char *text, size_t size) {
    return text && *text && strlen(text) < size && strspn(text, "0123456789") == strlen(text);
}

bool train_slurm_find(const char *(*get)(const char *name), train_slurm_job *out) {
    const char *id = get("SLURM_JOB_ID"), *array = get("SLURM_ARRAY_JOB_ID"),
               *task = get("SLURM_ARRAY_TASK_ID");
    *out = (train_slurm_job){.id = ""};
    if (!is_number(id, sizeof out->id)) return false;
    // The job id of one task of an array is that of the array, and means all tasks.
    bool is_task = is_number(array, sizeof out->task) && is_number(task, sizeof out->task);
    snprintf(out->id, sizeof out->id, "%s", id);
    if (!is_task) return true;
    snprintf(out->task, sizeof out->task, "%s", task);
    snprintf(out->id, sizeof out->id, "%.14s_%.14s", array, task);
    return true;
}

bool train_slurm_read_time(const char *text, double *seconds) {
    while (isspace((unsigned char)*text)) text++;
    const char *at = text;
    double days = 0, rest = 0;
    int fields = 0;
    const char *dash = strchr(text, '-');
    for (bool in_days = dash != NULL;; at++) {
        if (!isdigit((unsigned char)*at)) return false;
        char *end;
        double value = (double)strtoul(at, &end, 10);
        at = end;
        if (in_days) {
            if (at != dash) return false;
            days = value;
            in_days = false;
        } else {
            rest = rest * 60 + value;
            fields++;
            if (*at != ':') break;
        }
    }
    while (isspace((unsigned char)*at)) at++;
    if (*at || fields > 3 || (dash && fields != 3)) return false;
    *seconds = days * 86400 + rest;
    return true;
}

tri_status train_slurm_seconds_left(const train_slurm_job *job, double *out) {
    char text[256];
    char *const argv[] = {"squeue", "-h", "-j", (char *)job->id, "-o", "%L", NULL};
    TRI_TRY(tri_command_run(argv, TRI_SLURM_ANSWER_MS, text, sizeof text));
    text[strcspn(text, "\n")] = 0;
    *out = -1;
    if (!strcmp(text, "UNLIMITED") || train_slurm_read_time(text, out)) return TRI_OK;
    return TRI_FAIL(TRI_NOT_FOUND, "squeue does not know how much time job %s has left: '%.80s'",
                    job->id, text);
}

// Whether Slurm says that the job does not run any more.
static bool has_left(const train_slurm_job *job) {
    char text[256];
    char *const argv[] = {"squeue", "-h", "-j", (char *)job->id, "-o", "%T", NULL};
    return tri_command_run(argv, TRI_SLURM_ANSWER_MS, text, sizeof text) == TRI_OK &&
           isupper((unsigned char)*text) && strncmp(text, "RUNNING", 7) != 0;
}

tri_status train_slurm_requeue(const train_slurm_job *job) {
    char text[256], message[TRI_MESSAGE_MAX_BYTES];
    char *const argv[] = {"scontrol", "requeue", (char *)job->id, NULL};
    tri_status status = tri_command_run(argv, TRI_SLURM_ANSWER_MS, text, sizeof text);
    if (status != TRI_TIMEOUT) return status;
    snprintf(message, sizeof message, "%s", tri_error_message());
    return has_left(job) ? TRI_OK : TRI_FAIL(TRI_TIMEOUT, "%s", message);
}

// Finds the value of NAME in "… NAME=VALUE …", the form in which scontrol prints a job. False: it
// is missing or "(null)".
static bool find_value(const char *text, const char *name, char *out, size_t size) {
    size_t length = strlen(name);
    for (const char *at = text; (at = strstr(at, name)); at += length) {
        bool whole = (at == text || at[-1] == ' ') && at[length] == '=';
        if (!whole) continue;
        at += length + 1;
        size_t bytes = strcspn(at, " \n");
        if (bytes == 0 || bytes >= size || !strncmp(at, "(null)", bytes)) return false;
        memcpy(out, at, bytes);
        out[bytes] = 0;
        return true;
    }
    return false;
}

enum { JOB_TEXT_BYTES = 1 << 16, OPTIONS = 6, ARGUMENTS = 13, VALUE_BYTES = 256 };

// Options of the batch script that may have been given on sbatch's command line instead. The next
// job, which runs the same script, then has to get them too. `name` is the option's name in
// `scontrol show job`, and `option` its name in sbatch(1).
static const struct {
    const char *name, *option;
} options[OPTIONS] = {
    {"Partition", "--partition"}, {"Account", "--account"}, {"QOS", "--qos"},
    {"TimeLimit", "--time"},      {"NumNodes", "--nodes"},  {"NumTasks", "--ntasks"},
};

static tri_status submit(const train_slurm_job *job, const char *script, train_slurm_job *next) {
    char *shown = malloc(JOB_TEXT_BYTES);
    if (!shown) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a job's description");
    char *const show[] = {"scontrol", "-o", "show", "job", (char *)job->id, NULL};
    tri_status status = tri_command_run(show, TRI_SLURM_ANSWER_MS, shown, JOB_TEXT_BYTES);
    char words[OPTIONS][VALUE_BYTES + 32], after[64], value[VALUE_BYTES], text[256], array[32];
    char *argv[ARGUMENTS] = {"sbatch", "--parsable", after};
    int count = 3;
    snprintf(array, sizeof array, "--array=%s", job->task);
    if (*job->task) argv[count++] = array;
    snprintf(after, sizeof after, "--dependency=afterany:%s", job->id);
    for (int i = 0; i < OPTIONS && status == TRI_OK; i++) {
        if (!find_value(shown, options[i].name, value, sizeof value)) continue;
        snprintf(words[i], sizeof words[i], "%s=%s", options[i].option, value);
        argv[count++] = words[i];
    }
    free(shown);
    argv[count++] = (char *)script;
    argv[count] = NULL;
    if (status == TRI_OK) status = tri_command_run(argv, TRI_SLURM_ANSWER_MS, text, sizeof text);
    TRI_TRY(status);
    int digits = (int)strcspn(text, ";\n");
    const char *mark = *job->task ? "_" : "";
    snprintf(next->id, sizeof next->id, "%.*s%s%s", digits, text, mark, job->task);
    return TRI_OK;
}

tri_status train_slurm_chain(const train_slurm_job *job, train_slurm_job *next) {
    const char *folder = getenv("TMPDIR");
    char path[PATH_MAX], text[256];
    snprintf(path, sizeof path, "%s/trireme-job-%s-XXXXXX", folder && *folder ? folder : "/tmp",
             job->id);
    int fd = mkstemp(path);
    if (fd < 0) return tri_os_fail("create", path);
    tri_os.close(fd);
    char *const write[] = {"scontrol", "write", "batch_script", (char *)job->id, path, NULL};
    tri_status status = tri_command_run(write, TRI_SLURM_ANSWER_MS, text, sizeof text);
    if (status == TRI_OK) status = submit(job, path, next);
    unlink(path);
    return status;
}
