// Decodes image files: JPEG, PNG, WebP, BMP and binary PGM and PPM, known by their first bytes.
#ifndef TRIREME_FORMAT_IMAGE_IMAGE_H
#define TRIREME_FORMAT_IMAGE_IMAGE_H

#include "base/status.h"
#include "tensor/image.h"

// What one thread needs to decode: its libraries' state and memory for the pixels.
typedef struct tri_image_decoder tri_image_decoder;
tri_status tri_image_decoder_create(tri_image_decoder **out); // TRI_NO_MEMORY
void tri_image_decoder_destroy(tri_image_decoder *decoder);   // NULL allowed

// Decodes the file `bytes` to pixels red, green, blue, as Pillow's convert("RGB") gives them: grey
// images become three equal channels, alpha channels are dropped, of 16 bits the higher 8 stay, and
// orientations of EXIF are ignored. *out lies in the decoder's memory until its next call. `name`
// is the file's name for messages. TRI_CORRUPT: the file is damaged, is not one of these formats,
// or has more than TRI_MAX_IMAGE_PIXELS; TRI_BAD_INPUT: it is a pointer (tri_os_check_pointer);
// TRI_NO_MEMORY.
tri_status tri_image_decode(tri_image_decoder *decoder, const void *bytes, size_t size,
                            const char *name, tri_image *out);

// True if a file of this name is taken for an image: .jpg, .jpeg, .png, .webp, .bmp, .ppm or .pgm,
// in any case.
bool tri_image_is_name(const char *name);

#endif
