// PNG, by libpng.
#include "format/image/codec.h"

#include "base/limits.h"

#include <png.h>
#include <string.h>

static bool recognizes(const uint8_t *bytes, size_t size) {
    return size > 8 && png_sig_cmp(bytes, 0, 8) == 0;
}

typedef struct reading {
    image_job *job;
    size_t at;
    tri_status status; // of the failure that ended the decoding
} reading;

static void on_error(png_structp png, png_const_charp message) {
    reading *r = png_get_error_ptr(png);
    r->status = TRI_FAIL(TRI_CORRUPT, "%s: damaged PNG: %s", r->job->name, message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message) {}

static void read_bytes(png_structp png, png_bytep out, size_t size) {
    reading *r = png_get_io_ptr(png);
    if (size > r->job->size - r->at) png_error(png, "it ends too early");
    memcpy(out, r->job->bytes + r->at, size);
    r->at += size;
}

// Lets libpng make every kind of image red, green, blue and a byte without a meaning.
static void choose_pixels(png_structp png, png_infop info) {
    int type = png_get_color_type(png, info);
    png_set_strip_16(png);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
    if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png);
    if (type & PNG_COLOR_MASK_ALPHA) png_set_strip_alpha(png);
    if (!(type & PNG_COLOR_MASK_COLOR)) png_set_gray_to_rgb(png);
    png_set_filler(png, 0xff, PNG_FILLER_AFTER);
    png_set_interlace_handling(png);
}

// Returns false if image_begin has failed, with its status in r->status.
static bool read_image(reading *r, png_structp png, png_infop info) {
    image_job *job = r->job;
    png_set_read_fn(png, r, read_bytes);
    png_set_user_limits(png, TRI_MAX_IMAGE_SIDE, TRI_MAX_IMAGE_SIDE);
    png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_WARN_DISCARD);
    png_read_info(png, info);
    r->status = image_begin(job, png_get_image_width(png, info), png_get_image_height(png, info));
    if (r->status != TRI_OK) return false;
    choose_pixels(png, info);
    png_read_update_info(png, info);
    if (png_get_rowbytes(png, info) != (size_t)job->width * IMAGE_PIXEL_BYTES)
        png_error(png, "its rows have another length than its header says");
    r->status = tri_buffer_reserve(job->rest, (size_t)job->height * sizeof(png_bytep));
    if (r->status != TRI_OK) return false;
    png_bytep *rows = job->rest->data;
    for (int64_t row = 0; row < job->height; row++) rows[row] = image_row(job, row);
    png_read_image(png, rows);
    png_read_end(png, NULL);
    return true;
}

static tri_status decode(image_job *job) {
    reading r = {.job = job, .status = TRI_OK};
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, on_error, on_warning);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info) {
        png_destroy_read_struct(&png, NULL, NULL);
        return TRI_FAIL(TRI_NO_MEMORY, "no memory to decode PNG");
    }
    if (!setjmp(png_jmpbuf(png))) read_image(&r, png, info);
    png_destroy_read_struct(&png, &info, NULL);
    return r.status;
}

const image_codec image_png = {.name = "PNG", .recognizes = recognizes, .decode = decode};
