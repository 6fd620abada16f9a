// Converts elements of one dtype to another, through doubles, so that each dtype needs only two
// conversions.
#ifndef TRIREME_CHECKPOINT_CONVERT_H
#define TRIREME_CHECKPOINT_CONVERT_H

#include "base/status.h"

#include <trireme/tensor.h>

// True if checkpoint_to_f64 supports the dtype. It supports all except the eight-bit floats, which
// this program only copies from file to file.
bool checkpoint_has_f64(tri_dtype dtype);
// Converts `count` elements to F64. Integers above 2^53 are rounded.
void checkpoint_to_f64(tri_dtype dtype, const void *from, int64_t count, double *to);
// Converts floats to floats. A result of a half type is rounded twice, first to F32 and then to the
// half type, each time to nearest even. `from` and `to` may not overlap. Returns how many finite
// elements are too large for the dtype, so that they became infinite.
int64_t checkpoint_convert(tri_dtype from_dtype, const void *from, tri_dtype to_dtype, void *to,
                           int64_t count);

#endif
