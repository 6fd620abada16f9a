// `trireme compare`: the figures of runs beside each other, and in which settings their recipes
// differ, as a table.
#include "base/quantity.h"
#include "cli/cli.h"
#include "cli/shown_runs.h"
#include "views/differences.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { DEFAULT_COLUMNS = 80, LEAST_WIDTH = 12, MOST_WIDTH = 28, GAP = 2 };

// A table: the cells of each row, of which the first is its name.
typedef struct grid {
    tri_arena *arena;
    int runs;
    const char *const **rows; // a NULL row is an empty line
    int count, capacity;
} grid;

static const char **add_row(grid *g, const char *name) {
    const char **row = TRI_NEW_ARRAY(g->arena, const char *, g->runs + 1);
    row[0] = name;
    TRI_PUSH(g->arena, g->rows, g->count, g->capacity) = row;
    return row;
}

static void add_empty(grid *g) { TRI_PUSH(g->arena, g->rows, g->count, g->capacity) = NULL; }

static const char *point_text(tri_arena *arena, const views_point *point) {
    char step[32];
    snprintf(step, sizeof step, "%lld", (long long)point->step);
    return tri_arena_printf(arena, "%.5g at %s", point->value, step);
}

// The figures that any of the runs has, in the order in which they come first.
static int find_figures(tri_arena *arena, const views_report_run *runs, int count,
                        const char ***out) {
    const char **names = NULL;
    int found = 0, capacity = 0;
    for (int r = 0; r < count; r++) {
        for (int i = 0; i < runs[r].run->curve_count; i++) {
            const views_curve *c = &runs[r].run->curves[i];
            bool is_known = !views_curve_is_shown(c);
            for (int k = 0; k < found && !is_known; k++) is_known = !strcmp(names[k], c->name);
            if (!is_known) TRI_PUSH(arena, names, found, capacity) = c->name;
        }
    }
    *out = names;
    return found;
}

static void add_figure(grid *g, const views_report_run *runs, const char *name) {
    const char **last = add_row(g, name), **best = NULL;
    for (int r = 0; r < g->runs; r++) {
        const views_curve *c = views_curve_find(runs[r].run, name);
        if (!c || c->count == 0) continue;
        last[r + 1] = point_text(g->arena, &c->points[c->count - 1]);
        const views_point *p = views_curve_best(c);
        if (!p) continue;
        if (!best) best = add_row(g, "  best");
        best[r + 1] = point_text(g->arena, p);
    }
}

static void add_runs(grid *g, const views_report_run *runs) {
    const char **name = add_row(g, "run"), **status = add_row(g, "status");
    const char **step = add_row(g, "steps"), **time = add_row(g, "time");
    for (int r = 0; r < g->runs; r++) {
        name[r + 1] = runs[r].run->folder;
        status[r + 1] = views_status_name(runs[r].run->status);
        step[r + 1] = tri_arena_strdup(g->arena, tri_grouped((double)runs[r].run->step));
        time[r + 1] = tri_arena_strdup(g->arena, tri_duration_text(runs[r].run->wall_s));
    }
}

static int find_differences(tri_arena *arena, const views_report_run *runs, int count,
                            views_difference **out) {
    const tri_tree **recipes = TRI_NEW_ARRAY(arena, const tri_tree *, count);
    for (int r = 0; r < count; r++) recipes[r] = runs[r].run->recipe;
    return views_differences_find(arena, recipes, count, out);
}

static void add_differences(grid *g, const views_report_run *runs) {
    views_difference *found;
    int count = find_differences(g->arena, runs, g->runs, &found);
    if (count > 0) add_empty(g);
    for (int i = 0; i < count; i++) {
        const char **row = add_row(g, found[i].key);
        for (int r = 0; r < g->runs; r++)
            row[r + 1] = found[i].values[r] ? tri_yaml_flow(g->arena, found[i].values[r]) : NULL;
    }
}

static int terminal_columns(void) {
    struct winsize size;
    const char *text = getenv("COLUMNS");
    if (text && atoi(text) > 0) return atoi(text);
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return DEFAULT_COLUMNS;
}

static int width_of(const grid *g, int column, int most) {
    int width = column ? LEAST_WIDTH : 0;
    for (int i = 0; i < g->count; i++) {
        int length = g->rows[i] && g->rows[i][column] ? (int)strlen(g->rows[i][column]) : 0;
        if (length > width) width = length;
    }
    return width < most ? width : most;
}

// Prints a cell. Of a longer text the end is left out, of the name of a folder the beginning.
static void print_cell(const char *text, int width, bool keeps_end, bool is_last) {
    int length = (int)strlen(text);
    if (length <= width)
        printf("%*s%-*s", GAP, "", is_last ? 0 : width, text);
    else if (keeps_end)
        printf("%*s..%s", GAP, "", text + length - (width - 2));
    else
        printf("%*s%.*s..", GAP, "", width - 2, text);
}

// Prints the columns of as many runs as fit side by side, then those of the next ones below.
static void print_grid(const grid *g) {
    int columns = terminal_columns(), left = width_of(g, 0, 44);
    for (int first = 1, end; first <= g->runs; first = end) {
        int used = left;
        for (end = first; end <= g->runs; end++) {
            used += width_of(g, end, MOST_WIDTH) + GAP;
            if (end > first && used > columns) break;
        }
        if (first > 1) printf("\n");
        for (int i = 0; i < g->count; i++) {
            if (g->rows[i]) printf("%-*s", left, g->rows[i][0]);
            for (int c = first; g->rows[i] && c < end; c++)
                print_cell(g->rows[i][c] ? g->rows[i][c] : "-", width_of(g, c, MOST_WIDTH), i == 0,
                           c + 1 == end);
            printf("\n");
        }
    }
}

static tri_tree *point_tree(tri_arena *arena, const views_point *point) {
    char text[VIEWS_NUMBER_BYTES];
    if (!point) return tri_tree_null(arena);
    tri_tree *map = tri_tree_map(arena);
    const char *value = views_number(point->value, text);
    tri_tree_put_int(arena, map, "step", point->step);
    tri_tree_put(arena, map, "value",
                 (isfinite(point->value) ? tri_tree_plain : tri_tree_string)(arena, value));
    return map;
}

static tri_tree *run_tree(tri_arena *arena, const views_run *run) {
    tri_tree *map = tri_tree_map(arena), *figures = tri_tree_map(arena);
    tri_tree_put_string(arena, map, "folder", run->folder);
    tri_tree_put_string(arena, map, "name", run->name);
    tri_tree_put_string(arena, map, "status", views_status_name(run->status));
    if (run->reason) tri_tree_put_string(arena, map, "reason", run->reason);
    tri_tree_put_int(arena, map, "step", run->step);
    tri_tree_put(arena, map, "wall_s", tri_tree_double(arena, run->wall_s));
    for (int i = 0; i < run->curve_count; i++) {
        const views_curve *c = &run->curves[i];
        if (!views_curve_is_shown(c)) continue;
        tri_tree *figure = tri_tree_map(arena);
        tri_tree_put(arena, figure, "last",
                     point_tree(arena, c->count > 0 ? &c->points[c->count - 1] : NULL));
        tri_tree_put(arena, figure, "best", point_tree(arena, views_curve_best(c)));
        tri_tree_put(arena, figures, c->name, figure);
    }
    tri_tree_put(arena, map, "figures", figures);
    return map;
}

static void print_json(tri_arena *arena, const views_report_run *runs, int count) {
    tri_tree *map = tri_tree_map(arena), *list = tri_tree_list(arena);
    tri_tree *differences = tri_tree_list(arena);
    views_difference *found;
    for (int r = 0; r < count; r++) tri_tree_append(arena, list, run_tree(arena, runs[r].run));
    int differing = find_differences(arena, runs, count, &found);
    for (int i = 0; i < differing; i++) {
        tri_tree *row = tri_tree_map(arena), *values = tri_tree_list(arena);
        tri_tree_put_string(arena, row, "key", found[i].key);
        for (int r = 0; r < count; r++)
            tri_tree_append(arena, values,
                            found[i].values[r] ? tri_tree_copy(arena, found[i].values[r])
                                               : tri_tree_null(arena));
        tri_tree_put(arena, row, "values", values);
        tri_tree_append(arena, differences, row);
    }
    tri_tree_put(arena, map, "runs", list);
    tri_tree_put(arena, map, "differences", differences);
    printf("%s\n", tri_json_emit(arena, map));
}

static void print_table(tri_arena *arena, const views_report_run *runs, int count) {
    grid g = {.arena = arena, .runs = count};
    const char **names;
    add_runs(&g, runs);
    add_empty(&g);
    int figures = find_figures(arena, runs, count, &names);
    for (int i = 0; i < figures; i++) add_figure(&g, runs, names[i]);
    add_differences(&g, runs);
    print_grid(&g);
}

static const cli_flag flags[] = {{"json", NULL, "print everything as one JSON object", 0}, {0}};

static int run(const cli_context *context, int argc, char **argv) {
    (void)context;
    cli_arguments a;
    int code = cli_parse(&cli_compare, argc, argv, &a);
    if (code >= 0) return code;
    if (a.count == 0) return cli_usage(&cli_compare, "compare: which run folders?");
    tri_arena *arena = tri_arena_create(NULL, "command");
    views_report_run *runs;
    tri_status status = cli_open_runs(arena, a.words, a.count, &runs);
    if (status == TRI_OK) (cli_has(&a, "json") ? print_json : print_table)(arena, runs, a.count);
    code = status == TRI_OK ? 0 : cli_fail(status);
    tri_arena_destroy(arena);
    return code;
}

const cli_command cli_compare = {
    .name = "compare",
    .arguments = "RUN...",
    .help = "Show runs beside each other: figures, and in what their recipes differ.",
    .flags = flags,
    .more = "RUN is the folder of a run, which may still be going on. Each figure has its last\n"
            "value and, where it is known which is better, its best one, with their steps.\n",
    .examples = "trireme compare runs/a runs/b\n"
                "trireme compare runs/* --json\n",
    .run = run};
