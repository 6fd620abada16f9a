// Affine maps of images. Which pixel is nearest follows from Pillow's arithmetic: in fixed point
// with 16 bits behind the point or, for maps that neither turn nor slant, by adding up doubles.
#include "data/transform/affine.h"

#include <string.h>

enum { FIXED_BITS = 16, FIXED_LIMIT = 32768 };

const char *const tri_affine_filters[] = {"nearest", "bilinear", NULL};

// Moves the origin of the map to (x, y), and what it maps by (dx, dy).
static void recentre(tri_affine *map, double x, double y, double dx, double dy) {
    double *m = map->m;
    m[2] += m[0] * (-x - dx) + m[1] * (-y - dy) + x;
    m[5] += m[3] * (-x - dx) + m[4] * (-y - dy) + y;
}

tri_affine tri_affine_rotation(double degrees, int64_t height, int64_t width) {
    // Pillow rounds sine and cosine to 15 digits, so that quarter turns are exact.
    const double digits = 1e15, radians = -degrees * M_PI / 180;
    double c = nearbyint(cos(radians) * digits) / digits,
           s = nearbyint(sin(radians) * digits) / digits;
    tri_affine map = {{c, s, 0, -s, c, 0}};
    recentre(&map, (double)width / 2, (double)height / 2, 0, 0);
    return map;
}

tri_affine tri_affine_shear(double slope_x, double slope_y) {
    // torchvision passes the slopes on as angles in degrees.
    double x = tan(atan(slope_x) * 180 / M_PI * M_PI / 180);
    double y = tan(atan(slope_y) * 180 / M_PI * M_PI / 180);
    return (tri_affine){{1 + x * y, x, 0, y, 1, 0}};
}

tri_affine tri_affine_translation(double x, double y, int64_t height, int64_t width) {
    tri_affine map = {{1, 0, 0, 0, 1, 0}};
    recentre(&map, (double)width * 0.5, (double)height * 0.5, x, y);
    return map;
}

static int64_t to_fixed(double value) { return (int64_t)floor(value * (1 << FIXED_BITS) + 0.5); }

static bool fits(const double *m, double x, double y) {
    return fabs(m[0] * x + m[1] * y + m[2]) < FIXED_LIMIT &&
           fabs(m[3] * x + m[4] * y + m[5]) < FIXED_LIMIT;
}

static int64_t whole(double value) { return value < 0 ? -1 : (int64_t)value; }

// A row of the result: the offset of each pixel's source in bytes; -1: it lies outside.
typedef struct row_map {
    const tri_image *image;
    const double *m;
    bool is_fixed;
    int64_t width; // of the result
    int64_t *offsets;
} row_map;

static int64_t offset_of(const tri_image *image, int64_t x, int64_t y) {
    if (x < 0 || x >= image->width || y < 0 || y >= image->height) return INT64_MIN;
    return y * image->row_stride + x * image->column_stride;
}

static void find_row(const row_map *map, int64_t row) {
    const double *m = map->m;
    const tri_image *image = map->image;
    if (map->is_fixed) {
        int64_t dx = to_fixed(m[0]), dy = to_fixed(m[3]);
        int64_t x = to_fixed(m[2] + m[0] * 0.5 + m[1] * 0.5) + row * to_fixed(m[1]),
                y = to_fixed(m[5] + m[3] * 0.5 + m[4] * 0.5) + row * to_fixed(m[4]);
        for (int64_t i = 0; i < map->width; i++, x += dx, y += dy)
            map->offsets[i] = offset_of(image, x >> FIXED_BITS, y >> FIXED_BITS);
        return;
    }
    double x = m[2] + m[0] * 0.5, y = m[5] + m[4] * 0.5;
    for (int64_t i = 0; i < row; i++) y += m[4];
    for (int64_t i = 0; i < map->width; i++, x += m[0])
        map->offsets[i] = offset_of(image, whole(x), whole(y));
}

#define GATHER(T)                                                                                  \
    for (int64_t i = 0; i < width; i++) {                                                          \
        T value = (T)fill;                                                                         \
        if (offsets[i] != INT64_MIN) memcpy(&value, plane + offsets[i], sizeof value);             \
        memcpy(to + i * (int64_t)sizeof value, &value, sizeof value);                              \
    }

static void gather(const uint8_t *plane, const int64_t *offsets, int64_t width, int64_t bytes,
                   uint8_t fill, uint8_t *to) {
    if (bytes == 1) {
        GATHER(uint8_t)
    } else if (bytes == 2) {
        GATHER(uint16_t)
    } else if (bytes == 4) {
        GATHER(uint32_t)
    } else {
        GATHER(uint64_t)
    }
}

// Makes an image of `height` rows of map->width pixels.
static void map_nearest(const row_map *map, const uint8_t *fill, int64_t height, uint8_t *to) {
    const tri_image *image = map->image;
    int64_t bytes = (int64_t)tri_dtype_bytes(image->dtype), row_bytes = map->width * bytes;
    for (int64_t row = 0; row < height; row++) {
        find_row(map, row);
        for (int64_t c = 0; c < image->channels; c++)
            gather(image->pixels + c * image->channel_stride, map->offsets, map->width, bytes,
                   fill[c], to + (c * height + row) * row_bytes);
    }
}

static int64_t within(int64_t value, int64_t size) {
    return value < 0 ? 0 : value < size ? value : size - 1;
}

// One pixel between four others, of which those outside of the image are the nearest inside.
static void mix_pixel(const tri_image *image, double x, double y, uint8_t *to) {
    int64_t left = x < 0.5 ? -1 : (int64_t)(x - 0.5), top = y < 0.5 ? -1 : (int64_t)(y - 0.5);
    double part_x = x - 0.5 - (double)left, part_y = y - 0.5 - (double)top;
    int64_t x0 = within(left, image->width) * image->column_stride,
            x1 = within(left + 1, image->width) * image->column_stride,
            y0 = within(top, image->height) * image->row_stride,
            y1 = within(top + 1, image->height) * image->row_stride;
    for (int64_t c = 0; c < image->channels; c++, to += image->height * image->width) {
        const uint8_t *plane = image->pixels + c * image->channel_stride;
        double above = plane[y0 + x0] + (plane[y0 + x1] - plane[y0 + x0]) * part_x;
        double below = plane[y1 + x0] + (plane[y1 + x1] - plane[y1 + x0]) * part_x;
        *to = (uint8_t)(above + (below - above) * part_y);
    }
}

static void map_bilinear(const tri_image *image, const double *m, const uint8_t *fill,
                         uint8_t *to) {
    double width = (double)image->width, height = (double)image->height;
    for (int64_t row = 0; row < image->height; row++) {
        double x = m[0] * 0.5 + m[1] * ((double)row + 0.5) + m[2];
        double y = m[3] * 0.5 + m[4] * ((double)row + 0.5) + m[5];
        for (int64_t i = 0; i < image->width; i++, x += m[0], y += m[3]) {
            uint8_t *pixel = to + row * image->width + i;
            if (x >= 0 && x < width && y >= 0 && y < height) {
                mix_pixel(image, x, y, pixel);
                continue;
            }
            for (int64_t c = 0; c < image->channels; c++)
                pixel[c * image->height * image->width] = fill[c];
        }
    }
}

// Makes room for an image of `width` columns in call->memory; in call->rows, for the offsets of a
// row and behind them a byte for each channel, with which places from outside are filled.
static tri_status reserve(tri_transform_call *call, const tri_image *image, int64_t height,
                          int64_t width, uint8_t **fill) {
    size_t offsets_bytes = (size_t)width * sizeof(int64_t);
    TRI_TRY(tri_buffer_reserve(call->memory, (size_t)(image->channels * height * width) *
                                                 tri_dtype_bytes(image->dtype)));
    TRI_TRY(tri_buffer_reserve(call->rows, offsets_bytes + (size_t)image->channels));
    *fill = (uint8_t *)call->rows->data + offsets_bytes;
    memset(*fill, 0, (size_t)image->channels);
    return TRI_OK;
}

tri_status tri_transform_nearest(tri_transform_call *call, tri_image *image, int64_t height,
                                 int64_t width) {
    const double m[6] = {(double)image->width / (double)width,   0, 0, 0,
                         (double)image->height / (double)height, 0};
    uint8_t *fill;
    TRI_TRY(reserve(call, image, height, width, &fill));
    row_map map = {.image = image, .m = m, .width = width, .offsets = call->rows->data};
    map_nearest(&map, fill, height, call->memory->data);
    tri_shape shape = tri_shape_of(image->channels, height, width);
    *image = tri_image_of_planes(call->memory->data, image->dtype, &shape);
    return TRI_OK;
}

tri_status tri_transform_affine(tri_transform_call *call, tri_image *image, const tri_affine *map,
                                tri_affine_filter filter, tri_ints fill) {
    bool is_bilinear = filter == TRI_AFFINE_BILINEAR && !call->is_mask;
    if (is_bilinear && image->dtype != TRI_U8)
        return TRI_FAIL(TRI_UNSUPPORTED,
                        "images of %s cannot be turned by the filter bilinear: store them as U8",
                        tri_dtype_name(image->dtype));
    double right = (double)image->width - 1, bottom = (double)image->height - 1;
    if (!fits(map->m, 0, 0) || !fits(map->m, right, 0) || !fits(map->m, 0, bottom) ||
        !fits(map->m, right, bottom))
        return TRI_FAIL(TRI_UNSUPPORTED, "an image of %lld x %lld is too large to be turned",
                        (long long)image->height, (long long)image->width);
    uint8_t *fills;
    TRI_TRY(reserve(call, image, image->height, image->width, &fills));
    for (int64_t c = 0; c < image->channels && image->dtype == TRI_U8 && !call->is_mask; c++)
        fills[c] = (uint8_t)fill.items[fill.count > 1 ? c : 0];
    row_map rows = {image, map->m, map->m[1] != 0 || map->m[3] != 0, image->width,
                    call->rows->data};
    if (is_bilinear)
        map_bilinear(image, map->m, fills, call->memory->data);
    else
        map_nearest(&rows, fills, image->height, call->memory->data);
    tri_shape shape = tri_image_shape(image);
    *image = tri_image_of_planes(call->memory->data, image->dtype, &shape);
    return TRI_OK;
}
