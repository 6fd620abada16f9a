// Functions of F32 numbers in plain C without branches, which the compiler vectorises in the loops
// of CPU_RANGES. The errors are in units in the last place (ulp) of the result. The polynomials
// were fitted for this program; they are minimax in the error of the result.
#ifndef TRIREME_DEVICE_CPU_FUNCTIONS_H
#define TRIREME_DEVICE_CPU_FUNCTIONS_H

#include "device/cpu/scalar.h"

#include <math.h>
#include <string.h>

CPU_SCALAR float cpu_sigmoid_scalar(float x) { return 1 / (1 + cpu_exp_scalar(-x)); }

// Computes tanh(x) as 1 − 2 / (e^2x + 1). For small x this loses digits, so there a polynomial is
// used, that of tanhf in the Cephes library.
CPU_SCALAR float cpu_tanh_scalar(float x) {
    float size = x < 0 ? -x : x, z = x * x;
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    float large = 1 - 2 / (cpu_exp_scalar(2 * size) + 1);
    float small = x == 0 ? x : p * z * x + x; // -0
    return size < 0.625f ? small : x < 0 ? -large : large;
}

// The natural logarithm, within 2 ulp. x is m · 2^n with m from √½ to √2, and log(m) = f − f²/2 +
// f³ · p(f) with f = m − 1.
CPU_SCALAR float cpu_log_scalar(float x) {
    bool tiny = x < 0x1p-126f; // numbers with leading zeros get a whole mantissa first
    float scaled = tiny ? x * 0x1p23f : x;
    uint32_t bits = tri_float_bits(scaled) - 0x3f3504f3; // of √½
    float n = (float)((int32_t)bits >> 23) - (tiny ? 23.0f : 0.0f);
    float f = tri_float_from_bits((bits & 0x007fffff) + 0x3f3504f3) - 1;
    float p = -0.07859545776f;
    p = p * f + 0.12881622364f;
    p = p * f - 0.13128767652f;
    p = p * f + 0.14181196119f;
    p = p * f - 0.16624553143f;
    p = p * f + 0.20002286084f;
    p = p * f - 0.25000810428f;
    p = p * f + 0.33333316727f;
    float result = f * f * f * p + n * -2.12194440e-4f;
    result = n * 0.693359375f + (f + (result - 0.5f * f * f));
    result = x > 3.4028235e38f ? x : result; // infinity
    result = x > 0 ? result : x == 0 ? -(float)INFINITY : (float)NAN;
    return result;
}

// log(1 + x), within 3 ulp: the error of rounding 1 + x to u is made up for by x / (u − 1).
CPU_SCALAR float cpu_log1p_scalar(float x) {
    float u = 1 + x, d = u - 1, logarithm = cpu_log_scalar(u);
    float made_up = logarithm * (x / d);
    return d == 0 ? x : u > 3.4028235e38f ? u : made_up;
}

// e^x − 1, within 4 ulp: as above, by the logarithm of the rounded e^x.
CPU_SCALAR float cpu_expm1_scalar(float x) {
    float u = cpu_exp_scalar(x), d = u - 1;
    float made_up = d * (x / cpu_log_scalar(u));
    float result = x > 0.5f || x < -1 ? d : made_up;
    return u == 1 ? x : result;
}

// The arc tangent, within 3 ulp, with the polynomial of the Cephes library: what lies above
// tan(π/8) is turned back by π/4, and above tan(3π/8) by π/2.
CPU_SCALAR float cpu_atan_scalar(float x) {
    float size = x < 0 ? -x : x;
    bool far = size > 2.414213562f, middle = size > 0.4142135624f;
    float above = far ? -1 : size - 1, below = far ? size : size + 1;
    float r = middle ? above / below : size, z = r * r;
    float turned = far ? 1.570796327f : middle ? 0.7853981634f : 0;
    float p = 8.05374449538e-2f;
    p = p * z - 1.38776856032e-1f;
    p = p * z + 1.99777106478e-1f;
    p = p * z - 3.33329491539e-1f;
    float y = turned + (p * z * r + r);
    return x < 0 ? -y : x == 0 ? x : y;
}

// The error function, within 2 ulp: an odd polynomial up to 0.92, then 1 − e^−p(|x|).
CPU_SCALAR float cpu_erf_scalar(float x) {
    float size = x < 0 ? -x : x, s = x * x;
    float near = 8.3823883e-5f;
    near = near * s - 8.1455970e-4f;
    near = near * s + 5.2012860e-3f;
    near = near * s - 2.68595001e-2f;
    near = near * s + 1.128369732e-1f;
    near = near * s - 3.761263385e-1f;
    near = near * s + 0.1283791666f; // erf(x) = x + x · this
    float a = size > 4 ? 4 : size;
    float far = -1.9494676332e-4f;
    far = far * a + 3.0336924525e-3f;
    far = far * a - 2.2189776893e-2f;
    far = far * a + 0.1038563746f;
    far = far * a + 0.6372657521f;
    far = far * a + 1.1276274006f;
    far = far * a + 2.070084929e-4f;
    float large = 1 - cpu_exp_scalar(-far);
    large = size == size ? large : size; // NaN
    return size < 0.92f ? x + x * near : x < 0 ? -large : large;
}

// Φ(x), the cumulative distribution function of the normal distribution, within 6 ulp also far
// below 0: Φ(-a) is e^(-a²/2) times a ratio of polynomials. A rounded a² would make that wrong by
// up to 50 ulp. So a is c, which has few digits, and a small rest: a²/2 = c²/2 + (a - c) · (a + c)
// / 2, whose first part is exact. The exponential is that of cpu_exp_scalar, of an argument of two
// parts.
CPU_SCALAR float cpu_normal_cdf_scalar(float x) {
    float size = x < 0 ? -x : x, a = size > 13.1f ? 13.1f : size;
    float c = (a + 0x1.8p18f) - 0x1.8p18f, half = 0.5f * c * c;
    float rest = (a - c) * (0.5f * (a + c));
    float shifted = 0x1.8p23f - half * 1.44269504f, n = shifted - 0x1.8p23f;
    float r = (n * -0.693359375f - half) + (n * 2.12194440e-4f - rest);
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    float power = tri_float_from_bits((tri_float_bits(shifted) + 127) << 23);
    float above = 4.020344921e-3f;
    above = above * a + 3.998520579e-2f;
    above = above * a + 1.813098127e-1f;
    above = above * a + 4.356904195e-1f;
    above = above * a + 5.000000025e-1f;
    float below = 1.007736707e-2f;
    below = below * a + 1.002354273e-1f;
    below = below * a + 4.643883978e-1f;
    below = below * a + 1.194496864f;
    below = below * a + 1.669265758f;
    below = below * a + 1;
    float tail = (p * (r * r) + (r + 1)) * power * above / below;
    tail = size > 13.1f ? 0 : tail;
    return x < 0 ? tail : 1 - tail;
}

// Up to this size of x, the functions below are right. Beyond it the libc has to compute them.
#define CPU_MOST_ANGLE 0x1p20f

// The sine of x (turns 0) or the cosine (1), within 2 ulp. x is r + q · π/2 with |r| <= π/4, where
// r is computed in F64, and polynomials of the Cephes library give the sine and cosine of r.
CPU_SCALAR float cpu_sine_scalar(float x, uint32_t turns) {
    // Adding 1.5 · 2^52 rounds to the integer q, which is then in the lowest bits of `shifted`.
    double shifted = x * 0.63661977236758134308 + 0x1.8p52, q = shifted - 0x1.8p52;
    float r = (float)(x - q * 0x1.921fb544p0 - q * 0x1.0b4611a626331p-34), z = r * r;
    float sine = -1.9515295891e-4f;
    sine = sine * z + 8.3321608736e-3f;
    sine = sine * z - 1.6666654611e-1f;
    sine = sine * z * r + r;
    float cosine = 2.443315711809948e-5f;
    cosine = cosine * z - 1.388731625493765e-3f;
    cosine = cosine * z + 4.166664568298827e-2f;
    cosine = cosine * z * z - 0.5f * z + 1;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    uint32_t quarter = (uint32_t)bits + turns;
    float size = quarter & 1 ? cosine : sine;
    float result = tri_float_from_bits(tri_float_bits(size) ^ (quarter & 2) << 30);
    return x == 0 && turns == 0 ? x : result; // -0
}

// Whether cpu_fmod_scalar is right for these numbers. Where it is not, the libc has to compute
// them.
CPU_SCALAR bool cpu_fmod_fits(float a, float b) {
    float x = __builtin_fabsf(a), y = __builtin_fabsf(b);
    return x <= y * 0x1p28f && x <= 3.4028235e38f && y <= 3.4028235e38f;
}

// The remainder of a / b towards 0, exactly. The quotient has at most 29 bits, so its product with
// b is exact in F64, and so is the difference. A quotient that was rounded up is one too large.
CPU_SCALAR float cpu_fmod_scalar(float a, float b) {
    double x = __builtin_fabsf(a), y = __builtin_fabsf(b), quotient = (double)(int32_t)(x / y);
    double rest = x - quotient * y;
    rest = rest < 0 ? rest + y : rest;
    return y > 0 ? __builtin_copysignf((float)rest, a) : NAN;
}

#endif
