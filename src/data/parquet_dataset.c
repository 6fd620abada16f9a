// The data set "parquet" (data.name): Parquet files, by the module `parquet`. columns.h says which
// columns are which field. Such files are read in groups of rows, of which each is decoded as a
// whole. So a group is unpacked into a file without a name when its first sample is read, and
// samples are read from that file, in any order.
#include "base/os.h"
#include "base/quantity.h"
#include "base/search.h"
#include "data/columns.h"
#include "data/convert.h"
#include "data/files.h"
#include "data/image_worker.h"
#include "data/labels.h"
#include "data/parquet.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct parquet_source {
    const char *path;
    tri_parquet_file *file;
} parquet_source;

typedef enum group_state { GROUP_PACKED, GROUP_READY, GROUP_DAMAGED } group_state;

typedef struct row_group {
    int source, number; // its file, and its number in it
    int64_t first, rows;
    _Atomic int state;
    // By field, in the unpacked file: where the numbers of the group begin; for images, where each
    // row's bytes begin, [rows + 1].
    int64_t offset[TRI_MAX_DATA_FIELDS];
    int64_t *offsets[TRI_MAX_DATA_FIELDS];
    char *damage; // why it cannot be read
} row_group;

typedef struct parquet_state {
    const tri_parquet *module;
    parquet_source *sources;
    int source_count;
    row_group *groups;
    int group_count, group_capacity;
    tri_columns columns;
    bool is_encoded[TRI_MAX_DATA_FIELDS]; // by field: its cells are image files
    int unpacked;                         // the unpacked file
    int64_t unpacked_bytes;
    pthread_mutex_t lock; // of the library, and of what is unpacked
} parquet_state;

static tri_status fail_column(const parquet_state *state, const row_group *group, int column,
                              tri_status status, const char *why) {
    const parquet_source *source = &state->sources[group->source];
    return TRI_FAIL(status, "%s: column '%s', row group %d: %s", source->path,
                    state->module->name(source->file, column), group->number, why);
}

static tri_status read_cells(const parquet_state *state, const row_group *group, int column,
                             tri_parquet_cells *out) {
    char why[TRI_PARQUET_WHY_BYTES];
    tri_status status =
        state->module->read(state->sources[group->source].file, group->number, column, out, why);
    return status == TRI_OK ? TRI_OK : fail_column(state, group, column, status, why);
}

// The shape of one sample of a field of one column.
static tri_shape sample_shape(const tri_dataset *dataset, const tri_field_columns *field,
                              const tri_parquet_cells *cells) {
    if (cells->shape.rank == 0) return tri_columns_shape(dataset, field);
    if (!strcmp(field->row.name, "images") && cells->shape.rank == 2) // grey, without channels
        return tri_shape_of(1, cells->shape.dims[0], cells->shape.dims[1]);
    return cells->shape;
}

// Adds a field by what the first row group has in its columns.
static tri_status add_field(tri_dataset *dataset, int index) {
    parquet_state *state = dataset->state;
    const tri_field_columns *field = &state->columns.fields[index];
    const char *path = state->sources[0].path;
    tri_parquet_cells cells;
    TRI_TRY(read_cells(state, &state->groups[0], field->columns[0], &cells));
    tri_dtype dtype = field->count > 1 ? field->row.dtype : cells.dtype;
    tri_shape shape =
        field->count > 1 ? tri_columns_shape(dataset, field) : sample_shape(dataset, field, &cells);
    state->is_encoded[index] = cells.offsets && !strcmp(field->row.name, "images");
    bool is_text = cells.offsets && !state->is_encoded[index];
    state->module->free_cells(&cells);
    if (is_text)
        return fail_column(
            state, &state->groups[0], field->columns[0], TRI_BAD_INPUT,
            "has text or bytes, and no numbers: data.fields names other columns, and "
            "data.tokenizer makes tokens of a text");
    if (state->is_encoded[index]) {
        dtype = TRI_U8;
        shape = tri_shape_of(3, TRI_ANY_SIZE, TRI_ANY_SIZE);
    }
    return tri_dataset_add(dataset, path, field->row.name, dtype, &shape);
}

// Converts the numbers of a field's columns in a row group to the form in which samples are stored,
// sample after sample. *out is malloc'ed.
static tri_status collect(const tri_dataset *dataset, const row_group *group, int index,
                          char **out) {
    const parquet_state *state = dataset->state;
    const tri_field_columns *field = &state->columns.fields[index];
    const tri_stored_field *stored = &dataset->fields[index];
    int64_t width = (int64_t)stored->stored_bytes, item = width / field->count;
    *out = malloc((size_t)(group->rows * width) + 1);
    if (!*out) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a row group");
    for (int k = 0; k < field->count; k++) {
        tri_parquet_cells cells;
        int column = field->columns[k];
        TRI_TRY(read_cells(state, group, column, &cells));
        int64_t elements = tri_shape_count(&stored->stored_shape) / field->count;
        bool fits = !cells.offsets && tri_shape_count(&cells.shape) == elements;
        bool is_same = fits && cells.dtype == stored->stored_dtype;
        fits = fits && (is_same || (field->count > 1 &&
                                    tri_convert_supported(cells.dtype, stored->stored_dtype)));
        char *converted = fits ? malloc((size_t)(group->rows * item) + 1) : NULL;
        if (converted && is_same) memcpy(converted, cells.data, (size_t)(group->rows * item));
        if (converted && !is_same)
            tri_convert(cells.dtype, cells.data, stored->stored_dtype, converted, group->rows);
        for (int64_t row = 0; converted && row < group->rows; row++)
            memcpy(*out + row * width + k * item, converted + row * item, (size_t)item);
        state->module->free_cells(&cells);
        if (!fits)
            return fail_column(state, group, column, TRI_CORRUPT,
                               "its cells have another type or shape than the first ones");
        if (!converted) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a row group");
        free(converted);
    }
    return TRI_OK;
}

static tri_status append(parquet_state *state, const void *bytes, int64_t size, int64_t *offset) {
    *offset = state->unpacked_bytes;
    TRI_TRY(tri_os_pwrite_all(state->unpacked, bytes, (size_t)size, *offset,
                              "the unpacked Parquet file in $TMPDIR"));
    state->unpacked_bytes += size;
    return TRI_OK;
}

static tri_status unpack_field(const tri_dataset *dataset, row_group *group, int index) {
    parquet_state *state = dataset->state;
    if (!state->is_encoded[index]) {
        char *numbers = NULL;
        tri_status status = collect(dataset, group, index, &numbers);
        if (status == TRI_OK)
            status =
                append(state, numbers, group->rows * (int64_t)dataset->fields[index].stored_bytes,
                       &group->offset[index]);
        free(numbers);
        return status;
    }
    tri_parquet_cells cells;
    int64_t offset;
    int column = state->columns.fields[index].columns[0];
    TRI_TRY(read_cells(state, group, column, &cells));
    tri_status status = TRI_OK;
    if (!cells.offsets)
        status = fail_column(state, group, column, TRI_CORRUPT, "has no image files");
    if (status == TRI_OK) status = append(state, cells.data, cells.offsets[cells.rows], &offset);
    for (int64_t i = 0; status == TRI_OK && i <= cells.rows; i++) cells.offsets[i] += offset;
    if (status == TRI_OK) {
        group->offsets[index] = cells.offsets;
        cells.offsets = NULL;
    }
    state->module->free_cells(&cells);
    return status;
}

// Unpacks a row group, unless that was done. A group that cannot be decoded stays damaged.
static tri_status unpack(const tri_dataset *dataset, row_group *group) {
    parquet_state *state = dataset->state;
    tri_status status = TRI_OK;
    if (atomic_load(&group->state) == GROUP_READY) return TRI_OK;
    pthread_mutex_lock(&state->lock);
    if (atomic_load(&group->state) == GROUP_PACKED) {
        for (int i = 0; i < dataset->field_count && status == TRI_OK; i++)
            if (!group->offsets[i] && group->offset[i] < 0)
                status = unpack_field(dataset, group, i);
        if (status == TRI_UNSUPPORTED) status = TRI_CORRUPT; // other groups are supported
        if (status == TRI_CORRUPT) group->damage = strdup(tri_error_message());
        if (status == TRI_OK || status == TRI_CORRUPT)
            atomic_store(&group->state, status == TRI_OK ? GROUP_READY : GROUP_DAMAGED);
    }
    bool is_damaged = atomic_load(&group->state) == GROUP_DAMAGED;
    pthread_mutex_unlock(&state->lock);
    if (is_damaged)
        return TRI_FAIL(TRI_CORRUPT, "%s", group->damage ? group->damage : "a damaged row group");
    return status;
}

static tri_status add_groups(tri_dataset *dataset, int source) {
    parquet_state *state = dataset->state;
    const tri_parquet_file *file = state->sources[source].file;
    for (int i = 0; i < state->module->groups(file); i++) {
        row_group group = {.source = source,
                           .number = i,
                           .first = dataset->samples,
                           .rows = state->module->rows(file, i)};
        if (group.rows == 0) continue;
        for (int k = 0; k < TRI_MAX_DATA_FIELDS; k++) group.offset[k] = -1;
        dataset->samples += group.rows;
        TRI_PUSH(dataset->arena, state->groups, state->group_count, state->group_capacity) = group;
    }
    return TRI_OK;
}

// Opens a file, whose columns have to be those of the first one.
static tri_status open_source(tri_dataset *dataset, int index) {
    parquet_state *state = dataset->state;
    parquet_source *source = &state->sources[index];
    TRI_TRY(tri_data_parquet_open(state->module, source->path, &source->file));
    int count = state->module->columns(source->file);
    const char **names = TRI_NEW_ARRAY(dataset->arena, const char *, count + 1);
    for (int i = 0; i < count; i++) names[i] = state->module->name(source->file, i);
    bool is_same = index > 0 && count == state->module->columns(state->sources[0].file);
    for (int i = 0; is_same && i < count; i++)
        is_same = !strcmp(names[i], state->module->name(state->sources[0].file, i));
    if (index > 0 && !is_same)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: its columns are others than those of %s", source->path,
                        state->sources[0].path);
    if (count == 0) return TRI_FAIL(TRI_BAD_INPUT, "%s: has no columns", source->path);
    if (index == 0) TRI_TRY(tri_columns_find(dataset, source->path, names, count, &state->columns));
    return add_groups(dataset, index);
}

// Whether a field consists of whatever columns the file has, so that their order counts.
static bool takes_all_others(const tri_columns *columns) {
    for (int i = 0; i < columns->count; i++)
        if (columns->fields[i].names.columns.count > 1) return true;
    return false;
}

// Refuses test data whose columns are others than those of the training data, or in another order.
static tri_status compare_with_training(tri_dataset *dataset) {
    const parquet_state *state = dataset->state;
    tri_dataset training = *dataset; // to find its files
    tri_data_files files = {0};
    tri_columns known;
    tri_parquet_file *file;
    char why[TRI_PARQUET_WHY_BYTES];
    training.file_split = TRI_DATA_TRAIN;
    if (dataset->file_split == TRI_DATA_TRAIN || !takes_all_others(&state->columns)) return TRI_OK;
    TRI_TRY(
        tri_data_files_find(&training, "the files whose columns the model was trained on", &files));
    TRI_TRY(tri_os_check_file(files.paths[0]));
    tri_status status = state->module->open(files.paths[0], &file, why);
    if (status != TRI_OK) return TRI_FAIL(status, "%s: %s", files.paths[0], why);
    int count = state->module->columns(file);
    const char **names = TRI_NEW_ARRAY(dataset->arena, const char *, count + 1);
    for (int i = 0; i < count; i++) names[i] = state->module->name(file, i);
    status = tri_columns_find(&training, files.paths[0], names, count, &known);
    state->module->close(file);
    TRI_TRY(status);
    return tri_columns_compare(dataset, &known, files.paths[0], &state->columns,
                               state->sources[0].path);
}

static tri_status copy_numbers(const void *context, int64_t first, int64_t count, void *out) {
    const struct {
        const char *numbers;
        int64_t width;
    } *from = context;
    memcpy(out, from->numbers + first * from->width, (size_t)(count * from->width));
    return TRI_OK;
}

// Reads and checks all classes and tokens, whose numbers a model uses as indices.
static tri_status scan_numbers(tri_dataset *dataset, int index) {
    parquet_state *state = dataset->state;
    tri_stored_field *stored = &dataset->fields[index];
    int64_t per_sample = tri_shape_count(&stored->stored_shape);
    for (int i = 0; i < state->group_count; i++) {
        row_group *group = &state->groups[i];
        struct {
            const char *numbers;
            int64_t width;
        } from = {.width = (int64_t)tri_dtype_bytes(stored->stored_dtype)};
        char *numbers = NULL;
        tri_status status = collect(dataset, group, index, &numbers);
        from.numbers = numbers;
        if (status == TRI_OK)
            status = tri_labels_scan(
                stored, &(tri_labels_source){.path = state->sources[group->source].path,
                                             .dtype = stored->stored_dtype,
                                             .count = group->rows * per_sample,
                                             .per_sample = per_sample,
                                             .read = copy_numbers,
                                             .context = &from});
        if (status == TRI_OK)
            status = append(state, numbers, group->rows * (int64_t)stored->stored_bytes,
                            &group->offset[index]);
        free(numbers);
        TRI_TRY(status);
    }
    return TRI_OK;
}

static tri_status parquet_open(tri_dataset *dataset) {
    parquet_state *state = TRI_NEW(dataset->arena, parquet_state);
    dataset->state = state;
    state->unpacked = -1;
    pthread_mutex_init(&state->lock, NULL);
    tri_data_files files = {0};
    TRI_TRY(tri_data_files_find(dataset, "Parquet files, such as train-*.parquet", &files));
    TRI_TRY(tri_data_parquet_load("data.name=parquet", &state->module));
    TRI_TRY(tri_os_open_unnamed(&state->unpacked));
    state->sources = TRI_NEW_ARRAY(dataset->arena, parquet_source, files.count);
    for (int i = 0; i < files.count; i++) {
        state->sources[i].path = files.paths[i];
        state->source_count++; // from here on parquet_close closes it
        TRI_TRY(open_source(dataset, i));
    }
    if (dataset->samples == 0)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: has no rows", state->sources[0].path);
    TRI_TRY(compare_with_training(dataset));
    for (int i = 0; i < state->columns.count; i++) TRI_TRY(add_field(dataset, i));
    tri_columns_name_fields(dataset, &state->columns);
    for (int i = 0; i < dataset->field_count; i++)
        if (dataset->fields[i].field.dtype == TRI_I64) TRI_TRY(scan_numbers(dataset, i));
    return TRI_OK;
}

static void parquet_close(tri_dataset *dataset) {
    parquet_state *state = dataset->state;
    for (int i = 0; i < state->source_count; i++)
        if (state->sources[i].file) state->module->close(state->sources[i].file);
    for (int i = 0; i < state->group_count; i++) {
        for (int k = 0; k < TRI_MAX_DATA_FIELDS; k++) free(state->groups[i].offsets[k]);
        free(state->groups[i].damage);
    }
    if (state->unpacked >= 0) tri_os.close(state->unpacked);
    pthread_mutex_destroy(&state->lock);
}

// True if a group ends at `sample` or before it.
static bool ends_before(const void *context, int index, int64_t sample) {
    const row_group *group = &((const row_group *)context)[index];
    return group->first + group->rows <= sample;
}

static tri_status parquet_read(const tri_dataset *dataset, void *worker, int64_t sample,
                               tri_sample_value *values) {
    parquet_state *state = dataset->state;
    row_group *group =
        &state->groups[tri_lower_bound(state->group_count, ends_before, state->groups, sample)];
    const char *path = state->sources[group->source].path;
    int64_t row = sample - group->first;
    TRI_TRY(unpack(dataset, group));
    for (int i = 0; i < dataset->field_count; i++) {
        const tri_stored_field *field = &dataset->fields[i];
        values[i].data = values[i].buffer;
        if (!state->is_encoded[i]) {
            TRI_TRY(tri_os_pread_all(state->unpacked, values[i].buffer, field->stored_bytes,
                                     group->offset[i] + row * (int64_t)field->stored_bytes, path));
            continue;
        }
        char name[PATH_MAX];
        const int64_t *offsets = group->offsets[i];
        snprintf(name, sizeof name, "%s: sample %lld", path, (long long)sample);
        TRI_TRY(tri_image_worker_decode(worker, state->unpacked, offsets[row],
                                        offsets[row + 1] - offsets[row], name, &values[i]));
    }
    return TRI_OK;
}

const tri_dataset_kind tri_dataset_parquet = {
    .open = parquet_open,
    .close = parquet_close,
    .worker_create = tri_image_worker_create,
    .worker_destroy = tri_image_worker_destroy,
    .read = parquet_read,
    .is_decoded = true,
};
