// random_rotation: turns a training image around its centre.
#include "data/transform/affine.h"

typedef struct rotation_options {
    tri_doubles degrees;
    tri_affine_filter filter;
    tri_ints fill;
} rotation_options;

static const tri_option rows[] = {
    TRI_OPTION_FLOATS(rotation_options, degrees, "[10]", -360, 360, 0,
                      "x: an angle from -x to x degrees against the clock; or [least, greatest]"),
    TRI_OPTION_CHOICE(rotation_options, filter, "nearest", tri_affine_filters,
                      "how a pixel is found between others"),
    TRI_TRANSFORM_FILL_ROW(rotation_options),
};

static tri_status check(const void *params, const tri_tree *map) {
    const rotation_options *options = params;
    return tri_transform_check_range(map, "degrees", options->degrees);
}

const tri_option_table tri_transform_random_rotation_table = TRI_OPTION_TABLE(
    "random_rotation", rotation_options, rows,
    "turns the image around its centre by a random angle; it keeps its size", .check = check);

static tri_status output_shape(const void *params, tri_shape *image) {
    const rotation_options *options = params;
    return tri_transform_check_fill("random_rotation", "fill", options->fill, image);
}

static tri_status train(const void *params, tri_transform_call *call, tri_image *image) {
    const rotation_options *options = params;
    tri_philox_block draw = tri_transform_draw(&call->random);
    tri_range range = tri_transform_range(options->degrees, 0);
    tri_affine map = tri_affine_rotation(tri_transform_between(draw.word[0], range.low, range.high),
                                         image->height, image->width);
    return tri_transform_affine(call, image, &map, options->filter, options->fill);
}

const tri_transform_kind tri_transform_random_rotation = {.role = TRI_TRANSFORM_GEOMETRY,
                                                          .options =
                                                              &tri_transform_random_rotation_table,
                                                          .output_shape = output_shape,
                                                          .train = train};
