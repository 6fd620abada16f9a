// Reads numbers that lie in a file with their least byte first, at any address.
#ifndef TRIREME_BASE_LITTLE_ENDIAN_H
#define TRIREME_BASE_LITTLE_ENDIAN_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t tri_le16(const uint8_t *at) {
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return le16toh(value);
}

static inline uint32_t tri_le32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return le32toh(value);
}

static inline uint64_t tri_le64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

#endif
