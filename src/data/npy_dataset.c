// The data set "npy" (data.name): NumPy arrays whose first axis is the sample, one for each field.
// The arrays are the members of a .npz archive, or there are files for each field. Samples are
// read one by one; compressed arrays are unpacked into memory.
#include "base/quantity.h"
#include "base/search.h"
#include "data/content.h"
#include "data/kind.h"
#include "data/labels.h"
#include "format/npy.h"

#include <string.h>
#include <unistd.h>

// An array, with samples of a field from number `first` on.
typedef struct npy_part {
    tri_npy *array;
    int64_t first, samples;
} npy_part;

typedef struct npy_field {
    npy_part *parts; // in the order of their samples
    int count, capacity;
    int64_t elements; // of one sample
} npy_field;

typedef struct npy_state {
    npy_field fields[TRI_MAX_DATA_FIELDS];
    int count;
} npy_state;

static tri_status read_elements(const void *context, int64_t first, int64_t count, void *out) {
    return tri_npy_read(context, first, count, out);
}

// Finds the shape of one sample, and how many samples the array has.
static tri_status sample_shape(const char *name, const tri_npy *array, tri_shape *sample,
                               int64_t *samples) {
    tri_shape shape = *tri_npy_shape(array);
    if (shape.rank == 0 || shape.dims[0] == 0)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: has no samples: its first axis must be the sample",
                        tri_npy_name(array));
    *samples = shape.dims[0];
    *sample = (tri_shape){.rank = shape.rank - 1};
    memcpy(sample->dims, shape.dims + 1, (size_t)sample->rank * sizeof *sample->dims);
    if (!strcmp(name, "images") && sample->rank == 2) // grey images without an axis for channels
        *sample = tri_shape_of(1, sample->dims[0], sample->dims[1]);
    return TRI_OK;
}

// Adds an array to field `index`, which it begins if it is the field's first.
static tri_status add_part(tri_dataset *dataset, int index, const char *name, const char *path,
                           const char *member) {
    npy_state *state = dataset->state;
    npy_field *field = &state->fields[index];
    TRI_TRY(tri_content_check(path, "npy"));
    tri_npy *array;
    TRI_TRY(tri_npy_open(path, member, &array));
    tri_dataset_note_file(dataset, path);
    npy_part *last = field->count > 0 ? &field->parts[field->count - 1] : NULL;
    npy_part part = {array, last ? last->first + last->samples : 0, 0};
    // From here on npy_close closes the array, also after a failure.
    TRI_PUSH(dataset->arena, field->parts, field->count, field->capacity) = part;
    tri_shape sample;
    int64_t *samples = &field->parts[field->count - 1].samples;
    TRI_TRY(sample_shape(name, array, &sample, samples));
    if (field->count == 1)
        TRI_TRY(tri_dataset_add(dataset, tri_npy_name(array), name, tri_npy_dtype(array), &sample));
    tri_stored_field *stored = &dataset->fields[index];
    if (stored->stored_dtype != tri_npy_dtype(array) ||
        !tri_shape_equal(&stored->stored_shape, &sample))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: its samples have another type or shape than those of %s",
                        tri_npy_name(array), tri_npy_name(field->parts[0].array));
    field->elements = tri_shape_count(&sample);
    if (stored->field.dtype != TRI_I64) return TRI_OK;
    return tri_labels_scan(stored, &(tri_labels_source){.path = tri_npy_name(array),
                                                        .dtype = tri_npy_dtype(array),
                                                        .count = *samples * field->elements,
                                                        .per_sample = field->elements,
                                                        .read = read_elements,
                                                        .context = array});
}

static tri_status begin_field(tri_dataset *dataset, const char *source, int *index) {
    npy_state *state = dataset->state;
    if (state->count == TRI_MAX_DATA_FIELDS)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: more than %d arrays", source, TRI_MAX_DATA_FIELDS);
    *index = state->count++;
    return TRI_OK;
}

// Ends a field that has all its arrays: all fields have the same number of samples.
static tri_status end_field(tri_dataset *dataset, int index) {
    const npy_state *state = dataset->state;
    const npy_field *field = &state->fields[index];
    const npy_part *last = &field->parts[field->count - 1];
    int64_t samples = last->first + last->samples;
    if (index > 0 && samples != dataset->samples)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: %s%s, but %s has %lld", tri_npy_name(last->array),
                        field->count > 1 ? "with those before it, " : "",
                        tri_counted(samples, "sample"),
                        tri_npy_name(state->fields[0].parts[0].array), (long long)dataset->samples);
    dataset->samples = samples;
    return TRI_OK;
}

// Adds the field `name`: the array `member` of the archive `path` or, if `member` is NULL, the
// array in the file `path`.
static tri_status add_array(tri_dataset *dataset, const char *name, const char *path,
                            const char *member) {
    int index;
    TRI_TRY(begin_field(dataset, path, &index));
    TRI_TRY(add_part(dataset, index, name, path, member));
    return end_field(dataset, index);
}

// Adds all arrays of an archive as fields of the same names.
static tri_status add_archive(tri_dataset *dataset, const char *path) {
    const char *const *names;
    int count;
    TRI_TRY(tri_content_check(path, "npy"));
    TRI_TRY(tri_npy_list(dataset->arena, path, &names, &count));
    if (count == 0) {
        tri_npy *array;
        TRI_TRY(tri_npy_open(path, NULL, &array)); // rejects a file that is not an array
        tri_npy_close(array);
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: is one array: name its field, and the files of the others: "
                        "data.train='{images: x.npy, labels: y.npy}'",
                        path);
    }
    names = tri_dataset_field_order(dataset->arena, names, count);
    for (int i = 0; i < count; i++) {
        tri_field_row row;
        if (!tri_field_find(dataset->options->extra_fields, names[i], &row))
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s: its array '%s' is not named as a model input (%s): name its "
                            "field, data.train='{images: %s:%s}', or declare a field of your own "
                            "model, data.extra_fields='{%s: f32}'; arrays that such a map does not "
                            "name are left out",
                            path, names[i], tri_field_names(), path, names[i], names[i]);
        TRI_TRY(add_array(dataset, names[i], path, names[i]));
    }
    return TRI_OK;
}

// Adds the array that a text names: FILE, or FILE:ARRAY for an array in an archive.
static tri_status add_named(tri_dataset *dataset, int index, const char *name, const char *text) {
    const char *path = tri_dataset_path(dataset, text), *colon = strrchr(path, ':');
    if (!colon || access(path, F_OK) == 0) return add_part(dataset, index, name, path, NULL);
    return add_part(dataset, index, name,
                    tri_arena_printf(dataset->arena, "%.*s", (int)(colon - path), path), colon + 1);
}

// Adds a field from an entry of the map data.train: an array, or a list of arrays, whose samples
// follow each other.
static tri_status add_entry(tri_dataset *dataset, const tri_tree *entry) {
    int index, count = entry->kind == TRI_TREE_LIST ? entry->count : 1;
    bool is_good = entry->kind != TRI_TREE_MAP && count > 0;
    for (int i = 0; is_good && entry->kind == TRI_TREE_LIST && i < count; i++)
        is_good = entry->items[i]->kind == TRI_TREE_SCALAR;
    if (!is_good)
        return tri_tree_fail(entry, "'%s' has to be a file, FILE.npz:ARRAY, or a list of such",
                             entry->key);
    TRI_TRY(begin_field(dataset, entry->key, &index));
    for (int i = 0; i < count; i++)
        TRI_TRY(add_named(dataset, index, entry->key,
                          entry->kind == TRI_TREE_LIST ? entry->items[i]->text : entry->text));
    return end_field(dataset, index);
}

static tri_status npy_open(tri_dataset *dataset) {
    dataset->state = TRI_NEW(dataset->arena, npy_state);
    bool training = dataset->file_split == TRI_DATA_TRAIN;
    const tri_tree *files = tri_dataset_files(dataset);
    if (!files && training && dataset->options->path)
        return add_archive(dataset, dataset->options->path);
    if (!files)
        return TRI_FAIL(TRI_NOT_FOUND,
                        "data.%s is not set: x.npz, or {images: x.npy, labels: y.npy}",
                        training ? "train" : "test");
    if (files->kind == TRI_TREE_SCALAR) {
        const char *path = tri_dataset_path(dataset, files->text), *colon = strrchr(path, ':');
        if (colon && access(path, F_OK) != 0)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s: names one array: name its field, and those of the others: "
                            "data.train='{images: %s, labels: y.npy}'",
                            files->text, files->text);
        tri_dataset_note_source(dataset, path);
        return add_archive(dataset, path);
    }
    if (files->count == 0) return tri_tree_fail(files, "names no files: {images: x.npy, ...}");
    const char **names = TRI_NEW_ARRAY(dataset->arena, const char *, files->count);
    for (int i = 0; i < files->count; i++) names[i] = files->items[i]->key;
    names = tri_dataset_field_order(dataset->arena, names, files->count);
    for (int i = 0; i < files->count; i++)
        TRI_TRY(add_entry(dataset, tri_tree_get(files, names[i])));
    return TRI_OK;
}

static void npy_close(tri_dataset *dataset) {
    npy_state *state = dataset->state;
    for (int i = 0; i < state->count; i++)
        for (int k = 0; k < state->fields[i].count; k++)
            tri_npy_close(state->fields[i].parts[k].array);
}

// True if a part ends at `sample` or before it.
static bool ends_before(const void *context, int index, int64_t sample) {
    const npy_part *part = &((const npy_part *)context)[index];
    return part->first + part->samples <= sample;
}

static tri_status npy_read(const tri_dataset *dataset, void *worker, int64_t sample,
                           tri_sample_value *values) {
    const npy_state *state = dataset->state;
    for (int i = 0; i < dataset->field_count; i++) {
        const npy_field *field = &state->fields[i];
        const npy_part *part =
            &field->parts[tri_lower_bound(field->count, ends_before, field->parts, sample)];
        int64_t count = field->elements;
        values[i].data = values[i].buffer;
        TRI_TRY(tri_npy_read(part->array, (sample - part->first) * count, count, values[i].buffer));
    }
    return TRI_OK;
}

static tri_status npy_verify(const tri_dataset *dataset) {
    const npy_state *state = dataset->state;
    for (int i = 0; i < state->count; i++)
        for (int k = 0; k < state->fields[i].count; k++)
            TRI_TRY(tri_npy_verify(state->fields[i].parts[k].array));
    return TRI_OK;
}

const tri_dataset_kind tri_dataset_npy = {
    .open = npy_open,
    .close = npy_close,
    .read = npy_read,
    .verify = npy_verify,
};
