// `trireme data dump --png`: reads images and lays them out on one sheet.
#include "data/sheet.h"

#include "base/limits.h"
#include "base/quantity.h"
#include "data/dump.h"
#include "format/image/png_write.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    GAP = 2,         // white pixels between two images
    LEAST_SIDE = 64, // images whose longer side is smaller are enlarged
    CHANNELS = 3
};

// Where the images lie on the sheet; sizes are in pixels.
typedef struct layout {
    int64_t channels, height, width; // of an image
    int64_t factor;                  // by which images are enlarged
    int64_t columns, rows;           // in images
    int64_t sheet_height, sheet_width;
} layout;

static tri_status lay_out(const tri_shape *image, int64_t count, layout *out) {
    int64_t height = image->dims[1], width = image->dims[2];
    int64_t side = height > width ? height : width;
    int64_t factor = side < LEAST_SIDE ? LEAST_SIDE / side : 1;
    int64_t columns = (int64_t)ceil(sqrt((double)count)), rows = (count + columns - 1) / columns;
    *out = (layout){.channels = image->dims[0],
                    .height = height,
                    .width = width,
                    .factor = factor,
                    .columns = columns,
                    .rows = rows,
                    .sheet_height = rows * (height * factor + GAP) + GAP,
                    .sheet_width = columns * (width * factor + GAP) + GAP};
    if (out->sheet_height <= TRI_MAX_IMAGE_SIDE && out->sheet_width <= TRI_MAX_IMAGE_SIDE &&
        out->sheet_height * out->sheet_width <= TRI_MAX_IMAGE_PIXELS)
        return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "--count %lld: images of %lld x %lld do not fit on one sheet",
                    (long long)count, (long long)height, (long long)width);
}

// Draws image number `index`, whose planes [channels, height, width] are bytes.
static void draw(const layout *l, int64_t index, const uint8_t *planes, uint8_t *sheet) {
    int64_t top = GAP + index / l->columns * (l->height * l->factor + GAP);
    int64_t left = GAP + index % l->columns * (l->width * l->factor + GAP);
    for (int64_t y = 0; y < l->height * l->factor; y++)
        for (int64_t x = 0; x < l->width * l->factor; x++)
            for (int64_t c = 0; c < CHANNELS; c++) {
                int64_t channel = l->channels >= CHANNELS ? c : 0;
                int64_t from = (channel * l->height + y / l->factor) * l->width + x / l->factor;
                sheet[((top + y) * l->sheet_width + left + x) * CHANNELS + c] = planes[from];
            }
}

// Makes bytes of numbers, the smallest black and the largest white.
static void make_bytes(const float *values, int64_t count, uint8_t *to, tri_data_sheet *out) {
    out->has_range = true;
    out->black = INFINITY;
    out->white = -INFINITY;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) continue;
        out->black = fmin(out->black, (double)values[i]);
        out->white = fmax(out->white, (double)values[i]);
    }
    double range = out->white > out->black ? out->white - out->black : 1;
    for (int64_t i = 0; i < count; i++)
        to[i] = isfinite(values[i])
                    ? (uint8_t)lround(255 * ((double)values[i] - out->black) / range)
                    : 0;
}

static tri_status write_sheet(const tri_data_field *images, int64_t count, void *values,
                              const char *path, tri_data_sheet *out) {
    layout l;
    TRI_TRY(lay_out(&images->shape, count, &l));
    int64_t elements = tri_shape_count(&images->shape);
    // Bytes take less room than the floats in whose place they come.
    if (images->dtype != TRI_U8) make_bytes(values, count * elements, values, out);
    out->columns = l.columns;
    size_t bytes = (size_t)(l.sheet_height * l.sheet_width * CHANNELS);
    uint8_t *sheet = malloc(bytes);
    if (!sheet) return TRI_FAIL(TRI_NO_MEMORY, "no memory for the sheet of images");
    memset(sheet, 0xff, bytes);
    for (int64_t i = 0; i < count; i++) draw(&l, i, (uint8_t *)values + i * elements, sheet);
    tri_status status = tri_png_write(path, sheet, l.sheet_height, l.sheet_width);
    free(sheet);
    return status;
}

static tri_status read_and_write(tri_dataset *dataset, int64_t first, int64_t count,
                                 const char *path, tri_data_sheet *out) {
    tri_pixel_scale scale;
    int index = tri_dataset_find(dataset, "images");
    if (index == TRI_NO_FIELD)
        return TRI_FAIL(TRI_BAD_INPUT, "--png: the data have no field 'images'");
    if (count > TRI_MAX_SHEET_IMAGES)
        return TRI_FAIL(TRI_BAD_INPUT, "--count %lld: a sheet has at most %d images",
                        (long long)count, TRI_MAX_SHEET_IMAGES);
    if (tri_dataset_scale(dataset, &scale)) tri_dataset_keep_bytes(dataset);
    void *data[TRI_MAX_DATA_FIELDS];
    TRI_TRY(tri_data_read_samples(dataset, first, count, data));
    tri_status status =
        write_sheet(tri_dataset_field(dataset, index), count, data[index], path, out);
    tri_data_free_samples(dataset, data);
    return status;
}

tri_status tri_data_sheet_write(const tri_data_options *options, tri_data_split split,
                                uint64_t seed, int64_t first, int64_t count, const char *path,
                                tri_data_sheet *out) {
    tri_dataset *dataset;
    *out = (tri_data_sheet){0};
    TRI_TRY(tri_dataset_open(options, split, seed, &dataset));
    tri_status status = read_and_write(dataset, first, count, path, out);
    tri_dataset_close(dataset);
    return status;
}
