// Lists arbitrary bytes as a tar archive, plain or packed, and unpacks packed ones.
#include "base/status.h"
#include "format/tar.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include "memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct listing {
    int64_t bytes; // of the archive
    int members;
} listing;

static bool wants_text(const char *name) { return strstr(name, ".cls") != NULL; }

static tri_status visit(void *context, const tri_tar_member *member, const char *text) {
    listing *l = context;
    TRI_ASSERT(member->name && member->offset >= 0 && member->size >= 0);
    TRI_ASSERT(member->size <= l->bytes && member->offset <= l->bytes - member->size);
    TRI_ASSERT(!text || strlen(text) <= TRI_TAR_TEXT_BYTES);
    l->members++;
    return TRI_OK;
}

// Some bytes of zstd can become gigabytes: what is written ends here.
static void limit_files(void) {
    enum { MOST_BYTES = 1 << 24 };
    const struct rlimit limit = {MOST_BYTES, MOST_BYTES};
    signal(SIGXFSZ, SIG_IGN);
    TRI_ASSERT(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *path = memory_file(data, size);
    static int unpacked = -1;
    int fd;
    bool is_packed;
    if (tri_tar_open(path, &fd, &is_packed) != TRI_OK) {
        TRI_ASSERT(strstr(tri_error_message(), path));
        return 0;
    }
    listing l = {.bytes = (int64_t)size};
    if (unpacked < 0) {
        unpacked = memfd_create("unpacked", MFD_CLOEXEC);
        limit_files();
    }
    if (!is_packed) {
        (void)tri_tar_list(path, fd, l.bytes, wants_text, visit, &l);
    } else if (ftruncate(unpacked, 0) == 0 && lseek(unpacked, 0, SEEK_SET) == 0 &&
               tri_tar_unpack(path, fd, "unpacked", unpacked) == TRI_OK &&
               tri_tar_unpacked_bytes("unpacked", unpacked, &l.bytes) == TRI_OK) {
        (void)tri_tar_list("unpacked", unpacked, l.bytes, wants_text, visit, &l);
    }
    close(fd);
    return 0;
}
