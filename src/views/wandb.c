// Writes a run as an offline run of Weights & Biases: at once, or again and again while it goes on.
#include "views/wandb.h"

#include "base/os.h"
#include "checkpoint/find.h"
#include "format/wandb.h"
#include "views/report.h"

#include <limits.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ID_BYTES = 8, TIME_BYTES = 16 };

// When the run began, as Unix time; 0: nothing says it.
static time_t start_of(const tri_tree *line) {
    struct tm parts = {0};
    const tri_tree *text = tri_tree_get(line, "time");
    if (!text || !text->text || !strptime(text->text, "%Y-%m-%dT%H:%M:%SZ", &parts)) return 0;
    return timegm(&parts);
}

static const char *id_of(tri_arena *arena, const views_run *run, const tri_tree *start) {
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    unsigned char hash[EVP_MAX_MD_SIZE];
    const char *text = tri_arena_printf(arena, "%s\n%s", checkpoint_base_name(run->folder),
                                        start ? tri_json_emit(arena, start) : run->name);
    int done = EVP_Digest(text, strlen(text), hash, NULL, EVP_sha256(), NULL);
    TRI_ASSERT(done);
    char *id = tri_arena_strdup(arena, "00000000");
    for (int i = 0; i < ID_BYTES; i++) id[i] = letters[hash[i] % (sizeof letters - 1)];
    return id;
}

static const char *setting(const tri_tree *recipe, const char *path) {
    const tri_tree *node = tri_tree_find(recipe, path);
    return node && node->text && *node->text ? node->text : NULL;
}

static const char *json_number(tri_arena *arena, double value) {
    char text[VIEWS_NUMBER_BYTES];
    return tri_arena_strdup(arena, views_number(value, text));
}

typedef struct wandb_items {
    tri_wandb_item *items;
    int count, capacity;
} wandb_items;

static void add(tri_arena *arena, wandb_items *to, const char *key, const char *json) {
    TRI_PUSH(arena, to->items, to->count, to->capacity) = (tri_wandb_item){key, json};
}

// Adds what W&B wants of each row.
static void add_axes(tri_arena *arena, wandb_items *to, int64_t step, double wall_s,
                     double start_s) {
    add(arena, to, "_step", tri_arena_printf(arena, "%lld", (long long)step));
    add(arena, to, "_runtime", json_number(arena, wall_s));
    add(arena, to, "_timestamp", json_number(arena, start_s + wall_s));
}

// Writes a row for each step of which a curve has a point.
static void write_history(tri_wandb *file, const views_run *run, double start_s) {
    tri_arena *arena = tri_arena_create(NULL, "rows"), *row = tri_arena_create(NULL, "row");
    int *next = TRI_NEW_ARRAY(arena, int, run->curve_count);
    for (int64_t step = 0; step < INT64_MAX && !file->failed;) {
        wandb_items items = {0};
        double wall_s = 0;
        int64_t after = INT64_MAX;
        for (int i = 0; i < run->curve_count; i++) {
            const views_curve *c = &run->curves[i];
            if (next[i] < c->count && c->points[next[i]].step == step) {
                const views_point *p = &c->points[next[i]++];
                add(row, &items, c->name, json_number(row, p->value));
                wall_s = fmax(wall_s, p->wall_s);
            }
            if (next[i] < c->count && c->points[next[i]].step < after)
                after = c->points[next[i]].step;
        }
        if (items.count > 0) {
            add_axes(row, &items, step, wall_s, start_s);
            tri_wandb_history(file, items.items, items.count);
        }
        tri_arena_reset(row);
        step = after;
    }
    tri_arena_destroy(row);
    tri_arena_destroy(arena);
}

static void write_summary(tri_arena *arena, tri_wandb *file, const views_run *run, double start_s) {
    wandb_items items = {0};
    for (int i = 0; i < run->curve_count; i++) {
        const views_curve *c = &run->curves[i];
        if (c->count > 0)
            add(arena, &items, c->name, json_number(arena, c->points[c->count - 1].value));
    }
    add_axes(arena, &items, run->step, run->wall_s, start_s);
    tri_wandb_summary(file, items.items, items.count);
}

static void make_file(tri_arena *arena, tri_wandb *file, const views_run *run, const char *id,
                      double start_s) {
    const tri_tree *recipe = run->recipe;
    wandb_items config = {0};
    for (int i = 0; recipe && i < recipe->count; i++)
        add(arena, &config, recipe->items[i]->key, tri_json_emit(arena, recipe->items[i]));
    const char *project = setting(recipe, "log.wandb.project");
    tri_wandb_begin(file, &(tri_wandb_run){.id = id,
                                           .project = project ? project : "trireme",
                                           .group = setting(recipe, "log.wandb.group"),
                                           .name = run->name,
                                           .config = config.items,
                                           .config_count = config.count,
                                           .start_s = start_s});
    write_history(file, run, start_s);
    write_summary(arena, file, run, start_s);
    // A run that was stopped did not fail: it goes on later.
    if (run->status != VIEWS_RUNNING)
        tri_wandb_exit(file, run->status == VIEWS_FAILED, run->wall_s);
}

tri_status views_wandb_write(tri_arena *arena, const views_run *run, const char *home,
                             const char **folder) {
    const tri_tree *start = NULL;
    for (int i = 0; i < run->event_count && !start; i++)
        if (!strcmp(run->events[i].kind, "start")) start = run->events[i].line;
    time_t start_s = start_of(start);
    char time[TIME_BYTES];
    struct tm parts;
    strftime(time, sizeof time, "%Y%m%d_%H%M%S", gmtime_r(&start_s, &parts));
    const char *id = id_of(arena, run, start);
    *folder = tri_arena_printf(arena, "%s/offline-run-%s-%s", home, time, id);
    TRI_TRY(tri_os_make_folders(tri_arena_printf(arena, "%s/files", *folder)));
    const char *path = tri_arena_printf(arena, "%s/run-%s.wandb", *folder, id);
    tri_wandb file = {0};
    make_file(arena, &file, run, id, (double)start_s);
    tri_status status = file.failed ? TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for it", path)
                                    : tri_os_replace_fleeting(path, file.data, file.size);
    // wandb leaves out what it has marked as uploaded, even if the file is another by now.
    if (status == TRI_OK) (void)tri_os.unlink(tri_arena_printf(arena, "%s.synced", path));
    tri_wandb_free(&file);
    return status;
}

typedef struct wandb_sink {
    const char *folder; // of the run
    double due_s;       // when the file may be made again
} wandb_sink;

static tri_status wandb_open(const tri_run_info *info, void **state) {
    wandb_sink *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "wandb: no memory");
    s->folder = info->folder;
    *state = s;
    return TRI_OK;
}

// `end`: how the run ended, NULL: it goes on.
static tri_status write_again(const wandb_sink *s, const char *end) {
    views_run *run;
    const char *folder;
    tri_arena *arena = tri_arena_create(NULL, "offline run");
    const char *home = tri_arena_printf(arena, "%s/wandb", s->folder);
    tri_status status = views_run_open(arena, s->folder, &run);
    if (status == TRI_OK) {
        // This process, which holds the folder, makes the run look as if it went on.
        if (end) (void)views_status_find(end, &run->status);
        status = views_wandb_write(arena, run, home, &folder);
    }
    tri_arena_destroy(arena);
    return status;
}

static tri_status wandb_event(void *state, const tri_run_event *event) {
    enum { SHARE = 100, LEAST_S = 5 };
    wandb_sink *s = state;
    bool has_ended = event->kind == TRI_EVENT_END;
    bool has_figures = event->kind == TRI_EVENT_VAL || event->kind == TRI_EVENT_TEST ||
                       (event->kind == TRI_EVENT_TRAIN && event->train.is_logged);
    double begin_s = tri_os_seconds();
    if (!has_ended && !(has_figures && begin_s >= s->due_s)) return TRI_OK;
    tri_status status = write_again(s, has_ended ? event->end.status : NULL);
    double end_s = tri_os_seconds();
    s->due_s = end_s + fmax(SHARE * (end_s - begin_s), LEAST_S);
    return status;
}

static void wandb_close(void *state) { free(state); }

const tri_event_sink views_sink_wandb = {.name = "the offline run of W&B",
                                         .open = wandb_open,
                                         .event = wandb_event,
                                         .close = wandb_close};
