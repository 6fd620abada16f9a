// Writes metrics.jsonl, which has one JSON object in each line. Each line is one write, so that a
// crash can damage only the last line, which the next process removes.
#include "observe/lines.h"
#include "observe/observe.h"

#include "base/os.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 4096 };

typedef struct jsonl {
    int fd;
    int64_t size; // how many bytes all complete lines of the file have
    char path[PATH_MAX];
} jsonl;

static tri_status jsonl_open(const tri_run_info *info, void **state) {
    jsonl *j = calloc(1, sizeof *j);
    if (!j) return TRI_FAIL(TRI_NO_MEMORY, "metrics.jsonl: no memory");
    snprintf(j->path, sizeof j->path, "%s/metrics.jsonl", info->folder);
    tri_status status = tri_lines_open(j->path, &j->fd, &j->size);
    if (status != TRI_OK) {
        free(j);
        return status;
    }
    *state = j;
    return TRI_OK;
}

typedef struct line {
    char text[LINE_BYTES];
    size_t used;
} line;

__attribute__((format(printf, 2, 3))) static void add(line *l, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(l->text + l->used, sizeof l->text - l->used, format, arguments);
    va_end(arguments);
    if (more > 0) l->used += (size_t)more;
    if (l->used >= sizeof l->text) l->used = sizeof l->text - 1;
}

// Adds a number with nine significant digits, which are enough for every F32; or null if it is not
// finite, because JSON cannot express that.
static void add_number(line *l, const char *key, double value) {
    char text[40];
    snprintf(text, sizeof text, "%.9g", value);
    bool is_whole = !strpbrk(text, ".e");
    if (isfinite(value))
        add(l, ",\"%s\":%s%s", key, text, is_whole ? ".0" : "");
    else
        add(l, ",\"%s\":null", key);
}

static void write_train(line *l, const tri_train_event *e) {
    add(l, "{\"kind\":\"train\",\"step\":%lld,\"epoch\":%lld", (long long)e->step,
        (long long)e->epoch);
    add_number(l, "loss", e->loss);
    add_number(l, "lr", e->lr);
    add_number(l, "grad_norm", e->grad_norm);
    add(l, ",\"samples\":%lld,\"samples_per_s\":%.1f", (long long)e->samples, e->samples_per_s);
    if (e->mfu > 0) add(l, ",\"mfu\":%.4f,\"mbu\":%.4f", e->mfu, e->mbu);
    add(l, ",\"wall_s\":%.3f}\n", e->wall_s);
}

static void write_val(line *l, const char *kind, const tri_val_event *e) {
    add(l, "{\"kind\":\"%s\",\"step\":%lld,\"epoch\":%lld", kind, (long long)e->step,
        (long long)e->epoch);
    add_number(l, "loss", e->loss);
    for (int i = 0; i < e->metric_count; i++)
        add_number(l, e->metrics[i].name, e->metrics[i].value);
    add(l, ",\"samples\":%lld}\n", (long long)e->samples);
}

static tri_status jsonl_event(void *state, const tri_run_event *event) {
    jsonl *j = state;
    line l = {.used = 0};
    if (event->kind == TRI_EVENT_TRAIN && event->train.is_logged) write_train(&l, &event->train);
    if (event->kind == TRI_EVENT_VAL) write_val(&l, "val", &event->val);
    if (event->kind == TRI_EVENT_TEST) write_val(&l, "test", &event->val);
    if (event->kind == TRI_EVENT_END)
        add(&l, "{\"kind\":\"end\",\"status\":\"%s\",\"steps\":%lld,\"wall_s\":%.3f}\n",
            event->end.status, (long long)event->end.steps, event->end.wall_s);
    if (l.used == 0) return TRI_OK;
    tri_status status = tri_os_write_all(j->fd, l.text, l.used, j->path);
    if (status == TRI_OK)
        j->size += (int64_t)l.used;
    else if (tri_os.ftruncate(j->fd, j->size) < 0)
        return status; // the next process removes the incomplete line
    return status;
}

static void jsonl_close(void *state) {
    jsonl *j = state;
    tri_os.close(j->fd);
    free(j);
}

const tri_event_sink tri_sink_jsonl = {
    .name = "metrics.jsonl",
    .open = jsonl_open,
    .event = jsonl_event,
    .close = jsonl_close,
};
