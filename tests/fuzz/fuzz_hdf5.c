// Opens arbitrary bytes as an HDF5 file, lists what it has, and reads from its arrays.
#include "base/module.h"
#include "format/hdf5/hdf5.h"

#include <string.h>

#include "memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_array(const tri_hdf5 *module, const char *path, const char *name) {
    enum { MOST_BYTES = 1 << 22 };
    tri_hdf5_array *array;
    tri_hdf5_info info;
    char why[TRI_HDF5_WHY_BYTES] = "";
    if (module->open(path, name, &array, &info, why) != TRI_OK) {
        TRI_ASSERT(*why && strlen(why) < sizeof why);
        return;
    }
    int64_t bytes = (int64_t)tri_dtype_bytes(info.dtype);
    for (int i = 1; i < info.shape.rank && bytes <= MOST_BYTES; i++) bytes *= info.shape.dims[i];
    if (info.shape.rank > 0 && info.shape.dims[0] > 0 && bytes > 0 && bytes <= MOST_BYTES) {
        void *item = malloc((size_t)bytes);
        (void)module->read(array, info.shape.dims[0] - 1, 1, item, why);
        free(item);
    }
    module->close(array);
}

static void list_names(const tri_hdf5 *module, const char *path) {
    char why[TRI_HDF5_WHY_BYTES] = "", *names;
    if (module->list(path, &names, why) == TRI_OK)
        free(names);
    else
        TRI_ASSERT(*why && !names);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *path = memory_file(data, size);
    const void *table;
    TRI_ASSERT(tri_module_load("hdf5", TRI_HDF5_INTERFACE, TRI_HDF5_ABI, &table) == TRI_OK);
    list_names(table, path);
    read_array(table, path, "images");
    read_array(table, path, "group/y");
    return 0;
}
