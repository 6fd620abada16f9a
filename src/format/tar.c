// Lists and unpacks tar archives, by the module `archive`.
#include "format/tar.h"

#include "base/little_endian.h"
#include "base/module.h"
#include "base/os.h"
#include "format/archive/archive.h"
#include "format/event.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// An unpacked copy ends with the two blocks of zeros that end an archive, which an archive may
// lack, and with the mark: some text, the bytes of the archive, and a checksum of both.
enum { BLOCK_BYTES = 512, MARK_AT = 2 * BLOCK_BYTES, MARK_BYTES = 3 * BLOCK_BYTES };
enum { SIZE_AT = 16, CHECKSUM_AT = 24 };
static const char MARK[SIZE_AT] = "trireme unpacked";

static bool is_compressed(int fd) {
    static const uint8_t gzip[] = {0x1f, 0x8b}, zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
    uint8_t head[4];
    if (tri_os_pread_most(fd, head, sizeof head, 0) != sizeof head) return false;
    return !memcmp(head, gzip, sizeof gzip) || !memcmp(head, zstd, sizeof zstd);
}

static tri_status load(const tri_archive **module) {
    const void *table;
    TRI_TRY(tri_module_load("archive", TRI_ARCHIVE_INTERFACE, TRI_ARCHIVE_ABI, &table));
    *module = table;
    return TRI_OK;
}

tri_status tri_tar_open(const char *path, int *fd, bool *is_packed) {
    const tri_archive *module;
    TRI_TRY(tri_os_check_file(path));
    TRI_TRY(load(&module));
    TRI_TRY(tri_os_open_input(path, fd));
    *is_packed = is_compressed(*fd);
    return TRI_OK;
}

static tri_status write_mark(const char *path, int fd, int64_t bytes) {
    uint8_t end[MARK_BYTES] = {0};
    uint64_t size = htole64((uint64_t)bytes);
    memcpy(end + MARK_AT, MARK, sizeof MARK);
    memcpy(end + MARK_AT + SIZE_AT, &size, sizeof size);
    uint32_t checksum = htole32(tri_crc32c(end + MARK_AT, CHECKSUM_AT));
    memcpy(end + MARK_AT + CHECKSUM_AT, &checksum, sizeof checksum);
    return tri_os_write_all(fd, end, sizeof end, path);
}

tri_status tri_tar_unpack(const char *path, int from, const char *to_path, int to) {
    const tri_archive *module;
    char why[TRI_ARCHIVE_WHY_BYTES];
    TRI_TRY(load(&module));
    if (lseek(from, 0, SEEK_SET) < 0) return tri_os_fail("read", path);
    tri_status status = module->decompress(from, to, why);
    if (status == TRI_CORRUPT)
        return TRI_FAIL(status, "%s: damaged or no tar archive: %s", path, why);
    if (status != TRI_OK)
        return TRI_FAIL(status, "%s: cannot be unpacked to %s: %s", path, to_path, why);
    off_t bytes = lseek(to, 0, SEEK_CUR);
    return bytes < 0 ? tri_os_fail("write", to_path) : write_mark(to_path, to, bytes);
}

tri_status tri_tar_unpacked_bytes(const char *path, int fd, int64_t *out) {
    uint8_t mark[BLOCK_BYTES];
    struct stat info;
    if (fstat(fd, &info) < 0) return tri_os_fail("look at", path);
    *out = info.st_size - MARK_BYTES;
    if (*out < 0) return TRI_FAIL(TRI_CORRUPT, "%s: is no unpacked archive", path);
    TRI_TRY(tri_os_pread_all(fd, mark, sizeof mark, *out + MARK_AT, path));
    if (!memcmp(mark, MARK, sizeof MARK) && tri_le64(mark + SIZE_AT) == (uint64_t)*out &&
        tri_le32(mark + CHECKSUM_AT) == tri_crc32c(mark, CHECKSUM_AT))
        return TRI_OK;
    return TRI_FAIL(TRI_CORRUPT, "%s: is no whole unpacked archive", path);
}

typedef struct listing {
    const tri_archive *module;
    tri_archive_reader *reader;
    const char *path;
    int64_t archive_bytes;
    bool (*wants_text)(const char *name);
    tri_tar_visit visit;
    void *context;
} listing;

static tri_status visit_member(const listing *l, const tri_archive_member *found, char *why) {
    char text[TRI_TAR_TEXT_BYTES + 1];
    size_t size;
    const tri_tar_member member = {found->name, found->offset, found->size};
    if (!found->is_file) return TRI_OK;
    if (member.size < 0 || member.offset > l->archive_bytes ||
        member.size > l->archive_bytes - member.offset)
        return TRI_FAIL(TRI_CORRUPT, "%s: '%s' of %lld bytes does not end in it", l->path,
                        member.name, (long long)member.size);
    if (!l->wants_text(member.name)) return l->visit(l->context, &member, NULL);
    tri_status status = l->module->read(l->reader, text, TRI_TAR_TEXT_BYTES, &size, why);
    if (status != TRI_OK) return TRI_FAIL(status, "%s: %s", l->path, why);
    text[size] = 0;
    return l->visit(l->context, &member, text);
}

// Refuses an archive that has more behind its end mark, as archives have that were joined by `cat`:
// all members of the second one would be missing. `end`: of the last member.
static tri_status check_rest(const char *path, int fd, int64_t end, int64_t bytes) {
    static const uint8_t zeros[BLOCK_BYTES];
    uint8_t block[BLOCK_BYTES];
    for (int64_t at = (end + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
         at <= bytes - BLOCK_BYTES; at += BLOCK_BYTES) {
        TRI_TRY(tri_os_pread_all(fd, block, sizeof block, at, path));
        if (memcmp(block, zeros, sizeof block) != 0)
            return TRI_FAIL(TRI_CORRUPT,
                            "%s: has data behind the end of the archive, at byte %lld: archives "
                            "are not joined by cat; name each in data.train",
                            path, (long long)at);
    }
    return TRI_OK;
}

tri_status tri_tar_list(const char *path, int fd, int64_t bytes,
                        bool (*wants_text)(const char *name), tri_tar_visit visit, void *context) {
    char why[TRI_ARCHIVE_WHY_BYTES];
    bool is_end = false;
    int64_t end = 0; // of the latest member
    listing l = {.path = path,
                 .archive_bytes = bytes,
                 .wants_text = wants_text,
                 .visit = visit,
                 .context = context};
    TRI_TRY(load(&l.module));
    if (lseek(fd, 0, SEEK_SET) < 0) return tri_os_fail("read", path);
    tri_status status = l.module->open(fd, &l.reader, why);
    if (status != TRI_OK) return TRI_FAIL(status, "%s: damaged or no tar archive: %s", path, why);
    while (status == TRI_OK) {
        tri_archive_member found;
        status = l.module->next(l.reader, &found, &is_end, why);
        if (status != TRI_OK)
            status = TRI_FAIL(status, "%s: %s%s", path,
                              status == TRI_CORRUPT ? "damaged or no tar archive: " : "", why);
        if (status != TRI_OK || is_end) break;
        end = found.offset + (found.size > 0 ? found.size : 0);
        status = visit_member(&l, &found, why);
    }
    l.module->close(l.reader);
    return status == TRI_OK ? check_rest(path, fd, end, bytes) : status;
}
