// The data set "npy" (data.name): NumPy arrays whose first axis is the sample, one for each field.
// The arrays are the members of a .npz archive, or there is one file for each field. Samples are
// read one by one; compressed arrays are unpacked into memory.
#include "base/quantity.h"
#include "data/content.h"
#include "data/kind.h"
#include "data/labels.h"
#include "format/npy.h"

#include <string.h>
#include <unistd.h>

typedef struct npy_state {
    tri_npy *arrays[TRI_MAX_DATA_FIELDS];  // by field: its array
    int64_t elements[TRI_MAX_DATA_FIELDS]; // by field: number of elements of one sample
    int count;
} npy_state;

static tri_status read_elements(const void *context, int64_t first, int64_t count, void *out) {
    return tri_npy_read(context, first, count, out);
}

// Adds the field `name`: the array `member` of the archive `path` or, if `member` is NULL, the
// array in the file `path`.
static tri_status add_array(tri_dataset *dataset, const char *name, const char *path,
                            const char *member) {
    npy_state *state = dataset->state;
    if (state->count == TRI_MAX_DATA_FIELDS)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: more than %d arrays", path, TRI_MAX_DATA_FIELDS);
    TRI_TRY(tri_content_check(path, "npy"));
    tri_npy *array;
    TRI_TRY(tri_npy_open(path, member, &array));
    int field = state->count;
    // From here on npy_close closes the array, also after a failure.
    state->arrays[state->count++] = array;
    tri_shape shape = *tri_npy_shape(array), sample = {.rank = shape.rank - 1};
    if (shape.rank == 0 || shape.dims[0] == 0)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: has no samples: its first axis must be the sample",
                        tri_npy_name(array));
    if (field > 0 && shape.dims[0] != dataset->samples)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: %s, but %s has %lld", tri_npy_name(array),
                        tri_counted(shape.dims[0], "sample"), tri_npy_name(state->arrays[0]),
                        (long long)dataset->samples);
    dataset->samples = shape.dims[0];
    memcpy(sample.dims, shape.dims + 1, (size_t)sample.rank * sizeof *sample.dims);
    if (!strcmp(name, "images") && sample.rank == 2) // grey images without an axis for channels
        sample = tri_shape_of(1, sample.dims[0], sample.dims[1]);
    TRI_TRY(tri_dataset_add(dataset, tri_npy_name(array), name, tri_npy_dtype(array), &sample));
    state->elements[field] = tri_shape_count(&sample);
    if (dataset->fields[field].field.dtype != TRI_I64) return TRI_OK;
    return tri_labels_scan(&dataset->fields[field],
                           &(tri_labels_source){.path = tri_npy_name(array),
                                                .dtype = tri_npy_dtype(array),
                                                .count = shape.dims[0] * state->elements[field],
                                                .per_sample = state->elements[field],
                                                .read = read_elements,
                                                .context = array});
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
    for (int i = 0; i < count; i++) {
        tri_field_row row;
        if (!tri_field_find(dataset->options->extra_fields, names[i], &row))
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s: its array '%s' is not named as a model input (%s): name its "
                            "field, data.train='{images: %s:%s}', or declare a field of your own "
                            "model, data.extra_fields='{%s: f32}'",
                            path, names[i], tri_field_names(), path, names[i], names[i]);
        TRI_TRY(add_array(dataset, names[i], path, names[i]));
    }
    return TRI_OK;
}

// Adds a field from an entry of the map data.train: FILE, or FILE:ARRAY for an array in an archive.
static tri_status add_entry(tri_dataset *dataset, const tri_tree *entry) {
    if (entry->kind != TRI_TREE_SCALAR)
        return tri_tree_fail(entry, "'%s' has to be a file, or FILE.npz:ARRAY", entry->key);
    const char *path = tri_dataset_path(dataset, entry->text), *colon = strrchr(path, ':');
    if (!colon || access(path, F_OK) == 0) return add_array(dataset, entry->key, path, NULL);
    return add_array(dataset, entry->key,
                     tri_arena_printf(dataset->arena, "%.*s", (int)(colon - path), path),
                     colon + 1);
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
        return add_archive(dataset, path);
    }
    if (files->count == 0) return tri_tree_fail(files, "names no files: {images: x.npy, ...}");
    for (int i = 0; i < files->count; i++) TRI_TRY(add_entry(dataset, files->items[i]));
    return TRI_OK;
}

static void npy_close(tri_dataset *dataset) {
    npy_state *state = dataset->state;
    for (int i = 0; i < state->count; i++) tri_npy_close(state->arrays[i]);
}

static tri_status npy_read(const tri_dataset *dataset, void *worker, int64_t sample,
                           tri_sample_value *values) {
    const npy_state *state = dataset->state;
    for (int field = 0; field < dataset->field_count; field++) {
        int64_t count = state->elements[field];
        values[field].data = values[field].buffer;
        TRI_TRY(tri_npy_read(state->arrays[field], sample * count, count, values[field].buffer));
    }
    return TRI_OK;
}

static tri_status npy_verify(const tri_dataset *dataset) {
    const npy_state *state = dataset->state;
    for (int i = 0; i < state->count; i++) TRI_TRY(tri_npy_verify(state->arrays[i]));
    return TRI_OK;
}

static bool npy_has_test(const tri_data_options *options) { return options->test != NULL; }

const tri_dataset_kind tri_dataset_npy = {
    .open = npy_open,
    .close = npy_close,
    .read = npy_read,
    .verify = npy_verify,
    .has_test = npy_has_test,
};
