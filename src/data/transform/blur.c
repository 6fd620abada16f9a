// gaussian_blur: smooths a training image by a Gaussian of random width.
#include "data/transform/planes.h"

#include <string.h>

enum { MAX_KERNEL = 255 };

typedef struct blur_options {
    tri_ints kernel_size;
    tri_doubles sigma;
} blur_options;

static const tri_option rows[] = {
    TRI_OPTION_INTS(blur_options, kernel_size, "[3]", 1, MAX_KERNEL, 0,
                    "pixels that count, an odd number; or [of a row, of a column]"),
    TRI_OPTION_FLOATS(blur_options, sigma, "[0.1, 2]", 1e-3, 1e3, 0,
                      "standard deviation in pixels: one, or [least, greatest]"),
};

static tri_status check(const void *params, const tri_tree *map) {
    const blur_options *options = params;
    bool is_right = options->kernel_size.count >= 1 && options->kernel_size.count <= 2;
    for (int i = 0; is_right && i < options->kernel_size.count; i++)
        is_right = options->kernel_size.items[i] % 2 == 1;
    if (!is_right)
        return tri_tree_fail(tri_tree_get(map, "kernel_size"),
                             "'kernel_size' has to be one or two odd numbers");
    return tri_transform_check_range(map, "sigma", options->sigma);
}

const tri_option_table tri_transform_gaussian_blur_table =
    TRI_OPTION_TABLE("gaussian_blur", blur_options, rows,
                     "smooths the image by a Gaussian of random width", .check = check);

static int64_t across(const blur_options *options) { return options->kernel_size.items[0]; }
static int64_t down(const blur_options *options) {
    return options->kernel_size.items[options->kernel_size.count - 1];
}

static tri_status check_image(const blur_options *options, int64_t height, int64_t width) {
    if ((width == TRI_ANY_SIZE || across(options) / 2 < width) &&
        (height == TRI_ANY_SIZE || down(options) / 2 < height))
        return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "gaussian_blur: half of 'kernel_size' has to be less than the sides of images "
                    "of %lld x %lld",
                    (long long)height, (long long)width);
}

static tri_status output_shape(const void *params, tri_shape *image) {
    return check_image(params, image->dims[1], image->dims[2]);
}

// The Gaussian's values at whole numbers, which sum to 1.
static void make_kernel(double sigma, int64_t size, float *out) {
    float sum = 0;
    for (int64_t i = 0; i < size; i++) {
        float x = ((float)i - (float)(size - 1) * 0.5f) / (float)sigma;
        out[i] = expf(-0.5f * x * x);
        sum += out[i];
    }
    for (int64_t i = 0; i < size; i++) out[i] /= sum;
}

// The index of what lies at `i`, of an axis that is mirrored at its first and last pixel.
static int64_t mirrored(int64_t i, int64_t size) {
    if (i < 0) return -i;
    return i < size ? i : 2 * (size - 1) - i;
}

// Sums `count` rows of floats, which begin at from[k], by their weights.
static void sum_rows(const float *const *from, const float *weights, int64_t count, int64_t width,
                     float *restrict to) {
    memset(to, 0, (size_t)width * sizeof *to);
    for (int64_t k = 0; k < count; k++) {
        const float *row = from[k], weight = weights[k];
        for (int64_t x = 0; x < width; x++) to[x] += weight * row[x];
    }
}

// Rounds to the nearest byte, of two the even one. Adding 2^23 leaves a float no place for a
// fraction; sums of weighted bytes are positive and less than 256.
static void round_row(const float *from, int64_t width, uint8_t *restrict to) {
    const float shift = 0x1p23f;
    for (int64_t x = 0; x < width; x++) {
        float value = (from[x] + shift) - shift;
        to[x] = (uint8_t)(int32_t)(value > 255 ? 255 : value);
    }
}

typedef struct blur {
    float kernel_x[MAX_KERNEL], kernel_y[MAX_KERNEL];
    int64_t size_x, size_y, height, width;
    float *wide; // a row with the pixels that are mirrored at its ends
    float *rows; // [height, width]: the image, smoothed along rows
    float *sum;  // a row
} blur;

static void blur_plane(const blur *b, uint8_t *plane) {
    int64_t half_x = b->size_x / 2, half_y = b->size_y / 2;
    const float *from[MAX_KERNEL];
    for (int64_t y = 0; y < b->height; y++) {
        for (int64_t x = -half_x; x < b->width + half_x; x++)
            b->wide[x + half_x] = (float)plane[y * b->width + mirrored(x, b->width)];
        for (int64_t k = 0; k < b->size_x; k++) from[k] = b->wide + k;
        sum_rows(from, b->kernel_x, b->size_x, b->width, b->rows + y * b->width);
    }
    for (int64_t y = 0; y < b->height; y++) {
        for (int64_t k = 0; k < b->size_y; k++)
            from[k] = b->rows + mirrored(y + k - half_y, b->height) * b->width;
        sum_rows(from, b->kernel_y, b->size_y, b->width, b->sum);
        round_row(b->sum, b->width, plane + y * b->width);
    }
}

static tri_status train(const void *params, tri_transform_call *call, tri_image *image) {
    const blur_options *options = params;
    TRI_TRY(check_image(options, image->height, image->width));
    tri_philox_block draw = tri_transform_draw(&call->random);
    double low = options->sigma.items[0], high = options->sigma.items[options->sigma.count - 1];
    double sigma = tri_transform_between(draw.word[0], low, high);
    blur b = {.size_x = across(options),
              .size_y = down(options),
              .height = image->height,
              .width = image->width};
    tri_planes planes;
    TRI_TRY(tri_planes_of(call, image, &planes));
    int64_t wide = b.width + b.size_x, all = wide + b.height * b.width + b.width;
    TRI_TRY(tri_buffer_reserve(call->rows, (size_t)all * sizeof(float)));
    b.wide = call->rows->data;
    b.rows = b.wide + wide;
    b.sum = b.rows + b.height * b.width;
    make_kernel(sigma, b.size_x, b.kernel_x);
    make_kernel(sigma, b.size_y, b.kernel_y);
    for (int64_t c = 0; c < planes.channels; c++)
        blur_plane(&b, planes.data + c * b.height * b.width);
    return TRI_OK;
}

const tri_transform_kind tri_transform_gaussian_blur = {.role = TRI_TRANSFORM_COLOUR,
                                                        .options =
                                                            &tri_transform_gaussian_blur_table,
                                                        .output_shape = output_shape,
                                                        .train = train};
