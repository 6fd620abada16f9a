// Reads and writes elements of F32 or BF16 and computes exp, in plain C without intrinsics, because
// the macro CPU_RANGES compiles the loops that use these functions for AVX-512, for AVX2 and for
// any CPU, and the compiler vectorises them at each width.
#ifndef TRIREME_DEVICE_CPU_SCALAR_H
#define TRIREME_DEVICE_CPU_SCALAR_H

#include "device/cpu/internal.h"

#include "tensor/half.h"

#define CPU_SCALAR static inline __attribute__((always_inline))

// A long sum is F32 within each block of so many terms, in the order of the terms, and F64 over the
// blocks: its error does not grow with the number of terms, and its order depends on shapes alone.
enum { CPU_SUM_TERMS = 64 };

CPU_SCALAR float cpu_get(const void *values, bool bf16, int64_t i) {
    return bf16 ? tri_bf16_to_float(((const uint16_t *)values)[i]) : ((const float *)values)[i];
}

CPU_SCALAR void cpu_put(void *values, bool bf16, int64_t i, float value) {
    if (bf16)
        ((uint16_t *)values)[i] = tri_float_to_bf16(value);
    else
        ((float *)values)[i] = value;
}

CPU_SCALAR const void *cpu_row(const void *values, bool bf16, int64_t element) {
    return (const char *)values + element * (bf16 ? 2 : 4);
}

// e^x with an error of about one unit in the last place, as 2^n · e^r with |r| <= ln 2 / 2. Returns
// 0 below -87, infinity where F32 overflows, and NaN for NaN.
CPU_SCALAR float cpu_exp_scalar(float argument) {
    float x = argument < -87.0f ? -87.0f : argument > 89.0f ? 89.0f : argument;
    // Adding 1.5 · 2^23 rounds x / ln 2 to the integer n, which is then in the lowest bits of
    // `shifted`.
    float shifted = x * 1.44269504f + 0x1.8p23f;
    float n = shifted - 0x1.8p23f, r = n * 2.12194440e-4f + (n * -0.693359375f + x);
    float p = 1.9875691500e-4f; // the polynomial of expf in the Cephes library
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    // Multiplies by 2^(n-1) and then by 2, because 2^n may be 2^128, which F32 does not have.
    float half = tri_float_from_bits((tri_float_bits(shifted) + 126) << 23);
    float result = (p * (r * r) + (r + 1)) * half * 2;
    return argument < -87.0f ? 0 : result;
}

// Compiles the loop `CPU_BODY NAME_typed(void *context, int64_t begin, int64_t end, bool bf16)` for
// F32 and for BF16, each for several instruction sets (CPU_RANGES). Defines NAME_range(device,
// bf16), which chooses among these functions by type and device.
#define CPU_TYPED_RANGES(name)                                                                     \
    CPU_BODY name##_f32_body(void *context, int64_t begin, int64_t end) {                          \
        name##_typed(context, begin, end, false);                                                  \
    }                                                                                              \
    CPU_BODY name##_bf16_body(void *context, int64_t begin, int64_t end) {                         \
        name##_typed(context, begin, end, true);                                                   \
    }                                                                                              \
    CPU_RANGES(name##_f32)                                                                         \
    CPU_RANGES(name##_bf16)                                                                        \
    static cpu_range name##_range(const cpu_device *device, bool bf16) {                           \
        return bf16 ? name##_bf16_range(device) : name##_f32_range(device);                        \
    }

#endif
