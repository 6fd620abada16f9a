// Writes curves and hyperparameters to event files, which TensorBoard shows.
#include "observe/observe.h"

#include "base/limits.h"
#include "base/os.h"
#include "format/event.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct hparams {
    tri_arena *arena;
    tri_event_hparam *items;
    int count, capacity;
} hparams;

// Lists every value of the recipe with its path, as TensorBoard's table of hyperparameters shows
// them; a list becomes its YAML text.
static void flatten(hparams *h, const char *prefix, const tri_tree *node) {
    for (int i = 0; i < node->count; i++) {
        const tri_tree *item = node->items[i];
        const char *name = tri_arena_printf(h->arena, "%s%s", prefix, item->key);
        if (item->kind == TRI_TREE_MAP) {
            flatten(h, tri_arena_printf(h->arena, "%s.", name), item);
            continue;
        }
        if (item->kind == TRI_TREE_NULL) continue;
        tri_event_hparam hparam = {.name = name, .type = TRI_HPARAM_STRING};
        bool truth;
        if (tri_tree_to_bool(item, &truth)) {
            hparam.type = TRI_HPARAM_BOOL;
            hparam.number = truth;
        } else if (tri_tree_to_double(item, &hparam.number)) {
            hparam.type = TRI_HPARAM_NUMBER;
        } else {
            hparam.text =
                item->kind == TRI_TREE_SCALAR ? item->text : tri_yaml_flow(h->arena, item);
        }
        TRI_PUSH(h->arena, h->items, h->count, h->capacity) = hparam;
    }
}

static tri_status start_session(tri_event_writer *writer, const tri_run_info *info) {
    if (!info->recipe || info->recipe->kind != TRI_TREE_MAP) return TRI_OK;
    tri_arena *arena = tri_arena_create(NULL, "hparams");
    hparams h = {.arena = arena};
    flatten(&h, "", info->recipe);
    const char **tags = TRI_NEW_ARRAY(arena, const char *, info->metric_count + 2);
    int count = 0;
    tags[count++] = "train/loss";
    tags[count++] = "val/loss";
    for (int i = 0; i < info->metric_count; i++)
        tags[count++] = tri_arena_printf(arena, "val/%s", info->metrics[i]);
    tri_status status = tri_event_session_start(writer, h.items, h.count, tags, count);
    tri_arena_destroy(arena);
    return status;
}

static tri_status tensorboard_open(const tri_run_info *info, void **state) {
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s/tensorboard", info->folder);
    TRI_TRY(tri_os_make_folders(folder));
    tri_event_writer *writer;
    TRI_TRY(tri_event_writer_create(folder, &writer));
    tri_status status = tri_event_begin(writer, info->first_step + 1);
    if (status == TRI_OK) status = start_session(writer, info);
    if (status != TRI_OK) {
        tri_event_writer_destroy(writer);
        return status;
    }
    *state = writer;
    return TRI_OK;
}

static tri_status write_train(tri_event_writer *writer, const tri_train_event *e) {
    tri_event_scalar scalars[7] = {
        {"train/loss", (float)e->loss},
        {"train/lr", (float)e->lr},
        {"train/grad_norm", (float)e->grad_norm},
        {"train/samples_per_s", (float)e->samples_per_s},
        {"epoch", (float)e->epoch},
    };
    int count = 5; // and those of which the device's peak is known
    if (e->mfu > 0) scalars[count++] = (tri_event_scalar){"train/mfu", (float)e->mfu};
    if (e->mbu > 0) scalars[count++] = (tri_event_scalar){"train/mbu", (float)e->mbu};
    return tri_event_scalars(writer, e->step, scalars, count);
}

enum { MOST_CURVES = 100 }; // of one metric

static tri_status write_val(tri_event_writer *writer, const char *kind, const tri_val_event *e) {
    tri_arena *arena = tri_arena_create(NULL, "curves");
    tri_event_scalar *scalars = NULL;
    int count = 0, capacity = 0;
    TRI_PUSH(arena, scalars, count, capacity) =
        (tri_event_scalar){tri_arena_printf(arena, "%s/loss", kind), (float)e->loss};
    for (int i = 0; i < e->metric_count; i++) {
        const tri_metric_value *m = &e->metrics[i];
        const char *tag = tri_arena_printf(arena, "%s/%s", kind, m->name);
        if (!m->figures)
            TRI_PUSH(arena, scalars, count, capacity) = (tri_event_scalar){tag, (float)m->value};
        // Matrices, and lists that would be too many curves, are in metrics.jsonl alone.
        bool has_curves = m->figures && m->shape.rank == 1 && m->shape.dims[0] <= MOST_CURVES;
        for (int64_t k = 0; has_curves && k < m->shape.dims[0]; k++) {
            const char *name = k < m->names.count ? m->names.items[k]
                                                  : tri_arena_printf(arena, "%lld", (long long)k);
            TRI_PUSH(arena, scalars, count, capacity) = (tri_event_scalar){
                tri_arena_printf(arena, "%s/%s", tag, name), (float)m->figures[k]};
        }
    }
    tri_status status = tri_event_scalars(writer, e->step, scalars, count);
    tri_arena_destroy(arena);
    return status;
}

static tri_status tensorboard_event(void *state, const tri_run_event *event) {
    switch (event->kind) {
    case TRI_EVENT_TRAIN:
        return event->train.is_logged ? write_train(state, &event->train) : TRI_OK;
    case TRI_EVENT_VAL:
        return write_val(state, "val", &event->val);
    case TRI_EVENT_TEST:
        return write_val(state, "test", &event->val);
    case TRI_EVENT_END:
        return tri_event_session_end(state, !strcmp(event->end.status, "completed"));
    default:
        return TRI_OK;
    }
}

static void tensorboard_close(void *state) { tri_event_writer_destroy(state); }

const tri_event_sink tri_sink_tensorboard = {
    .name = "TensorBoard's curves",
    .open = tensorboard_open,
    .event = tensorboard_event,
    .close = tensorboard_close,
};
