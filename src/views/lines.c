// Takes the lines of metrics.jsonl into curves and events.
#include "views/run.h"

#include "base/limits.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Kinds of lines that have no curves, although they have numbers.
static bool is_event(const char *kind) {
    static const char *const kinds[] = {"start", "change", "checkpoint", "message", "end"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kind, kinds[i])) return true;
    return false;
}

// Reads a number, or one of the strings that stand for what is not finite.
static bool read_number(const json_t *value, double *out) {
    const char *text = json_string_value(value);
    if (json_is_number(value))
        *out = json_number_value(value);
    else if (text && !strcmp(text, "NaN"))
        *out = NAN;
    else if (text && (!strcmp(text, "Infinity") || !strcmp(text, "-Infinity")))
        *out = *text == '-' ? -INFINITY : INFINITY;
    else
        return false;
    return true;
}

static views_curve *curve_of(views_run *run, const char *kind, const char *key) {
    char name[2 * TRI_MAX_NAME_BYTES];
    size_t length = (size_t)snprintf(name, sizeof name, "%s/%s", kind, key);
    if (length >= sizeof name) return NULL;
    int at = tri_index_find(&run->index, name, length);
    if (at != TRI_NOT_IN_INDEX) return &run->curves[at];
    views_curve curve = {.kind = tri_arena_strdup(run->arena, kind),
                         .key = tri_arena_strdup(run->arena, key),
                         .name = tri_arena_strdup(run->arena, name)};
    tri_index_put(run->arena, &run->index, curve.name, length, run->curve_count);
    TRI_PUSH(run->arena, run->curves, run->curve_count, run->curve_capacity) = curve;
    return &run->curves[run->curve_count - 1];
}

void views_run_take_back(views_run *run, int64_t step) {
    if (run->step > step) run->step = step;
    for (int i = 0; i < run->curve_count; i++) {
        views_curve *c = &run->curves[i];
        int kept = 0;
        for (int p = 0; p < c->count; p++)
            if (c->points[p].step <= step) c->points[kept++] = c->points[p];
        c->count = kept;
    }
}

static void begin_process(views_run *run, int64_t step) {
    run->earlier_s += run->process_s;
    run->process_s = 0;
    run->has_ended = false;
    if (step > 0)
        TRI_PUSH(run->arena, run->resumes, run->resume_count, run->resume_capacity) =
            (views_resume){.step = step, .wall_s = run->earlier_s};
}

static int64_t latest_step(const views_run *run, const char *name) {
    const views_curve *c = views_curve_find(run, name);
    return c && c->count > 0 ? c->points[c->count - 1].step : -1;
}

// Without a line of its own, the start of a process is seen by what does not go on: the time, the
// steps, or lines after an end.
static bool begins_process(const views_run *run, const char *kind, int64_t step, double wall_s) {
    if (run->has_ended) return true;
    if (strcmp(kind, "train") != 0) return false;
    return wall_s < run->process_s || step <= latest_step(run, "train/loss");
}

static void take_figures(views_run *run, const char *kind, const json_t *line, int64_t step) {
    const char *key;
    json_t *value;
    double number = NAN;
    bool has_time = read_number(json_object_get(line, "wall_s"), &number) && isfinite(number);
    if (begins_process(run, kind, step, has_time ? number : INFINITY)) {
        begin_process(run, step - 1);
        if (!strcmp(kind, "train")) views_run_take_back(run, step - 1);
    }
    if (has_time && number > run->process_s) run->process_s = number;
    run->wall_s = run->earlier_s + run->process_s;
    if (step > run->step) run->step = step;
    json_object_foreach((json_t *)line, key, value) {
        if (!strcmp(key, "step") || !strcmp(key, "wall_s") || !read_number(value, &number))
            continue;
        views_curve *c = curve_of(run, kind, key);
        if (!c) continue;
        c->is_unordered |= c->count > 0 && step <= c->points[c->count - 1].step;
        TRI_PUSH(run->arena, c->points, c->count, c->capacity) =
            (views_point){step, number, run->wall_s, run->line_count};
    }
}

static bool has_list(const json_t *line) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)line, key, value) if (json_is_array(value)) return true;
    return false;
}

static void take_event(views_run *run, const views_event *event) {
    const char *kind = event->kind;
    double seconds;
    bool starts = !strcmp(kind, "start"), ends = !strcmp(kind, "end");
    bool is_change = !strcmp(kind, "change"); // after the start, which older files do not tell of
    if (starts || (run->has_ended && is_change)) begin_process(run, event->step);
    if (starts) {
        views_run_take_back(run, event->step);
        run->step = event->step;
    }
    if (ends && tri_tree_to_double(tri_tree_get(event->line, "wall_s"), &seconds) &&
        seconds > run->process_s)
        run->process_s = seconds;
    run->has_ended = run->has_ended || ends;
    run->wall_s = run->earlier_s + run->process_s;
    TRI_PUSH(run->arena, run->events, run->event_count, run->event_capacity) = *event;
}

// Keeps the latest line of its kind that has a list.
static void take_list(views_run *run, const views_event *event) {
    for (int i = 0; i < run->list_count; i++)
        if (!strcmp(run->lists[i].kind, event->kind)) {
            run->lists[i] = *event;
            return;
        }
    TRI_PUSH(run->arena, run->lists, run->list_count, run->list_capacity) = *event;
}

// False: it is no line of a run.
static bool take_object(views_run *run, const json_t *line, const char *text, size_t size) {
    const char *kind = json_string_value(json_object_get(line, "kind"));
    if (!kind || !*kind || strchr(kind, '/')) return false;
    const json_t *step =
        json_object_get(line, is_event(kind) && json_object_get(line, "steps") ? "steps" : "step");
    views_event event = {.kind = tri_arena_strdup(run->arena, kind),
                         .step = json_is_integer(step) ? json_integer_value(step) : run->step};
    bool is_curve = !is_event(kind) && json_is_integer(step) && event.step >= 0;
    if (is_curve) take_figures(run, kind, line, event.step);
    tri_tree *tree;
    bool is_kept = is_event(kind) || (is_curve && has_list(line));
    if (!is_kept || tri_json_parse(run->arena, text, size, "metrics.jsonl", &tree) != TRI_OK)
        return true;
    event.line = tree;
    (is_curve ? take_list : take_event)(run, &event);
    return true;
}

static tri_status take_line(views_run *run, const char *text, size_t size) {
    json_error_t error;
    run->line_count++;
    json_t *line = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    bool is_taken = line && take_object(run, line, text, size);
    json_decref(line);
    if (is_taken) return TRI_OK;
    if (run->line_count == 1)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s/metrics.jsonl: another program's: its first line is no object with a "
                        "\"kind\", as those of a run of trireme are",
                        run->folder);
    if (run->damaged_lines++ == 0) run->first_damaged = run->line_count;
    return TRI_OK;
}

static int compare_points(const void *a, const void *b) {
    const views_point *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return (x->line > y->line) - (x->line < y->line);
}

// Orders the points by step. Of equal steps the one that was read last stays.
static void settle(views_curve *c) {
    qsort(c->points, (size_t)c->count, sizeof *c->points, compare_points);
    int kept = 0;
    for (int i = 0; i < c->count; i++) {
        bool is_repeated = i + 1 < c->count && c->points[i + 1].step == c->points[i].step;
        if (!is_repeated) c->points[kept++] = c->points[i];
    }
    c->count = kept;
    c->is_unordered = false;
}

tri_status views_run_take(views_run *run, const char *text, size_t size, size_t *taken) {
    tri_status status = TRI_OK;
    const char *at = text, *feed;
    while (status == TRI_OK && (feed = memchr(at, '\n', size - (size_t)(at - text)))) {
        status = take_line(run, at, (size_t)(feed - at));
        at = feed + 1;
    }
    *taken = (size_t)(at - text);
    for (int i = 0; i < run->curve_count; i++)
        if (run->curves[i].is_unordered) settle(&run->curves[i]);
    return status;
}
