// Reads and writes Caffe's Datum: see datum.h.
#include "format/datum.h"

#include "base/limits.h"
#include "base/os.h"

#include <string.h>

enum { WINDOW_BYTES = 128, VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5, MOST_VARINT = 10 };

// A part of a message that is in memory, so that its data need not be read.
typedef struct reader {
    int fd;
    const char *path;
    int64_t offset, size; // of the message
    int64_t at;           // in the message
    int64_t first, count; // the bytes that are in memory
    uint8_t bytes[WINDOW_BYTES];
} reader;

static bool next_byte(reader *r, uint8_t *out) {
    if (r->at >= r->size) return false;
    if (r->at < r->first || r->at >= r->first + r->count) {
        r->first = r->at;
        r->count = r->size - r->at < WINDOW_BYTES ? r->size - r->at : WINDOW_BYTES;
        if (tri_os_pread_all(r->fd, r->bytes, (size_t)r->count, r->offset + r->first, r->path) !=
            TRI_OK)
            return false;
    }
    *out = r->bytes[r->at++ - r->first];
    return true;
}

static bool read_varint(reader *r, uint64_t *out) {
    *out = 0;
    for (int i = 0; i < MOST_VARINT; i++) {
        uint8_t byte;
        if (!next_byte(r, &byte)) return false;
        *out |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (!(byte & 0x80)) return true;
    }
    return false;
}

static bool read_number(uint64_t field, uint64_t value, tri_datum *out) {
    int64_t *const sizes[] = {&out->channels, &out->height, &out->width};
    int64_t number = (int64_t)value;
    if (field >= 1 && field <= 3) {
        *sizes[field - 1] = number;
        return number >= 0 && number <= TRI_MAX_IMAGE_SIDE;
    }
    out->has_label |= field == 5;
    if (field == 5) out->label = number;
    if (field == 7) out->is_encoded = value != 0;
    return true;
}

static bool read_one(reader *r, tri_datum *out) {
    uint64_t tag, value;
    if (!read_varint(r, &tag)) return false;
    uint64_t field = tag >> 3;
    out->has_floats |= field == 6;
    int64_t left = r->size - r->at;
    switch (tag & 7) {
    case VARINT:
        return field != 0 && read_varint(r, &value) && read_number(field, value, out);
    case FIXED64:
        r->at += 8;
        return field != 0 && left >= 8;
    case FIXED32:
        r->at += 4;
        return field != 0 && left >= 4;
    case BYTES:
        break;
    default:
        return false;
    }
    if (field == 0 || !read_varint(r, &value) || value > (uint64_t)(r->size - r->at)) return false;
    if (field == 4) {
        out->offset = r->at;
        out->size = (int64_t)value;
    }
    r->at += (int64_t)value;
    return true;
}

bool tri_datum_read(int fd, int64_t offset, int64_t size, const char *path, tri_datum *out) {
    reader r = {.fd = fd, .path = path, .offset = offset, .size = size};
    *out = (tri_datum){0};
    while (r.at < r.size)
        if (!read_one(&r, out)) return false;
    return r.size > 0;
}

bool tri_datum_is_image(const tri_datum *datum) {
    if (datum->size < 1) return false;
    return datum->is_encoded || datum->channels * datum->height * datum->width == datum->size;
}

static int put_varint(uint8_t *at, int field, uint64_t value) {
    int count = 0;
    at[count++] = (uint8_t)(field << 3);
    for (; value > 0x7f; value >>= 7) at[count++] = (uint8_t)(value | 0x80);
    at[count++] = (uint8_t)value;
    return count;
}

int tri_datum_head(const tri_datum *datum, uint8_t head[TRI_DATUM_HEAD_BYTES]) {
    int count = 0;
    if (datum->channels > 0) {
        count += put_varint(head + count, 1, (uint64_t)datum->channels);
        count += put_varint(head + count, 2, (uint64_t)datum->height);
        count += put_varint(head + count, 3, (uint64_t)datum->width);
    }
    if (datum->has_label) count += put_varint(head + count, 5, (uint64_t)datum->label);
    if (datum->is_encoded) count += put_varint(head + count, 7, 1);
    int tag = count;
    count += put_varint(head + count, 4, (uint64_t)datum->size);
    head[tag] |= BYTES;
    return count;
}
