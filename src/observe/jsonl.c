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

typedef struct jsonl {
    int fd;
    int64_t size; // how many bytes all complete lines of the file have
    char path[PATH_MAX];
} jsonl;

static tri_status write_line(jsonl *j, tri_arena *arena, const tri_tree *map) {
    const char *line = tri_arena_printf(arena, "%s\n", tri_json_emit(arena, map));
    tri_status status = tri_os_write_all(j->fd, line, strlen(line), j->path);
    if (status == TRI_OK)
        j->size += (int64_t)strlen(line);
    else // if this fails, the next process removes the incomplete line
        (void)!tri_os.ftruncate(j->fd, j->size);
    return status;
}

static tri_tree *start_line(tri_arena *arena, const char *kind) {
    tri_tree *map = tri_tree_map(arena);
    tri_tree_put_string(arena, map, "kind", kind);
    return map;
}

// The line that tells where a process begins: what earlier ones have logged after this step, it
// does again.
static tri_status write_start(jsonl *j, const tri_run_info *info) {
    tri_arena *arena = tri_arena_create(NULL, "line");
    tri_tree *map = start_line(arena, "start");
    tri_tree_put_int(arena, map, "step", info->first_step);
    for (int i = 0; i < info->start->count; i++)
        tri_tree_put(arena, map, info->start->items[i]->key,
                     tri_tree_copy(arena, info->start->items[i]));
    tri_status status = write_line(j, arena, map);
    tri_arena_destroy(arena);
    return status;
}

static tri_status jsonl_open(const tri_run_info *info, void **state) {
    jsonl *j = calloc(1, sizeof *j);
    if (!j) return TRI_FAIL(TRI_NO_MEMORY, "metrics.jsonl: no memory");
    snprintf(j->path, sizeof j->path, "%s/metrics.jsonl", info->folder);
    tri_status status = tri_lines_open(j->path, &j->fd, &j->size);
    if (status != TRI_OK) {
        free(j);
        return status;
    }
    if (info->start) (void)write_start(j, info); // a disk that stays full is reported with events
    *state = j;
    return TRI_OK;
}

static tri_tree *seconds_tree(tri_arena *arena, double seconds) { // to a millisecond
    return tri_tree_double(arena, round(seconds * 1000) / 1000);
}

// A number that is not finite is a string, because JSON has no such numbers.
static tri_tree *number_tree(tri_arena *arena, double value, int digits) {
    if (isfinite(value)) return tri_tree_digits(arena, value, digits);
    return tri_tree_string(arena, isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
}

static void put_number(tri_arena *arena, tri_tree *map, const char *key, double value, int digits) {
    tri_tree_put(arena, map, key, number_tree(arena, value, digits));
}

static tri_tree *figures_tree(tri_arena *arena, const tri_metric_value *m, const double *figures,
                              int axis) {
    if (axis == m->shape.rank && m->are_counts && isfinite(figures[0]))
        return tri_tree_int(arena, (int64_t)figures[0]);
    if (axis == m->shape.rank) return number_tree(arena, figures[0], TRI_FLOAT_DIGITS);
    tri_tree *list = tri_tree_list(arena);
    int64_t each = 1;
    for (int i = axis + 1; i < m->shape.rank; i++) each *= m->shape.dims[i];
    for (int64_t i = 0; i < m->shape.dims[axis]; i++)
        tri_tree_append(arena, list, figures_tree(arena, m, figures + i * each, axis + 1));
    return list;
}

tri_tree *tri_metric_tree(tri_arena *arena, const tri_metric_value *metric) {
    return figures_tree(arena, metric, metric->figures ? metric->figures : &metric->value, 0);
}

void tri_metrics_put(tri_arena *arena, tri_tree *map, const tri_metric_value *metrics, int count) {
    const tri_strings *names = NULL;
    for (int i = 0; i < count; i++) {
        tri_tree_put(arena, map, metrics[i].name, tri_metric_tree(arena, &metrics[i]));
        if (metrics[i].names.count > 0) names = &metrics[i].names;
    }
    if (!names) return;
    tri_tree *list = tri_tree_list(arena);
    for (int i = 0; i < names->count; i++)
        tri_tree_append(arena, list, tri_tree_string(arena, names->items[i]));
    tri_tree_put(arena, map, "classes", list);
}

static tri_tree *train_line(tri_arena *arena, const tri_train_event *e) {
    tri_tree *map = start_line(arena, "train");
    tri_tree_put_int(arena, map, "step", e->step);
    tri_tree_put_int(arena, map, "epoch", e->epoch);
    put_number(arena, map, "loss", e->loss, TRI_FLOAT_DIGITS);
    put_number(arena, map, "lr", e->lr, TRI_FLOAT_DIGITS);
    put_number(arena, map, "grad_norm", e->grad_norm, TRI_FLOAT_DIGITS);
    tri_tree_put_int(arena, map, "samples", e->samples);
    put_number(arena, map, "samples_per_s", e->samples_per_s, 6);
    if (e->mfu > 0) put_number(arena, map, "mfu", e->mfu, 4);
    if (e->mbu > 0) put_number(arena, map, "mbu", e->mbu, 4);
    tri_tree_put(arena, map, "wall_s", seconds_tree(arena, e->wall_s));
    return map;
}

static tri_tree *val_line(tri_arena *arena, const char *kind, const tri_val_event *e) {
    tri_tree *map = start_line(arena, kind);
    tri_tree_put_int(arena, map, "step", e->step);
    tri_tree_put_int(arena, map, "epoch", e->epoch);
    put_number(arena, map, "loss", e->loss, TRI_FLOAT_DIGITS);
    tri_metrics_put(arena, map, e->metrics, e->metric_count);
    tri_tree_put_int(arena, map, "samples", e->samples);
    return map;
}

static tri_tree *change_line(tri_arena *arena, const tri_change_event *e) {
    tri_tree *map = start_line(arena, "change");
    tri_tree_put_int(arena, map, "step", e->step);
    tri_tree_put_string(arena, map, "key", e->key);
    tri_tree_put(arena, map, "from", tri_tree_copy(arena, e->from));
    tri_tree_put(arena, map, "to", tri_tree_copy(arena, e->to));
    return map;
}

static tri_tree *warning_line(tri_arena *arena, const tri_warning_event *e) {
    tri_tree *map = start_line(arena, "message");
    tri_tree_put_int(arena, map, "step", e->step);
    tri_tree_put_string(arena, map, "text", e->text);
    return map;
}

static tri_tree *end_line(tri_arena *arena, const tri_run_event *event) {
    tri_tree *map = start_line(arena, "end");
    tri_tree_put_string(arena, map, "status", event->end.status);
    if (event->end.reason) tri_tree_put_string(arena, map, "reason", event->end.reason);
    tri_tree_put_int(arena, map, "steps", event->end.steps);
    tri_tree_put(arena, map, "wall_s", seconds_tree(arena, event->end.wall_s));
    if (event->end.actions)
        tri_tree_put(arena, map, "actions", tri_tree_copy(arena, event->end.actions));
    return map;
}

tri_tree *tri_event_line(tri_arena *arena, const tri_run_event *event) {
    switch (event->kind) {
    case TRI_EVENT_TRAIN:
        return event->train.is_logged ? train_line(arena, &event->train) : NULL;
    case TRI_EVENT_VAL:
        return val_line(arena, "val", &event->val);
    case TRI_EVENT_TEST:
        return val_line(arena, "test", &event->val);
    case TRI_EVENT_CHANGE:
        return change_line(arena, &event->change);
    case TRI_EVENT_WARNING:
        return warning_line(arena, &event->warning);
    case TRI_EVENT_END:
        return end_line(arena, event);
    default:
        return NULL;
    }
}

static tri_status jsonl_event(void *state, const tri_run_event *event) {
    jsonl *j = state;
    tri_arena *arena = tri_arena_create(NULL, "line");
    const tri_tree *map = tri_event_line(arena, event);
    tri_status status = map ? write_line(j, arena, map) : TRI_OK;
    tri_arena_destroy(arena);
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
