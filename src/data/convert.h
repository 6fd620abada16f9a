// Numbers of any element type as the two that a model is fed with: F32 and I64.
#ifndef TRIREME_DATA_CONVERT_H
#define TRIREME_DATA_CONVERT_H

#include <trireme/tensor.h>

// F32 from floats and whole numbers; I64 from whole numbers only.
bool tri_convert_supported(tri_dtype from, tri_dtype to);
void tri_convert(tri_dtype from, const void *in, tri_dtype to, void *out, int64_t count);

#endif
