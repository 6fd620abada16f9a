// Converts the bytes of a U8 image to floats, one channel at a time.
#ifndef TRIREME_DATA_PIXELS_H
#define TRIREME_DATA_PIXELS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tri_pixels {
    float values[256]; // the value of each byte
    // True if the vector code, which computes (x / 255 - shift) / divisor, gives exactly `values`.
    bool is_affine;
    float shift, divisor;
} tri_pixels;

// Suggests that `values`, already filled in, equal (x / 255 - shift) / divisor. Tests that for all
// bytes and sets is_affine, so a wrong suggestion costs speed but not exactness.
void tri_pixels_hint(tri_pixels *pixels, float shift, float divisor);

// Writes the value of each of `count` bytes to `to`.
void tri_pixels_apply(const tri_pixels *pixels, const uint8_t *from, float *to, int64_t count);

#endif
