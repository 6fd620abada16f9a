// Reads how long the threads of this process ran on cores, and how long they waited for a core.
// Long waits explain a slow run: other processes use its cores.
#include "base/cpu_time.h"

#include "base/limits.h"
#include "base/os.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

// Adds to *delayed_ns the time in ns for which one thread was ready to run but had no core.
// `thread`: the thread's id. The time is the second number in the thread's file schedstat; the
// first is its time on a core, the third the number of its time slices. False: there is no such
// file.
static bool add_thread(const char *thread, int64_t *delayed_ns) {
    char path[300], text[128];
    snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", thread);
    int fd = tri_os.open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return false;
    ssize_t size = tri_os.read(fd, text, sizeof text - 1);
    tri_os.close(fd);
    if (size <= 0) return false;
    text[size] = 0;
    char *at;
    (void)strtoll(text, &at, 10);
    *delayed_ns += strtoll(at, NULL, 10);
    return true;
}

bool tri_cpu_time_read(tri_cpu_time *out) {
    *out = (tri_cpu_time){.wall_ns = tri_os.monotonic_ns()};
    struct timespec used;
    DIR *threads = opendir("/proc/self/task");
    if (!threads) return false;
    bool known = false;
    for (struct dirent *entry; (entry = readdir(threads));)
        if (entry->d_name[0] != '.') known |= add_thread(entry->d_name, &out->delayed_ns);
    closedir(threads);
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) != 0) return false;
    out->used_ns = used.tv_sec * INT64_C(1000000000) + used.tv_nsec;
    return known;
}

tri_cpu_time tri_cpu_time_between(const tri_cpu_time *from, const tri_cpu_time *to) {
    tri_cpu_time passed = {.wall_ns = to->wall_ns - from->wall_ns,
                           .used_ns = to->used_ns - from->used_ns,
                           .delayed_ns = to->delayed_ns - from->delayed_ns};
    if (passed.delayed_ns < 0) passed.delayed_ns = 0;
    return passed;
}

bool tri_cpu_time_is_starved(const tri_cpu_time *passed) {
    return passed->wall_ns > 0 && 100 * passed->delayed_ns >= TRI_STARVED_PERCENT * passed->wall_ns;
}
