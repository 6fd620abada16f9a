// Finds how much memory is free: the smallest amount that three limits leave, because each of them
// alone can end the process. They are the host's memory, the memory of the process's control group
// and of the groups around it (of either version), and the process's own limit.
#include "base/free_memory.h"

#include "base/control_group.h"

#include <stdbool.h>
#include <sys/resource.h>
#include <unistd.h>

static int64_t least_of(int64_t a, int64_t b) { return b < 0 || (a >= 0 && a < b) ? a : b; }

// The files of a control group (cgroup) that contain how many bytes it may use and how many it
// uses, and what precedes the bytes of cached files in memory.stat.
typedef struct group_files {
    const char *limit, *used, *file_key;
} group_files;

// context: the least number of bytes that a group leaves; -1: none has a limit.
static void look_at_group(void *context, bool is_v1, const char *folder) {
    static const group_files versions[] = {
        {"memory.max", "memory.current", "\ninactive_file "},
        {"memory.limit_in_bytes", "memory.usage_in_bytes", "\ntotal_inactive_file "}};
    const group_files *files = &versions[is_v1];
    int64_t *least = context;
    int64_t limit = tri_number_in_file(folder, files->limit, "");
    int64_t used = tri_number_in_file(folder, files->used, "");
    if (limit < 0 || used < 0) return;
    // Cached pages of files count as free, because the system can drop them.
    int64_t cached = tri_number_in_file(folder, "memory.stat", files->file_key);
    if (cached > 0) used -= cached < used ? cached : used;
    *least = least_of(*least, limit > used ? limit - used : 0);
}

// How many bytes the limit of this process's address space leaves; -1: there is no such limit.
static int64_t own_free(void) {
    struct rlimit limit;
    int64_t pages = tri_number_in_file("/proc/self", "statm", "");
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur > INT64_MAX || pages < 0) return -1;
    int64_t used = pages * sysconf(_SC_PAGESIZE), most = (int64_t)limit.rlim_cur;
    return most > used ? most - used : 0;
}

int64_t tri_free_memory(int sharers, const char **whose) {
    int64_t host = tri_number_in_file("/proc", "meminfo", "MemAvailable:");
    int64_t least = host < 0 ? -1 : 1024 * host, own = own_free();
    tri_control_groups("memory", look_at_group, &least);
    least = least < 0 ? -1 : least / sharers;
    bool is_own = own >= 0 && (least < 0 || own < least);
    if (whose)
        *whose = is_own ? "that its limit of memory (ulimit -v) leaves it"
                        : "that is free for it on this host";
    int64_t free_bytes = is_own ? own : least;
    if (free_bytes < 0) return 0;
    return free_bytes > 0 ? free_bytes : 1; // not 0, which means that nothing is known
}
