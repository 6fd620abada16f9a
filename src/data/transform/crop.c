// random_crop and center_crop: cut a part out of an image.
#include "data/transform/kind.h"

#include <string.h>

tri_status tri_transform_cut(tri_transform_call *call, tri_image *image, int64_t top, int64_t left,
                             int64_t height, int64_t width) {
    int64_t first_row = top > 0 ? top : 0, first_column = left > 0 ? left : 0;
    int64_t end_row = top + height < image->height ? top + height : image->height;
    int64_t end_column = left + width < image->width ? left + width : image->width;
    int64_t rows = end_row - first_row, columns = end_column - first_column;
    if (rows == height && columns == width) {
        *image = tri_image_cut(image, top, left, height, width);
        return TRI_OK;
    }
    int64_t bytes = (int64_t)tri_dtype_bytes(image->dtype);
    size_t plane_bytes = (size_t)(height * width * bytes);
    TRI_TRY(tri_buffer_reserve(call->memory, (size_t)image->channels * plane_bytes));
    uint8_t *to = call->memory->data;
    memset(to, 0, (size_t)image->channels * plane_bytes);
    for (int64_t channel = 0; channel < image->channels && columns > 0; channel++)
        for (int64_t row = first_row; row < end_row; row++)
            tri_image_read_row(image, channel, row, first_column, columns,
                               to + ((channel * height + row - top) * width + first_column - left) *
                                        bytes);
    tri_shape shape = tri_shape_of(image->channels, height, width);
    *image = tri_image_of_planes(to, image->dtype, &shape);
    return TRI_OK;
}

tri_status tri_transform_cut_center(tri_transform_call *call, tri_image *image, int64_t height,
                                    int64_t width) {
    // torchvision rounds half a pixel to the even number, but when it has to pad, it rounds down
    // the rows above the image.
    double top = nearbyint((double)(image->height - height) / 2),
           left = nearbyint((double)(image->width - width) / 2);
    if (height > image->height) top = -floor((double)(height - image->height) / 2);
    if (width > image->width) left = -floor((double)(width - image->width) / 2);
    return tri_transform_cut(call, image, (int64_t)top, (int64_t)left, height, width);
}

typedef struct crop_options {
    tri_ints size;
    int64_t padding;
} crop_options;

static const tri_option crop_rows[] = {
    TRI_TRANSFORM_SIZE_ROW(crop_options, "[32]"),
    TRI_OPTION_INT(crop_options, padding, "0", 0, TRI_MAX_IMAGE_SIDE,
                   "zeros put around a training image first"),
};

const tri_option_table tri_transform_random_crop_table = TRI_OPTION_TABLE(
    "random_crop", crop_options, crop_rows,
    "cuts a rectangle out of the padded image, at random; in evaluation the centre");

static tri_status fail_small(const crop_options *options, int64_t height, int64_t width) {
    return TRI_FAIL(TRI_BAD_INPUT,
                    "random_crop: size %lld x %lld is larger than images of %lld x %lld "
                    "with padding %lld",
                    (long long)tri_transform_height(options->size),
                    (long long)tri_transform_width(options->size), (long long)height,
                    (long long)width, (long long)options->padding);
}

static bool is_small(const crop_options *options, int64_t height, int64_t width) {
    return height + 2 * options->padding < tri_transform_height(options->size) ||
           width + 2 * options->padding < tri_transform_width(options->size);
}

static tri_status crop_output_shape(const void *params, tri_shape *image) {
    const crop_options *options = params;
    int64_t height = image->dims[1], width = image->dims[2];
    TRI_TRY(tri_transform_check_size("random_crop", options->size));
    if (height != TRI_ANY_SIZE && width != TRI_ANY_SIZE && is_small(options, height, width))
        return fail_small(options, height, width);
    image->dims[1] = tri_transform_height(options->size);
    image->dims[2] = tri_transform_width(options->size);
    return TRI_OK;
}

static tri_status crop_train(const void *params, tri_transform_call *call, tri_image *image) {
    const crop_options *options = params;
    int64_t height = tri_transform_height(options->size),
            width = tri_transform_width(options->size), padding = options->padding;
    if (is_small(options, image->height, image->width))
        return fail_small(options, image->height, image->width);
    tri_philox_block draw = tri_transform_draw(&call->random);
    int64_t top = tri_transform_below(draw.word[0], image->height + 2 * padding - height + 1),
            left = tri_transform_below(draw.word[1], image->width + 2 * padding - width + 1);
    return tri_transform_cut(call, image, top - padding, left - padding, height, width);
}

static tri_status crop_evaluate(const void *params, tri_transform_call *call, tri_image *image) {
    const crop_options *options = params;
    return tri_transform_cut_center(call, image, tri_transform_height(options->size),
                                    tri_transform_width(options->size));
}

const tri_transform_kind tri_transform_random_crop = {.options = &tri_transform_random_crop_table,
                                                      .output_shape = crop_output_shape,
                                                      .train = crop_train,
                                                      .evaluate = crop_evaluate};

typedef struct center_options {
    tri_ints size;
} center_options;

static const tri_option center_rows[] = {TRI_TRANSFORM_SIZE_ROW(center_options, "[224]")};

const tri_option_table tri_transform_center_crop_table = TRI_OPTION_TABLE(
    "center_crop", center_options, center_rows, "cuts out the centre; pixels outside are 0");

static tri_status center_output_shape(const void *params, tri_shape *image) {
    const center_options *options = params;
    TRI_TRY(tri_transform_check_size("center_crop", options->size));
    image->dims[1] = tri_transform_height(options->size);
    image->dims[2] = tri_transform_width(options->size);
    return TRI_OK;
}

static tri_status center_apply(const void *params, tri_transform_call *call, tri_image *image) {
    const center_options *options = params;
    return tri_transform_cut_center(call, image, tri_transform_height(options->size),
                                    tri_transform_width(options->size));
}

const tri_transform_kind tri_transform_center_crop = {.options = &tri_transform_center_crop_table,
                                                      .output_shape = center_output_shape,
                                                      .train = center_apply,
                                                      .evaluate = center_apply};
