// Images as planes of bytes that may be changed in place, and what transforms of colours and of
// places do to them. Each function computes what Pillow or torchvision does, with the same rounding
// unless it says otherwise.
#ifndef TRIREME_DATA_TRANSFORM_PLANES_H
#define TRIREME_DATA_TRANSFORM_PLANES_H

#include "data/transform/kind.h"

// [channels, height, width]; functions of colours take 1 channel, grey, or 3, red, green and blue.
typedef struct tri_planes {
    uint8_t *data;
    int64_t channels, height, width;
} tri_planes;

// Makes *image planes in call->memory, which may be changed. Copies nothing if it is such already.
// TRI_NO_MEMORY.
tri_status tri_planes_of(tri_transform_call *call, tri_image *image, tri_planes *out);

// Replaces each byte x of a channel by table[x].
void tri_planes_map(const tri_planes *planes, int64_t channel, const uint8_t table[256]);
// Makes all channels grey, by the weights of ITU-R 601.
void tri_planes_grey(const tri_planes *planes);
// Mix the image, by `factor`, with black, with its mean grey, with itself in grey, and with itself
// smoothed: 1 changes nothing, 0 leaves only what is mixed in, and more than 1 goes the other way.
// `scratch` holds height x width bytes.
void tri_planes_brightness(const tri_planes *planes, float factor);
void tri_planes_contrast(const tri_planes *planes, float factor);
void tri_planes_saturation(const tri_planes *planes, float factor);
void tri_planes_sharpness(const tri_planes *planes, float factor, uint8_t *scratch);
// Turns the circle of hues by `turn`, from -0.5 to 0.5 of a full turn; a grey image stays as it is.
void tri_planes_hue(const tri_planes *planes, double turn);
// Keeps the `bits` highest bits; inverts bytes from `threshold` on; spreads each channel to the
// range 0 to 255; gives each channel all bytes equally often.
void tri_planes_posterize(const tri_planes *planes, int bits);
void tri_planes_solarize(const tri_planes *planes, double threshold);
void tri_planes_autocontrast(const tri_planes *planes);
void tri_planes_equalize(const tri_planes *planes);

#endif
