// Tells which types are half types or floating types, and converts half types.
#include "tensor/half.h"

bool tri_dtype_is_half(tri_dtype dtype) { return dtype == TRI_F16 || dtype == TRI_BF16; }

bool tri_dtype_is_float(tri_dtype dtype) {
    return dtype == TRI_F32 || dtype == TRI_F64 || tri_dtype_is_half(dtype);
}

float tri_half_to_float(tri_dtype half, uint16_t bits) {
    return half == TRI_F16 ? tri_f16_to_float(bits) : tri_bf16_to_float(bits);
}

uint16_t tri_float_to_half(tri_dtype half, float value) {
    return half == TRI_F16 ? tri_float_to_f16(value) : tri_float_to_bf16(value);
}

void tri_half_widen(tri_dtype half, const void *from, float *to, int64_t count) {
    const uint16_t *in = from;
    if (half == TRI_F16)
        for (int64_t i = 0; i < count; i++) to[i] = tri_f16_to_float(in[i]);
    else
        for (int64_t i = 0; i < count; i++) to[i] = tri_bf16_to_float(in[i]);
}

void tri_half_narrow(tri_dtype half, const float *from, void *to, int64_t count) {
    uint16_t *out = to;
    if (half == TRI_F16)
        for (int64_t i = 0; i < count; i++) out[i] = tri_float_to_f16(from[i]);
    else
        for (int64_t i = 0; i < count; i++) out[i] = tri_float_to_bf16(from[i]);
}
