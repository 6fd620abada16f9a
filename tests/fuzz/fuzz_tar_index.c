// Reads arbitrary bytes as an index of tar archives: as they are, and with checksums that are
// right, so that the numbers behind them are reached.
#include "base/limits.h"
#include "base/little_endian.h"
#include "base/status.h"
#include "format/event.h"
#include "format/tar_index.h"

#include <fcntl.h>
#include <string.h>

#include "memory_file.h"

enum {
    HEADER = 96,
    ROW = 24,
    RECORD = 16,
    CHECKSUM = 8,
    ARCHIVES = 16,
    KEY = 48,
    ROW_CHECKSUM = 16
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_checksum(uint8_t *at, const uint8_t *bytes, size_t size) {
    uint32_t checksum = htole32(tri_crc32c(bytes, size));
    memcpy(at, &checksum, sizeof checksum);
}

// Writes the checksums of an index of `archives` archives.
static void seal(uint8_t *bytes, size_t size, int archives) {
    size_t head = HEADER + (size_t)archives * ROW + TRI_TAR_INDEX_TEXT_BYTES, at = head;
    if (size < head) return;
    for (int i = 0; i < archives; i++) {
        uint8_t *row = bytes + HEADER + (size_t)i * ROW;
        uint64_t samples = tri_le64(row);
        if (samples > (size - at) / RECORD) break;
        put_checksum(row + ROW_CHECKSUM, bytes + at, samples * RECORD);
        at += samples * RECORD;
    }
    put_checksum(bytes + CHECKSUM, bytes + CHECKSUM + 4, head - CHECKSUM - 4);
}

static void read_index(const uint8_t *bytes, size_t size, const uint8_t *key, int archives) {
    enum { BYTES = 1 << 20 };
    tri_tar_index index;
    const char *path = memory_file(bytes, size);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool is_good = true;
    if (tri_tar_index_open(fd, path, key, archives, &index) != TRI_OK) {
        TRI_ASSERT(strstr(tri_error_message(), path));
        return;
    }
    TRI_ASSERT(index.first_samples[archives] == index.totals.samples);
    TRI_ASSERT(memchr(index.totals.first_other, 0, TRI_TAR_INDEX_TEXT_BYTES));
    for (int i = 0; i < archives; i++) is_good &= tri_tar_index_check(&index, i, BYTES) == TRI_OK;
    for (int64_t i = 0; is_good && i < index.totals.samples; i++) {
        tri_tar_sample sample;
        int archive;
        TRI_ASSERT(tri_tar_index_read(&index, i, &sample, &archive) == TRI_OK);
        TRI_ASSERT(archive >= 0 && archive < archives && sample.offset >= 0);
        TRI_ASSERT(sample.offset + sample.size <= BYTES && sample.label < TRI_MAX_CLASSES);
    }
    tri_tar_index_close(&index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { MOST = 1 << 16 };
    static uint8_t bytes[MOST];
    const uint8_t none[TRI_TAR_INDEX_KEY_BYTES] = {0};
    if (size > MOST) return 0;
    memcpy(bytes, data, size);
    int archives =
        size > ARCHIVES && bytes[ARCHIVES] > 1 && bytes[ARCHIVES] < 5 ? bytes[ARCHIVES] : 1;
    bool has_key = size >= KEY + TRI_TAR_INDEX_KEY_BYTES;
    read_index(bytes, size, has_key ? bytes + KEY : none, archives);
    seal(bytes, size, archives);
    read_index(bytes, size, has_key ? bytes + KEY : none, archives);
    return 0;
}
