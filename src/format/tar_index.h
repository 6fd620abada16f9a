// An index of the samples in tar archives: a file with the place of each sample, so that archives
// need not be listed again. It is read sample by sample and never held in memory.
//
// The file, in little-endian numbers: a header; for each archive a row; one line of text; and for
// each sample a record, archive after archive. Header, rows and text have one checksum (CRC-32C),
// and the records of each archive one in its row. What is wrong with a file is found when it is
// opened and checked; nothing in it is believed before.
#ifndef TRIREME_FORMAT_TAR_INDEX_H
#define TRIREME_FORMAT_TAR_INDEX_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TRI_TAR_INDEX_KEY_BYTES = 32,
    TRI_TAR_INDEX_TEXT_BYTES = 1024, // the most bytes of the text
    TRI_TAR_INDEX_NO_LABEL = -1,
};

// What the file says of one sample. In memory as in the file, except for the order of bytes.
typedef struct tri_tar_sample {
    int64_t offset; // of its image, in the archive or its unpacked copy
    uint32_t size;  // UINT32_MAX: that or more, which is no image
    int32_t label;  // TRI_TAR_INDEX_NO_LABEL: the samples have none
} tri_tar_sample;

// What the file says of one archive.
typedef struct tri_tar_row {
    int64_t samples;
    int64_t unpacked_bytes; // of the content of a compressed archive; 0: it is not compressed
    uint32_t checksum;      // of its records
} tri_tar_row;

// What the file says of all archives together.
typedef struct tri_tar_totals {
    int64_t samples, classes; // classes: the largest label plus 1
    int64_t others;           // files that belong to no sample
    bool has_labels;
    char first_other[TRI_TAR_INDEX_TEXT_BYTES]; // the first of them, as text
} tri_tar_totals;

typedef struct tri_tar_index {
    tri_tar_totals totals;
    tri_tar_row *rows; // by archive
    int64_t
        *first_samples; // by archive: the number of its first sample; [archives]: of all samples
    int archives;
    int64_t records_offset; // in the file
    int fd;                 // the index closes it
    const char *path;       // for messages; has to outlive the index
} tri_tar_index;

// Reads header, rows and text of the file `fd`, which is the index's even if this fails.
// TRI_CORRUPT: it is no index of `archives` archives with the key `key`, which tells all on which
// its content depends.
tri_status tri_tar_index_open(int fd, const char *path, const uint8_t *key, int archives,
                              tri_tar_index *out);
void tri_tar_index_close(tri_tar_index *index); // of zeros or without a file is allowed
// Reads the records of an archive, in which images lie within the first `archive_bytes` bytes.
// TRI_CORRUPT: they are damaged, or lie.
tri_status tri_tar_index_check(const tri_tar_index *index, int archive, int64_t archive_bytes);
// Reads the record of a sample; any number of threads may do so at a time. *archive: in which it
// is. TRI_IO: the file was changed after it was checked.
tri_status tri_tar_index_read(const tri_tar_index *index, int64_t sample, tri_tar_sample *out,
                              int *archive);

// Writes the records of the next archive to the file `fd`, and adds them to `row`. `first`: how
// many samples the archives before it have.
tri_status tri_tar_index_write(int fd, const char *path, int archives, int64_t first,
                               const tri_tar_sample *samples, int64_t count, tri_tar_row *row);
// Writes the rest, once all records are there.
tri_status tri_tar_index_finish(int fd, const char *path, const uint8_t *key,
                                const tri_tar_row *rows, int archives,
                                const tri_tar_totals *totals);

#endif
