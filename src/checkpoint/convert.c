#include "checkpoint/convert.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 512 };

bool checkpoint_is_float(tri_dtype dtype) {
    return dtype == TRI_F64 || dtype == TRI_F32 || dtype == TRI_F16 || dtype == TRI_BF16;
}

bool checkpoint_has_f64(tri_dtype dtype) { return dtype != TRI_F8_E4M3 && dtype != TRI_F8_E5M2; }

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits.
static float half_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31;
    uint32_t fraction = half & 0x3ff;
    if (exponent == 31) return from_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent == 0) return copysignf((float)fraction * 0x1p-24f, from_bits(sign));
    return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

static uint16_t float_to_half(float value) {
    uint32_t bits = to_bits(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return (uint16_t)(sign | 0x7e00);  // not a number
    if (size >= 0x477ff000) return (uint16_t)(sign | 0x7c00); // rounds past 65504
    if (size < 0x38800000) // below 2^-14: steps of 2^-24, rounded by the addition
        return (uint16_t)(sign | (to_bits(from_bits(size) + 0x1p-1f) - to_bits(0x1p-1f)));
    return (uint16_t)(sign | ((size - (112u << 23)) + 0xfff + (size >> 13 & 1)) >> 13);
}

static uint16_t float_to_brain(float value) {
    uint32_t bits = to_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

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
        EACH(uint16_t, half_to_float(in[i]));
    case TRI_BF16:
        EACH(uint16_t, from_bits((uint32_t)in[i] << 16));
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
            ((uint16_t *)to)[i] = float_to_half((float)from[i]);
        else
            ((uint16_t *)to)[i] = float_to_brain((float)from[i]);
    }
}

void checkpoint_convert(tri_dtype from_dtype, const void *from, tri_dtype to_dtype, void *to,
                        int64_t count) {
    TRI_ASSERT(checkpoint_is_float(from_dtype) && checkpoint_is_float(to_dtype));
    size_t from_bytes = tri_dtype_bytes(from_dtype), to_bytes = tri_dtype_bytes(to_dtype);
    for (int64_t done = 0; done < count; done += BLOCK) {
        double block[BLOCK];
        int64_t size = count - done < BLOCK ? count - done : BLOCK;
        checkpoint_to_f64(from_dtype, (const char *)from + (size_t)done * from_bytes, size, block);
        from_f64(to_dtype, block, size, (char *)to + (size_t)done * to_bytes);
    }
}
