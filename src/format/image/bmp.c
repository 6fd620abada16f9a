// BMP without compression: 1, 4 or 8 bits of a palette, 24 or 32 bits of colour. (Windows' header
// of a bitmap: BITMAPFILEHEADER of 14 bytes, then BITMAPINFOHEADER of 40 or more, all
// little-endian.)
#include "format/image/codec.h"

#include <string.h>

enum { FILE_HEADER = 14, INFO_HEADER = 40, NO_COMPRESSION = 0, BIT_FIELDS = 3 };

static bool recognizes(const uint8_t *bytes, size_t size) {
    return size > FILE_HEADER + INFO_HEADER && bytes[0] == 'B' && bytes[1] == 'M';
}

static uint32_t number(const uint8_t *bytes, int size) {
    uint32_t value = 0;
    for (int i = 0; i < size; i++) value |= (uint32_t)bytes[i] << (8 * i);
    return value;
}

typedef struct header {
    size_t pixels; // where the pixels begin
    size_t palette, colours;
    int64_t width, height;
    int bits;
    bool is_upward; // rows from the bottom to the top, as usual
} header;

static tri_status fail(const image_job *job, const char *why) {
    return TRI_FAIL(TRI_CORRUPT, "%s: damaged BMP: %s", job->name, why);
}

static tri_status read_header(const image_job *job, header *out) {
    const uint8_t *info = job->bytes + FILE_HEADER;
    uint32_t info_size = number(info, 4), compression = number(info + 16, 4);
    int32_t height = (int32_t)number(info + 8, 4);
    *out = (header){.pixels = number(job->bytes + 10, 4),
                    .palette = FILE_HEADER + (size_t)info_size,
                    .colours = number(info + 32, 4),
                    .width = (int32_t)number(info + 4, 4),
                    .height = height < 0 ? -(int64_t)height : height,
                    .bits = (int)number(info + 14, 2),
                    .is_upward = height > 0};
    bool is_palette = out->bits == 1 || out->bits == 4 || out->bits == 8;
    bool is_plain = compression == NO_COMPRESSION && (is_palette || out->bits == 24);
    // With bit fields only the usual order, blue first, is read: their masks follow the header.
    bool is_usual = out->bits == 32 && (compression == NO_COMPRESSION ||
                                        (compression == BIT_FIELDS && job->size > 66 &&
                                         number(job->bytes + 54, 4) == 0xff0000 &&
                                         number(job->bytes + 58, 4) == 0xff00));
    if (info_size < INFO_HEADER || info_size > job->size) return fail(job, "its header is unknown");
    if (!is_plain && !is_usual)
        return TRI_FAIL(TRI_CORRUPT, "%s: a BMP of %d bits with compression %u: save it as PNG",
                        job->name, out->bits, compression);
    if (is_palette && (out->colours == 0 || out->colours > 1u << out->bits))
        out->colours = 1u << out->bits;
    if (is_palette && out->palette + 4 * out->colours > job->size)
        return fail(job, "its palette is cut off");
    return TRI_OK;
}

// The colour of pixel x, as bytes blue, green, red.
static const uint8_t *colour_of(const image_job *job, const header *h, const uint8_t *row,
                                int64_t x) {
    static const uint8_t black[3];
    if (h->bits >= 24) return row + x * (h->bits / 8);
    int64_t bit = x * h->bits;
    unsigned index = row[bit / 8] >> (8 - h->bits - bit % 8) & ((1u << h->bits) - 1);
    return index < h->colours ? job->bytes + h->palette + 4 * index : black;
}

static tri_status decode(image_job *job) {
    header h;
    TRI_TRY(read_header(job, &h));
    TRI_TRY(image_begin(job, h.width, h.height));
    size_t row_bytes = ((size_t)h.width * (size_t)h.bits + 31) / 32 * 4;
    if (h.pixels > job->size || row_bytes * (size_t)h.height > job->size - h.pixels)
        return fail(job, "its pixels are cut off");
    for (int64_t y = 0; y < h.height; y++) {
        const uint8_t *row = job->bytes + h.pixels + (size_t)y * row_bytes;
        uint8_t *to = image_row(job, h.is_upward ? h.height - 1 - y : y);
        for (int64_t x = 0; x < h.width; x++, to += IMAGE_PIXEL_BYTES) {
            const uint8_t *colour = colour_of(job, &h, row, x);
            to[0] = colour[2];
            to[1] = colour[1];
            to[2] = colour[0];
            to[3] = 0xff;
        }
    }
    return TRI_OK;
}

const image_codec image_bmp = {.name = "BMP", .recognizes = recognizes, .decode = decode};
