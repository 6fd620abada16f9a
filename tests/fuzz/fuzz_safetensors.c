// Reads arbitrary bytes as a safetensors file, and as a data set of what it holds.
#include "base/status.h"
#include "data/dataset.h"
#include "format/safetensors.h"

#include <string.h>

#include "memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// In a file that opens, every byte belongs to the header or to exactly one tensor.
static void read_all(tri_safetensors *file, size_t size) {
    int64_t total = 0, first = (int64_t)size;
    for (int i = 0; i < tri_safetensors_count(file); i++) {
        const tri_safetensors_entry *entry = tri_safetensors_at(file, i);
        TRI_ASSERT(tri_safetensors_find(file, entry->name) == entry);
        void *bytes = malloc((size_t)entry->size_bytes + 1);
        TRI_ASSERT(bytes);
        TRI_ASSERT(tri_safetensors_read(file, entry, 0, entry->size_bytes, bytes) == TRI_OK);
        free(bytes);
        total += entry->size_bytes;
        if (entry->offset < first) first = entry->offset;
    }
    TRI_ASSERT(tri_safetensors_count(file) == 0 || first + total == (int64_t)size);
    tri_safetensors_metadata(file, "format");
}

static void read_dataset(const char *path) {
    const tri_tree train = {.kind = TRI_TREE_SCALAR, .text = path};
    const tri_data_options options = {.name = "tensors", .train = &train, .shuffle = true};
    tri_dataset *dataset;
    if (tri_dataset_open(&options, TRI_DATA_TRAIN, 1, &dataset) != TRI_OK) {
        TRI_ASSERT(strstr(tri_error_message(), path) || strstr(tri_error_message(), "data."));
        return;
    }
    void *scratch = malloc(tri_dataset_scratch_bytes(dataset) + 1);
    for (int field = 0; field < tri_dataset_field_count(dataset); field++) {
        void *sample = malloc(tri_dataset_field(dataset, field)->size_bytes);
        TRI_ASSERT(scratch && sample);
        int64_t last = tri_dataset_samples(dataset) - 1;
        TRI_ASSERT(tri_dataset_read(dataset, field, last, 0, scratch, sample) == TRI_OK);
        free(sample);
    }
    free(scratch);
    tri_dataset_close(dataset);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *path = memory_file(data, size);
    tri_safetensors *file;
    if (tri_safetensors_open(path, &file) != TRI_OK) {
        TRI_ASSERT(strstr(tri_error_message(), path));
        return 0;
    }
    TRI_ASSERT(tri_safetensors_probe(path));
    read_all(file, size);
    tri_safetensors_close(file);
    read_dataset(path);
    return 0;
}
