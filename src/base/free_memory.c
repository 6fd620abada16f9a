// Finds how much memory is free: the smallest amount that three limits leave, because each of them
// alone can end the process. They are the host's memory, the memory of the process's control group
// (of either version), and the process's own limit.
#include "base/free_memory.h"

#include "base/os.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MAX_FILE_BYTES = 1 << 16 };

// Reads the number after `key` in a small text file ("": the first number). -1: there is no number,
// or the word "max", which means that there is no limit.
static int64_t number_in(const char *path, const char *key) {
    char *text;
    size_t size;
    if (tri_os_read_file(path, MAX_FILE_BYTES, &text, &size) != TRI_OK) return -1;
    char *at = strstr(text, key), *end;
    int64_t value = -1;
    if (at) {
        at += strlen(key);
        value = strtoll(at, &end, 10);
        if (end == at) value = -1;
    }
    free(text);
    return value;
}

static int64_t group_free(const char *limit_path, const char *used_path, const char *stat_path,
                          const char *file_key) {
    int64_t limit = number_in(limit_path, ""), used = number_in(used_path, "");
    if (limit < 0 || used < 0) return -1;
    int64_t files =
        // Cached pages of files count as free, because the system can drop them.
        number_in(stat_path, file_key);
    if (files > 0) used -= files < used ? files : used;
    return limit > used ? limit - used : 0;
}

// How much the limit of this process's address space leaves; -1: there is no such limit.
static int64_t own_free(void) {
    struct rlimit limit;
    int64_t pages = number_in("/proc/self/statm", "");
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur > INT64_MAX || pages < 0) return -1;
    int64_t used = pages * sysconf(_SC_PAGESIZE), most = (int64_t)limit.rlim_cur;
    return most > used ? most - used : 0;
}

int64_t tri_free_memory(int sharers, const char **whose) {
    const int64_t found[] = {
        1024 * number_in("/proc/meminfo", "MemAvailable:"),
        group_free("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current",
                   "/sys/fs/cgroup/memory.stat", "\ninactive_file "),
        group_free("/sys/fs/cgroup/memory/memory.limit_in_bytes",
                   "/sys/fs/cgroup/memory/memory.usage_in_bytes",
                   "/sys/fs/cgroup/memory/memory.stat", "\ntotal_inactive_file ")};
    int64_t least = -1, own = own_free();
    for (int i = 0; i < 3; i++)
        if (found[i] >= 0 && (least < 0 || found[i] < least)) least = found[i];
    least = least < 0 ? -1 : least / sharers;
    bool is_own = own >= 0 && (least < 0 || own < least);
    if (whose)
        *whose = is_own ? "that its limit of memory (ulimit -v) leaves it"
                        : "that is free for it on this host";
    int64_t free_bytes = is_own ? own : least;
    if (free_bytes < 0) return 0;
    return free_bytes > 0 ? free_bytes : 1; // not 0, which means that nothing is known
}
