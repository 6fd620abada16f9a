// The wire format of protocol buffers. Messages are encoded from the last field to the first: one
// is preceded by its length, which is known only once it is written. They are decoded field by
// field. Format: https://protobuf.dev/programming-guides/encoding/
#ifndef TRIREME_FORMAT_PROTOBUF_H
#define TRIREME_FORMAT_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The bytes written so far, which are at the end of the buffer: data[start] … data[capacity - 1]. A
// zero-initialised struct is empty; the caller frees `data`.
typedef struct protobuf {
    uint8_t *data;
    size_t capacity, start;
    bool failed; // an allocation has failed, so the bytes are incomplete
} protobuf;

void protobuf_clear(protobuf *out);
size_t protobuf_size(const protobuf *out);
const uint8_t *protobuf_bytes(const protobuf *out);

// Each function puts bytes in front of those that were already written.
void protobuf_raw(protobuf *out, const void *data, size_t size);
void protobuf_varint(protobuf *out, int field, uint64_t value);
void protobuf_double(protobuf *out, int field, double value);
void protobuf_float(protobuf *out, int field, float value);
void protobuf_string(protobuf *out, int field, const char *text);
// Puts a tag (field number `field`) and a length in front of the bytes that were written last, so
// that they become a message. `end` is what protobuf_size() returned before the first of these
// bytes was written.
void protobuf_message(protobuf *out, int field, size_t end);

// A message that is decoded. The caller sets `data` and `size`, and all else to zero.
typedef struct protobuf_reader {
    const uint8_t *data;
    size_t size, at;
    bool failed; // the bytes are no message
    // The current field. `number` is its value, or the bits of a float or double; or `bytes` and
    // `byte_count` are the text or message, and `bytes` is NULL for all others.
    uint64_t field, number;
    const uint8_t *bytes;
    size_t byte_count;
} protobuf_reader;

// Goes on to the next field. False: there is none, or `failed`.
bool protobuf_next(protobuf_reader *reader);
float protobuf_as_float(uint64_t number);

#endif
