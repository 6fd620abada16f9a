// random_resized_crop: cuts a part of random area and shape out of an image, and scales it.
#include "data/transform/kind.h"

typedef struct resized_options {
    tri_ints size;
    tri_doubles scale, ratio;
    tri_resize_filter filter;
} resized_options;

static const tri_option resized_rows[] = {
    TRI_TRANSFORM_SIZE_ROW(resized_options, "[224]"),
    TRI_OPTION_FLOATS(resized_options, scale, "[0.08, 1]", 1e-6, 1, 2,
                      "least and greatest part of the image's area"),
    TRI_OPTION_FLOATS(resized_options, ratio, "[0.75, 1.3333]", 1e-3, 1e3, 2,
                      "least and greatest width / height of the part"),
    TRI_OPTION_CHOICE(resized_options, filter, "bilinear", tri_resize_filters,
                      "how pixels are averaged"),
};

const tri_option_table tri_transform_resized_crop_table = TRI_OPTION_TABLE(
    "random_resized_crop", resized_options, resized_rows,
    "scales a part of random area and shape to `size`; in evaluation the centre, after the "
    "shorter side got 8/7 of it");

static tri_status resized_output_shape(const void *params, tri_shape *image) {
    const resized_options *options = params;
    TRI_TRY(tri_transform_check_size("random_resized_crop", options->size));
    if (options->scale.items[0] > options->scale.items[1] ||
        options->ratio.items[0] > options->ratio.items[1])
        return TRI_FAIL(TRI_BAD_INPUT,
                        "random_resized_crop: the first number of '%s' has to be the smaller one",
                        options->scale.items[0] > options->scale.items[1] ? "scale" : "ratio");
    image->dims[1] = tri_transform_height(options->size);
    image->dims[2] = tri_transform_width(options->size);
    return TRI_OK;
}

// Draws the part as torchvision's RandomResizedCrop does: ten tries, the ratio uniform in its
// logarithm, else the largest part in the centre whose ratio is allowed.
static tri_status resized_train(const void *params, tri_transform_call *call, tri_image *image) {
    enum { TRIES = 10 };
    const resized_options *options = params;
    double height = (double)image->height, width = (double)image->width;
    double low = options->ratio.items[0], high = options->ratio.items[1];
    double part_height = 0, part_width = 0, top = 0, left = 0;
    bool is_found = false;
    for (int i = 0; i < TRIES && !is_found; i++) {
        tri_philox_block draw = tri_transform_draw(&call->random);
        double area =
            height * width *
            tri_transform_between(draw.word[0], options->scale.items[0], options->scale.items[1]);
        double ratio = exp(tri_transform_between(draw.word[1], log(low), log(high)));
        part_width = nearbyint(sqrt(area * ratio));
        part_height = nearbyint(sqrt(area / ratio));
        is_found =
            part_width > 0 && part_width <= width && part_height > 0 && part_height <= height;
        top = (double)tri_transform_below(draw.word[2], (int64_t)(height - part_height) + 1);
        left = (double)tri_transform_below(draw.word[3], (int64_t)(width - part_width) + 1);
    }
    if (!is_found) {
        part_width = width;
        part_height = height;
        if (width / height < low)
            part_height = nearbyint(width / low);
        else if (width / height > high)
            part_width = nearbyint(height * high);
        top = floor((height - part_height) / 2);
        left = floor((width - part_width) / 2);
    }
    *image = tri_image_cut(image, (int64_t)top, (int64_t)left, (int64_t)part_height,
                           (int64_t)part_width);
    return tri_transform_scale(call, image, tri_transform_height(options->size),
                               tri_transform_width(options->size), options->filter);
}

static tri_status resized_evaluate(const void *params, tri_transform_call *call, tri_image *image) {
    const resized_options *options = params;
    int64_t height = tri_transform_height(options->size),
            width = tri_transform_width(options->size);
    int64_t to_height = image->height, to_width = image->width;
    int64_t larger = height > width ? height : width;
    tri_transform_shorter_side((larger * 8 + 3) / 7, &to_height, &to_width);
    TRI_TRY(tri_transform_scale(call, image, to_height, to_width, options->filter));
    // What it cuts out lies in what was just scaled, so that it needs no memory.
    return tri_transform_cut_center(call, image, height, width);
}

const tri_transform_kind tri_transform_resized_crop = {.options = &tri_transform_resized_crop_table,
                                                       .output_shape = resized_output_shape,
                                                       .train = resized_train,
                                                       .evaluate = resized_evaluate};
