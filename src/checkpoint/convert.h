// Elements of one dtype as another, through doubles.
#ifndef TRIREME_CHECKPOINT_CONVERT_H
#define TRIREME_CHECKPOINT_CONVERT_H

#include "base/status.h"

#include <trireme/tensor.h>

// Every dtype but the eight-bit floats; large 64-bit integers lose low bits.
bool checkpoint_has_f64(tri_dtype dtype);
void checkpoint_to_f64(tri_dtype dtype, const void *from, int64_t count, double *to);
// Float to float, rounded to nearest even by way of F32. The memory may not overlap.
void checkpoint_convert(tri_dtype from_dtype, const void *from, tri_dtype to_dtype, void *to,
                        int64_t count);

#endif
