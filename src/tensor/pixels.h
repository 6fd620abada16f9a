// Converts the bytes of a U8 image to floats, one channel at a time.
#ifndef TRIREME_TENSOR_PIXELS_H
#define TRIREME_TENSOR_PIXELS_H

#include <stdbool.h>
#include <stdint.h>

enum { TRI_MAX_PIXEL_CHANNELS = 16 };

// What the bytes of images stand for: byte x of channel c is the number (x / 255 - mean[c]) /
// std[c], each operation rounded to F32, as torchvision computes it.
typedef struct tri_pixel_scale {
    int64_t channels;
    double mean[TRI_MAX_PIXEL_CHANNELS], std[TRI_MAX_PIXEL_CHANNELS]; // already rounded to F32
} tri_pixel_scale;

typedef struct tri_pixels {
    float values[256]; // the value of each byte
    // True if the vector code, which computes (x / 255 - shift) / divisor, gives exactly `values`.
    bool is_affine;
    float shift, divisor;
} tri_pixels;

// Suggests that pixels->values, which must be filled in already, follow the formula (x / 255 -
// shift) / divisor. The function tests the formula for all 256 bytes x, and sets is_affine if it is
// exact. A wrong suggestion therefore costs speed but not exactness.
void tri_pixels_hint(tri_pixels *pixels, float shift, float divisor);

// Fills *pixels for the images' channel number `channel`, as `scale` gives its mean and std.
void tri_pixels_make(tri_pixels *pixels, const tri_pixel_scale *scale, int64_t channel);
// Writes the value of each of `count` bytes to `to`.
void tri_pixels_apply(const tri_pixels *pixels, const uint8_t *from, float *to, int64_t count);

#endif
