// `trireme data dump`: reads samples into memory, and writes them as one safetensors file.
#include "data/dump.h"

#include "base/limits.h"
#include "base/quantity.h"
#include "format/safetensors.h"

#include <stdlib.h>

static tri_status read_samples(const tri_dataset *dataset, int64_t first, int64_t count,
                               void *const *data) {
    tri_reader *reader;
    TRI_TRY(tri_reader_create(dataset, &reader));
    tri_status status = TRI_OK;
    for (int64_t i = 0; i < count && status == TRI_OK; i++) {
        void *out[TRI_MAX_DATA_FIELDS];
        for (int k = 0; k < tri_dataset_field_count(dataset); k++)
            out[k] = (char *)data[k] + (size_t)i * tri_dataset_field(dataset, k)->size_bytes;
        status = tri_reader_read(reader, first + i, 0, out);
    }
    tri_reader_destroy(reader);
    return status;
}

static tri_safetensors_spec spec_of(const tri_data_field *field, int64_t count) {
    tri_safetensors_spec spec = {field->name, field->dtype, {.rank = field->shape.rank + 1}};
    spec.shape.dims[0] = count;
    for (int i = 0; i < field->shape.rank; i++) spec.shape.dims[i + 1] = field->shape.dims[i];
    return spec;
}

void tri_data_free_samples(const tri_dataset *dataset, void *const *data) {
    for (int i = 0; i < tri_dataset_field_count(dataset); i++) free(data[i]);
}

tri_status tri_data_read_samples(const tri_dataset *dataset, int64_t first, int64_t count,
                                 void **data) {
    int fields = tri_dataset_field_count(dataset);
    int64_t samples = tri_dataset_samples(dataset);
    if (first > samples || count > samples - first)
        return TRI_FAIL(TRI_BAD_INPUT, "--first %lld --count %lld: the split has %s",
                        (long long)first, (long long)count, tri_counted(samples, "sample"));
    tri_status status = TRI_OK;
    for (int i = 0; i < fields; i++) {
        data[i] = calloc((size_t)count, tri_dataset_field(dataset, i)->size_bytes);
        if (!data[i])
            status = TRI_FAIL(TRI_NO_MEMORY, "no memory for %s: write fewer at a time",
                              tri_counted(count, "sample"));
    }
    if (status == TRI_OK) status = read_samples(dataset, first, count, data);
    if (status != TRI_OK) tri_data_free_samples(dataset, data);
    return status;
}

static tri_status dump(const tri_dataset *dataset, int64_t first, int64_t count, const char *path) {
    int fields = tri_dataset_field_count(dataset);
    tri_safetensors_spec specs[TRI_MAX_DATA_FIELDS];
    void *data[TRI_MAX_DATA_FIELDS];
    for (int i = 0; i < fields; i++) specs[i] = spec_of(tri_dataset_field(dataset, i), count);
    TRI_TRY(tri_data_read_samples(dataset, first, count, data));
    tri_status status =
        tri_safetensors_write(path, specs, (const void *const *)data, fields, NULL, 0);
    tri_data_free_samples(dataset, data);
    return status;
}

tri_status tri_data_dump(const tri_data_options *options, tri_data_split split, uint64_t seed,
                         int64_t first, int64_t count, const char *path) {
    tri_dataset *dataset;
    TRI_TRY(tri_dataset_open(options, split, seed, &dataset));
    tri_status status = dump(dataset, first, count, path);
    tri_dataset_close(dataset);
    return status;
}
