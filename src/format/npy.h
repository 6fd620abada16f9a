// NumPy's arrays: a .npy file, or a member of a .npz archive.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, versions 1 to 3.
#ifndef TRIREME_FORMAT_NPY_H
#define TRIREME_FORMAT_NPY_H

#include "base/arena.h"
#include "base/status.h"

#include <trireme/tensor.h>

typedef struct tri_npy tri_npy;

// Opens the array of a file, or member `member` ("x" or "x.npy") of an archive; NULL: its only one.
// Rows are in C order. Elements are read where they lie; those of a compressed member are unpacked
// into memory at once. TRI_NOT_FOUND, TRI_IO, TRI_NO_MEMORY; TRI_CORRUPT: neither of the two,
// truncated, a header or sizes that cannot be; TRI_UNSUPPORTED: Fortran order, types that are no
// numbers; TRI_BAD_INPUT: no such member. Each names the file. *out lives until tri_npy_close.
tri_status tri_npy_open(const char *path, const char *member, tri_npy **out);
void tri_npy_close(tri_npy *array); // NULL allowed

// The names of an archive's arrays, without ".npy", in `arena`; of a plain .npy file *count is 0.
tri_status tri_npy_list(tri_arena *arena, const char *path, const char *const **names, int *count);

const char *tri_npy_name(const tri_npy *array); // for messages: FILE or FILE:MEMBER
tri_dtype tri_npy_dtype(const tri_npy *array);
const tri_shape *tri_npy_shape(const tri_npy *array);
// `count` elements from element `first` on, in this machine's byte order. Any number of threads.
tri_status tri_npy_read(const tri_npy *array, int64_t first, int64_t count, void *out);
// Reads all of an archive's member against its checksum, where opening has not done it.
tri_status tri_npy_verify(const tri_npy *array);

#endif
