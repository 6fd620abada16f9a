// Decodes arbitrary bytes as an image file: JPEG, PNG, WebP, BMP or PPM.
#include "base/status.h"
#include "format/image/image.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static tri_image_decoder *decoder; // one for all inputs, so that none may spoil the next
    tri_image image;
    if (!decoder) TRI_ASSERT(tri_image_decoder_create(&decoder) == TRI_OK);
    if (tri_image_decode(decoder, data, size, "input", &image) != TRI_OK) {
        TRI_ASSERT(strstr(tri_error_message(), "input"));
        return 0;
    }
    TRI_ASSERT(image.height > 0 && image.width > 0 && image.channels == 3);
    uint8_t *pixels = malloc((size_t)(image.height * image.width * image.channels));
    TRI_ASSERT(pixels);
    tri_image_read(&image, pixels);
    free(pixels);
    return 0;
}
