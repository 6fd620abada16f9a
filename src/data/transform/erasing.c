// random_erasing: overwrites a random rectangle of a training image.
#include "data/transform/planes.h"

#include <string.h>

typedef struct erasing_options {
    double probability;
    tri_doubles scale, ratio;
    tri_ints value;
    bool noise;
} erasing_options;

static const tri_option rows[] = {
    TRI_OPTION_FLOAT(erasing_options, probability, "0.5", 0, 1,
                     "of a training sample to lose a rectangle"),
    TRI_OPTION_FLOATS(erasing_options, scale, "[0.02, 0.33]", 1e-6, 1, 2,
                      "least and greatest part of the image's area"),
    TRI_OPTION_FLOATS(erasing_options, ratio, "[0.3, 3.3]", 1e-3, 1e3, 2,
                      "least and greatest height / width of the rectangle"),
    TRI_OPTION_INTS(erasing_options, value, "[0]", 0, 255, 0,
                    "byte that is written; one for all channels, or C"),
    TRI_OPTION_BOOL(erasing_options, noise, "false", "write random bytes instead of `value`"),
};

static tri_status check(const void *params, const tri_tree *map) {
    const erasing_options *options = params;
    TRI_TRY(tri_transform_check_range(map, "scale", options->scale));
    return tri_transform_check_range(map, "ratio", options->ratio);
}

const tri_option_table tri_transform_random_erasing_table =
    TRI_OPTION_TABLE("random_erasing", erasing_options, rows,
                     "overwrites a rectangle of random place, area and shape", .check = check);

static tri_status output_shape(const void *params, tri_shape *image) {
    const erasing_options *options = params;
    return tri_transform_check_fill("random_erasing", "value", options->value, image);
}

typedef struct rectangle {
    int64_t top, left, height, width;
} rectangle;

// Draws the rectangle as torchvision's RandomErasing does: ten tries, the ratio uniform in its
// logarithm; a rectangle is smaller than the image. False: no try has given one.
static bool draw_rectangle(const erasing_options *options, tri_transform_call *call,
                           const tri_image *image, rectangle *out) {
    enum { TRIES = 10 };
    double area = (double)(image->height * image->width);
    const double *scale = options->scale.items, *ratio = options->ratio.items;
    for (int i = 0; i < TRIES; i++) {
        tri_philox_block draw = tri_transform_draw(&call->random);
        double part = area * tri_transform_between(draw.word[0], scale[0], scale[1]);
        double shape = exp(tri_transform_between(draw.word[1], log(ratio[0]), log(ratio[1])));
        double height = nearbyint(sqrt(part * shape)), width = nearbyint(sqrt(part / shape));
        if (height >= (double)image->height || width >= (double)image->width) continue;
        out->height = (int64_t)height;
        out->width = (int64_t)width;
        out->top = tri_transform_below(draw.word[2], image->height - out->height + 1);
        out->left = tri_transform_below(draw.word[3], image->width - out->width + 1);
        return true;
    }
    return false;
}

static void write_noise(tri_transform_call *call, uint8_t *to, int64_t count) {
    for (int64_t at = 0; at < count; at += (int64_t)sizeof(tri_philox_block)) {
        tri_philox_block draw = tri_transform_draw(&call->random);
        int64_t left = count - at;
        memcpy(to + at, &draw, left < (int64_t)sizeof draw ? (size_t)left : sizeof draw);
    }
}

static tri_status train(const void *params, tri_transform_call *call, tri_image *image) {
    const erasing_options *options = params;
    tri_philox_block draw = tri_transform_draw(&call->random);
    rectangle r;
    tri_planes planes;
    if ((double)tri_philox_uniform(draw.word[0]) >= options->probability ||
        !draw_rectangle(options, call, image, &r))
        return TRI_OK;
    TRI_TRY(tri_planes_of(call, image, &planes));
    for (int64_t c = 0; c < planes.channels; c++)
        for (int64_t row = r.top; row < r.top + r.height; row++) {
            uint8_t *to = planes.data + (c * planes.height + row) * planes.width + r.left;
            int64_t byte = options->value.items[options->value.count > 1 ? c : 0];
            if (options->noise)
                write_noise(call, to, r.width);
            else
                memset(to, (int)byte, (size_t)r.width);
        }
    return TRI_OK;
}

const tri_transform_kind tri_transform_random_erasing = {.role = TRI_TRANSFORM_COLOUR,
                                                         .options =
                                                             &tri_transform_random_erasing_table,
                                                         .output_shape = output_shape,
                                                         .train = train};
