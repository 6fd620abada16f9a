// Transforms images between the file and the model (data.transform). To add a transform, write it
// beside the others in this folder, and add its row in transform.c.
//
// A transform changes which pixels an image has (a crop, a flip, a new size), what they look like
// (brightness, a blur) or its values (normalize). All that change pixels run first, in the order of
// the list, on the image as it was stored. Then the values become F32, U8 divided by 255, and the
// others run. A list in which that would not be its own order is refused; a flip may stand
// anywhere.
//
// Random transforms act on training samples. In evaluation, which must not depend on chance, each
// does nothing, or what gives images of the same shape: a random crop cuts out the centre. A random
// number depends on the seed, the transform's position and name, the epoch and the sample.
#ifndef TRIREME_DATA_TRANSFORM_TRANSFORM_H
#define TRIREME_DATA_TRANSFORM_TRANSFORM_H

#include "base/buffer.h"
#include "base/option.h"
#include "tensor/image.h"
#include "tensor/pixels.h"

typedef struct tri_transforms tri_transforms;

// The size of an axis of images that differ from sample to sample.
enum { TRI_ANY_SIZE = -1 };

// Memory for the transforms of one thread: each writes into the one from which it does not read.
typedef struct tri_transform_memory {
    tri_buffer images[2];
    tri_buffer rows, spare; // what a transform needs while it runs
} tri_transform_memory;

void tri_transform_memory_free(tri_transform_memory *memory);

// The option tables of all transforms, each named after its transform; NULL at the end.
extern const tri_option_table *const tri_transform_tables[];

// How the samples of a training step are mixed (mix.h), by the list's mixup and cutmix.
typedef struct tri_mix_options {
    double mixup, cutmix; // alpha of the weights' distribution; 0: not mixed in this way
    double probability;   // of a step to be mixed
    int64_t classes;      // number of classes of soft labels that are made of labels
} tri_mix_options;
// TRI_BAD_INPUT: the list has a mistake, or mixup and cutmix contradict each other.
tri_status tri_transforms_mixing(const tri_tree *list, tri_mix_options *out);

// Checks the names and options of a list of transforms. TRI_BAD_INPUT: the message names file and
// line.
tri_status tri_transforms_check(const tri_tree *list);

// Prepares the transforms of a list for images of shape `image` [C, H, W], of which H and W may be
// TRI_ANY_SIZE, and type `stored`, which must be convertible to F32. *out lies in `arena` and is
// not changed later. TRI_BAD_INPUT: the list has a mistake, a transform does not fit the images, or
// images keep different sizes.
tri_status tri_transforms_create(tri_arena *arena, const tri_tree *list, tri_dtype stored,
                                 const tri_shape *image, bool training, uint64_t seed,
                                 tri_transforms **out);
// Prepares what moves masks (numbers for pixels) of the field `name` as the transforms `images`
// move the images: of each transform that moves pixels the same, with the same random numbers;
// others do not change masks. `mask` is [C, H, W]. TRI_BAD_INPUT: the stored images have another
// size, or a transform may change either places or colours.
tri_status tri_transforms_of_masks(tri_arena *arena, const tri_transforms *images, const char *name,
                                   tri_dtype stored, const tri_shape *mask, tri_transforms **out);
// Transforms the mask of a sample, as tri_transforms_apply, and writes it as numbers of `dtype`.
tri_status tri_transforms_apply_to_mask(const tri_transforms *transforms, const tri_image *stored,
                                        int64_t sample, int64_t epoch, tri_transform_memory *memory,
                                        tri_dtype dtype, void *out);
// Gets the shape of an image after all transforms.
const tri_shape *tri_transforms_shape(const tri_transforms *transforms);
// True if the transforms do nothing to values except to scale bytes by a tri_pixel_scale, which is
// then *out. In that case the device can do the scaling.
bool tri_transforms_scale(const tri_transforms *transforms, tri_pixel_scale *out);
// Transforms the image of a sample, and writes the planes [C, H, W] to `out`: floats or, with
// `as_bytes`, the bytes of a U8 image, which the device scales later. Any number of threads may
// call this at the same time, each with its own memory. TRI_BAD_INPUT: a transform does not fit
// this image; TRI_NO_MEMORY.
tri_status tri_transforms_apply(const tri_transforms *transforms, const tri_image *stored,
                                int64_t sample, int64_t epoch, bool as_bytes,
                                tri_transform_memory *memory, void *out);

#endif
