// Conversions between dtypes, for export, diff and initial weights. They go through doubles, so
// that each dtype needs only two conversions, and chunk by chunk, so that they need little memory.
// Integers beyond 2^53 are rounded.
#include "checkpoint/convert.h"

#include "tensor/half.h"

#include <math.h>

enum { CHUNK = 512 };

bool checkpoint_has_f64(tri_dtype dtype) { return dtype != TRI_F8_E4M3 && dtype != TRI_F8_E5M2; }

#define EACH(type, expression)                                                                     \
    do {                                                                                           \
        const type *in = from;                                                                     \
        for (int64_t i = 0; i < count; i++) to[i] = (expression);                                  \
    } while (0);                                                                                   \
    break

void checkpoint_to_f64(tri_dtype dtype, const void *from, int64_t count, double *to) {
    switch (dtype) {
    case TRI_F64:
        EACH(double, in[i]);
    case TRI_F32:
        EACH(float, in[i]);
    case TRI_F16:
        EACH(uint16_t, tri_f16_to_float(in[i]));
    case TRI_BF16:
        EACH(uint16_t, tri_bf16_to_float(in[i]));
    case TRI_I64:
        EACH(int64_t, (double)in[i]);
    case TRI_U64:
        EACH(uint64_t, (double)in[i]);
    case TRI_I32:
        EACH(int32_t, in[i]);
    case TRI_U32:
        EACH(uint32_t, in[i]);
    case TRI_I16:
        EACH(int16_t, in[i]);
    case TRI_U16:
        EACH(uint16_t, in[i]);
    case TRI_I8:
        EACH(int8_t, in[i]);
    case TRI_U8:
    case TRI_BOOL:
        EACH(uint8_t, in[i]);
    default:
        TRI_ASSERT(checkpoint_has_f64(dtype));
    }
}

static void from_f64(tri_dtype dtype, const double *from, int64_t count, void *to) {
    for (int64_t i = 0; i < count; i++) {
        if (dtype == TRI_F64)
            ((double *)to)[i] = from[i];
        else if (dtype == TRI_F32)
            ((float *)to)[i] = (float)from[i];
        else if (dtype == TRI_F16)
            ((uint16_t *)to)[i] = tri_float_to_f16((float)from[i]);
        else
            ((uint16_t *)to)[i] = tri_float_to_bf16((float)from[i]);
    }
}

int64_t checkpoint_convert(tri_dtype from_dtype, const void *from, tri_dtype to_dtype, void *to,
                           int64_t count) {
    TRI_ASSERT(tri_dtype_is_float(from_dtype) && tri_dtype_is_float(to_dtype));
    int64_t overflows = 0;
    size_t from_bytes = tri_dtype_bytes(from_dtype), to_bytes = tri_dtype_bytes(to_dtype);
    for (int64_t done = 0; done < count; done += CHUNK) {
        double chunk[CHUNK], back[CHUNK];
        int64_t size = count - done < CHUNK ? count - done : CHUNK;
        checkpoint_to_f64(from_dtype, (const char *)from + (size_t)done * from_bytes, size, chunk);
        from_f64(to_dtype, chunk, size, (char *)to + (size_t)done * to_bytes);
        checkpoint_to_f64(to_dtype, (char *)to + (size_t)done * to_bytes, size, back);
        for (int64_t i = 0; i < size; i++)
            overflows += isfinite(chunk[i]) != 0 && isfinite(back[i]) == 0;
    }
    return overflows;
}
