// The wire format of protocol buffers, written from the last field to the first: a message's length
// is then known when it is put in front of its bytes, and nothing is copied. Format:
// https://protobuf.dev/programming-guides/encoding/
#ifndef TRIREME_FORMAT_PROTOBUF_H
#define TRIREME_FORMAT_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The bytes so far are data[start] … data[capacity - 1]. Zero-initialised is empty; free(data) ends
// it.
typedef struct protobuf {
    uint8_t *data;
    size_t capacity, start;
    bool failed; // no memory
} protobuf;

void protobuf_clear(protobuf *out);
size_t protobuf_size(const protobuf *out);
const uint8_t *protobuf_bytes(const protobuf *out);

// Each puts bytes in front of those there.
void protobuf_raw(protobuf *out, const void *data, size_t size);
void protobuf_varint(protobuf *out, int field, uint64_t value);
void protobuf_double(protobuf *out, int field, double value);
void protobuf_float(protobuf *out, int field, float value);
void protobuf_string(protobuf *out, int field, const char *text);
// Makes everything put in since `end` = protobuf_size() a message of `field`.
void protobuf_message(protobuf *out, int field, size_t end);

#endif
