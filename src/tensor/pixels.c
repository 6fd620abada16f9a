// Converts the bytes of images to floats. The reference is a table with the value of each of the
// 256 bytes (tri_pixels.values). Vector arithmetic is faster, and is used where it gives the same
// bits as the table. Elsewhere the values are read from the table.
#include "tensor/pixels.h"

#include <string.h>

// Divides by a constant: multiplies by the reciprocal, then corrects the quotient by one fused
// multiply-add (Markstein, "Computation of elementary functions on the IBM RISC System/6000
// processor", IBM J. Res. Dev. 34 (1990)). This is much cheaper than a division, and the result is
// nearly always the correctly rounded quotient. tri_pixels_hint tests whether the results for all
// 256 bytes are exact.
#define AFFINE_BODY                                                                                \
    const float by_255 = 1.0f / 255.0f, by_divisor = 1.0f / divisor;                               \
    for (int64_t i = 0; i < count; i++) {                                                          \
        float x = (float)from[i];                                                                  \
        float q = x * by_255;                                                                      \
        q = __builtin_fmaf(__builtin_fmaf(-q, 255.0f, x), by_255, q);                              \
        float y = q - shift;                                                                       \
        float z = y * by_divisor;                                                                  \
        to[i] = __builtin_fmaf(__builtin_fmaf(-z, divisor, y), by_divisor, z);                     \
    }

typedef void affine_function(const uint8_t *from, float *to, int64_t count, float shift,
                             float divisor);

#ifdef __x86_64__
__attribute__((target("avx512f,avx512bw,avx512vl,fma"))) static void
affine_avx512(const uint8_t *restrict from, float *restrict to, int64_t count, float shift,
              float divisor) {
    AFFINE_BODY
}

__attribute__((target("avx2,fma"))) static void affine_avx2(const uint8_t *restrict from,
                                                            float *restrict to, int64_t count,
                                                            float shift, float divisor) {
    AFFINE_BODY
}

static affine_function *affine(void) {
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        return affine_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return affine_avx2;
    return NULL; // the processor has no fused multiply-add: the table is faster
}
#elif defined(__ARM_FEATURE_FMA)
static void affine_plain(const uint8_t *restrict from, float *restrict to, int64_t count,
                         float shift, float divisor) {
    AFFINE_BODY
}

static affine_function *affine(void) { return affine_plain; }
#else
static affine_function *affine(void) { return NULL; }
#endif

void tri_pixels_hint(tri_pixels *pixels, float shift, float divisor) {
    uint8_t bytes[256];
    float values[256];
    if (!affine()) return;
    for (int i = 0; i < 256; i++) bytes[i] = (uint8_t)i;
    affine()(bytes, values, 256, shift, divisor);
    pixels->is_affine = memcmp(values, pixels->values, sizeof values) == 0;
    pixels->shift = shift;
    pixels->divisor = divisor;
}

void tri_pixels_make(tri_pixels *pixels, const tri_pixel_scale *scale, int64_t channel) {
    float mean = (float)scale->mean[channel], std = (float)scale->std[channel];
    *pixels = (tri_pixels){.is_affine = false};
    for (int byte = 0; byte < 256; byte++)
        pixels->values[byte] = ((float)byte / 255.0f - mean) / std;
    tri_pixels_hint(pixels, mean, std);
}

static void look_up(const float *values, const uint8_t *from, float *to, int64_t count) {
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) { // loads eight bytes at once
        uint64_t bytes;
        memcpy(&bytes, from + i, sizeof bytes);
        for (int k = 0; k < 8; k++) to[i + k] = values[bytes >> 8 * k & 255];
    }
    for (; i < count; i++) to[i] = values[from[i]];
}

void tri_pixels_apply(const tri_pixels *pixels, const uint8_t *from, float *to, int64_t count) {
    if (pixels->is_affine)
        affine()(from, to, count, pixels->shift, pixels->divisor);
    else
        look_up(pixels->values, from, to, count);
}
