// The data set "webdataset" (data.name): tar archives in which the files of a sample follow each
// other and share a key, the path up to the first dot of the file's name; the rest of the name, in
// any case, is the field. jpg, jpeg, png, webp, bmp, ppm and pgm hold the image, cls the class as a
// number; other fields are not read. (https://github.com/webdataset/webdataset, "The WebDataset
// Format")
#include "base/os.h"
#include "base/quantity.h"
#include "data/files.h"
#include "data/image_worker.h"
#include "format/tar.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { IMAGES, LABELS };

typedef struct archive {
    const char *path;
    int unpacked; // the unpacked copy of a compressed archive; -1: the archive is plain
} archive;

typedef struct sample {
    int32_t archive, label;
    int64_t offset, size; // of the image
} sample;

enum { NO_LABEL = -1 };

typedef struct web_state {
    archive *archives;
    int archive_count;
    sample *samples;
    int sample_count, sample_capacity;
    bool has_labels;
    int64_t classes;
    int64_t other_count; // files of archives that belong to no sample
    const char *first_other;
} web_state;

static tri_status find_archives(tri_dataset *dataset) {
    web_state *state = dataset->state;
    tri_data_files files = {0};
    TRI_TRY(tri_data_files_find(dataset, "tar files, such as train-{000000..000009}.tar", &files));
    state->archives = TRI_NEW_ARRAY(dataset->arena, archive, files.count);
    state->archive_count = files.count;
    for (int i = 0; i < files.count; i++) state->archives[i] = (archive){files.paths[i], -1};
    return TRI_OK;
}

// Splits a member's name into key and field. False: it has no dot, or begins with one, so it
// belongs to no sample.
static bool split_name(const char *name, size_t *key_length, const char **field) {
    const char *slash = strrchr(name, '/'), *dot = strchr(slash ? slash + 1 : name, '.');
    if (!dot || dot == (slash ? slash + 1 : name)) return false;
    *key_length = (size_t)(dot - name);
    *field = dot + 1;
    return true;
}

static bool is_image_field(const char *field) {
    static const char *const names[] = {"jpg", "jpeg", "png", "webp", "bmp", "ppm", "pgm"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcasecmp(field, names[i])) return true;
    return false;
}

static bool is_label(const char *name) {
    size_t length;
    const char *field;
    return split_name(name, &length, &field) && !strcasecmp(field, "cls");
}

// The sample whose members are being listed.
typedef struct listing {
    tri_dataset *dataset;
    web_state *state;
    int archive;
    const char *key; // NULL: none yet
    sample current;
    bool has_image, has_label;
    int64_t file_count; // of `key`
    char first_file[PATH_MAX];
} listing;

static void count_others(listing *l, int64_t count, const char *first) {
    web_state *state = l->state;
    if (state->other_count == 0)
        state->first_other =
            tri_arena_printf(l->dataset->arena, "%s: %s", state->archives[l->archive].path, first);
    state->other_count += count;
}

static tri_status end_sample(listing *l) {
    web_state *state = l->state;
    const char *path = state->archives[l->archive].path;
    if (!l->key) return TRI_OK;
    if (!l->has_image && !l->has_label) {
        count_others(l, l->file_count, l->first_file);
        return TRI_OK;
    }
    if (!l->has_image)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: sample '%s' has no image (jpg, jpeg, png or webp)",
                        path, l->key);
    if (state->sample_count == 0) state->has_labels = l->has_label;
    if (state->has_labels != l->has_label)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: sample '%s' has %s class (cls), unlike those before it",
                        path, l->key, l->has_label ? "a" : "no");
    TRI_PUSH(l->dataset->arena, state->samples, state->sample_count, state->sample_capacity) =
        l->current;
    return TRI_OK;
}

static tri_status read_label(listing *l, const char *text) {
    char *end;
    long long label = strtoll(text, &end, 10);
    while (isspace((unsigned char)*end)) end++;
    if (end == text || *end || label < 0 || label >= TRI_MAX_CLASSES)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: '%s.cls' is no class, a whole number from 0",
                        l->state->archives[l->archive].path, l->key);
    l->current.label = (int32_t)label;
    if (label >= l->state->classes) l->state->classes = label + 1;
    return TRI_OK;
}

static tri_status visit(void *context, const tri_tar_member *member, const char *text) {
    listing *l = context;
    size_t length;
    const char *field;
    if (!split_name(member->name, &length, &field)) {
        const char *slash = strrchr(member->name, '/');
        if ((slash ? slash[1] : *member->name) != '.') count_others(l, 1, member->name);
        return TRI_OK;
    }
    if (!l->key || strlen(l->key) != length || strncmp(l->key, member->name, length) != 0) {
        TRI_TRY(end_sample(l));
        l->key = tri_arena_printf(l->dataset->arena, "%.*s", (int)length, member->name);
        l->current = (sample){.archive = l->archive, .label = NO_LABEL};
        l->has_image = l->has_label = false;
        l->file_count = 0;
        snprintf(l->first_file, sizeof l->first_file, "%s", member->name);
    }
    l->file_count++;
    bool *has = is_image_field(field) ? &l->has_image : text ? &l->has_label : NULL;
    if (!has) return TRI_OK;
    if (*has)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: sample '%s' has a second %s: '%s'",
                        l->state->archives[l->archive].path, l->key, text ? "class" : "image",
                        member->name);
    *has = true;
    if (text) return read_label(l, text);
    l->current.offset = member->offset;
    l->current.size = member->size;
    return TRI_OK;
}

static tri_status add_fields(tri_dataset *dataset, const char *source, bool has_labels) {
    tri_shape image = tri_shape_of(3, TRI_ANY_SIZE, TRI_ANY_SIZE);
    TRI_TRY(tri_dataset_add(dataset, source, "images", TRI_U8, &image));
    if (!has_labels) return TRI_OK;
    return tri_dataset_add(dataset, source, "labels", TRI_I32, &(tri_shape){0});
}

static tri_status web_describe(tri_dataset *dataset) { return add_fields(dataset, "data", true); }

static tri_status web_open(tri_dataset *dataset) {
    web_state *state = TRI_NEW(dataset->arena, web_state);
    dataset->state = state;
    TRI_TRY(find_archives(dataset));
    for (int i = 0; i < state->archive_count; i++) {
        listing l = {.dataset = dataset, .state = state, .archive = i};
        TRI_TRY(tri_tar_list(state->archives[i].path, is_label, visit, &l,
                             &state->archives[i].unpacked));
        TRI_TRY(end_sample(&l));
    }
    if (state->sample_count == 0)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: has no samples: NAME.jpg with NAME.cls",
                        state->archives[0].path);
    dataset->samples = state->sample_count;
    if (state->other_count > 0)
        dataset->rest = tri_arena_printf(
            dataset->arena,
            "%s, the first is %s: a sample is NAME.jpg, .jpeg, .png or .webp, with NAME.cls, and "
            "NAME ends at its first dot",
            tri_counted(state->other_count, "file"), state->first_other);
    TRI_TRY(add_fields(dataset, state->archives[0].path, state->has_labels));
    if (state->has_labels) dataset->fields[LABELS].classes = state->classes;
    return TRI_OK;
}

static void web_close(tri_dataset *dataset) {
    web_state *state = dataset->state;
    for (int i = 0; i < state->archive_count; i++)
        if (state->archives[i].unpacked >= 0) tri_os.close(state->archives[i].unpacked);
}

static tri_status web_read(const tri_dataset *dataset, void *worker, int64_t number,
                           tri_sample_value *values) {
    const web_state *state = dataset->state;
    const sample *s = &state->samples[number];
    const archive *from = &state->archives[s->archive];
    char name[PATH_MAX];
    int fd = from->unpacked;
    snprintf(name, sizeof name, "%s: sample %lld", from->path, (long long)number);
    if (state->has_labels) values[LABELS].data = &s->label;
    if (fd < 0) TRI_TRY(tri_image_worker_open(worker, s->archive, from->path, &fd));
    return tri_image_worker_decode(worker, fd, s->offset, s->size, name, &values[IMAGES]);
}

static bool web_has_test(const tri_data_options *options) { return options->test != NULL; }

const tri_dataset_kind tri_dataset_webdataset = {
    .open = web_open,
    .close = web_close,
    .worker_create = tri_image_worker_create,
    .worker_destroy = tri_image_worker_destroy,
    .read = web_read,
    .has_test = web_has_test,
    .describe = web_describe,
    .is_decoded = true,
};
