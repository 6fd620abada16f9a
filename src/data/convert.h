// Converts stored elements of any type to F32 and I64, the types of model inputs.
#ifndef TRIREME_DATA_CONVERT_H
#define TRIREME_DATA_CONVERT_H

#include <trireme/tensor.h>

// Whether one type can be converted to the other. To F32: all floats and integers. To I64: all
// integers except U64, whose largest numbers do not fit.
bool tri_convert_supported(tri_dtype from, tri_dtype to);
// Converts `count` elements. `in` and `out` may not overlap.
void tri_convert(tri_dtype from, const void *in, tri_dtype to, void *out, int64_t count);

#endif
