// random_horizontal_flip and random_vertical_flip: mirror a training image, or not.
#include "data/transform/kind.h"

typedef struct flip_options {
    double probability;
} flip_options;

static const tri_option rows[] = {
    TRI_OPTION_FLOAT(flip_options, probability, "0.5", 0, 1, "of a training sample to be flipped"),
};

const tri_option_table tri_transform_horizontal_flip_table = TRI_OPTION_TABLE(
    "random_horizontal_flip", flip_options, rows, "exchanges left and right, at random");
const tri_option_table tri_transform_vertical_flip_table = TRI_OPTION_TABLE(
    "random_vertical_flip", flip_options, rows, "exchanges top and bottom, at random");

static bool is_drawn(const void *params, tri_transform_call *call) {
    const flip_options *options = params;
    tri_philox_block draw = tri_transform_draw(&call->random);
    return tri_philox_uniform(draw.word[0]) < options->probability;
}

static tri_status flip_horizontally(const void *params, tri_transform_call *call,
                                    tri_image *image) {
    if (is_drawn(params, call)) *image = tri_image_mirror(image);
    return TRI_OK;
}

static tri_status flip_vertically(const void *params, tri_transform_call *call, tri_image *image) {
    if (is_drawn(params, call)) *image = tri_image_turn_over(image);
    return TRI_OK;
}

const tri_transform_kind tri_transform_horizontal_flip = {
    .options = &tri_transform_horizontal_flip_table, .train = flip_horizontally};
const tri_transform_kind tri_transform_vertical_flip = {
    .options = &tri_transform_vertical_flip_table, .train = flip_vertically};
