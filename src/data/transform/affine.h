// Moves the pixels of an image by an affine map, as Pillow's Image.transform does.
#ifndef TRIREME_DATA_TRANSFORM_AFFINE_H
#define TRIREME_DATA_TRANSFORM_AFFINE_H

#include "data/transform/kind.h"

typedef enum tri_affine_filter { TRI_AFFINE_NEAREST, TRI_AFFINE_BILINEAR } tri_affine_filter;
extern const char *const tri_affine_filters[]; // their names; NULL at the end

// Where the middle (x, y) of a pixel of the result lies in the image: at (m[0] x + m[1] y + m[2],
// m[3] x + m[4] y + m[5]).
typedef struct tri_affine {
    double m[6];
} tri_affine;

// The maps by which torchvision turns an image around its centre, by `degrees` against the clock,
// slants it, so that a row (or a column) moves by `slope` times its distance from the top (or
// left), and moves it by (x, y).
tri_affine tri_affine_rotation(double degrees, int64_t height, int64_t width);
tri_affine tri_affine_shear(double slope_x, double slope_y);
tri_affine tri_affine_translation(double x, double y, int64_t height, int64_t width);

// Scales the image to height x width, as Pillow does by its filter nearest. TRI_NO_MEMORY.
tri_status tri_transform_nearest(tri_transform_call *call, tri_image *image, int64_t height,
                                 int64_t width);
// Maps the image into call->memory; a mask always by the nearest pixel, and filled with 0. Pixels
// from outside become `fill`: one byte for each channel, or one for all; other types than U8 get 0.
// TRI_UNSUPPORTED: bilinear, and not U8. TRI_NO_MEMORY.
tri_status tri_transform_affine(tri_transform_call *call, tri_image *image, const tri_affine *map,
                                tri_affine_filter filter, tri_ints fill);

#endif
