// Reads arbitrary bytes as a NumPy array or archive, and as a data set in such a file.
#include "base/status.h"
#include "format/npy.h"

#include <string.h>

#include "memory_file.h"
#include "read_dataset.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *path = memory_file(data, size);
    tri_arena *arena = tri_arena_create(NULL, "fuzz");
    const char *const *names;
    int count;
    if (tri_npy_list(arena, path, &names, &count) == TRI_OK)
        for (int i = 0; i < count && i < 16; i++) read_array(path, names[i]);
    tri_arena_destroy(arena);
    read_array(path, NULL);
    const tri_tree train = {.kind = TRI_TREE_SCALAR, .text = path};
    const tri_data_options options = {.name = "npy", .train = &train};
    (void)read_dataset(&options);
    return 0;
}
