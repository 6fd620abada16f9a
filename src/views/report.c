// Writes the data of a report as JSON.
#include "views/report.h"

#include "base/os.h"
#include "views/differences.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <trireme/trireme.h>

const char *views_number(double value, char text[VIEWS_NUMBER_BYTES]) {
    if (isnan(value)) return "NaN";
    if (isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    snprintf(text, VIEWS_NUMBER_BYTES, "%.*g", TRI_FLOAT_DIGITS, value);
    if (strtod(text, NULL) != value) snprintf(text, VIEWS_NUMBER_BYTES, "%.17g", value);
    return text;
}

bool views_read_number(const tri_tree *value, double *out) {
    if (value && value->kind == TRI_TREE_SCALAR && value->quoted) {
        char *end;
        *out = strtod(value->text, &end);
        return end != value->text && !*end && !isfinite(*out);
    }
    return value && tri_tree_to_double(value, out);
}

static void write_number(FILE *out, double value) {
    char text[VIEWS_NUMBER_BYTES];
    const char *quote = isfinite(value) ? "" : "\"";
    fprintf(out, "%s%s%s", quote, views_number(value, text), quote);
}

static void write_string(FILE *out, const char *text) {
    char character[TRI_JSON_CHARACTER_BYTES];
    fputc('"', out);
    while (*text) {
        text += tri_json_character(text, character);
        fputs(character, out);
    }
    fputc('"', out);
}

static void write_text(FILE *out, const char *key, const char *text) { // a key before others
    fprintf(out, "\"%s\":", key);
    text ? write_string(out, text) : (void)fputs("null", out);
    fputc(',', out);
}

static void write_tree(FILE *out, tri_arena *arena, const tri_tree *tree) {
    fputs(tree ? tri_json_emit(arena, tree) : "null", out);
}

static void write_point(FILE *out, const char *key, const views_point *point) {
    fprintf(out, "\"%s\":", key);
    if (!point) {
        fputs("null,", out);
        return;
    }
    fprintf(out, "{\"step\":%lld,\"value\":", (long long)point->step);
    write_number(out, point->value);
    fputs("},", out);
}

static void write_curve(FILE *out, const views_curve *c) {
    fputc('{', out);
    write_text(out, "name", c->name);
    write_text(out, "kind", c->kind);
    write_text(out, "key", c->key);
    write_point(out, "last", c->count > 0 ? &c->points[c->count - 1] : NULL);
    write_point(out, "best", views_curve_best(c));
    fputs("\"steps\":[", out);
    for (int i = 0; i < c->count; i++)
        fprintf(out, "%s%lld", i ? "," : "", (long long)c->points[i].step);
    fputs("],\"values\":[", out);
    for (int i = 0; i < c->count; i++) {
        if (i) fputc(',', out);
        write_number(out, c->points[i].value);
    }
    fputs("],\"wall_s\":[", out);
    for (int i = 0; i < c->count; i++) fprintf(out, "%s%.6g", i ? "," : "", c->points[i].wall_s);
    fputs("]}", out);
}

static void write_marks(FILE *out, const views_run *run) {
    fputs("\"resumes\":[", out);
    for (int i = 0; i < run->resume_count; i++)
        fprintf(out, "%s{\"step\":%lld,\"wall_s\":%.6g}", i ? "," : "",
                (long long)run->resumes[i].step, run->resumes[i].wall_s);
    fputs("],\"checkpoints\":[", out);
    for (int i = 0; i < run->checkpoint_count; i++) {
        const views_checkpoint *c = &run->checkpoints[i];
        fputs(i ? ",{" : "{", out);
        write_text(out, "name", c->name);
        fprintf(out, "\"step\":%lld,\"best\":%s,\"last\":%s}", (long long)c->step,
                c->is_best ? "true" : "false", c->is_last ? "true" : "false");
    }
    fputs("],", out);
}

static void write_events(FILE *out, tri_arena *arena, const char *key, const views_event *events,
                         int count) {
    fprintf(out, "\"%s\":[", key);
    for (int i = 0; i < count; i++) {
        if (i) fputc(',', out);
        write_tree(out, arena, events[i].line);
    }
    fputs("],", out);
}

static void write_differences(FILE *out, tri_arena *arena, const char *key,
                              const tri_tree *const *recipes, int count) {
    views_difference *found;
    int differences = views_differences_find(arena, recipes, count, &found);
    fprintf(out, "\"%s\":[", key);
    for (int i = 0; i < differences; i++) {
        fputs(i ? ",{" : "{", out);
        write_text(out, "key", found[i].key);
        fputs("\"values\":[", out);
        for (int r = 0; r < count; r++) {
            if (r) fputc(',', out);
            write_tree(out, arena, found[i].values[r]);
        }
        fputs("]}", out);
    }
    fputc(']', out);
}

static void write_run(FILE *out, tri_arena *arena, const views_report_run *shown) {
    const views_run *run = shown->run;
    fputc('{', out);
    write_text(out, "name", run->name);
    write_text(out, "folder", run->folder);
    write_text(out, "status", views_status_name(run->status));
    write_text(out, "reason", run->reason);
    fprintf(out, "\"step\":%lld,\"wall_s\":%.6g,", (long long)run->step, run->wall_s);
    fprintf(out, "\"damaged_lines\":%lld,\"first_damaged_line\":%lld,",
            (long long)run->damaged_lines, (long long)run->first_damaged);
    fputs("\"curves\":[", out);
    for (int i = 0; i < run->curve_count; i++) {
        if (i) fputc(',', out);
        write_curve(out, &run->curves[i]);
    }
    fputs("],", out);
    write_marks(out, run);
    write_events(out, arena, "events", run->events, run->event_count);
    write_events(out, arena, "lists", run->lists, run->list_count);
    write_text(out, "no_recipe", run->no_recipe);
    fputs("\"recipe\":", out);
    write_tree(out, arena, run->recipe);
    fputc(',', out);
    write_text(out, "recipe_yaml", run->recipe ? tri_yaml_emit(arena, run->recipe) : NULL);
    const tri_tree *pair[] = {run->recipe, shown->defaults};
    fprintf(out, "\"has_defaults\":%s,", shown->defaults ? "true" : "false");
    write_differences(out, arena, "changed", pair, run->recipe && shown->defaults ? 2 : 0);
    fputc('}', out);
}

static const char *time_text(char text[32]) {
    time_t now = (time_t)(tri_os.realtime_ns() / 1000000000);
    struct tm parts;
    strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    return text;
}

void views_report_write_data(FILE *out, const views_report_run *runs, int count) {
    tri_arena *arena = tri_arena_create(NULL, "report");
    const tri_tree **recipes = TRI_NEW_ARRAY(arena, const tri_tree *, count);
    char made[32];
    fputc('{', out);
    write_text(out, "trireme", tri_version());
    write_text(out, "made", time_text(made));
    fputs("\"runs\":[", out);
    for (int i = 0; i < count; i++) {
        if (i) fputc(',', out);
        write_run(out, arena, &runs[i]);
        recipes[i] = runs[i].run->recipe;
    }
    fputs("],", out);
    write_differences(out, arena, "differences", recipes, count);
    fputs("}\n", out);
    tri_arena_destroy(arena);
}
