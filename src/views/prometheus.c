// Keeps metrics.prom, the latest figures of a run, for Prometheus.
#include "views/prometheus.h"

#include "base/index.h"
#include "base/limits.h"
#include "base/os.h"
#include "views/report.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct prom_figure {
    const char *name;   // of the metric, "trireme_train_loss"
    const char *figure; // "train/loss"
    double value;
} prom_figure;

typedef struct prom_sink {
    tri_arena *arena;
    const char *labels; // run="…",folder="…"
    prom_figure *figures;
    int count, capacity;
    tri_index names, by_figure;
    int64_t step;
    const char *status;
    char path[PATH_MAX];
} prom_sink;

static void write_value(FILE *out, double value) {
    char text[VIEWS_NUMBER_BYTES];
    bool is_endless = isinf(value);
    fputs(is_endless ? (value > 0 ? "+Inf" : "-Inf") : views_number(value, text), out);
    fputc('\n', out);
}

static void write_escaped(FILE *out, const char *text, const char *special) {
    for (; *text; text++) {
        if (strchr(special, *text)) fputc('\\', out);
        fputc(*text == '\n' ? 'n' : *text, out);
    }
}

// Writes what precedes the sample of a metric, and the sample's name.
static void write_head(FILE *out, const char *name, const char *help) {
    fprintf(out, "# HELP %s ", name);
    write_escaped(out, help, "\\\n");
    fprintf(out, "\n# TYPE %s gauge\n%s", name, name);
}

// A metric's name has letters, digits, _ and : alone. Two figures whose names become the same stay
// two metrics.
static const char *metric_name(prom_sink *s, const char *figure) {
    char *name = tri_arena_printf(s->arena, "trireme_%s", figure);
    for (char *at = name; *at; at++)
        if (!isalnum((unsigned char)*at)) *at = '_';
    while (tri_index_find(&s->names, name, strlen(name)) != TRI_NOT_IN_INDEX)
        name = tri_arena_printf(s->arena, "%s_", name);
    return name;
}

static void set_figure(prom_sink *s, const char *figure, double value) {
    int at = tri_index_find(&s->by_figure, figure, strlen(figure));
    if (at != TRI_NOT_IN_INDEX) {
        s->figures[at].value = value;
        return;
    }
    prom_figure f = {metric_name(s, figure), tri_arena_strdup(s->arena, figure), value};
    tri_index_put(s->arena, &s->names, f.name, strlen(f.name), s->count);
    tri_index_put(s->arena, &s->by_figure, f.figure, strlen(f.figure), s->count);
    TRI_PUSH(s->arena, s->figures, s->count, s->capacity) = f;
}

static void write_all(FILE *out, const prom_sink *s) {
    char help[2 * TRI_MAX_NAME_BYTES + 32];
    for (int i = 0; i < s->count; i++) {
        snprintf(help, sizeof help, "The latest value of %s.", s->figures[i].figure);
        write_head(out, s->figures[i].name, help);
        fprintf(out, "{%s} ", s->labels);
        write_value(out, s->figures[i].value);
    }
    write_head(out, "trireme_step", "Steps done.");
    fprintf(out, "{%s} %lld\n", s->labels, (long long)s->step);
    write_head(out, "trireme_logged_timestamp_seconds", "When the latest figures were written.");
    fprintf(out, "{%s} %.3f\n", s->labels, (double)tri_os.realtime_ns() * 1e-9);
    write_head(out, "trireme_status", "1 with the status of the run as a label.");
    fprintf(out, "{%s,status=\"%s\"} 1\n", s->labels, s->status);
}

static tri_status replace_file(const prom_sink *s) {
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (memory) write_all(memory, s);
    tri_status status = TRI_OK;
    if (!memory || fclose(memory) != 0) status = TRI_FAIL(TRI_NO_MEMORY, "%s: no memory", s->path);
    if (status == TRI_OK) status = tri_os_replace_fleeting(s->path, text, size);
    free(text);
    return status;
}

static const char *labels_of(tri_arena *arena, const tri_run_info *info) {
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (!memory) return NULL;
    fputs("run=\"", memory);
    write_escaped(memory, info->name, "\\\"\n");
    fputs("\",folder=\"", memory);
    write_escaped(memory, info->folder, "\\\"\n");
    fputs("\"", memory);
    const char *labels = fclose(memory) == 0 ? tri_arena_strdup(arena, text) : NULL;
    free(text);
    return labels;
}

// Takes the figures that earlier processes had logged by the step from which this one goes on.
static tri_status take_earlier(prom_sink *s, const tri_run_info *info) {
    views_run *run;
    tri_arena *arena = tri_arena_create(NULL, "earlier figures");
    tri_status status = views_run_open(arena, info->folder, &run);
    if (status == TRI_OK) {
        views_run_take_back(run, info->first_step);
        for (int i = 0; i < run->curve_count; i++) {
            const views_curve *c = &run->curves[i];
            if (c->count > 0) set_figure(s, c->name, c->points[c->count - 1].value);
        }
    }
    tri_arena_destroy(arena);
    return status;
}

static void prom_close(void *state) {
    prom_sink *s = state;
    tri_arena_destroy(s->arena);
    free(s);
}

static tri_status prom_open(const tri_run_info *info, void **state) {
    prom_sink *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "metrics.prom: no memory");
    s->arena = tri_arena_create(NULL, "metrics.prom");
    s->labels = labels_of(s->arena, info);
    s->step = info->first_step;
    s->status = views_status_name(VIEWS_RUNNING);
    snprintf(s->path, sizeof s->path, "%s/metrics.prom", info->folder);
    tri_status status =
        s->labels ? take_earlier(s, info) : TRI_FAIL(TRI_NO_MEMORY, "metrics.prom: no memory");
    if (status == TRI_OK) status = replace_file(s);
    if (status == TRI_OK)
        *state = s;
    else
        prom_close(s);
    return status;
}

static void take_line(prom_sink *s, const tri_tree *line) {
    char figure[2 * TRI_MAX_NAME_BYTES];
    double value;
    const char *kind = tri_tree_get(line, "kind")->text;
    (void)tri_tree_to_int(tri_tree_get(line, "step"), &s->step);
    for (int i = 0; i < line->count; i++) {
        const char *key = line->items[i]->key;
        bool is_figure = strcmp(key, "step") != 0 && strcmp(key, "wall_s") != 0 &&
                         views_read_number(line->items[i], &value);
        if (is_figure && snprintf(figure, sizeof figure, "%s/%s", kind, key) < (int)sizeof figure)
            set_figure(s, figure, value);
    }
}

static tri_status prom_event(void *state, const tri_run_event *event) {
    prom_sink *s = state;
    bool has_figures = event->kind == TRI_EVENT_VAL || event->kind == TRI_EVENT_TEST ||
                       (event->kind == TRI_EVENT_TRAIN && event->train.is_logged);
    if (has_figures) {
        tri_arena *arena = tri_arena_create(NULL, "line");
        take_line(s, tri_event_line(arena, event));
        tri_arena_destroy(arena);
    } else if (event->kind == TRI_EVENT_END) {
        s->step = event->end.steps;
        s->status = event->end.status;
    } else {
        return TRI_OK;
    }
    return replace_file(s);
}

const tri_event_sink views_sink_prometheus = {
    .name = "metrics.prom", .open = prom_open, .event = prom_event, .close = prom_close};
