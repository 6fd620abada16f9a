// Converts stored elements of any type to F32 and I64, the types of model inputs.
#ifndef TRIREME_DATA_CONVERT_H
#define TRIREME_DATA_CONVERT_H

#include <trireme/tensor.h>

// True for F32 from floats and integers, and for I64 from integers but U64.
bool tri_convert_supported(tri_dtype from, tri_dtype to);
// Converts `count` elements; in and out may not overlap.
void tri_convert(tri_dtype from, const void *in, tri_dtype to, void *out, int64_t count);

#endif
