// A view of the pixels of an image: where they lie and how far they are apart. To cut out a part of
// an image, to flip it or to turn it changes the view alone and copies nothing.
#ifndef TRIREME_TENSOR_IMAGE_H
#define TRIREME_TENSOR_IMAGE_H

#include <trireme/tensor.h>

typedef struct tri_image {
    const uint8_t *pixels; // the first channel of the top left pixel
    tri_dtype dtype;       // type of the values
    int64_t channels, height, width;
    int64_t channel_stride, row_stride, column_stride; // in bytes; negative: backwards
} tri_image;

// Views the planes [channels, height, width] at `data`.
tri_image tri_image_of_planes(const void *data, tri_dtype dtype, const tri_shape *shape);
// Views bytes whose channels lie beside each other, [height, width, pixel_bytes], of which the
// first `channels` of each pixel count.
tri_image tri_image_of_pixels(const uint8_t *data, int64_t channels, int64_t height, int64_t width,
                              int64_t pixel_bytes);
// Views the rectangle whose top left pixel is (top, left); it must lie within the image.
tri_image tri_image_cut(const tri_image *image, int64_t top, int64_t left, int64_t height,
                        int64_t width);
// Views the image with left and right, or top and bottom, exchanged.
tri_image tri_image_mirror(const tri_image *image);
tri_image tri_image_turn_over(const tri_image *image);
// The shape [channels, height, width].
tri_shape tri_image_shape(const tri_image *image);

// Copies `count` values of a row, from column `first` on, to `out`, where they lie side by side.
void tri_image_read_row(const tri_image *image, int64_t channel, int64_t row, int64_t first,
                        int64_t count, void *out);
// Copies the image to planes [channels, height, width] at `out`.
void tri_image_read(const tri_image *image, void *out);

#endif
