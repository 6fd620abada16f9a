// The 16-bit floating-point types in plain C: elements are uint16_t, because C17 has no such types.
#ifndef TRIREME_TENSOR_HALF_H
#define TRIREME_TENSOR_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <trireme/tensor.h>

bool tri_dtype_is_half(tri_dtype dtype);  // F16 or BF16
bool tri_dtype_is_float(tri_dtype dtype); // F64, F32, F16, BF16

static inline float tri_float_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t tri_float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// BF16: the upper half of an F32.
static inline float tri_bf16_to_float(uint16_t bits) {
    return tri_float_from_bits((uint32_t)bits << 16);
}

// F32 to BF16, rounded to nearest, ties to even, as hardware does. NaN stays NaN: a plain rounding
// could turn it into infinity.
static inline uint16_t tri_float_to_bf16(float value) {
    uint32_t bits = tri_float_bits(value);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

// F16: IEEE 754 binary16, 1 sign, 5 exponent (bias 15), 10 fraction bits.
static inline float tri_f16_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31;
    uint32_t fraction = half & 0x3ff;
    if (exponent == 31) return tri_float_from_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent == 0) return copysignf((float)fraction * 0x1p-24f, tri_float_from_bits(sign));
    return tri_float_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

static inline uint16_t tri_float_to_f16(float value) {
    uint32_t bits = tri_float_bits(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return (uint16_t)(sign | 0x7e00);  // not a number
    if (size >= 0x477ff000) return (uint16_t)(sign | 0x7c00); // 65520 and more round to infinity
    // Below 2^-14, numbers in F16 are multiples of 2^-24. Around 0.5, so are numbers in F32: adding
    // 0.5 rounds to such a multiple.
    if (size < 0x38800000)
        return (uint16_t)(sign | (tri_float_bits(tri_float_from_bits(size) + 0x1p-1f) -
                                  tri_float_bits(0x1p-1f)));
    return (uint16_t)(sign | ((size - (112u << 23)) + 0xfff + (size >> 13 & 1)) >> 13);
}

// Convert one number from or to the type `half`, F16 or BF16.
float tri_half_to_float(tri_dtype half, uint16_t bits);
uint16_t tri_float_to_half(tri_dtype half, float value);
// Convert `count` numbers; `from` and `to` must not overlap.
void tri_half_widen(tri_dtype half, const void *from, float *to, int64_t count);
void tri_half_narrow(tri_dtype half, const float *from, void *to, int64_t count);

#endif
