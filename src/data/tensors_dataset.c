// The data set "tensors" (data.name): a safetensors file whose tensors have the sample as their
// common first axis. Samples are read one by one, so the file may be larger than memory.
#include "base/quantity.h"
#include "data/content.h"
#include "data/kind.h"
#include "data/labels.h"
#include "format/safetensors.h"

#include <string.h>

typedef struct tensors_state {
    tri_safetensors *file;
    const tri_safetensors_entry *entries[TRI_MAX_DATA_FIELDS];
} tensors_state;

static tri_status open_entry(tri_dataset *dataset, tensors_state *state,
                             const tri_safetensors_entry *entry) {
    const char *path = tri_safetensors_path(state->file);
    const tri_safetensors_entry *first = state->entries[0];
    if (entry->shape.rank == 0)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: tensor '%s' is a scalar: its first axis must be the sample", path,
                        entry->name);
    if (first && first->shape.dims[0] != entry->shape.dims[0])
        return TRI_FAIL(TRI_BAD_INPUT, "%s: tensor '%s' has %s, but tensor '%s' has %lld", path,
                        entry->name, tri_counted(entry->shape.dims[0], "sample"), first->name,
                        (long long)first->shape.dims[0]);
    if (entry->shape.dims[0] == 0)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: tensor '%s' has no samples", path, entry->name);
    tri_shape sample = {.rank = entry->shape.rank - 1};
    memcpy(sample.dims, entry->shape.dims + 1, (size_t)sample.rank * sizeof *sample.dims);
    state->entries[dataset->field_count] = entry;
    dataset->samples = entry->shape.dims[0];
    return tri_dataset_add(dataset, path, entry->name, entry->dtype, &sample);
}

typedef struct entry_source {
    tri_safetensors *file;
    const tri_safetensors_entry *entry;
} entry_source;

static tri_status read_elements(const void *context, int64_t first, int64_t count, void *out) {
    const entry_source *source = context;
    int64_t bytes = (int64_t)tri_dtype_bytes(source->entry->dtype);
    return tri_safetensors_read(source->file, source->entry, first * bytes, count * bytes, out);
}

static tri_status scan_labels(tri_dataset *dataset, const tensors_state *state, int field) {
    const tri_safetensors_entry *entry = state->entries[field];
    entry_source source = {state->file, entry};
    return tri_labels_scan(
        &dataset->fields[field],
        &(tri_labels_source){.path = tri_safetensors_path(state->file),
                             .dtype = entry->dtype,
                             .count = tri_shape_count(&entry->shape),
                             .per_sample = tri_shape_count(&dataset->fields[field].stored_shape),
                             .read = read_elements,
                             .context = &source});
}

static tri_status tensors_open(tri_dataset *dataset) {
    tensors_state *state = TRI_NEW(dataset->arena, tensors_state);
    dataset->state = state;
    const char *path;
    TRI_TRY(tri_dataset_find_path(dataset, "the safetensors file with the samples", &path));
    TRI_TRY(tri_content_check(path, "tensors"));
    TRI_TRY(tri_safetensors_open(path, &state->file));
    int count = tri_safetensors_count(state->file);
    if (count == 0 || count > TRI_MAX_DATA_FIELDS)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: has %d tensors; 1 to %d model inputs are supported",
                        path, count, TRI_MAX_DATA_FIELDS);
    const char *names[TRI_MAX_DATA_FIELDS], **sorted;
    for (int i = 0; i < count; i++) names[i] = tri_safetensors_at(state->file, i)->name;
    sorted = tri_dataset_field_order(dataset->arena, names, count);
    for (int i = 0; i < count; i++)
        TRI_TRY(open_entry(dataset, state, tri_safetensors_find(state->file, sorted[i])));
    for (int i = 0; i < count; i++)
        if (dataset->fields[i].field.dtype == TRI_I64) TRI_TRY(scan_labels(dataset, state, i));
    return TRI_OK;
}

static void tensors_close(tri_dataset *dataset) {
    const tensors_state *state = dataset->state;
    tri_safetensors_close(state->file);
}

static tri_status tensors_read(const tri_dataset *dataset, void *worker, int64_t sample,
                               tri_sample_value *values) {
    const tensors_state *state = dataset->state;
    for (int field = 0; field < dataset->field_count; field++) {
        int64_t bytes = (int64_t)dataset->fields[field].stored_bytes;
        values[field].data = values[field].buffer;
        TRI_TRY(tri_safetensors_read(state->file, state->entries[field], sample * bytes, bytes,
                                     values[field].buffer));
    }
    return TRI_OK;
}

const tri_dataset_kind tri_dataset_tensors = {
    .open = tensors_open,
    .close = tensors_close,
    .read = tensors_read,
};
