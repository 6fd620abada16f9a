// The values of bytes: what a U8 image becomes, one channel at a time.
#ifndef TRIREME_DATA_PIXELS_H
#define TRIREME_DATA_PIXELS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tri_pixels {
    float values[256]; // the value of each byte
    // Whether (x / 255 - shift) / divisor, computed by the vector code, gives those values to the
    // bit.
    bool is_affine;
    float shift, divisor;
} tri_pixels;

// Says that `values`, already filled in, may be (x / 255 - shift) / divisor. It is tried with all
// bytes, so a wrong hint costs nothing but speed.
void tri_pixels_hint(tri_pixels *pixels, float shift, float divisor);

void tri_pixels_apply(const tri_pixels *pixels, const uint8_t *from, float *to, int64_t count);

#endif
