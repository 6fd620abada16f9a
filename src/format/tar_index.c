// Reads and writes the index of tar archives: see tar_index.h.
#include "format/tar_index.h"

#include "base/limits.h"
#include "base/little_endian.h"
#include "base/os.h"
#include "format/event.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    HEADER_BYTES = 96,
    ROW_BYTES = 24,
    RECORD_BYTES = 16,
    BLOCK_RECORDS = 1 << 13, // read at a time
    VERSION = 1,
    // Places in the header. The checksum, of all but itself, comes first.
    AT_CHECKSUM = 8,
    AT_VERSION = 12,
    AT_ARCHIVES = 16,
    AT_HAS_LABELS = 20,
    AT_SAMPLES = 24,
    AT_CLASSES = 32,
    AT_OTHERS = 40,
    AT_KEY = 48,
    AT_TEXT = 80, // how many bytes of text
};
static const uint8_t MAGIC[8] = {'T', 'R', 'I', 'T', 'A', 'R', 'S', 0};

static void put32(uint8_t *at, uint32_t value) {
    value = htole32(value);
    memcpy(at, &value, sizeof value);
}

static void put64(uint8_t *at, int64_t value) {
    uint64_t number = htole64((uint64_t)value);
    memcpy(at, &number, sizeof number);
}

static int64_t get64(const uint8_t *at) { return (int64_t)tri_le64(at); }

static uint32_t checksum_of(const uint8_t *head, size_t size) {
    return tri_crc32c(head + AT_VERSION, size - AT_VERSION);
}

static int64_t records_at(int archives) {
    return HEADER_BYTES + (int64_t)archives * ROW_BYTES + TRI_TAR_INDEX_TEXT_BYTES;
}

static tri_status damaged(const char *path, const char *what) {
    return TRI_FAIL(TRI_CORRUPT, "%s: %s", path, what);
}

void tri_tar_index_close(tri_tar_index *index) {
    if (index->path && index->fd >= 0) tri_os.close(index->fd);
    free(index->rows);
    free(index->first_samples);
    *index = (tri_tar_index){.fd = -1};
}

// Reads the rows, whose samples have to be as many as the file has records.
static tri_status read_rows(tri_tar_index *out, const uint8_t *rows) {
    int64_t samples = 0;
    for (int i = 0; i < out->archives; i++) {
        const uint8_t *at = rows + (size_t)i * ROW_BYTES;
        tri_tar_row *row = &out->rows[i];
        *row = (tri_tar_row){get64(at), get64(at + 8), tri_le32(at + 16)};
        if (row->samples < 0 || row->samples > out->totals.samples - samples ||
            row->unpacked_bytes < 0)
            return damaged(out->path, "its rows are damaged");
        out->first_samples[i] = samples;
        samples += row->samples;
    }
    out->first_samples[out->archives] = samples;
    return samples == out->totals.samples ? TRI_OK : damaged(out->path, "its rows are damaged");
}

static tri_status read_totals(const uint8_t *head, const char *path, tri_tar_totals *out) {
    uint32_t has_labels = tri_le32(head + AT_HAS_LABELS), text_bytes = tri_le32(head + AT_TEXT);
    *out = (tri_tar_totals){.samples = get64(head + AT_SAMPLES),
                            .classes = get64(head + AT_CLASSES),
                            .others = get64(head + AT_OTHERS),
                            .has_labels = has_labels == 1};
    if (has_labels > 1 || out->samples < 0 || out->samples > TRI_MAX_SAMPLES || out->classes < 0 ||
        out->classes > TRI_MAX_CLASSES || (out->classes > 0) != (has_labels && out->samples > 0) ||
        out->others < 0 || text_bytes >= TRI_TAR_INDEX_TEXT_BYTES)
        return damaged(path, "its numbers are damaged");
    return TRI_OK;
}

static void copy_text(const uint8_t *text, size_t size, char *out) {
    for (size_t i = 0; i < size; i++) out[i] = iscntrl(text[i]) ? '?' : (char)text[i];
}

static tri_status read_head(tri_tar_index *out, const uint8_t *key, uint8_t *head, size_t size) {
    struct stat info;
    if (fstat(out->fd, &info) < 0) return tri_os_fail("look at", out->path);
    if (info.st_size < (int64_t)size) return damaged(out->path, "is too short");
    TRI_TRY(tri_os_pread_all(out->fd, head, size, 0, out->path));
    if (memcmp(head, MAGIC, sizeof MAGIC) != 0 || tri_le32(head + AT_VERSION) != VERSION ||
        tri_le32(head + AT_ARCHIVES) != (uint32_t)out->archives ||
        memcmp(head + AT_KEY, key, TRI_TAR_INDEX_KEY_BYTES) != 0)
        return damaged(out->path, "is no index of these archives");
    if (tri_le32(head + AT_CHECKSUM) != checksum_of(head, size))
        return damaged(out->path, "its checksum is wrong");
    TRI_TRY(read_totals(head, out->path, &out->totals));
    if (info.st_size != out->records_offset + out->totals.samples * RECORD_BYTES)
        return damaged(out->path, "is of another size");
    copy_text(head + size - TRI_TAR_INDEX_TEXT_BYTES, tri_le32(head + AT_TEXT),
              out->totals.first_other);
    return read_rows(out, head + HEADER_BYTES);
}

tri_status tri_tar_index_open(int fd, const char *path, const uint8_t *key, int archives,
                              tri_tar_index *out) {
    size_t size = (size_t)records_at(archives), count = (size_t)archives;
    *out = (tri_tar_index){
        .archives = archives, .records_offset = (int64_t)size, .fd = fd, .path = path};
    uint8_t *head = malloc(size);
    out->rows = calloc(count, sizeof *out->rows);
    out->first_samples = calloc(count + 1, sizeof *out->first_samples);
    tri_status status = TRI_OK;
    if (!head || !out->rows || !out->first_samples)
        status = TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to open it", path);
    if (status == TRI_OK) status = read_head(out, key, head, size);
    free(head);
    if (status != TRI_OK) tri_tar_index_close(out);
    return status;
}

static tri_tar_sample record_of(const uint8_t *at) {
    return (tri_tar_sample){get64(at), tri_le32(at + 8), (int32_t)tri_le32(at + 12)};
}

static bool is_possible(const tri_tar_index *index, const tri_tar_sample *s, int64_t bytes) {
    bool has_label = index->totals.has_labels;
    int32_t least = has_label ? 0 : TRI_TAR_INDEX_NO_LABEL;
    int64_t most = has_label ? index->totals.classes - 1 : TRI_TAR_INDEX_NO_LABEL;
    return s->offset >= 0 && s->offset <= bytes && s->size <= bytes - s->offset &&
           s->label >= least && s->label <= most;
}

static tri_status check_records(const tri_tar_index *index, int archive, int64_t archive_bytes,
                                uint8_t *block) {
    const tri_tar_row *row = &index->rows[archive];
    int64_t at = index->records_offset + index->first_samples[archive] * RECORD_BYTES;
    uint32_t checksum = 0;
    for (int64_t done = 0; done < row->samples; done += BLOCK_RECORDS) {
        int64_t count = row->samples - done < BLOCK_RECORDS ? row->samples - done : BLOCK_RECORDS;
        size_t size = (size_t)count * RECORD_BYTES;
        TRI_TRY(tri_os_pread_all(index->fd, block, size, at + done * RECORD_BYTES, index->path));
        checksum = tri_crc32c_more(checksum, block, size);
        for (int64_t i = 0; i < count; i++) {
            tri_tar_sample sample = record_of(block + (size_t)i * RECORD_BYTES);
            if (!is_possible(index, &sample, archive_bytes))
                return damaged(index->path, "a record leads out of its archive");
        }
    }
    if (checksum == row->checksum) return TRI_OK;
    return damaged(index->path, "the checksum of its records is wrong");
}

tri_status tri_tar_index_check(const tri_tar_index *index, int archive, int64_t archive_bytes) {
    uint8_t *block = malloc((size_t)BLOCK_RECORDS * RECORD_BYTES);
    if (!block) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to check it", index->path);
    tri_status status = check_records(index, archive, archive_bytes, block);
    free(block);
    return status;
}

// The archive of a sample: the last one whose first sample is not behind it.
static int archive_of(const tri_tar_index *index, int64_t sample) {
    int low = 0, high = index->archives; // first_samples[low] <= sample < first_samples[high]
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (index->first_samples[middle] <= sample)
            low = middle;
        else
            high = middle;
    }
    return low;
}

tri_status tri_tar_index_read(const tri_tar_index *index, int64_t sample, tri_tar_sample *out,
                              int *archive) {
    uint8_t record[RECORD_BYTES];
    TRI_ASSERT(sample >= 0 && sample < index->totals.samples);
    tri_status status =
        tri_os_pread_all(index->fd, record, sizeof record,
                         index->records_offset + sample * RECORD_BYTES, index->path);
    if (status == TRI_CORRUPT) return tri_status_context(TRI_IO, "was changed while it was in use");
    TRI_TRY(status);
    *out = record_of(record);
    *archive = archive_of(index, sample);
    if (out->offset >= 0 && out->label < (index->totals.has_labels ? index->totals.classes : 0) &&
        out->label >= (index->totals.has_labels ? 0 : TRI_TAR_INDEX_NO_LABEL))
        return TRI_OK;
    return TRI_FAIL(TRI_IO, "%s: was changed while it was in use", index->path);
}

tri_status tri_tar_index_write(int fd, const char *path, int archives, int64_t first,
                               const tri_tar_sample *samples, int64_t count, tri_tar_row *row) {
    size_t size = (size_t)count * RECORD_BYTES;
    uint8_t *records = malloc(size + 1);
    if (!records) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to write it", path);
    for (int64_t i = 0; i < count; i++) {
        uint8_t *at = records + (size_t)i * RECORD_BYTES;
        put64(at, samples[i].offset);
        put32(at + 8, samples[i].size);
        put32(at + 12, (uint32_t)samples[i].label);
    }
    row->samples = count;
    row->checksum = tri_crc32c(records, size);
    tri_status status =
        tri_os_pwrite_all(fd, records, size, records_at(archives) + first * RECORD_BYTES, path);
    free(records);
    return status;
}

tri_status tri_tar_index_finish(int fd, const char *path, const uint8_t *key,
                                const tri_tar_row *rows, int archives,
                                const tri_tar_totals *totals) {
    size_t size = (size_t)records_at(archives),
           text = strnlen(totals->first_other, TRI_TAR_INDEX_TEXT_BYTES - 1);
    uint8_t *head = calloc(1, size);
    if (!head) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to write it", path);
    memcpy(head, MAGIC, sizeof MAGIC);
    put32(head + AT_VERSION, VERSION);
    put32(head + AT_ARCHIVES, (uint32_t)archives);
    put32(head + AT_HAS_LABELS, totals->has_labels);
    put64(head + AT_SAMPLES, totals->samples);
    put64(head + AT_CLASSES, totals->classes);
    put64(head + AT_OTHERS, totals->others);
    memcpy(head + AT_KEY, key, TRI_TAR_INDEX_KEY_BYTES);
    put32(head + AT_TEXT, (uint32_t)text);
    for (int i = 0; i < archives; i++) {
        uint8_t *at = head + HEADER_BYTES + (size_t)i * ROW_BYTES;
        put64(at, rows[i].samples);
        put64(at + 8, rows[i].unpacked_bytes);
        put32(at + 16, rows[i].checksum);
    }
    memcpy(head + size - TRI_TAR_INDEX_TEXT_BYTES, totals->first_other, text);
    put32(head + AT_CHECKSUM, checksum_of(head, size));
    tri_status status = tri_os_pwrite_all(fd, head, size, 0, path);
    free(head);
    return status;
}
