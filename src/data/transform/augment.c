// rand_augment and trivial_augment_wide: apply operations that are drawn from a list, as
// torchvision's transforms of these names do to Pillow's images.
#include "data/transform/augment.h"

#include "data/transform/planes.h"

#define COLOURS(most)                                                                              \
    [TRI_AUGMENT_BRIGHTNESS] = {TRI_AUGMENT_LINE, true, 0, (most)},                                \
    [TRI_AUGMENT_COLOR] = {TRI_AUGMENT_LINE, true, 0, (most)},                                     \
    [TRI_AUGMENT_CONTRAST] = {TRI_AUGMENT_LINE, true, 0, (most)},                                  \
    [TRI_AUGMENT_SHARPNESS] = {TRI_AUGMENT_LINE, true, 0, (most)},                                 \
    [TRI_AUGMENT_SOLARIZE] = {TRI_AUGMENT_LINE, false, 255, 0}

const tri_augment_range tri_rand_augment_ranges[TRI_AUGMENTS] = {
    COLOURS(0.9),
    [TRI_AUGMENT_SHEAR_X] = {TRI_AUGMENT_LINE, true, 0, 0.3},
    [TRI_AUGMENT_SHEAR_Y] = {TRI_AUGMENT_LINE, true, 0, 0.3},
    [TRI_AUGMENT_TRANSLATE_X] = {TRI_AUGMENT_WIDTH, true, 0, 150.0 / 331.0},
    [TRI_AUGMENT_TRANSLATE_Y] = {TRI_AUGMENT_HEIGHT, true, 0, 150.0 / 331.0},
    [TRI_AUGMENT_ROTATE] = {TRI_AUGMENT_LINE, true, 0, 30},
    [TRI_AUGMENT_POSTERIZE] = {TRI_AUGMENT_BITS, false, 0, 4},
};

const tri_augment_range tri_trivial_augment_ranges[TRI_AUGMENTS] = {
    COLOURS(0.99),
    [TRI_AUGMENT_SHEAR_X] = {TRI_AUGMENT_LINE, true, 0, 0.99},
    [TRI_AUGMENT_SHEAR_Y] = {TRI_AUGMENT_LINE, true, 0, 0.99},
    [TRI_AUGMENT_TRANSLATE_X] = {TRI_AUGMENT_LINE, true, 0, 32},
    [TRI_AUGMENT_TRANSLATE_Y] = {TRI_AUGMENT_LINE, true, 0, 32},
    [TRI_AUGMENT_ROTATE] = {TRI_AUGMENT_LINE, true, 0, 135},
    [TRI_AUGMENT_POSTERIZE] = {TRI_AUGMENT_BITS, false, 0, 6},
};

// torch.linspace in single precision, which goes forward from the first number in its first half,
// and backward from the last one in its second.
static double on_line(double first, double last, int64_t bin, int64_t bins) {
    float from = (float)first, to = (float)last, step = (to - from) / (float)(bins - 1);
    return (double)(bin < bins / 2 ? from + step * (float)bin
                                   : to - step * (float)(bins - 1 - bin));
}

double tri_augment_magnitude(const tri_augment_range *range, int64_t bin, int64_t bins,
                             const tri_image *image) {
    switch (range->form) {
    case TRI_AUGMENT_LINE:
        return on_line(range->first, range->last, bin, bins);
    case TRI_AUGMENT_WIDTH:
        return on_line(0, range->last * (double)image->width, bin, bins);
    case TRI_AUGMENT_HEIGHT:
        return on_line(0, range->last * (double)image->height, bin, bins);
    case TRI_AUGMENT_BITS:
        return (double)(8 - nearbyintf((float)bin / (float)((double)(bins - 1) / range->last)));
    default:
        return 0;
    }
}

// Maps the image, which may lie in call->memory, so that the two memories change places first.
static tri_status move(tri_transform_call *call, tri_image *image, tri_affine map,
                       tri_affine_filter filter, tri_ints fill) {
    tri_buffer memory = *call->memory;
    *call->memory = *call->spare;
    *call->spare = memory;
    return tri_transform_affine(call, image, &map, filter, fill);
}

tri_status tri_augment_apply(tri_transform_call *call, tri_image *image, tri_augment which,
                             double magnitude, tri_affine_filter filter, tri_ints fill) {
    int64_t height = image->height, width = image->width;
    tri_planes planes;
    switch (which) {
    case TRI_AUGMENT_IDENTITY:
        return TRI_OK;
    case TRI_AUGMENT_SHEAR_X:
        return move(call, image, tri_affine_shear(magnitude, 0), filter, fill);
    case TRI_AUGMENT_SHEAR_Y:
        return move(call, image, tri_affine_shear(0, magnitude), filter, fill);
    case TRI_AUGMENT_TRANSLATE_X:
        return move(call, image, tri_affine_translation(trunc(magnitude), 0, height, width), filter,
                    fill);
    case TRI_AUGMENT_TRANSLATE_Y:
        return move(call, image, tri_affine_translation(0, trunc(magnitude), height, width), filter,
                    fill);
    case TRI_AUGMENT_ROTATE:
        return move(call, image, tri_affine_rotation(magnitude, height, width), filter, fill);
    default:
        break;
    }
    float factor = (float)(1 + magnitude);
    TRI_TRY(tri_planes_of(call, image, &planes));
    if (which == TRI_AUGMENT_BRIGHTNESS) tri_planes_brightness(&planes, factor);
    if (which == TRI_AUGMENT_COLOR) tri_planes_saturation(&planes, factor);
    if (which == TRI_AUGMENT_CONTRAST) tri_planes_contrast(&planes, factor);
    if (which == TRI_AUGMENT_POSTERIZE) tri_planes_posterize(&planes, (int)magnitude);
    if (which == TRI_AUGMENT_SOLARIZE) tri_planes_solarize(&planes, magnitude);
    if (which == TRI_AUGMENT_AUTOCONTRAST) tri_planes_autocontrast(&planes);
    if (which == TRI_AUGMENT_EQUALIZE) tri_planes_equalize(&planes);
    if (which != TRI_AUGMENT_SHARPNESS) return TRI_OK;
    TRI_TRY(tri_buffer_reserve(call->rows, (size_t)(height * width)));
    tri_planes_sharpness(&planes, factor, call->rows->data);
    return TRI_OK;
}

typedef struct augment_options {
    int64_t num_ops, magnitude; // of rand_augment
    int64_t num_magnitude_bins;
    tri_affine_filter filter;
    tri_ints fill;
} augment_options;

enum { MAX_OPS = 32, MAX_BINS = 1000 };

#define COMMON_ROWS                                                                                \
    TRI_OPTION_INT(augment_options, num_magnitude_bins, "31", 2, MAX_BINS,                         \
                   "number of magnitudes"),                                                        \
        TRI_OPTION_CHOICE(augment_options, filter, "nearest", tri_affine_filters,                  \
                          "how a pixel is found between others"),                                  \
        TRI_TRANSFORM_FILL_ROW(augment_options)

static const tri_option rand_rows[] = {
    TRI_OPTION_INT(augment_options, num_ops, "2", 1, MAX_OPS, "operations on each image"),
    TRI_OPTION_INT(augment_options, magnitude, "9", 0, MAX_BINS - 1,
                   "how strong they are; less than num_magnitude_bins"),
    COMMON_ROWS,
};
static const tri_option trivial_rows[] = {COMMON_ROWS};

static tri_status rand_check(const void *params, const tri_tree *map) {
    const augment_options *options = params;
    if (options->magnitude < options->num_magnitude_bins) return TRI_OK;
    const tri_tree *given = tri_tree_get(map, "magnitude");
    return tri_tree_fail(given ? given : tri_tree_get(map, "num_magnitude_bins"),
                         "'magnitude' is %lld and has to be less than num_magnitude_bins=%lld",
                         (long long)options->magnitude, (long long)options->num_magnitude_bins);
}

const tri_option_table tri_transform_rand_augment_table = TRI_OPTION_TABLE(
    "rand_augment", augment_options, rand_rows,
    "applies random operations of one strength (RandAugment)", .check = rand_check);
const tri_option_table tri_transform_trivial_augment_wide_table =
    TRI_OPTION_TABLE("trivial_augment_wide", augment_options, trivial_rows,
                     "applies one random operation of random strength (TrivialAugmentWide)");

static tri_status rand_shape(const void *params, tri_shape *image) {
    const augment_options *options = params;
    TRI_TRY(tri_transform_check_colours("rand_augment", image));
    return tri_transform_check_fill("rand_augment", "fill", options->fill, image);
}

static tri_status trivial_shape(const void *params, tri_shape *image) {
    const augment_options *options = params;
    TRI_TRY(tri_transform_check_colours("trivial_augment_wide", image));
    return tri_transform_check_fill("trivial_augment_wide", "fill", options->fill, image);
}

// Applies one operation. Of a draw, word 0 chooses it, word 1 its sign and word 2 a bin.
static tri_status apply_drawn(const augment_options *options, const tri_augment_range *ranges,
                              const tri_philox_block *draw, int64_t bin, tri_transform_call *call,
                              tri_image *image) {
    tri_augment which = (tri_augment)tri_transform_below(draw->word[0], TRI_AUGMENTS);
    double magnitude =
        tri_augment_magnitude(&ranges[which], bin, options->num_magnitude_bins, image);
    if (ranges[which].is_signed && tri_transform_below(draw->word[1], 2)) magnitude = -magnitude;
    return tri_augment_apply(call, image, which, magnitude, options->filter, options->fill);
}

static tri_status rand_train(const void *params, tri_transform_call *call, tri_image *image) {
    const augment_options *options = params;
    for (int64_t i = 0; i < options->num_ops; i++) {
        tri_philox_block draw = tri_transform_draw(&call->random);
        TRI_TRY(
            apply_drawn(options, tri_rand_augment_ranges, &draw, options->magnitude, call, image));
    }
    return TRI_OK;
}

static tri_status trivial_train(const void *params, tri_transform_call *call, tri_image *image) {
    const augment_options *options = params;
    tri_philox_block draw = tri_transform_draw(&call->random);
    int64_t bin = tri_transform_below(draw.word[2], options->num_magnitude_bins);
    return apply_drawn(options, tri_trivial_augment_ranges, &draw, bin, call, image);
}

const tri_transform_kind tri_transform_rand_augment = {.role = TRI_TRANSFORM_MIXED,
                                                       .options = &tri_transform_rand_augment_table,
                                                       .output_shape = rand_shape,
                                                       .train = rand_train};
const tri_transform_kind tri_transform_trivial_augment_wide = {
    .role = TRI_TRANSFORM_MIXED,
    .options = &tri_transform_trivial_augment_wide_table,
    .output_shape = trivial_shape,
    .train = trivial_train};
