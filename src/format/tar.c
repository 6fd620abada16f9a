// Lists tar archives, by the module `archive`.
#include "format/tar.h"

#include "base/module.h"
#include "base/os.h"
#include "format/archive/archive.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_compressed(int fd) {
    static const uint8_t gzip[] = {0x1f, 0x8b}, zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
    uint8_t head[4];
    if (tri_os.pread(fd, head, sizeof head, 0) != sizeof head) return false;
    return !memcmp(head, gzip, sizeof gzip) || !memcmp(head, zstd, sizeof zstd);
}

// Unpacks a compressed archive into a file without a name.
static tri_status unpack(const tri_archive *module, const char *path, int fd, int *out) {
    char why[TRI_ARCHIVE_WHY_BYTES];
    TRI_TRY(tri_os_open_unnamed(out));
    tri_status status = module->decompress(fd, *out, why);
    if (status == TRI_OK && lseek(*out, 0, SEEK_SET) == 0) return TRI_OK;
    tri_os.close(*out);
    *out = -1;
    if (status == TRI_OK) return tri_os_fail("read", path);
    return TRI_FAIL(status, "%s: damaged or no tar archive: %s", path, why);
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

static tri_status list_members(listing *l, int fd) {
    char why[TRI_ARCHIVE_WHY_BYTES];
    tri_status status = l->module->open(fd, &l->reader, why);
    bool is_end = false;
    if (status != TRI_OK)
        return TRI_FAIL(status, "%s: damaged or no tar archive: %s", l->path, why);
    while (status == TRI_OK) {
        tri_archive_member found;
        status = l->module->next(l->reader, &found, &is_end, why);
        if (status != TRI_OK)
            status = TRI_FAIL(status, "%s: damaged or no tar archive: %s", l->path, why);
        if (status != TRI_OK || is_end) break;
        status = visit_member(l, &found, why);
    }
    l->module->close(l->reader);
    return status;
}

static tri_status list_file(listing *l, int fd, int *unpacked) {
    struct stat info;
    const void *table;
    TRI_TRY(tri_module_load("archive", TRI_ARCHIVE_INTERFACE, TRI_ARCHIVE_ABI, &table));
    l->module = table;
    if (is_compressed(fd)) {
        TRI_TRY(unpack(l->module, l->path, fd, unpacked));
        fd = *unpacked;
    }
    if (fstat(fd, &info) != 0) return tri_os_fail("read", l->path);
    l->archive_bytes = info.st_size;
    return list_members(l, fd);
}

tri_status tri_tar_list(const char *path, bool (*wants_text)(const char *name), tri_tar_visit visit,
                        void *context, int *unpacked) {
    *unpacked = -1;
    TRI_TRY(tri_os_check_file(path));
    int fd = tri_os.open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return tri_os_fail("open", path);
    listing l = {.path = path, .wants_text = wants_text, .visit = visit, .context = context};
    tri_status status = list_file(&l, fd, unpacked);
    tri_os.close(fd);
    return status;
}
