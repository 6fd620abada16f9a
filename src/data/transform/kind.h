// The interface of a kind of transform. transform.h explains what transforms do.
#ifndef TRIREME_DATA_TRANSFORM_KIND_H
#define TRIREME_DATA_TRANSFORM_KIND_H

#include "base/limits.h"
#include "base/philox.h"
#include "data/transform/transform.h"

#include <math.h>

// The random numbers of one transform for one sample: block after block, each of four words.
typedef struct tri_transform_random {
    uint64_t key;
    int64_t sample, epoch;
    uint32_t blocks; // number of blocks drawn so far
} tri_transform_random;

static inline tri_philox_block tri_transform_draw(tri_transform_random *random) {
    const uint32_t counter[4] = {
        (uint32_t)random->sample, (uint32_t)((uint64_t)random->sample >> 32),
        (uint32_t)random->epoch, (uint32_t)((uint64_t)random->epoch >> 32) | random->blocks << 16};
    random->blocks++;
    return tri_philox(random->key, counter);
}

// Maps a random word to an integer in [0, range), without a division.
static inline int64_t tri_transform_below(uint32_t word, int64_t range) {
    return (int64_t)((uint64_t)word * (uint64_t)range >> 32);
}

// What a transform gets for one image: its own random numbers, and memory. A transform that makes
// new pixels writes them into `memory`, from which the image that it gets is never read, and may
// use `rows` while it runs. One of several steps, which reads from `memory` what a step before
// made, lets it change places with `spare`.
typedef struct tri_transform_call {
    tri_transform_random random;
    // The image is a mask: its numbers are moved and not mixed, and places without one become 0.
    bool is_mask;
    tri_buffer *memory, *rows, *spare;
} tri_transform_call;

// Replaces the image by its transform: another view of the same pixels, or new ones in
// call->memory.
typedef tri_status (*tri_transform_apply)(const void *params, tri_transform_call *call,
                                          tri_image *image);

// What a transform changes.
typedef enum tri_transform_role {
    TRI_TRANSFORM_GEOMETRY, // which pixels lie where
    TRI_TRANSFORM_COLOUR,   // what pixels look like; the images have to be bytes
    TRI_TRANSFORM_MIXED,    // either, by chance; the images have to be bytes
    TRI_TRANSFORM_VALUE,    // numbers, after pixels have become such
    TRI_TRANSFORM_STEP,     // the samples of a step among each other; nothing of one alone
} tri_transform_role;

// One kind of transform. `params` is a struct that is read from the recipe by the table `options`.
typedef struct tri_transform_kind {
    tri_transform_role role;
    // If the recipe gives a value in place of options, {resize: 256}, it belongs to the first row.
    const tri_option_table *options;
    // Checks `params` against the shape *image, of which height and width may be TRI_ANY_SIZE, and
    // replaces it by the output's shape. NULL: any shape is allowed and stays the same.
    tri_status (*output_shape)(const void *params, tri_shape *image);
    // What it does to images in training and in evaluation. NULL: nothing.
    tri_transform_apply train, evaluate;
    // Transforms `count` values of a channel in place. Values of U8 images lie in [0, 1] before the
    // first transform. NULL: values stay the same.
    void (*map_values)(const void *params, int channel, float *values, int64_t count);
    // If map_values is (x - shift) / divisor: returns these two numbers, with which U8 images are
    // converted faster. NULL: it is another function.
    void (*affine)(const void *params, int channel, float *shift, float *divisor);
} tri_transform_kind;

// The options of mixup and of cutmix.
typedef struct tri_mixing_options {
    double alpha, probability;
    int64_t classes;
} tri_mixing_options;

// Every kind of transform: X(its word). The kind is tri_transform_WORD, its options are the table
// tri_transform_WORD_table.
#define TRI_TRANSFORM_LIST(X)                                                                      \
    X(resize)                                                                                      \
    X(center_crop)                                                                                 \
    X(random_crop)                                                                                 \
    X(resized_crop)                                                                                \
    X(horizontal_flip)                                                                             \
    X(vertical_flip)                                                                               \
    X(random_rotation)                                                                             \
    X(color_jitter)                                                                                \
    X(grayscale)                                                                                   \
    X(random_grayscale)                                                                            \
    X(gaussian_blur)                                                                               \
    X(random_erasing)                                                                              \
    X(rand_augment)                                                                                \
    X(trivial_augment_wide)                                                                        \
    X(normalize)                                                                                   \
    X(mixup)                                                                                       \
    X(cutmix)

#define X(word)                                                                                    \
    extern const tri_option_table tri_transform_##word##_table;                                    \
    extern const tri_transform_kind tri_transform_##word;
TRI_TRANSFORM_LIST(X)
#undef X

// An option `size`, and the height and width that it gives.
#define TRI_TRANSFORM_SIZE_ROW(S, text)                                                            \
    TRI_OPTION_INTS(S, size, text, 1, TRI_MAX_IMAGE_SIDE, 0,                                       \
                    "height and width of the result: one number for both, or [height, width]")
int64_t tri_transform_height(tri_ints size);
int64_t tri_transform_width(tri_ints size);
tri_status tri_transform_check_size(const char *name, tri_ints size);

// An option that is a range: one number x stands for middle - x to middle + x, two are its ends.
// tri_transform_check_range is for the table's `check`, whose `map` it gets. TRI_BAD_INPUT: the
// message names the key.
typedef struct tri_range {
    double low, high;
} tri_range;
tri_range tri_transform_range(tri_doubles list, double middle);
tri_status tri_transform_check_range(const tri_tree *map, const char *key, tri_doubles list);
// Maps a random word to a number of the range.
static inline double tri_transform_between(uint32_t word, double low, double high) {
    return low + (high - low) * (double)tri_philox_uniform(word);
}

// An option `fill`, bytes for pixels that have none, and its check against the images' shape.
#define TRI_TRANSFORM_FILL_ROW(S)                                                                  \
    TRI_OPTION_INTS(S, fill, "[0]", 0, 255, 0,                                                     \
                    "byte for pixels from outside of the image; one for all channels, or C")
tri_status tri_transform_check_fill(const char *name, const char *key, tri_ints fill,
                                    const tri_shape *image);
// Refuses images that have neither 1 nor 3 channels.
tri_status tri_transform_check_colours(const char *name, const tri_shape *image);

// Cuts the rectangle out of the image; pixels that lie outside of the image are 0.
tri_status tri_transform_cut(tri_transform_call *call, tri_image *image, int64_t top, int64_t left,
                             int64_t height, int64_t width);
// Cuts out the centre, as torchvision's center_crop does; pixels outside of the image are 0.
tri_status tri_transform_cut_center(tri_transform_call *call, tri_image *image, int64_t height,
                                    int64_t width);

typedef enum tri_resize_filter { TRI_RESIZE_BILINEAR, TRI_RESIZE_BICUBIC } tri_resize_filter;
extern const char *const tri_resize_filters[]; // their names; NULL at the end
// Scales a U8 image to height x width as Pillow does, with the same rounding: every pixel of the
// result is a weighted mean of the pixels beneath it. TRI_NO_MEMORY.
tri_status tri_transform_scale(tri_transform_call *call, tri_image *image, int64_t height,
                               int64_t width, tri_resize_filter filter);
// Finds height and width of an image whose shorter side is scaled to `shorter`, as torchvision
// does.
void tri_transform_shorter_side(int64_t shorter, int64_t *height, int64_t *width);

#endif
