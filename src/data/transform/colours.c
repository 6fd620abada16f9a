// Changes the colours of images, as ImageEnhance, ImageOps and convert of Pillow do.
#include "data/transform/planes.h"

#include <string.h>

enum { BYTES = 256 };

static int64_t plane_size(const tri_planes *planes) { return planes->height * planes->width; }

tri_status tri_planes_of(tri_transform_call *call, tri_image *image, tri_planes *out) {
    int64_t size = image->channels * image->height * image->width;
    tri_shape shape = tri_image_shape(image);
    TRI_ASSERT(image->dtype == TRI_U8);
    bool is_own = call->memory->data && image->pixels == call->memory->data &&
                  image->column_stride == 1 && image->row_stride == image->width &&
                  image->channel_stride == image->width * image->height;
    if (!is_own) {
        TRI_TRY(tri_buffer_reserve(call->memory, (size_t)size));
        tri_image_read(image, call->memory->data);
        *image = tri_image_of_planes(call->memory->data, TRI_U8, &shape);
    }
    *out = (tri_planes){call->memory->data, image->channels, image->height, image->width};
    return TRI_OK;
}

void tri_planes_map(const tri_planes *planes, int64_t channel, const uint8_t table[256]) {
    int64_t size = plane_size(planes);
    uint8_t *bytes = planes->data + channel * size;
    for (int64_t i = 0; i < size; i++) bytes[i] = table[bytes[i]];
}

static void map_all(const tri_planes *planes, const uint8_t table[256]) {
    for (int64_t c = 0; c < planes->channels; c++) tri_planes_map(planes, c, table);
}

static inline uint8_t grey_of(uint32_t red, uint32_t green, uint32_t blue) {
    return (uint8_t)((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16);
}

void tri_planes_grey(const tri_planes *planes) {
    if (planes->channels != 3) return;
    int64_t size = plane_size(planes);
    uint8_t *restrict red = planes->data, *restrict green = red + size,
                      *restrict blue = green + size;
    for (int64_t i = 0; i < size; i++) red[i] = grey_of(red[i], green[i], blue[i]);
    memcpy(green, red, (size_t)size);
    memcpy(blue, red, (size_t)size);
}

// Pillow's Image.blend of one value: it truncates, and limits to bytes.
static inline uint8_t blend(int32_t from, int32_t to, float factor) {
    float value = (float)from + factor * (float)(to - from);
    value = value < 0 ? 0 : value;
    return (uint8_t)(int32_t)(value > 255 ? 255 : value);
}

// Mixes with the same grey everywhere.
static void blend_with(const tri_planes *planes, int32_t grey, float factor) {
    int64_t size = planes->channels * plane_size(planes);
    uint8_t *bytes = planes->data;
    for (int64_t i = 0; i < size; i++) bytes[i] = blend(grey, bytes[i], factor);
}

void tri_planes_brightness(const tri_planes *planes, float factor) {
    blend_with(planes, 0, factor);
}

void tri_planes_contrast(const tri_planes *planes, float factor) {
    int64_t size = plane_size(planes), sum = 0;
    const uint8_t *red = planes->data, *green = red + size, *blue = green + size;
    if (planes->channels == 3)
        for (int64_t i = 0; i < size; i++) sum += grey_of(red[i], green[i], blue[i]);
    else
        for (int64_t i = 0; i < size; i++) sum += red[i];
    blend_with(planes, (int32_t)((double)sum / (double)size + 0.5), factor);
}

void tri_planes_saturation(const tri_planes *planes, float factor) {
    if (planes->channels != 3) return;
    int64_t size = plane_size(planes);
    uint8_t *restrict red = planes->data, *restrict green = red + size,
                      *restrict blue = green + size;
    for (int64_t i = 0; i < size; i++) {
        uint8_t grey = grey_of(red[i], green[i], blue[i]);
        red[i] = blend(grey, red[i], factor);
        green[i] = blend(grey, green[i], factor);
        blue[i] = blend(grey, blue[i], factor);
    }
}

// The degenerate image of sharpness is a mean of 3 x 3 pixels, of which the middle one counts five
// times; pixels at the edge stay as they are. The divisor is odd, so no mean lies between two
// bytes.
static uint8_t smooth(const uint8_t *above, const uint8_t *row, const uint8_t *below, int64_t x) {
    enum { DIVISOR = 13 };
    int32_t sum = above[x - 1] + above[x] + above[x + 1] + row[x - 1] + 5 * row[x] + row[x + 1] +
                  below[x - 1] + below[x] + below[x + 1];
    return (uint8_t)((2 * sum + DIVISOR) / (2 * DIVISOR));
}

void tri_planes_sharpness(const tri_planes *planes, float factor, uint8_t *scratch) {
    int64_t width = planes->width, size = plane_size(planes);
    for (int64_t c = 0; c < planes->channels; c++) {
        uint8_t *plane = planes->data + c * size;
        memcpy(scratch, plane, (size_t)size);
        for (int64_t y = 1; y < planes->height - 1; y++) {
            const uint8_t *row = scratch + y * width;
            uint8_t *restrict to = plane + y * width;
            for (int64_t x = 1; x < width - 1; x++)
                to[x] = blend(smooth(row - width, row, row + width, x), row[x], factor);
        }
    }
}

// Hue, saturation and value as bytes, as Pillow computes them from red, green and blue: with the
// same mixture of floats and doubles, because each is then cut off to a whole number.
typedef struct hsv {
    uint8_t hue, saturation, value;
} hsv;

static uint8_t limited(int value) { return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value); }

static hsv to_hsv(uint8_t red, uint8_t green, uint8_t blue) {
    uint8_t most = red > green ? red : green, least = red < green ? red : green;
    most = blue > most ? blue : most;
    least = blue < least ? blue : least;
    if (most == least) return (hsv){0, 0, most};
    float range = (float)(most - least), saturation = range / (float)most, hue;
    if (red == most)
        hue = (float)(most - blue) / range - (float)(most - green) / range;
    else if (green == most)
        hue = (float)(2.0 + (double)((float)(most - red) / range) -
                      (double)((float)(most - blue) / range));
    else
        hue = (float)(4.0 + (double)((float)(most - green) / range) -
                      (double)((float)(most - red) / range));
    double turns = (double)hue / 6.0 + 1.0; // from 5/6 to 11/6
    hue = (float)(turns >= 1 ? turns - 1 : turns);
    return (hsv){limited((int)((double)hue * 255.0)), limited((int)((double)saturation * 255.0)),
                 most};
}

// What to_rgb needs of each of the 256 hues and saturations.
typedef struct circle {
    uint8_t sectors[BYTES]; // which sixth of the circle
    float parts[BYTES];     // how far in it
    float saturations[BYTES];
} circle;

static void make_circle(circle *out) {
    for (int x = 0; x < BYTES; x++) {
        int sector = (int)((float)x * 6.0f / 255.0f);
        out->sectors[x] = (uint8_t)(sector % 6);
        out->parts[x] = (float)(x * 6.0 / 255.0 - (double)sector);
        out->saturations[x] = (float)(x / 255.0);
    }
}

static uint8_t rounded(double value) { return limited((int)(value + 0.5)); } // not negative

static void to_rgb(const circle *of, hsv in, uint8_t *red, uint8_t *green, uint8_t *blue) {
    double value = (double)in.value;
    float part = of->parts[in.hue], saturation = of->saturations[in.saturation];
    uint8_t v = in.value, p = rounded(value * (1.0 - (double)saturation));
    uint8_t q = rounded(value * (1.0 - (double)(saturation * part)));
    uint8_t t = rounded(value * (1.0 - (double)saturation * (1.0 - (double)part)));
    const uint8_t sectors[6][3] = {{v, t, p}, {q, v, p}, {p, v, t},
                                   {p, q, v}, {t, p, v}, {v, p, q}};
    const uint8_t *rgb = sectors[of->sectors[in.hue]];
    *red = in.saturation ? rgb[0] : v;
    *green = in.saturation ? rgb[1] : v;
    *blue = in.saturation ? rgb[2] : v;
}

void tri_planes_hue(const tri_planes *planes, double turn) {
    if (planes->channels != 3) return;
    int64_t size = plane_size(planes);
    uint8_t *red = planes->data, *green = red + size, *blue = green + size;
    uint8_t steps = (uint8_t)(int)(turn * 255);
    circle of;
    make_circle(&of);
    for (int64_t i = 0; i < size; i++) {
        hsv pixel = to_hsv(red[i], green[i], blue[i]);
        pixel.hue = (uint8_t)(pixel.hue + steps);
        to_rgb(&of, pixel, &red[i], &green[i], &blue[i]);
    }
}

void tri_planes_posterize(const tri_planes *planes, int bits) {
    uint8_t table[BYTES];
    for (int x = 0; x < BYTES; x++) table[x] = (uint8_t)(x & ~((1 << (8 - bits)) - 1));
    map_all(planes, table);
}

void tri_planes_solarize(const tri_planes *planes, double threshold) {
    uint8_t table[BYTES];
    for (int x = 0; x < BYTES; x++) table[x] = (uint8_t)(x < threshold ? x : 255 - x);
    map_all(planes, table);
}

// How often each byte occurs in a channel.
static void count_bytes(const tri_planes *planes, int64_t channel, int64_t counts[256]) {
    int64_t size = plane_size(planes);
    const uint8_t *bytes = planes->data + channel * size;
    memset(counts, 0, BYTES * sizeof *counts);
    for (int64_t i = 0; i < size; i++) counts[bytes[i]]++;
}

void tri_planes_autocontrast(const tri_planes *planes) {
    for (int64_t c = 0; c < planes->channels; c++) {
        int64_t counts[BYTES];
        uint8_t table[BYTES];
        int least = 0, most = BYTES - 1;
        count_bytes(planes, c, counts);
        while (least < most && counts[least] == 0) least++;
        while (most > least && counts[most] == 0) most--;
        if (least == most) continue;
        double scale = 255.0 / (most - least), offset = -least * scale;
        for (int x = 0; x < BYTES; x++) table[x] = limited((int)(x * scale + offset));
        tri_planes_map(planes, c, table);
    }
}

void tri_planes_equalize(const tri_planes *planes) {
    for (int64_t c = 0; c < planes->channels; c++) {
        int64_t counts[BYTES], last = 0, before;
        uint8_t table[BYTES];
        count_bytes(planes, c, counts);
        for (int x = 0; x < BYTES; x++) last = counts[x] ? counts[x] : last;
        int64_t step = (plane_size(planes) - last) / 255;
        if (step == 0) continue;
        before = step / 2;
        for (int x = 0; x < BYTES; x++) {
            int64_t value = before / step;
            table[x] = (uint8_t)(value > 255 ? 255 : value);
            before += counts[x];
        }
        tri_planes_map(planes, c, table);
    }
}
