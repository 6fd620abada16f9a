// color_jitter, grayscale and random_grayscale: change the colours of an image, as torchvision's
// transforms of these names do.
#include "data/transform/planes.h"

typedef struct jitter_options {
    tri_doubles brightness, contrast, saturation, hue;
} jitter_options;

#define FACTOR_ROW(word)                                                                           \
    TRI_OPTION_FLOATS(jitter_options, word, "[0]", 0, 1000, 0,                                     \
                      "x: a factor from max(0, 1 - x) to 1 + x; or [least, greatest]; 0: none")

static const tri_option jitter_rows[] = {
    FACTOR_ROW(brightness),
    FACTOR_ROW(contrast),
    FACTOR_ROW(saturation),
    TRI_OPTION_FLOATS(jitter_options, hue, "[0]", -0.5, 0.5, 0,
                      "x: a turn of the colour circle from -x to x; or [least, greatest]"),
};

static tri_status jitter_check(const void *params, const tri_tree *map) {
    const jitter_options *options = params;
    TRI_TRY(tri_transform_check_range(map, "brightness", options->brightness));
    TRI_TRY(tri_transform_check_range(map, "contrast", options->contrast));
    TRI_TRY(tri_transform_check_range(map, "saturation", options->saturation));
    return tri_transform_check_range(map, "hue", options->hue);
}

const tri_option_table tri_transform_color_jitter_table = TRI_OPTION_TABLE(
    "color_jitter", jitter_options, jitter_rows,
    "changes brightness, contrast, saturation and hue, at random and in random order",
    .check = jitter_check);

static tri_status jitter_shape(const void *params, tri_shape *image) {
    return tri_transform_check_colours("color_jitter", image);
}

typedef enum change { BRIGHTNESS, CONTRAST, SATURATION, HUE, CHANGES } change;

static void apply_change(const tri_planes *planes, change which, tri_range range, uint32_t word) {
    double drawn = tri_transform_between(word, range.low, range.high);
    if (which == BRIGHTNESS) tri_planes_brightness(planes, (float)drawn);
    if (which == CONTRAST) tri_planes_contrast(planes, (float)drawn);
    if (which == SATURATION) tri_planes_saturation(planes, (float)drawn);
    if (which == HUE) tri_planes_hue(planes, drawn);
}

static tri_status jitter_train(const void *params, tri_transform_call *call, tri_image *image) {
    enum { ORDERS = 24 };
    const jitter_options *options = params;
    const tri_doubles lists[CHANGES] = {options->brightness, options->contrast, options->saturation,
                                        options->hue};
    change left[CHANGES] = {BRIGHTNESS, CONTRAST, SATURATION, HUE};
    tri_philox_block order = tri_transform_draw(&call->random),
                     drawn = tri_transform_draw(&call->random);
    int64_t number = tri_transform_below(order.word[0], ORDERS);
    tri_planes planes;
    TRI_TRY(tri_planes_of(call, image, &planes));
    for (int count = CHANGES; count > 0; count--) {
        int64_t at = number % count;
        change which = left[at];
        left[at] = left[count - 1];
        number /= count;
        double middle = which == HUE ? 0 : 1;
        tri_range range = tri_transform_range(lists[which], middle);
        if (which != HUE && range.low < 0) range.low = 0;
        if (range.low != middle || range.high != middle)
            apply_change(&planes, which, range, drawn.word[which]);
    }
    return TRI_OK;
}

const tri_transform_kind tri_transform_color_jitter = {.role = TRI_TRANSFORM_COLOUR,
                                                       .options = &tri_transform_color_jitter_table,
                                                       .output_shape = jitter_shape,
                                                       .train = jitter_train};

typedef struct grayscale_options {
    int64_t num_output_channels;
} grayscale_options;

static const tri_option grayscale_rows[] = {
    TRI_OPTION_INT(grayscale_options, num_output_channels, "1", 1, 3, "1, or 3 that are equal"),
};

static tri_status grayscale_check(const void *params, const tri_tree *map) {
    const grayscale_options *options = params;
    if (options->num_output_channels != 2) return TRI_OK;
    return tri_tree_fail(tri_tree_get(map, "num_output_channels"),
                         "'num_output_channels' has to be 1 or 3");
}

const tri_option_table tri_transform_grayscale_table = TRI_OPTION_TABLE(
    "grayscale", grayscale_options, grayscale_rows, "makes images grey", .check = grayscale_check);

static tri_status grayscale_shape(const void *params, tri_shape *image) {
    const grayscale_options *options = params;
    TRI_TRY(tri_transform_check_colours("grayscale", image));
    image->dims[0] = options->num_output_channels;
    return TRI_OK;
}

static tri_status make_grey(tri_transform_call *call, tri_image *image) {
    tri_planes planes;
    TRI_TRY(tri_planes_of(call, image, &planes));
    tri_planes_grey(&planes);
    return TRI_OK;
}

static tri_status grayscale_apply(const void *params, tri_transform_call *call, tri_image *image) {
    const grayscale_options *options = params;
    TRI_TRY(make_grey(call, image));
    image->channels = options->num_output_channels;
    image->channel_stride = 0; // all channels are the first one
    return TRI_OK;
}

typedef struct random_options {
    double probability;
} random_options;

static const tri_option random_rows[] = {
    TRI_OPTION_FLOAT(random_options, probability, "0.1", 0, 1, "of a training sample to be grey"),
};

const tri_option_table tri_transform_random_grayscale_table =
    TRI_OPTION_TABLE("random_grayscale", random_options, random_rows,
                     "makes images grey, at random; they keep the number of their channels");

static tri_status random_shape(const void *params, tri_shape *image) {
    return tri_transform_check_colours("random_grayscale", image);
}

static tri_status random_train(const void *params, tri_transform_call *call, tri_image *image) {
    const random_options *options = params;
    tri_philox_block draw = tri_transform_draw(&call->random);
    if ((double)tri_philox_uniform(draw.word[0]) >= options->probability) return TRI_OK;
    return make_grey(call, image);
}

const tri_transform_kind tri_transform_grayscale = {.role = TRI_TRANSFORM_COLOUR,
                                                    .options = &tri_transform_grayscale_table,
                                                    .output_shape = grayscale_shape,
                                                    .train = grayscale_apply,
                                                    .evaluate = grayscale_apply};
const tri_transform_kind tri_transform_random_grayscale = {
    .role = TRI_TRANSFORM_COLOUR,
    .options = &tri_transform_random_grayscale_table,
    .output_shape = random_shape,
    .train = random_train};
