// The operations of rand_augment and trivial_augment_wide.
#ifndef TRIREME_DATA_TRANSFORM_AUGMENT_H
#define TRIREME_DATA_TRANSFORM_AUGMENT_H

#include "data/transform/affine.h"

// Their order is torchvision's.
typedef enum tri_augment {
    TRI_AUGMENT_IDENTITY,
    TRI_AUGMENT_SHEAR_X,
    TRI_AUGMENT_SHEAR_Y,
    TRI_AUGMENT_TRANSLATE_X,
    TRI_AUGMENT_TRANSLATE_Y,
    TRI_AUGMENT_ROTATE,
    TRI_AUGMENT_BRIGHTNESS,
    TRI_AUGMENT_COLOR,
    TRI_AUGMENT_CONTRAST,
    TRI_AUGMENT_SHARPNESS,
    TRI_AUGMENT_POSTERIZE,
    TRI_AUGMENT_SOLARIZE,
    TRI_AUGMENT_AUTOCONTRAST,
    TRI_AUGMENT_EQUALIZE,
    TRI_AUGMENTS,
} tri_augment;

// How an operation's magnitude grows with its bin.
typedef struct tri_augment_range {
    enum {
        TRI_AUGMENT_NONE,  // it has none
        TRI_AUGMENT_LINE,  // evenly from `first` to `last`
        TRI_AUGMENT_WIDTH, // evenly from 0 to `last` times the image's width
        TRI_AUGMENT_HEIGHT,
        TRI_AUGMENT_BITS, // bits that are kept: from 8 to 8 - `last`
    } form;
    bool is_signed; // half of the draws are negative
    double first, last;
} tri_augment_range;
extern const tri_augment_range tri_rand_augment_ranges[TRI_AUGMENTS],
    tri_trivial_augment_ranges[TRI_AUGMENTS];

// The magnitude of bin `bin` of `bins`, at least 2, as torchvision rounds it.
double tri_augment_magnitude(const tri_augment_range *range, int64_t bin, int64_t bins,
                             const tri_image *image);
// Applies an operation. *image may lie in call->memory. TRI_NO_MEMORY.
tri_status tri_augment_apply(tri_transform_call *call, tri_image *image, tri_augment which,
                             double magnitude, tri_affine_filter filter, tri_ints fill);

#endif
