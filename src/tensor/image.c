// Views of images, and copies of what they show.
#include "tensor/image.h"

#include <string.h>

tri_image tri_image_of_planes(const void *data, tri_dtype dtype, const tri_shape *shape) {
    int64_t bytes = (int64_t)tri_dtype_bytes(dtype), height = shape->dims[1],
            width = shape->dims[2];
    return (tri_image){.pixels = data,
                       .dtype = dtype,
                       .channels = shape->dims[0],
                       .height = height,
                       .width = width,
                       .channel_stride = height * width * bytes,
                       .row_stride = width * bytes,
                       .column_stride = bytes};
}

tri_image tri_image_of_pixels(const uint8_t *data, int64_t channels, int64_t height, int64_t width,
                              int64_t pixel_bytes) {
    return (tri_image){.pixels = data,
                       .dtype = TRI_U8,
                       .channels = channels,
                       .height = height,
                       .width = width,
                       .channel_stride = 1,
                       .row_stride = width * pixel_bytes,
                       .column_stride = pixel_bytes};
}

tri_image tri_image_cut(const tri_image *image, int64_t top, int64_t left, int64_t height,
                        int64_t width) {
    tri_image part = *image;
    part.pixels += top * image->row_stride + left * image->column_stride;
    part.height = height;
    part.width = width;
    return part;
}

tri_image tri_image_mirror(const tri_image *image) {
    tri_image mirrored = *image;
    mirrored.pixels += (image->width - 1) * image->column_stride;
    mirrored.column_stride = -image->column_stride;
    return mirrored;
}

tri_image tri_image_turn_over(const tri_image *image) {
    tri_image turned = *image;
    turned.pixels += (image->height - 1) * image->row_stride;
    turned.row_stride = -image->row_stride;
    return turned;
}

tri_shape tri_image_shape(const tri_image *image) {
    return tri_shape_of(image->channels, image->height, image->width);
}

// Copies every `step`-th value. The steps of bytes that images have in practice are constants, so
// that the compiler makes vectors of their loops.
#define PICK(T, step)                                                                              \
    do {                                                                                           \
        T *to = out;                                                                               \
        const T *values = (const void *)from;                                                      \
        for (int64_t i = 0; i < count; i++) to[i] = values[i * (step)];                            \
    } while (0)

static void pick_bytes(const uint8_t *from, int64_t step, int64_t count, void *out) {
    if (step == 3)
        PICK(uint8_t, 3);
    else if (step == 4)
        PICK(uint8_t, 4);
    else if (step == -1)
        PICK(uint8_t, -1);
    else if (step == -4)
        PICK(uint8_t, -4);
    else
        PICK(uint8_t, step);
}

void tri_image_read_row(const tri_image *image, int64_t channel, int64_t row, int64_t first,
                        int64_t count, void *out) {
    int64_t bytes = (int64_t)tri_dtype_bytes(image->dtype), step = image->column_stride / bytes;
    const uint8_t *from = image->pixels + channel * image->channel_stride +
                          row * image->row_stride + first * image->column_stride;
    if (step == 1)
        memcpy(out, from, (size_t)(count * bytes));
    else if (bytes == 1)
        pick_bytes(from, step, count, out);
    else if (bytes == 2)
        PICK(uint16_t, step);
    else if (bytes == 4)
        PICK(uint32_t, step);
    else
        PICK(uint64_t, step);
}

void tri_image_read(const tri_image *image, void *out) {
    int64_t bytes = (int64_t)tri_dtype_bytes(image->dtype), row_bytes = image->width * bytes;
    uint8_t *to = out;
    for (int64_t channel = 0; channel < image->channels; channel++) {
        const uint8_t *plane = image->pixels + channel * image->channel_stride;
        if (image->column_stride == bytes && image->row_stride == row_bytes) {
            memcpy(to, plane, (size_t)(image->height * row_bytes));
            to += image->height * row_bytes;
            continue;
        }
        for (int64_t row = 0; row < image->height; row++, to += row_bytes)
            tri_image_read_row(image, channel, row, 0, image->width, to);
    }
}
