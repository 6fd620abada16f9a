#include "data/convert.h"

#include "base/status.h"

#include <string.h>

// Every finite half is a float; 0x7c00 and above are infinity and NaN.
static float from_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff, bits;
    float value;
    if (magnitude < 0x0400) { // zero and subnormals: units of 2^-24
        value = (float)magnitude * 0x1p-24f;
        memcpy(&bits, &value, sizeof bits);
    } else if (magnitude >= 0x7c00) {
        bits = 0x7f800000 | (magnitude & 0x03ff) << 13;
    } else {
        bits = (magnitude << 13) + ((127 - 15) << 23);
    }
    bits |= sign;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float from_bfloat(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static bool is_whole(tri_dtype dtype) {
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
    bool is_float = from == TRI_F32 || from == TRI_F64 || from == TRI_F16 || from == TRI_BF16;
    if (to == TRI_F32) return is_float || is_whole(from);
    return to == TRI_I64 && is_whole(from) && from != TRI_U64;
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
        LOOP(uint16_t, from_half(x));
    case TRI_BF16:
        LOOP(uint16_t, from_bfloat(x));
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
