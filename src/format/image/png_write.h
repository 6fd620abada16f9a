// Writes PNG files.
#ifndef TRIREME_FORMAT_IMAGE_PNG_WRITE_H
#define TRIREME_FORMAT_IMAGE_PNG_WRITE_H

#include "base/status.h"

#include <stdint.h>

// Writes pixels [height, width, 3], red, green and blue bytes, to a file that replaces any at
// `path`. TRI_IO, TRI_NO_MEMORY.
tri_status tri_png_write(const char *path, const uint8_t *pixels, int64_t height, int64_t width);

#endif
