// resize: scales an image. scale.c does the arithmetic.
#include "data/transform/kind.h"

const char *const tri_resize_filters[] = {"bilinear", "bicubic", NULL};

typedef struct resize_options {
    tri_ints size;
    tri_resize_filter filter;
} resize_options;

static const tri_option resize_rows[] = {
    TRI_OPTION_INTS(resize_options, size, "[256]", 1, TRI_MAX_IMAGE_SIDE, 0,
                    "one number: length of the shorter side; or [height, width]"),
    TRI_OPTION_CHOICE(resize_options, filter, "bilinear", tri_resize_filters,
                      "how pixels are averaged"),
};

const tri_option_table tri_transform_resize_table = TRI_OPTION_TABLE(
    "resize", resize_options, resize_rows, "scales the image, with antialiasing, as Pillow does");

static void resize_to(const resize_options *options, int64_t *height, int64_t *width) {
    if (options->size.count == 1) {
        tri_transform_shorter_side(options->size.items[0], height, width);
        return;
    }
    *height = tri_transform_height(options->size);
    *width = tri_transform_width(options->size);
}

static tri_status resize_output_shape(const void *params, tri_shape *image) {
    const resize_options *options = params;
    TRI_TRY(tri_transform_check_size("resize", options->size));
    bool is_known = image->dims[1] != TRI_ANY_SIZE && image->dims[2] != TRI_ANY_SIZE;
    if (is_known || options->size.count == 2) resize_to(options, &image->dims[1], &image->dims[2]);
    return TRI_OK;
}

static tri_status resize_apply(const void *params, tri_transform_call *call, tri_image *image) {
    const resize_options *options = params;
    int64_t height = image->height, width = image->width;
    resize_to(options, &height, &width);
    return tri_transform_scale(call, image, height, width, options->filter);
}

const tri_transform_kind tri_transform_resize = {.options = &tri_transform_resize_table,
                                                 .output_shape = resize_output_shape,
                                                 .train = resize_apply,
                                                 .evaluate = resize_apply};
