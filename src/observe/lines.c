// Opens a file of lines (metrics.jsonl), and repairs its end after a crash. lines.h explains this.
#include "observe/lines.h"

#include "base/log.h"
#include "base/os.h"

#include <fcntl.h>

// Finds the offset at which the last complete line ends. It searches from the end of the file,
// because the file may be long. -1: the file cannot be read.
static int64_t end_of_lines(int fd, int64_t size) {
    char block[4096];
    while (size > 0) {
        int64_t from = size > (int64_t)sizeof block ? size - (int64_t)sizeof block : 0;
        ssize_t got = tri_os_pread_most(fd, block, (size_t)(size - from), from);
        if (got != size - from) return -1;
        for (int64_t i = got; i > 0; i--)
            if (block[i - 1] == '\n') return from + i;
        size = from;
    }
    return 0;
}

static tri_status repair(const char *path, int fd, int64_t *size) {
    struct stat info;
    if (fstat(fd, &info) < 0) return tri_os_fail("look at", path);
    if (!S_ISREG(info.st_mode))
        return TRI_FAIL(TRI_BAD_INPUT, "%s: is a device, pipe or socket, not a file", path);
    int64_t end = end_of_lines(fd, info.st_size);
    if (end < 0) return tri_os_fail("read", path);
    if (end != info.st_size && tri_os.ftruncate(fd, end) < 0)
        return tri_os_fail("cut the torn last line of", path);
    if (end != info.st_size)
        tri_log_line(
            TRI_LOG_WARNING,
            "%s: removed its last %lld bytes, a line that the process before was killed in", path,
            (long long)(info.st_size - end));
    *size = end;
    return TRI_OK;
}

tri_status tri_lines_open(const char *path, int *fd, int64_t *size) {
    *fd = tri_os_open_or_create(path, O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (*fd < 0) return tri_os_fail("open", path);
    tri_status status = repair(path, *fd, size);
    if (status != TRI_OK) tri_os.close(*fd);
    return status;
}
