// What is done to an image between the file and the model. A new transform is one row in
// transform.c.
//
// A U8 image becomes F32 in [0, 1] (x / 255) whatever the list says. Transforms that move pixels
// act on the stored elements and, as they draw random numbers, on training samples only; those that
// change values act on the floats. The draws are keyed by the transform's place and name and
// counted by epoch and sample.
#ifndef TRIREME_DATA_TRANSFORM_H
#define TRIREME_DATA_TRANSFORM_H

#include "base/option.h"

#include <trireme/tensor.h>

typedef struct tri_transforms tri_transforms;

// The options of every transform, by its name; NULL at the end.
extern const tri_option_table *const tri_transform_tables[];

// Names and options of a list alone. TRI_BAD_INPUT naming file and line.
tri_status tri_transforms_check(const tri_tree *list);

// `image` is [C, H, W], `stored` any type that converts to F32. Lives in `arena`; read-only once
// made.
tri_status tri_transforms_create(tri_arena *arena, const tri_tree *list, tri_dtype stored,
                                 const tri_shape *image, bool training, uint64_t seed,
                                 tri_transforms **out);
// The shape that comes out.
const tri_shape *tri_transforms_shape(const tri_transforms *transforms);
// Bytes of scratch memory that tri_transforms_apply needs.
size_t tri_transforms_scratch_bytes(const tri_transforms *transforms);
// Any number of threads may call this, each with its own scratch.
void tri_transforms_apply(const tri_transforms *transforms, const void *stored, int64_t sample,
                          int64_t epoch, void *scratch, float *out);

#endif
