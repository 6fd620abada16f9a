// Reads arbitrary bytes as a safetensors file, and as a data set in such a file.
#include "base/status.h"
#include "format/safetensors.h"

#include <string.h>

#include "memory_file.h"
#include "read_dataset.h"

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
    const tri_tree train = {.kind = TRI_TREE_SCALAR, .text = path};
    const tri_data_options options = {.name = "tensors", .train = &train, .shuffle = true};
    if (!read_dataset(&options))
        TRI_ASSERT(strstr(tri_error_message(), path) || strstr(tri_error_message(), "data."));
    return 0;
}
