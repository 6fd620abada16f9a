// Reads arbitrary bytes as a NumPy array or archive, and as a data set of what it holds.
#include "base/status.h"
#include "data/dataset.h"
#include "format/npy.h"

#include <string.h>

#include "memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_array(const char *path, const char *member) {
    tri_npy *array;
    if (tri_npy_open(path, member, &array) != TRI_OK) {
        TRI_ASSERT(strstr(tri_error_message(), path));
        return;
    }
    int64_t count = tri_shape_count(tri_npy_shape(array));
    size_t width = tri_dtype_bytes(tri_npy_dtype(array));
    void *bytes = malloc((size_t)count * width + 1);
    TRI_ASSERT(bytes && tri_npy_read(array, 0, count, bytes) == TRI_OK);
    free(bytes);
    (void)tri_npy_verify(array);
    tri_npy_close(array);
}

static void read_dataset(const char *path) {
    const tri_tree train = {.kind = TRI_TREE_SCALAR, .text = path};
    const tri_data_options options = {.name = "npy", .train = &train};
    tri_dataset *dataset;
    if (tri_dataset_open(&options, TRI_DATA_TRAIN, 1, &dataset) != TRI_OK) return;
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
    tri_arena *arena = tri_arena_create(NULL, "fuzz");
    const char *const *names;
    int count;
    if (tri_npy_list(arena, path, &names, &count) == TRI_OK)
        for (int i = 0; i < count && i < 16; i++) read_array(path, names[i]);
    tri_arena_destroy(arena);
    read_array(path, NULL);
    read_dataset(path);
    return 0;
}
