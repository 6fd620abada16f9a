// Writes PNG files, by libpng.
#include "format/image/png_write.h"

#include "base/os.h"

#include <png.h>
#include <stdlib.h>

tri_status tri_png_write(const char *path, const uint8_t *pixels, int64_t height, int64_t width) {
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)width,
                       .height = (png_uint_32)height,
                       .format = PNG_FORMAT_RGB};
    png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
    void *file = malloc(size);
    if (!file) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for the image", path);
    tri_status status = TRI_OK;
    if (!png_image_write_to_memory(&image, file, &size, 0, pixels, 0, NULL))
        status = TRI_FAIL(TRI_INTERNAL, "%s: cannot be made: %s", path, image.message);
    if (status == TRI_OK) status = tri_os_replace_file(path, file, size);
    free(file);
    return status;
}
