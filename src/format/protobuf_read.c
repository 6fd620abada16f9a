// Decodes protocol buffers field by field: see protobuf.h.
#include "format/protobuf.h"

#include <endian.h>
#include <string.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5, MAX_VARINT_BITS = 63 };

static uint64_t get_number(protobuf_reader *r) {
    uint64_t value = 0;
    for (unsigned shift = 0; r->at < r->size && shift <= MAX_VARINT_BITS; shift += 7) {
        uint8_t byte = r->data[r->at++];
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
    }
    r->failed = true;
    return 0;
}

// The bytes of a field; NULL: the message ends before that.
static const uint8_t *get_bytes(protobuf_reader *r, uint64_t count) {
    const uint8_t *bytes = r->data + r->at;
    r->failed |= count > r->size - r->at;
    if (r->failed) return NULL;
    r->at += count;
    return bytes;
}

static uint64_t get_fixed(protobuf_reader *r, size_t count) {
    uint64_t value = 0;
    const uint8_t *bytes = get_bytes(r, count);
    if (bytes) memcpy(&value, bytes, count);
    return le64toh(value);
}

bool protobuf_next(protobuf_reader *r) {
    if (r->failed || r->at == r->size) return false;
    uint64_t tag = get_number(r);
    r->field = tag >> 3;
    r->bytes = NULL;
    r->number = r->byte_count = 0;
    switch (tag & 7) {
    case VARINT:
        r->number = get_number(r);
        break;
    case FIXED64:
        r->number = get_fixed(r, 8);
        break;
    case FIXED32:
        r->number = get_fixed(r, 4);
        break;
    case BYTES:
        r->byte_count = get_number(r);
        r->bytes = get_bytes(r, r->byte_count);
        break;
    default: // groups are not used any more
        r->failed = true;
    }
    r->failed |= r->field == 0;
    return !r->failed;
}

float protobuf_as_float(uint64_t number) {
    uint32_t bits = (uint32_t)number;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
