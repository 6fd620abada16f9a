// NumPy's arrays: a .npy file, or a member of a .npz archive.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, versions 1 to 3.
#ifndef TRIREME_FORMAT_NPY_H
#define TRIREME_FORMAT_NPY_H

#include "base/arena.h"
#include "base/status.h"

#include <trireme/tensor.h>

typedef struct tri_npy tri_npy;

// Opens the array of a .npy file, or member `member` ("x" or "x.npy") of an archive; NULL: the
// archive's only member. Elements are in C order. They are read from the file when they are needed,
// but a compressed member is unpacked into memory. TRI_NOT_FOUND, TRI_IO, TRI_NO_MEMORY;
// TRI_CORRUPT: another format, truncated, an impossible header; TRI_UNSUPPORTED: Fortran order,
// types that are not numbers; TRI_BAD_INPUT: there is no such member. Messages name the file. *out
// lives until tri_npy_close.
tri_status tri_npy_open(const char *path, const char *member, tri_npy **out);
void tri_npy_close(tri_npy *array); // NULL allowed

// Lists the names of an archive's arrays, without ".npy", in `arena`; for a plain .npy file *count
// is 0.
tri_status tri_npy_list(tri_arena *arena, const char *path, const char *const **names, int *count);

// Returns the name for messages: FILE or FILE:MEMBER.
const char *tri_npy_name(const tri_npy *array);
tri_dtype tri_npy_dtype(const tri_npy *array);
const tri_shape *tri_npy_shape(const tri_npy *array);
// Copies elements first … first + count - 1 to `out`, in the byte order of this machine. Any number
// of threads may read at the same time.
tri_status tri_npy_read(const tri_npy *array, int64_t first, int64_t count, void *out);
// Verifies the checksum of an archive's member, unless opening has done so. Opening does not verify
// large members, because that would read all their bytes.
tri_status tri_npy_verify(const tri_npy *array);

#endif
