// The interface of the module `hdf5`, which reads and makes arrays by libhdf5. Only what needs HDF5
// loads it. The module calls no function of the program.
#ifndef TRIREME_FORMAT_HDF5_HDF5_H
#define TRIREME_FORMAT_HDF5_HDF5_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <trireme/tensor.h>

enum {
    TRI_HDF5_ABI = 3, // has to be raised with every change of this header
    TRI_HDF5_WHY_BYTES = 512,
};
#define TRI_HDF5_INTERFACE "hdf5"

typedef struct tri_hdf5_array tri_hdf5_array;

typedef struct tri_hdf5_info {
    tri_dtype dtype;
    tri_shape shape;
    // Where the elements lie in the file, row by row and as this machine has them, so that they can
    // be read without the library; -1: they are in chunks, compressed, or stored otherwise.
    int64_t offset;
} tri_hdf5_info;

// A call that fails writes the reason to why[TRI_HDF5_WHY_BYTES]: TRI_CORRUPT (no HDF5 file, or
// damaged), TRI_NOT_FOUND (nothing has this name), TRI_BAD_INPUT (a group, a link that leads
// nowhere, elements that are no numbers, or too many axes). The module is not safe for threads: the
// caller makes one call at a time.
typedef struct tri_hdf5 {
    tri_status (*open)(const char *path, const char *name, tri_hdf5_array **out,
                       tri_hdf5_info *info, char *why);
    void (*close)(tri_hdf5_array *array);
    // Lists what the file's root group has, each name ended by NUL and an empty one behind the
    // last. *out is malloc'ed.
    tri_status (*list)(const char *path, char **out, char *why);
    // Reads `count` items of the first axis, from item `first` on.
    tri_status (*read)(tri_hdf5_array *array, int64_t first, int64_t count, void *out, char *why);
    // Makes a file of arrays in one piece each, whose elements the caller writes, or opens such a
    // file again (is_new: false). Sets the offsets in `infos`.
    tri_status (*create)(const char *path, bool is_new, const char *const *names,
                         tri_hdf5_info *infos, int count, char *why);
} tri_hdf5;

#endif
