// Element-wise conversion of stored data to F32 and I64: one loop for each pair of types, which the
// compiler vectorises.
#include "data/convert.h"

#include "base/status.h"
#include "tensor/half.h"

#include <string.h>

static bool is_integer(tri_dtype dtype) {
    switch (dtype) {
    case TRI_I64:
    case TRI_I32:
    case TRI_I16:
    case TRI_I8:
    case TRI_U64:
    case TRI_U32:
    case TRI_U16:
    case TRI_U8:
    case TRI_BOOL:
        return true;
    default:
        return false;
    }
}

bool tri_convert_supported(tri_dtype from, tri_dtype to) {
    if (to == TRI_F32) return tri_dtype_is_float(from) || is_integer(from);
    return to == TRI_I64 && is_integer(from) && from != TRI_U64;
}

#define LOOP(T, value)                                                                             \
    do {                                                                                           \
        const T *items = in;                                                                       \
        for (int64_t i = 0; i < count; i++) {                                                      \
            T x = items[i];                                                                        \
            to_items[i] = (value);                                                                 \
        }                                                                                          \
        return;                                                                                    \
    } while (0)

static void to_float(tri_dtype from, const void *in, float *to_items, int64_t count) {
    switch (from) {
    case TRI_F64:
        LOOP(double, (float)x);
    case TRI_F16:
    case TRI_BF16:
        tri_half_widen(from, in, to_items, count);
        return;
    case TRI_I64:
        LOOP(int64_t, (float)x);
    case TRI_I32:
        LOOP(int32_t, (float)x);
    case TRI_I16:
        LOOP(int16_t, (float)x);
    case TRI_I8:
        LOOP(int8_t, (float)x);
    case TRI_U64:
        LOOP(uint64_t, (float)x);
    case TRI_U32:
        LOOP(uint32_t, (float)x);
    case TRI_U16:
        LOOP(uint16_t, (float)x);
    case TRI_U8:
        LOOP(uint8_t, (float)x);
    case TRI_BOOL:
        LOOP(uint8_t, x ? 1.0f : 0.0f);
    default:
        TRI_ASSERT(!"a type that tri_convert_supported refuses");
    }
}

static void to_int(tri_dtype from, const void *in, int64_t *to_items, int64_t count) {
    switch (from) {
    case TRI_I32:
        LOOP(int32_t, x);
    case TRI_I16:
        LOOP(int16_t, x);
    case TRI_I8:
        LOOP(int8_t, x);
    case TRI_U32:
        LOOP(uint32_t, x);
    case TRI_U16:
        LOOP(uint16_t, x);
    case TRI_U8:
        LOOP(uint8_t, x);
    case TRI_BOOL:
        LOOP(uint8_t, x != 0);
    default:
        TRI_ASSERT(!"a type that tri_convert_supported refuses");
    }
}

void tri_convert(tri_dtype from, const void *in, tri_dtype to, void *out, int64_t count) {
    if (from == to)
        memcpy(out, in, (size_t)count * tri_dtype_bytes(from));
    else if (to == TRI_F32)
        to_float(from, in, out, count);
    else
        to_int(from, in, out, count);
}
