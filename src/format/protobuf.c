// Encodes protocol buffers from back to front: see protobuf.h.
#include "format/protobuf.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5, FIRST_CAPACITY = 1024 };

void protobuf_clear(protobuf *out) {
    out->start = out->capacity;
    out->failed = false;
}

size_t protobuf_size(const protobuf *out) { return out->capacity - out->start; }
const uint8_t *protobuf_bytes(const protobuf *out) { return out->data + out->start; }

static bool reserve(protobuf *out, size_t size) {
    if (size <= out->start) return true;
    size_t used = protobuf_size(out), capacity = out->capacity ? out->capacity : FIRST_CAPACITY;
    while (capacity - used < size) capacity *= 2;
    uint8_t *grown = malloc(capacity);
    if (!grown) {
        out->failed = true;
        return false;
    }
    if (used) memcpy(grown + capacity - used, out->data + out->start, used);
    free(out->data);
    out->data = grown;
    out->start = capacity - used;
    out->capacity = capacity;
    return true;
}

void protobuf_raw(protobuf *out, const void *data, size_t size) {
    if (size == 0 || !reserve(out, size)) return;
    out->start -= size;
    memcpy(out->data + out->start, data, size);
}

static void put_number(protobuf *out, uint64_t value) {
    uint8_t bytes[10];
    size_t used = 0;
    do {
        bytes[used++] = (uint8_t)(value & 0x7f) | (value > 0x7f ? 0x80 : 0);
        value >>= 7;
    } while (value);
    protobuf_raw(out, bytes, used);
}

static void put_tag(protobuf *out, int field, int wire) {
    put_number(out, (uint64_t)field << 3 | (uint64_t)wire);
}

void protobuf_varint(protobuf *out, int field, uint64_t value) {
    put_number(out, value);
    put_tag(out, field, VARINT);
}

void protobuf_double(protobuf *out, int field, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = htole64(bits);
    protobuf_raw(out, &bits, sizeof bits);
    put_tag(out, field, FIXED64);
}

void protobuf_float(protobuf *out, int field, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = htole32(bits);
    protobuf_raw(out, &bits, sizeof bits);
    put_tag(out, field, FIXED32);
}

void protobuf_string(protobuf *out, int field, const char *text) {
    size_t end = protobuf_size(out);
    protobuf_raw(out, text, strlen(text));
    protobuf_message(out, field, end);
}

void protobuf_message(protobuf *out, int field, size_t end) {
    put_number(out, protobuf_size(out) - end);
    put_tag(out, field, BYTES);
}
