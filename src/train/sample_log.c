// The sample log (log.samples): which samples each step has taken, by their numbers in the files
// of the training data. Each rank that reads samples of its own appends to its own file, one line
// for each micro-batch. The line is written at once, so that the samples of a step are known even
// if the process is killed after it.
#include "base/log.h"
#include "base/os.h"
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

train_sample_log *train_sample_log_open(const train_loop *loop) {
    const tri_session *s = loop->session;
    if (!loop->recipe->log.samples || !loop->saves || !train_is_first_of_replica(s)) return NULL;
    train_sample_log *log = calloc(1, sizeof *log);
    TRI_ASSERT(log);
    log->fd = -1;
    log->replica = tri_mesh_replica(&s->mesh, s->identity.rank);
    log->replicas = tri_mesh_replicas(&s->mesh);
    log->from = loop->progress.step;
    log->data = s->train_data;
    int fd, room = (int)sizeof log->path - 40;
    int64_t size;
    snprintf(log->path, sizeof log->path, "%.*s/logs", room, loop->request->run_dir);
    tri_status status = tri_os_make_folders(log->path);
    if (status == TRI_OK) {
        snprintf(log->path, sizeof log->path, "%.*s/logs/samples-rank-%d.jsonl", room,
                 loop->request->run_dir, s->identity.rank);
        status = tri_lines_open(log->path, &fd, &size);
    }
    if (status == TRI_OK)
        log->fd = fd;
    else
        give_up(log);
    return log;
}

void train_sample_log_note(train_sample_log *log, int64_t step, const tri_data_batch *batch) {
    char *text = NULL;
    size_t size = 0;
    if (!log || log->fd < 0) return;
    FILE *to = open_memstream(&text, &size);
    TRI_ASSERT(to);
    fprintf(to,
            "{\"step\":%" PRId64 ",\"epoch\":%" PRId64 ",\"replica\":%" PRId64
            ",\"replicas\":%" PRId64 ",\"from\":%" PRId64 ",\"samples\":[",
            step, batch->epoch, log->replica, log->replicas, log->from);
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
