// The data set "lmdb" (data.name): an LMDB database with an image and its class in each value, as
// Caffe's Datum, or with an image file in each value. A class is then written in another value
// (keys image-NAME and label-NAME), or before the first slash of the key (CLASS/NAME). Opening
// lists the entries in the order of their keys, and finds where each image lies in the file.
#include "base/os.h"
#include "base/quantity.h"
#include "data/image_worker.h"
#include "format/datum.h"
#include "format/lmdb.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGES, LABELS, NO_LABEL = -1, DAMAGED = -1, LABEL_BYTES = 24, HEAD_BYTES = 64 };

typedef enum layout { LAYOUT_UNKNOWN, LAYOUT_DATUM, LAYOUT_IMAGE } layout;

typedef struct lmdb_sample {
    int64_t offset, size; // of the image, in the file; size DAMAGED: it is none
    int32_t label;
    bool is_encoded;
} lmdb_sample;

// A label with a key of its own.
typedef struct lmdb_label {
    const char *name; // what follows `label-` in the key
    int32_t label;
} lmdb_label;

typedef struct lmdb_state {
    const char *path;
    int fd;
    layout layout;
    lmdb_sample *samples;
    int sample_count, sample_capacity;
    const char **names; // by sample: what follows `image-` in the key; NULL: it has no such key
    int name_count, name_capacity;
    lmdb_label *labels;
    int label_count, label_capacity;
    bool has_labels;
    int64_t classes;
    tri_shape stored; // of images that are not encoded; rank 0: all are encoded
} lmdb_state;

// The key as text, for messages.
static const char *key_text(const tri_dataset *dataset, const tri_lmdb_entry *entry) {
    enum { SHOWN = 64 };
    size_t count = entry->key_bytes < SHOWN ? entry->key_bytes : SHOWN;
    char *text = tri_arena_strdup(dataset->arena,
                                  tri_arena_printf(dataset->arena, "%.*s", (int)count, entry->key));
    for (char *at = text; *at; at++)
        if (!isprint((unsigned char)*at)) *at = '?';
    return text;
}

static tri_status fail_entry(const tri_dataset *dataset, const tri_lmdb_entry *entry,
                             const char *why) {
    const lmdb_state *state = dataset->state;
    return TRI_FAIL(TRI_CORRUPT, "%s: key '%s': %s", state->path, key_text(dataset, entry), why);
}

static bool begins(const tri_lmdb_entry *entry, const char *word) {
    size_t length = strlen(word);
    return entry->key_bytes >= length && !memcmp(entry->key, word, length);
}

// Entries that describe the database.
static bool is_skipped(const tri_lmdb_entry *entry) {
    return begins(entry, "__") || begins(entry, "num-samples") || begins(entry, "num_samples");
}

// Reads a whole number of at most LABEL_BYTES characters. False: it is none that can be a class.
static bool read_class(const char *text, size_t length, int32_t *out) {
    char digits[LABEL_BYTES + 1] = "", *end;
    if (length == 0 || length > LABEL_BYTES) return false;
    memcpy(digits, text, length);
    long long label = strtoll(digits, &end, 10);
    while (isspace((unsigned char)*end)) end++;
    if (end == digits || *end || label < 0 || label >= TRI_MAX_CLASSES) return false;
    *out = (int32_t)label;
    return true;
}

static tri_status read_value(const lmdb_state *state, const tri_lmdb_entry *entry, size_t most,
                             uint8_t *out, size_t *size) {
    *size = entry->size < (int64_t)most ? (size_t)entry->size : most;
    return tri_os_pread_all(state->fd, out, *size, entry->offset, state->path);
}

// Reads the head of a value. TRI_BAD_INPUT: it is only a pointer to content that is kept elsewhere.
static tri_status read_head(const tri_dataset *dataset, const tri_lmdb_entry *entry,
                            uint8_t out[HEAD_BYTES], size_t *size) {
    const lmdb_state *state = dataset->state;
    TRI_TRY(read_value(state, entry, HEAD_BYTES, out, size));
    const char *key = key_text(dataset, entry);
    return tri_os_check_pointer(tri_arena_printf(dataset->arena, "%s: key '%s'", state->path, key),
                                out, *size);
}

// Names what a value is that cannot be read; NULL: it is an image file.
static const char *look(const uint8_t *head, size_t size) {
    static const struct {
        const char *bytes;
        size_t size;
        const char *what;
    } rows[] = {
        {"\xff\xd8\xff", 3, NULL},
        {"\x89PNG", 4, NULL},
        {"RIFF", 4, NULL},
        {"BM", 2, NULL},
        {"P5", 2, NULL},
        {"P6", 2, NULL},
        {"\x93NUMPY", 6, "a NumPy array"},
        {"\x80\x02", 2, "a Python pickle"},
        {"\x80\x03", 2, "a Python pickle"},
        {"\x80\x04", 2, "a Python pickle"},
        {"\x80\x05", 2, "a Python pickle"},
        {"\x04\x22\x4d\x18", 4, "compressed by LZ4"},
        {"\x28\xb5\x2f\xfd", 4, "compressed by zstd"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (size >= rows[i].size && !memcmp(head, rows[i].bytes, rows[i].size)) return rows[i].what;
    bool is_map = size > 0 && head[0] >= 0x81 && head[0] <= 0x9f; // maps and lists of few items
    return is_map ? "MessagePack" : "neither an image file nor Caffe's Datum";
}

static tri_status add_label_entry(tri_dataset *dataset, const tri_lmdb_entry *entry) {
    lmdb_state *state = dataset->state;
    uint8_t text[LABEL_BYTES + 1];
    size_t size;
    lmdb_label label;
    TRI_TRY(read_value(state, entry, sizeof text, text, &size));
    if (!read_class((const char *)text, size, &label.label))
        return fail_entry(dataset, entry, "its value is no class, a whole number from 0");
    label.name = tri_arena_printf(dataset->arena, "%.*s", (int)entry->key_bytes - 6,
                                  entry->key + strlen("label-"));
    TRI_PUSH(dataset->arena, state->labels, state->label_count, state->label_capacity) = label;
    return TRI_OK;
}

// Takes the class of an image file from its key: CLASS/NAME.
static void read_key(tri_dataset *dataset, const tri_lmdb_entry *entry, lmdb_sample *sample) {
    lmdb_state *state = dataset->state;
    const char *slash = memchr(entry->key, '/', entry->key_bytes);
    if (begins(entry, "image-"))
        TRI_PUSH(dataset->arena, state->names, state->name_count, state->name_capacity) =
            tri_arena_printf(dataset->arena, "%.*s", (int)entry->key_bytes - 6,
                             entry->key + strlen("image-"));
    else if (slash && isdigit((unsigned char)entry->key[0]))
        read_class(entry->key, (size_t)(slash - entry->key), &sample->label);
}

static tri_status read_datum(tri_dataset *dataset, const tri_lmdb_entry *entry,
                             lmdb_sample *sample) {
    lmdb_state *state = dataset->state;
    tri_datum datum;
    bool is_datum = tri_datum_read(state->fd, entry->offset, entry->size, state->path, &datum);
    uint8_t head[HEAD_BYTES];
    size_t size;
    if (!is_datum) TRI_TRY(read_head(dataset, entry, head, &size));
    if (is_datum && datum.has_floats && datum.size == 0)
        return fail_entry(dataset, entry, "a Datum with float_data, which is not read");
    if (!is_datum || !tri_datum_is_image(&datum))
        return fail_entry(dataset, entry, "is not Caffe's Datum, as the first value is");
    if (datum.has_label && (datum.label < 0 || datum.label >= TRI_MAX_CLASSES))
        return fail_entry(dataset, entry, "its label is no class, a whole number from 0");
    *sample = (lmdb_sample){.offset = entry->offset + datum.offset,
                            .size = datum.size,
                            .label = datum.has_label ? (int32_t)datum.label : NO_LABEL,
                            .is_encoded = datum.is_encoded};
    tri_shape shape = tri_shape_of(datum.channels, datum.height, datum.width);
    if (datum.is_encoded) shape = (tri_shape){0};
    if (state->sample_count == 0) state->stored = shape;
    if (tri_shape_equal(&shape, &state->stored)) return TRI_OK;
    return fail_entry(dataset, entry, "an image of another shape than the first one");
}

// Finds out from the first value what all values are.
static tri_status see_layout(tri_dataset *dataset, const tri_lmdb_entry *entry) {
    lmdb_state *state = dataset->state;
    uint8_t head[HEAD_BYTES];
    size_t size;
    tri_datum datum;
    TRI_TRY(read_head(dataset, entry, head, &size));
    const char *what = look(head, size);
    bool is_datum = tri_datum_read(state->fd, entry->offset, entry->size, state->path, &datum) &&
                    (tri_datum_is_image(&datum) || datum.has_floats);
    state->layout = what && is_datum ? LAYOUT_DATUM : LAYOUT_IMAGE;
    if (!what || is_datum) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: its value of key '%s' is %s: data.name=lmdb reads image files and Caffe's "
                    "Datum",
                    state->path, key_text(dataset, entry), what);
}

static tri_status visit(void *context, const tri_lmdb_entry *entry) {
    tri_dataset *dataset = context;
    lmdb_state *state = dataset->state;
    lmdb_sample sample = {entry->offset, entry->size, NO_LABEL, true};
    if (is_skipped(entry)) return TRI_OK;
    if (begins(entry, "label-") && state->layout != LAYOUT_DATUM)
        return add_label_entry(dataset, entry);
    if (state->layout == LAYOUT_UNKNOWN) TRI_TRY(see_layout(dataset, entry));
    if (state->layout == LAYOUT_IMAGE) {
        read_key(dataset, entry, &sample);
    } else {
        tri_status status = read_datum(dataset, entry, &sample);
        bool skips = dataset->options->on_error == TRI_DATA_SKIP && state->sample_count > 0;
        if (status == TRI_CORRUPT && skips)
            sample = (lmdb_sample){entry->offset, DAMAGED, state->has_labels ? 0 : NO_LABEL,
                                   state->stored.rank == 0};
        else
            TRI_TRY(status);
    }
    bool has_label = sample.label != NO_LABEL;
    if (state->sample_count == 0) state->has_labels = has_label;
    if (state->has_labels != has_label)
        return fail_entry(dataset, entry,
                          has_label ? "has a class, unlike those before it"
                                    : "has no class, unlike those before it");
    if (sample.label >= state->classes) state->classes = sample.label + 1;
    TRI_PUSH(dataset->arena, state->samples, state->sample_count, state->sample_capacity) = sample;
    return TRI_OK;
}

// Gives images of keys image-NAME the classes of the keys label-NAME. Both are in order.
static tri_status join_labels(lmdb_state *state) {
    if (state->label_count == 0) return TRI_OK;
    for (int i = 0; i < state->sample_count; i++) {
        bool is_same = i < state->label_count && state->name_count == state->sample_count &&
                       !strcmp(state->names[i], state->labels[i].name);
        if (!is_same)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s: its keys image-NAME and label-NAME do not match%s%s", state->path,
                            state->name_count > i ? ": image-" : "",
                            state->name_count > i ? state->names[i] : "");
        state->samples[i].label = state->labels[i].label;
        if (state->samples[i].label >= state->classes) state->classes = state->samples[i].label + 1;
    }
    state->has_labels = true;
    if (state->label_count == state->sample_count) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "%s: has %s, but %s", state->path,
                    tri_counted(state->sample_count, "image"),
                    tri_counted(state->label_count, "label"));
}

static tri_status add_fields(tri_dataset *dataset, const char *source, tri_shape stored,
                             bool has_labels) {
    if (stored.rank == 0) stored = tri_shape_of(3, TRI_ANY_SIZE, TRI_ANY_SIZE);
    TRI_TRY(tri_dataset_add(dataset, source, "images", TRI_U8, &stored));
    if (!has_labels) return TRI_OK;
    return tri_dataset_add(dataset, source, "labels", TRI_I32, &(tri_shape){0});
}

static tri_status lmdb_describe(tri_dataset *dataset) {
    return add_fields(dataset, "data", (tri_shape){0}, true);
}

// A database is a file, or a folder with the file data.mdb.
static tri_status find_path(tri_dataset *dataset, const char **out) {
    struct stat info;
    TRI_TRY(tri_dataset_find_path(dataset, "the LMDB database, a folder or a file", out));
    if (stat(*out, &info) == 0 && S_ISDIR(info.st_mode))
        *out = tri_arena_printf(dataset->arena, "%s/data.mdb", *out);
    return TRI_OK;
}

static tri_status lmdb_open(tri_dataset *dataset) {
    lmdb_state *state = TRI_NEW(dataset->arena, lmdb_state);
    dataset->state = state;
    state->fd = -1;
    TRI_TRY(find_path(dataset, &state->path));
    TRI_TRY(tri_os_check_file(state->path));
    TRI_TRY(tri_os_open_input(state->path, &state->fd));
    TRI_TRY(tri_lmdb_list(state->fd, state->path, visit, dataset));
    if (state->sample_count == 0) return TRI_FAIL(TRI_BAD_INPUT, "%s: has no samples", state->path);
    TRI_TRY(join_labels(state));
    dataset->samples = state->sample_count;
    TRI_TRY(add_fields(dataset, state->path, state->stored, state->has_labels));
    if (state->has_labels) dataset->fields[LABELS].classes = state->classes;
    return TRI_OK;
}

static void lmdb_close(tri_dataset *dataset) {
    const lmdb_state *state = dataset->state;
    if (state->fd >= 0) tri_os.close(state->fd);
}

static tri_status lmdb_read(const tri_dataset *dataset, void *worker, int64_t number,
                            tri_sample_value *values) {
    const lmdb_state *state = dataset->state;
    const lmdb_sample *s = &state->samples[number];
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s: sample %lld", state->path, (long long)number);
    if (s->size == DAMAGED) return TRI_FAIL(TRI_CORRUPT, "%s: its value is damaged", name);
    if (state->has_labels) values[LABELS].data = &s->label;
    if (s->is_encoded)
        return tri_image_worker_decode(worker, state->fd, s->offset, s->size, name,
                                       &values[IMAGES]);
    values[IMAGES].data = values[IMAGES].buffer;
    return tri_os_pread_all(state->fd, values[IMAGES].buffer, (size_t)s->size, s->offset,
                            state->path);
}

const tri_dataset_kind tri_dataset_lmdb = {
    .open = lmdb_open,
    .close = lmdb_close,
    .worker_create = tri_image_worker_create,
    .worker_destroy = tri_image_worker_destroy,
    .read = lmdb_read,
    .describe = lmdb_describe,
    .describes_guess = true,
    .is_decoded = true,
};
