// The sample log (log.samples): which samples each step has taken, by their numbers in the files
// of the training data. Each rank that reads samples of its own appends to its own file, one line
// for each micro-batch. The line is written at once, so that the samples of a step are known even
// if the process is killed after it. Each line has the number of the attempt, which counts the
// starts of the run: what was done after the last checkpoint is repeated, and a later attempt
// replaces it.
#include "base/log.h"
#include "base/os.h"
#include "base/tree.h"
#include "observe/lines.h"
#include "train/loop.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct train_sample_log {
    char path[PATH_MAX];
    const tri_dataset *data;
    int fd; // -1: the file can no longer be written
    int64_t replica, replicas;
    int64_t from; // how many steps were complete when this process began
    int32_t attempt;
};

bool train_is_first_of_replica(const tri_session *s) {
    int rank = s->identity.rank;
    return tri_mesh_coordinate(&s->mesh, rank, TRI_AXIS_PIPELINE) == 0 &&
           tri_mesh_coordinate(&s->mesh, rank, TRI_AXIS_TENSOR_PARALLEL) == 0;
}

// Stops logging after an error. The run continues, because training does not need the log.
static void give_up(train_sample_log *log) {
    tri_log_line(TRI_LOG_WARNING, "%s; the samples of further steps are not logged",
                 tri_error_message());
    if (log->fd >= 0) tri_os.close(log->fd);
    log->fd = -1;
}

// Counts this attempt in the run folder before its first line, so that one that is killed counts
// too. For rank 0.
static tri_status count_attempt(const train_loop *loop, int32_t *out) {
    const char *path = tri_arena_printf(loop->arena, "%s/.attempts", loop->request->run_dir);
    tri_tree *tree;
    int64_t before = 0;
    if (train_folder_has(loop, ".attempts")) {
        TRI_TRY(tri_json_read_file(loop->arena, path, &tree));
        if (!tri_tree_to_int(tree, &before) || before < 0 || before >= INT32_MAX)
            return TRI_FAIL(TRI_BAD_INPUT, "%s: is no number of attempts: remove it and logs/",
                            path);
    }
    const char *text = tri_arena_printf(loop->arena, "%lld\n", (long long)before + 1);
    TRI_TRY(tri_os_replace_file(path, text, strlen(text)));
    *out = (int32_t)before + 1;
    return TRI_OK;
}

static tri_status open_log(train_sample_log *log, const train_loop *loop, const char *folder) {
    int fd, rank = loop->session->identity.rank;
    int64_t size;
    int length = snprintf(log->path, sizeof log->path, "%s/samples-rank-%d.jsonl", folder, rank);
    if (length >= (int)sizeof log->path)
        return TRI_FAIL(TRI_BAD_INPUT, "--run-dir: the path is too long");
    TRI_TRY(tri_os_make_folders(folder));
    TRI_TRY(tri_lines_open(log->path, &fd, &size));
    log->fd = fd;
    return TRI_OK;
}

tri_status train_sample_log_open(train_loop *loop) {
    const tri_session *s = loop->session;
    int32_t attempt = 0; // 0: rank 0 cannot count it, and no rank logs
    if (!loop->recipe->log.samples || !loop->saves) return TRI_OK;
    train_sample_log *log = calloc(1, sizeof *log);
    TRI_ASSERT(log);
    log->fd = -1;
    loop->sample_log = log;
    const char *folder = tri_arena_printf(loop->arena, "%s/logs", loop->request->run_dir);
    if (s->identity.rank == 0 && count_attempt(loop, &attempt) != TRI_OK) give_up(log);
    TRI_TRY(train_tell_all(loop, &attempt, "attempt"));
    if (attempt == 0 || !train_is_first_of_replica(s)) return TRI_OK;
    log->attempt = attempt;
    log->replica = tri_mesh_replica(&s->mesh, s->identity.rank);
    log->replicas = tri_mesh_replicas(&s->mesh);
    log->from = loop->progress.step;
    log->data = s->train_data;
    if (open_log(log, loop, folder) != TRI_OK) give_up(log);
    return TRI_OK;
}

void train_sample_log_note(train_sample_log *log, int64_t step, const tri_data_batch *batch) {
    char *text = NULL;
    size_t size = 0;
    if (!log || log->fd < 0) return;
    FILE *to = open_memstream(&text, &size);
    TRI_ASSERT(to);
    fprintf(to,
            "{\"step\":%" PRId64 ",\"epoch\":%" PRId64 ",\"replica\":%" PRId64
            ",\"replicas\":%" PRId64 ",\"attempt\":%" PRId32 ",\"from\":%" PRId64 ",\"samples\":[",
            step, batch->epoch, log->replica, log->replicas, log->attempt, log->from);
    for (int64_t i = 0; i < batch->micro.size; i++) {
        int64_t sample = tri_dataset_at_epoch(log->data, batch->samples[i], batch->epoch);
        fprintf(to, "%s%" PRId64, i ? "," : "", tri_dataset_file_sample(log->data, sample));
    }
    fputs("]}\n", to);
    fclose(to);
    if (tri_os_write_all(log->fd, text, size, log->path) != TRI_OK) give_up(log);
    free(text);
}

void train_sample_log_close(train_sample_log *log) {
    if (!log) return;
    if (log->fd >= 0) tri_os.close(log->fd);
    free(log);
}
