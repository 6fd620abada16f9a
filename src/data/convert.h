// Converts stored elements of any type to F32 and I64, the types of model inputs.
#ifndef TRIREME_DATA_CONVERT_H
#define TRIREME_DATA_CONVERT_H

#include <trireme/tensor.h>

// Whether the pair of types can be converted: `to` is F32 and `from` is a type of floats or
// integers, or `to` is I64 and `from` is a type of integers other than U64, whose largest numbers
// do not fit.
bool tri_convert_supported(tri_dtype from, tri_dtype to);
// Converts `count` elements; in and out may not overlap.
void tri_convert(tri_dtype from, const void *in, tri_dtype to, void *out, int64_t count);

#endif
