// Pairs the tensors of a file with those of a sink by name. If a tensor has no partner, the error
// names the likely mistake.
#include "base/log.h"
#include "base/option.h"
#include "checkpoint/verify.h"
#include "tensor/half.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_LINES = 39 }; // besides that of the message

tri_dtype checkpoint_taken_dtype(const tri_state_tensor *tensor) {
    return tri_dtype_is_half(tensor->half) ? tensor->half : tensor->dtype;
}

typedef struct named {
    const char *name;
    int index;
} named;

static int compare(const void *a, const void *b) {
    return strcmp(((const named *)a)->name, ((const named *)b)->name);
}

static const named *find(const named *sorted, int count, const char *name) {
    named key = {.name = name};
    return count ? bsearch(&key, sorted, (size_t)count, sizeof key, compare) : NULL;
}

// Whether `whole` is a prefix, a dot and `end`: for example "module.fc.weight", as PyTorch names a
// parameter of a wrapped model, ends in "fc.weight".
static bool ends_in(const char *whole, const char *end) {
    size_t length = strlen(whole), part = strlen(end);
    return length > part && whole[length - part - 1] == '.' && !strcmp(whole + length - part, end);
}

// Text for the message: "; the nearest is '…'", or "" if no name is near.
static const char *nearest(tri_arena *arena, const char *name, const named *known, int count) {
    const char **names = TRI_NEW_ARRAY(arena, const char *, count);
    for (int i = 0; i < count; i++) names[i] = known[i].name;
    const char *near = NULL;
    for (int i = 0; i < count && !near; i++)
        if (ends_in(names[i], name) || ends_in(name, names[i])) near = names[i];
    if (!near) near = tri_option_nearest(name, names, count);
    return near ? tri_arena_printf(arena, "; the nearest is '%s'", near) : "";
}

// What does not match: `text` is a list that grows while it fits into a message, and `lines` those
// that fit into the lines before it.
typedef struct findings {
    tri_arena *arena;
    const char *text;
    int count, listed;
    const char *lines[MOST_LINES];
} findings;

static void add(findings *f, const char *finding) {
    enum { MOST_BYTES = TRI_MESSAGE_MAX_BYTES * 2 / 3 };
    if (f->count < MOST_LINES) f->lines[f->count] = finding;
    if (f->count++ > 0 && strlen(f->text) + strlen(finding) > MOST_BYTES) return;
    f->text = f->listed++ ? tri_arena_printf(f->arena, "%s; %s", f->text, finding) : finding;
}

// A list that does not fit into the message stands in lines before it.
static tri_status fail(const findings *f, const char *path, bool lists) {
    if (f->listed == f->count) return TRI_FAIL(TRI_BAD_INPUT, "%s: %s", path, f->text);
    int shown = f->count < MOST_LINES ? f->count : MOST_LINES;
    for (int i = 0; lists && i < shown; i++) tri_log_line(TRI_LOG_ERROR, "%s", f->lines[i]);
    if (!lists)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: %s; and %d more", path, f->text, f->count - f->listed);
    if (shown == f->count)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: its %d tensors that do not match the model are above",
                        path, f->count);
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: %d of its tensors that do not match the model are above; and %d more",
                    path, shown, f->count - shown);
}

static void compare_shape(findings *f, const tri_safetensors_entry *entry,
                          const tri_state_tensor *wanted) {
    if (tri_shape_equal(&entry->shape, &wanted->shape)) return;
    char there[128], here[128];
    add(f, tri_arena_printf(f->arena, "tensor '%s' is %s there, but %s in the model", entry->name,
                            tri_shape_text(&entry->shape, there, sizeof there),
                            tri_shape_text(&wanted->shape, here, sizeof here)));
}

tri_status checkpoint_match(tri_arena *arena, const char *path,
                            const tri_safetensors_entry *entries, int count,
                            const tri_state_sink *sink, const bool *may_lack, int **out) {
    named *there = TRI_NEW_ARRAY(arena, named, count);
    named *here = TRI_NEW_ARRAY(arena, named, sink->count);
    findings found = {.arena = arena};
    for (int i = 0; i < count; i++) there[i] = (named){entries[i].name, i};
    for (int i = 0; i < sink->count; i++) here[i] = (named){sink->tensors[i].name, i};
    qsort(there, (size_t)count, sizeof *there, compare);
    qsort(here, (size_t)sink->count, sizeof *here, compare);

    for (int i = 0; i < sink->count; i++) {
        const tri_state_tensor *tensor = &sink->tensors[i];
        if (find(there, count, tensor->name) || (may_lack && may_lack[i])) continue;
        add(&found, tri_arena_printf(arena, "has no tensor '%s'%s", tensor->name,
                                     nearest(arena, tensor->name, there, count)));
    }
    int *targets = TRI_NEW_ARRAY(arena, int, count);
    for (int i = 0; i < count; i++) {
        const named *wanted = find(here, sink->count, entries[i].name);
        if (!wanted) {
            add(&found, tri_arena_printf(arena, "the model has no tensor '%s'%s", entries[i].name,
                                         nearest(arena, entries[i].name, here, sink->count)));
            continue;
        }
        compare_shape(&found, &entries[i], &sink->tensors[wanted->index]);
        targets[i] = wanted->index;
    }
    *out = targets;
    if (found.count == 0) return TRI_OK;
    return fail(&found, path, sink->lists_mismatches);
}
