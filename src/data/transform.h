// Transforms images between the file and the model (data.transform). To add a transform, add a row
// in transform.c.
//
// A U8 image always becomes F32 in [0, 1] (x / 255). Transforms that move pixels draw random
// numbers, so they act on training samples only: an evaluation must not depend on chance. They move
// the pixels before these are converted to F32; transforms that change values come after the
// conversion. A random number depends on the seed, the transform's index and name, the epoch and
// the sample.
#ifndef TRIREME_DATA_TRANSFORM_H
#define TRIREME_DATA_TRANSFORM_H

#include "base/option.h"
#include "tensor/pixels.h"

#include <trireme/tensor.h>

typedef struct tri_transforms tri_transforms;

// The option tables of all transforms, each named after its transform; NULL at the end.
extern const tri_option_table *const tri_transform_tables[];

// Checks the names and options of a list of transforms. TRI_BAD_INPUT: the message names file and
// line.
tri_status tri_transforms_check(const tri_tree *list);

// Prepares the transforms of a list for images of shape `image` [C, H, W] and type `stored`, which
// must be convertible to F32. *out lies in `arena` and is not changed later. TRI_BAD_INPUT: the
// list has a mistake, or a transform does not fit the images.
tri_status tri_transforms_create(tri_arena *arena, const tri_tree *list, tri_dtype stored,
                                 const tri_shape *image, bool training, uint64_t seed,
                                 tri_transforms **out);
// Gets the shape of an image after all transforms.
const tri_shape *tri_transforms_shape(const tri_transforms *transforms);
// How many bytes of scratch memory tri_transforms_apply needs.
size_t tri_transforms_scratch_bytes(const tri_transforms *transforms);
// True if the transforms do nothing to values except to scale bytes by a tri_pixel_scale, which is
// then *out. In that case the device can do the scaling.
bool tri_transforms_scale(const tri_transforms *transforms, tri_pixel_scale *out);
// Applies to a U8 image only those transforms that move pixels; the device scales the bytes later.
void tri_transforms_move(const tri_transforms *transforms, const void *stored, int64_t sample,
                         int64_t epoch, void *scratch, uint8_t *out);
// Transforms the image `stored` of a sample to floats at `out`. Any number of threads may call this
// at the same time, each with its own scratch memory.
void tri_transforms_apply(const tri_transforms *transforms, const void *stored, int64_t sample,
                          int64_t epoch, void *scratch, float *out);

#endif
