// The module `archive`: lists tar archives, and decompresses gzip and zstd, by libarchive.
#include "base/module.h"
#include "format/archive/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 16 };

struct tri_archive_reader; // libarchive's struct archive

static struct archive *of(tri_archive_reader *reader) { return (struct archive *)(void *)reader; }

static tri_status fail(struct archive *archive, char *why) {
    const char *text = archive_error_string(archive);
    snprintf(why, TRI_ARCHIVE_WHY_BYTES, "%s", text ? text : "it cannot be read");
    return TRI_CORRUPT;
}

// libarchive warns, for example, of names that the locale cannot show, which does no harm here.
static bool is_good(int result) { return result == ARCHIVE_OK || result == ARCHIVE_WARN; }

static tri_status open_reader(int fd, bool is_stream, struct archive **out, char *why) {
    *out = archive_read_new();
    if (!*out) {
        snprintf(why, TRI_ARCHIVE_WHY_BYTES, "no memory");
        return TRI_NO_MEMORY;
    }
    archive_read_support_filter_gzip(*out);
    archive_read_support_filter_zstd(*out);
    if (is_stream)
        archive_read_support_format_raw(*out);
    else
        archive_read_support_format_tar(*out);
    if (archive_read_open_fd(*out, fd, BLOCK_BYTES) == ARCHIVE_OK) return TRI_OK;
    tri_status status = fail(*out, why);
    archive_read_free(*out);
    *out = NULL;
    return status;
}

static tri_status open_tar(int fd, tri_archive_reader **out, char *why) {
    struct archive *archive;
    tri_status status = open_reader(fd, false, &archive, why);
    *out = (tri_archive_reader *)(void *)archive;
    return status;
}

static void close_tar(tri_archive_reader *reader) { archive_read_free(of(reader)); }

static tri_status next(tri_archive_reader *reader, tri_archive_member *out, bool *is_end,
                       char *why) {
    struct archive_entry *entry;
    int result = archive_read_next_header(of(reader), &entry);
    *is_end = result == ARCHIVE_EOF;
    if (*is_end) return TRI_OK;
    if (!is_good(result)) return fail(of(reader), why);
    const char *name = archive_entry_pathname(entry);
    // Their bytes are not in the archive as the file has them, or with another member.
    bool is_sparse = archive_entry_sparse_count(entry) > 0;
    if (is_sparse || archive_entry_hardlink(entry)) {
        snprintf(why, TRI_ARCHIVE_WHY_BYTES, "'%.200s' is %s: make it without %s", name ? name : "",
                 is_sparse ? "stored with gaps" : "a hard link",
                 is_sparse ? "tar --sparse" : "them, as tar --hard-dereference does");
        return TRI_BAD_INPUT;
    }
    *out = (tri_archive_member){.name = name ? name : "",
                                .offset = archive_filter_bytes(of(reader), 0),
                                .size = archive_entry_size(entry),
                                .is_file = archive_entry_filetype(entry) == AE_IFREG};
    return TRI_OK;
}

static tri_status read_member(tri_archive_reader *reader, void *out, size_t size, size_t *got,
                              char *why) {
    la_ssize_t result = archive_read_data(of(reader), out, size);
    if (result < 0) return fail(of(reader), why);
    *got = (size_t)result;
    return TRI_OK;
}

static tri_status write_all(int to, const char *bytes, size_t size, char *why) {
    while (size > 0) {
        ssize_t written = write(to, bytes, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            snprintf(why, TRI_ARCHIVE_WHY_BYTES, "cannot write its content: %s", strerror(errno));
            return TRI_IO;
        }
        bytes += written;
        size -= (size_t)written;
    }
    return TRI_OK;
}

static tri_status copy_stream(struct archive *archive, int to, char *why) {
    struct archive_entry *entry;
    static const char zeros[4096];
    int64_t at = 0;
    if (!is_good(archive_read_next_header(archive, &entry))) return fail(archive, why);
    for (;;) {
        const void *block;
        size_t size;
        la_int64_t offset;
        int result = archive_read_data_block(archive, &block, &size, &offset);
        if (result == ARCHIVE_EOF) return TRI_OK;
        if (!is_good(result)) return fail(archive, why);
        tri_status status = TRI_OK;
        for (; at < offset && status == TRI_OK;) { // a gap of zeros
            size_t gap =
                (size_t)(offset - at) < sizeof zeros ? (size_t)(offset - at) : sizeof zeros;
            status = write_all(to, zeros, gap, why);
            at += (int64_t)gap;
        }
        if (status == TRI_OK) status = write_all(to, block, size, why);
        if (status != TRI_OK) return status;
        at = offset + (int64_t)size;
    }
}

static tri_status decompress(int from, int to, char *why) {
    struct archive *archive;
    tri_status status = open_reader(from, true, &archive, why);
    if (status != TRI_OK) return status;
    status = copy_stream(archive, to, why);
    archive_read_free(archive);
    return status;
}

static const tri_archive table = {.open = open_tar,
                                  .close = close_tar,
                                  .next = next,
                                  .read = read_member,
                                  .decompress = decompress};

TRI_MODULE(TRI_ARCHIVE_INTERFACE, TRI_ARCHIVE_ABI, "archive", &table);
