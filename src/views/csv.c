// Writes the curves of a run as CSV: all of them, or row by row while the run goes on.
#include "views/csv.h"

#include "base/limits.h"
#include "base/os.h"
#include "views/report.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// The columns behind kind, step and wall_s.
typedef struct csv_columns {
    tri_arena *arena;
    const char **keys;
    int count, capacity;
    tri_index index;
} csv_columns;

static void add_column(csv_columns *c, const char *key) {
    static const char *const fixed[] = {"kind", "step", "wall_s"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (!strcmp(key, fixed[i])) return;
    if (tri_index_find(&c->index, key, strlen(key)) != TRI_NOT_IN_INDEX) return;
    const char *copy = tri_arena_strdup(c->arena, key);
    tri_index_put(c->arena, &c->index, copy, strlen(copy), c->count);
    TRI_PUSH(c->arena, c->keys, c->count, c->capacity) = copy;
}

static void write_text(FILE *out, const char *text) {
    if (!text[strcspn(text, ",\"\r\n")]) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++) *text == '"' ? (void)fputs("\"\"", out) : (void)fputc(*text, out);
    fputc('"', out);
}

static void write_number(FILE *out, double value) {
    char text[VIEWS_NUMBER_BYTES];
    fputs(views_number(value, text), out);
}

static void write_head(FILE *out, const csv_columns *c) {
    fputs("kind,step,wall_s", out);
    for (int i = 0; i < c->count; i++) {
        fputc(',', out);
        write_text(out, c->keys[i]);
    }
    fputc('\n', out);
}

static void begin_row(FILE *out, const char *kind, int64_t step, double wall_s) {
    write_text(out, kind);
    fprintf(out, ",%lld,%.6g", (long long)step, wall_s);
}

// A row of the table: where in metrics.jsonl it is.
typedef struct csv_row {
    int64_t step, line;
    double wall_s;
    const char *kind;
} csv_row;

static int compare_rows(const void *a, const void *b) {
    const csv_row *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return (x->line > y->line) - (x->line < y->line);
}

// Finds the rows: each kind and step of which any curve has a point, once.
static int find_rows(tri_arena *arena, const views_run *run, csv_row **out) {
    csv_row *rows = NULL;
    int count = 0, capacity = 0, kept = 0;
    for (int i = 0; i < run->curve_count; i++)
        for (int p = 0; p < run->curves[i].count; p++) {
            const views_point *point = &run->curves[i].points[p];
            TRI_PUSH(arena, rows, count, capacity) =
                (csv_row){point->step, point->line, point->wall_s, run->curves[i].kind};
        }
    if (count > 0) qsort(rows, (size_t)count, sizeof *rows, compare_rows);
    for (int i = 0; i < count; i++) {
        bool is_new = true;
        for (int k = kept - 1; k >= 0 && is_new && rows[k].step == rows[i].step; k--)
            is_new = strcmp(rows[k].kind, rows[i].kind) != 0;
        if (is_new) rows[kept++] = rows[i];
    }
    *out = rows;
    return kept;
}

// Finds the curve that each column has in rows of this kind; TRI_NOT_IN_INDEX: none.
static void find_curves(const views_run *run, const csv_columns *c, const char *kind, int *out) {
    char name[2 * TRI_MAX_NAME_BYTES];
    for (int i = 0; i < c->count; i++) {
        size_t length = (size_t)snprintf(name, sizeof name, "%s/%s", kind, c->keys[i]);
        out[i] = tri_index_find(&run->index, name, length);
    }
}

static void write_rows(FILE *out, tri_arena *arena, const views_run *run, const csv_columns *c) {
    csv_row *rows;
    int count = find_rows(arena, run, &rows);
    // For each curve the point that comes next: its points have the order of the rows.
    int *next = TRI_NEW_ARRAY(arena, int, run->curve_count);
    int *curve_of = TRI_NEW_ARRAY(arena, int, c->count);
    for (int r = 0; r < count; r++) {
        begin_row(out, rows[r].kind, rows[r].step, rows[r].wall_s);
        if (r == 0 || strcmp(rows[r - 1].kind, rows[r].kind) != 0)
            find_curves(run, c, rows[r].kind, curve_of);
        for (int i = 0; i < c->count; i++) {
            fputc(',', out);
            if (curve_of[i] == TRI_NOT_IN_INDEX) continue;
            const views_curve *curve = &run->curves[curve_of[i]];
            int *at = &next[curve_of[i]];
            while (*at < curve->count && curve->points[*at].step < rows[r].step) ++*at;
            if (*at < curve->count && curve->points[*at].step == rows[r].step)
                write_number(out, curve->points[*at].value);
        }
        fputc('\n', out);
    }
}

// Replaces the file by what `run` has (NULL: no rows) in these columns.
static tri_status write_table(const views_run *run, const csv_columns *c, const char *path) {
    char *text = NULL;
    size_t size = 0;
    tri_arena *arena = tri_arena_create(NULL, "rows");
    FILE *memory = open_memstream(&text, &size);
    if (memory) write_head(memory, c);
    if (memory && run) write_rows(memory, arena, run, c);
    tri_status status = TRI_OK;
    if (!memory || fclose(memory) != 0)
        status = TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for the table", path);
    if (status == TRI_OK) status = tri_os_replace_fleeting(path, text, size);
    free(text);
    tri_arena_destroy(arena);
    return status;
}

static void add_columns_of(csv_columns *c, const views_run *run) {
    for (int i = 0; i < run->curve_count; i++) add_column(c, run->curves[i].key);
}

tri_status views_csv_write(const views_run *run, const char *path) {
    csv_columns columns = {.arena = tri_arena_create(NULL, "columns")};
    add_columns_of(&columns, run);
    tri_status status = write_table(run, &columns, path);
    tri_arena_destroy(columns.arena);
    return status;
}

typedef struct csv_sink {
    csv_columns columns;
    double earlier_s; // seconds of training of the processes before
    double wall_s;    // seconds of this process up to its latest line
    int64_t size;     // bytes of all complete rows
    int fd;
    char path[PATH_MAX];
} csv_sink;

// Writes the file again from what metrics.jsonl has by now: nothing, or what earlier processes have
// logged up to the step from which this one goes on.
static tri_status begin_table(csv_sink *s, tri_arena *arena, const tri_run_info *info) {
    static const char *const keys[] = {"epoch",     "loss",    "lr",
                                       "grad_norm", "samples", "samples_per_s"};
    views_run *run;
    TRI_TRY(views_run_open(arena, info->folder, &run));
    views_run_take_back(run, info->first_step);
    s->earlier_s = run->wall_s;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) add_column(&s->columns, keys[i]);
    if (info->arithmetic_s > 0) add_column(&s->columns, "mfu");
    if (info->traffic_s > 0) add_column(&s->columns, "mbu");
    for (int i = 0; i < info->metric_count; i++) add_column(&s->columns, info->metrics[i]);
    add_columns_of(&s->columns, run);
    return write_table(run, &s->columns, s->path);
}

static tri_status open_table(csv_sink *s, const tri_run_info *info) {
    struct stat state;
    tri_arena *arena = tri_arena_create(NULL, "earlier rows");
    tri_status status = begin_table(s, arena, info);
    tri_arena_destroy(arena);
    TRI_TRY(status);
    s->fd = tri_os.open(s->path, O_WRONLY | O_APPEND | O_CLOEXEC, 0);
    if (s->fd < 0 || fstat(s->fd, &state) != 0) return tri_os_fail("write", s->path);
    s->size = state.st_size;
    return TRI_OK;
}

static void csv_close(void *state) {
    csv_sink *s = state;
    if (s->fd >= 0) tri_os.close(s->fd);
    tri_arena_destroy(s->columns.arena);
    free(s);
}

static tri_status csv_open(const tri_run_info *info, void **state) {
    csv_sink *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "metrics.csv: no memory");
    s->fd = -1;
    s->columns.arena = tri_arena_create(NULL, "metrics.csv");
    snprintf(s->path, sizeof s->path, "%s/metrics.csv", info->folder);
    tri_status status = open_table(s, info);
    if (status == TRI_OK)
        *state = s;
    else
        csv_close(s);
    return status;
}

static void write_line(FILE *out, const csv_sink *s, const tri_tree *line, int64_t step,
                       double wall_s) {
    double number;
    begin_row(out, tri_tree_get(line, "kind")->text, step, s->earlier_s + wall_s);
    for (int i = 0; i < s->columns.count; i++) {
        fputc(',', out);
        if (views_read_number(tri_tree_get(line, s->columns.keys[i]), &number))
            write_number(out, number);
    }
    fputc('\n', out);
}

static tri_status csv_event(void *state, const tri_run_event *event) {
    csv_sink *s = state;
    char *text = NULL;
    size_t size = 0;
    int64_t step;
    tri_arena *arena = tri_arena_create(NULL, "row");
    const tri_tree *line = tri_event_line(arena, event);
    bool has_row = line && event->kind != TRI_EVENT_CHANGE && event->kind != TRI_EVENT_END &&
                   tri_tree_to_int(tri_tree_get(line, "step"), &step);
    FILE *memory = has_row ? open_memstream(&text, &size) : NULL;
    if (memory) {
        const tri_tree *seconds = tri_tree_get(line, "wall_s");
        if (seconds) (void)tri_tree_to_double(seconds, &s->wall_s);
        write_line(memory, s, line, step, s->wall_s);
    }
    tri_arena_destroy(arena);
    if (!has_row) return TRI_OK;
    tri_status status = TRI_OK;
    if (!memory || fclose(memory) != 0) status = TRI_FAIL(TRI_NO_MEMORY, "metrics.csv: no memory");
    if (status == TRI_OK) status = tri_os_write_all(s->fd, text, size, s->path);
    if (status == TRI_OK)
        s->size += (int64_t)size;
    else if (memory) // so that no part of a row stays
        (void)!tri_os.ftruncate(s->fd, s->size);
    free(text);
    return status;
}

const tri_event_sink views_sink_csv = {
    .name = "metrics.csv", .open = csv_open, .event = csv_event, .close = csv_close};
