// The data set "hdf5" (data.name): arrays in an HDF5 file whose first axis is the sample, one for
// each field. data.fields names them; without it, each field is the array of its own name. Arrays
// that lie in one piece are read directly, by any number of threads at a time; for those in chunks
// the library is called, by one thread at a time.
#include "base/module.h"
#include "base/os.h"
#include "base/quantity.h"
#include "data/content.h"
#include "data/kind.h"
#include "data/labels.h"
#include "data/unused.h"
#include "format/hdf5/hdf5.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct hdf5_field {
    const char *name; // of the array
    tri_hdf5_array *array;
    tri_hdf5_info info;
    int64_t item_bytes; // size of one sample
} hdf5_field;

typedef struct hdf5_state {
    const tri_hdf5 *module;
    const char *path;
    int fd;
    int count;
    hdf5_field fields[TRI_MAX_DATA_FIELDS];
} hdf5_state;

// libhdf5 may not be called by two threads at a time, whatever they read.
static pthread_mutex_t library = PTHREAD_MUTEX_INITIALIZER;

static tri_status read_items(const hdf5_state *state, const hdf5_field *field, int64_t first,
                             int64_t count, void *out) {
    char why[TRI_HDF5_WHY_BYTES];
    if (field->info.offset >= 0)
        return tri_os_pread_all(state->fd, out, (size_t)(count * field->item_bytes),
                                field->info.offset + first * field->item_bytes, state->path);
    pthread_mutex_lock(&library);
    tri_status status = state->module->read(field->array, first, count, out, why);
    pthread_mutex_unlock(&library);
    if (status == TRI_OK) return TRI_OK;
    return TRI_FAIL(status, "%s: array '%s': %s", state->path, field->name, why);
}

typedef struct label_source {
    const hdf5_state *state;
    const hdf5_field *field;
    int64_t per_sample;
} label_source;

// Reads elements, which may begin and end within samples.
static tri_status read_labels(const void *context, int64_t first, int64_t count, void *out) {
    const label_source *source = context;
    int64_t per_sample = source->per_sample, item = first / per_sample,
            items = (first + count + per_sample - 1) / per_sample - item;
    char *samples = malloc((size_t)(items * source->field->item_bytes));
    if (!samples) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to check it", source->state->path);
    int64_t bytes = source->field->item_bytes / per_sample;
    tri_status status = read_items(source->state, source->field, item, items, samples);
    if (status == TRI_OK)
        memcpy(out, samples + (first - item * per_sample) * bytes, (size_t)(count * bytes));
    free(samples);
    return status;
}

static tri_status scan_labels(tri_dataset *dataset, const hdf5_state *state, int index) {
    const hdf5_field *field = &state->fields[index];
    tri_stored_field *stored = &dataset->fields[index];
    int64_t per_sample = tri_shape_count(&stored->stored_shape);
    label_source source = {state, field, per_sample};
    return tri_labels_scan(stored, &(tri_labels_source){.path = state->path,
                                                        .dtype = field->info.dtype,
                                                        .count = dataset->samples * per_sample,
                                                        .per_sample = per_sample,
                                                        .read = read_labels,
                                                        .context = &source});
}

static tri_status open_array(hdf5_state *state, const char *name, hdf5_field *out) {
    char why[TRI_HDF5_WHY_BYTES];
    pthread_mutex_lock(&library);
    tri_status status = state->module->open(state->path, name, &out->array, &out->info, why);
    pthread_mutex_unlock(&library);
    out->name = name;
    if (status == TRI_OK) return TRI_OK;
    if (status == TRI_CORRUPT) return TRI_FAIL(status, "%s: %s", state->path, why);
    return TRI_FAIL(status, "%s: array '%s': %s", state->path, name, why);
}

static tri_status add_field(tri_dataset *dataset, const char *field_name, const char *array_name) {
    hdf5_state *state = dataset->state;
    hdf5_field *field = &state->fields[state->count];
    TRI_TRY(open_array(state, array_name, field));
    state->count++; // from here on hdf5_close closes it
    const tri_shape *shape = &field->info.shape;
    if (shape->rank == 0 || shape->dims[0] == 0)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: array '%s' has no samples: its first axis must be the sample",
                        state->path, array_name);
    if (state->count > 1 && shape->dims[0] != dataset->samples)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: array '%s' has %s, but '%s' has %lld", state->path,
                        array_name, tri_counted(shape->dims[0], "sample"), state->fields[0].name,
                        (long long)dataset->samples);
    dataset->samples = shape->dims[0];
    tri_shape sample = {.rank = shape->rank - 1};
    memcpy(sample.dims, shape->dims + 1, (size_t)sample.rank * sizeof *sample.dims);
    if (!strcmp(field_name, "images") && sample.rank == 2) // grey images without channels
        sample = tri_shape_of(1, sample.dims[0], sample.dims[1]);
    TRI_TRY(tri_dataset_add(dataset, state->path, field_name, field->info.dtype, &sample));
    field->item_bytes = tri_shape_count(&sample) * (int64_t)tri_dtype_bytes(field->info.dtype);
    if (dataset->fields[state->count - 1].field.dtype != TRI_I64) return TRI_OK;
    return scan_labels(dataset, state, state->count - 1);
}

// Lists what the root group of the file has.
static tri_status list_names(tri_dataset *dataset, tri_strings *out) {
    const hdf5_state *state = dataset->state;
    char why[TRI_HDF5_WHY_BYTES], *text;
    pthread_mutex_lock(&library);
    tri_status status = state->module->list(state->path, &text, why);
    pthread_mutex_unlock(&library);
    if (status != TRI_OK) return TRI_FAIL(status, "%s: %s", state->path, why);
    const char **names = NULL;
    int count = 0, capacity = 0;
    for (const char *name = text; *name; name += strlen(name) + 1)
        TRI_PUSH(dataset->arena, names, count, capacity) = tri_arena_strdup(dataset->arena, name);
    free(text);
    *out = (tri_strings){names, count};
    return TRI_OK;
}

// Without data.fields: what the file names as a field is one, and has to be an array.
static tri_status add_usual(tri_dataset *dataset) {
    const hdf5_state *state = dataset->state;
    const char *fields[TRI_MAX_FIELD_NAMES], *taken[TRI_MAX_DATA_FIELDS];
    int field_count = tri_field_list(dataset->options->extra_fields, fields), others = 0;
    tri_strings names;
    TRI_TRY(list_names(dataset, &names));
    const char **unused = TRI_NEW_ARRAY(dataset->arena, const char *, names.count + 1);
    for (int i = 0; i < names.count; i++) {
        int at = 0;
        while (at < field_count && strcmp(fields[at], names.items[i]) != 0) at++;
        if (at == field_count) {
            unused[others++] = names.items[i];
            continue;
        }
        if (state->count == TRI_MAX_DATA_FIELDS)
            return TRI_FAIL(TRI_BAD_INPUT, "%s: more than %d fields", state->path,
                            TRI_MAX_DATA_FIELDS);
        taken[state->count] = fields[at];
        TRI_TRY(add_field(dataset, fields[at], fields[at]));
    }
    TRI_TRY(tri_data_unused(dataset, state->path, "member", &(tri_strings){unused, others},
                            &(tri_strings){taken, state->count}));
    if (state->count > 0) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: has no array that is named as a model input (%s): name them, "
                    "data.fields='{images: x, labels: y}'",
                    state->path, tri_field_names());
}

static tri_status open_fields(tri_dataset *dataset) {
    const tri_tree *fields = dataset->options->fields;
    const hdf5_state *state = dataset->state;
    if (tri_tree_is_null(fields)) return add_usual(dataset);
    for (int i = 0; i < fields->count; i++) {
        const tri_tree *entry = fields->items[i];
        tri_status status = add_field(dataset, entry->key, entry->text);
        bool is_last = i + 1 == fields->count && state->count == 0;
        if (status == TRI_NOT_FOUND && dataset->options->may_lack_fields && !is_last) continue;
        TRI_TRY(status);
    }
    return TRI_OK;
}

static tri_status hdf5_open(tri_dataset *dataset) {
    hdf5_state *state = TRI_NEW(dataset->arena, hdf5_state);
    const void *table;
    dataset->state = state;
    state->fd = -1;
    TRI_TRY(tri_dataset_find_path(dataset, "the HDF5 file with the samples", &state->path));
    TRI_TRY(tri_os_check_file(state->path));
    TRI_TRY(tri_content_check(state->path, "hdf5"));
    TRI_TRY(tri_os_open_input(state->path, &state->fd));
    TRI_TRY(tri_module_load("hdf5", TRI_HDF5_INTERFACE, TRI_HDF5_ABI, &table));
    state->module = table;
    return open_fields(dataset);
}

static void hdf5_close(tri_dataset *dataset) {
    hdf5_state *state = dataset->state;
    pthread_mutex_lock(&library);
    for (int i = 0; i < state->count; i++) state->module->close(state->fields[i].array);
    pthread_mutex_unlock(&library);
    if (state->fd >= 0) tri_os.close(state->fd);
}

static tri_status hdf5_read(const tri_dataset *dataset, void *worker, int64_t sample,
                            tri_sample_value *values) {
    const hdf5_state *state = dataset->state;
    for (int i = 0; i < state->count; i++) {
        values[i].data = values[i].buffer;
        TRI_TRY(read_items(state, &state->fields[i], sample, 1, values[i].buffer));
    }
    return TRI_OK;
}

const tri_dataset_kind tri_dataset_hdf5 = {
    .open = hdf5_open,
    .close = hdf5_close,
    .read = hdf5_read,
    .is_decoded = true,
};
