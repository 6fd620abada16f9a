// Caffe's Datum: an image and its class as a protocol buffer, which Caffe's LMDB databases have as
// values. (caffe.proto: channels = 1, height = 2, width = 3, data = 4, label = 5, float_data = 6,
// encoded = 7)
#ifndef TRIREME_FORMAT_DATUM_H
#define TRIREME_FORMAT_DATUM_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct tri_datum {
    int64_t channels, height, width;
    int64_t offset, size; // of `data`, from the start of the message; offset 0: it has none
    int64_t label;
    bool has_label, has_floats;
    bool is_encoded; // `data` is an image file; false: bytes [channels, height, width]
} tri_datum;

// Reads a message of `size` bytes at `offset` of a file, without its data. False: the bytes are no
// such message.
bool tri_datum_read(int fd, int64_t offset, int64_t size, const char *path, tri_datum *out);
// Whether what was read is an image: one that is encoded, or with as many bytes as its sizes say.
bool tri_datum_is_image(const tri_datum *datum);

enum { TRI_DATUM_HEAD_BYTES = 64 };
// Writes what stands before the data, which follow it and end the message. Returns the number of
// bytes. The sizes are left out if `channels` is 0.
int tri_datum_head(const tri_datum *datum, uint8_t head[TRI_DATUM_HEAD_BYTES]);

#endif
