// Finds how much memory is free: the smallest amount that three limits leave, because each of them
// alone can end the process. They are the host's memory, the memory of the process's control group
// and of the groups around it (of either version), and the process's own limit.
#include "base/free_memory.h"

#include "base/os.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MAX_FILE_BYTES = 1 << 16 };

// Reads the number after `key` in a small text file; if `key` is "", the number with which the file
// begins. -1: the file cannot be read or has no number there, but for example "max" for no limit.
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

// The files that tell the memory of a control group (cgroup). Version 1 and version 2 of Linux's
// control groups give these files different names.
typedef struct group_version {
    const char *root; // where the control groups are mounted
    // The kind of resource ("controller") whose line in /proc/self/cgroup has the path of the
    // process's group. "": version 2, whose only line names no controller.
    const char *controller;
    // Names of the files that contain how many bytes the group may use, and how many it uses.
    const char *limit, *used;
    const char *file_key; // what precedes the bytes of cached files in memory.stat
} group_version;

static const group_version group_versions[] = {
    {.root = "/sys/fs/cgroup",
     .controller = "",
     .limit = "memory.max",
     .used = "memory.current",
     .file_key = "\ninactive_file "},
    {.root = "/sys/fs/cgroup/memory",
     .controller = "memory",
     .limit = "memory.limit_in_bytes",
     .used = "memory.usage_in_bytes",
     .file_key = "\ntotal_inactive_file "},
};

static int64_t least_of(int64_t a, int64_t b) { return b < 0 || (a >= 0 && a < b) ? a : b; }

static int64_t number_of_group(const group_version *version, const char *group, const char *file,
                               const char *key) {
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s%s/%s", version->root, group, file);
    return length < (int)sizeof path ? number_in(path, key) : -1;
}

// How many bytes the limit of one control group leaves; -1: it has no limit, or this is not known.
// `group`: its path below the folder where the groups are mounted.
static int64_t group_free(const group_version *version, const char *group) {
    int64_t limit = number_of_group(version, group, version->limit, "");
    int64_t used = number_of_group(version, group, version->used, "");
    if (limit < 0 || used < 0) return -1;
    // Cached pages of files count as free, because the system can drop them.
    int64_t files = number_of_group(version, group, "memory.stat", version->file_key);
    if (files > 0) used -= files < used ? files : used;
    return limit > used ? limit - used : 0;
}

// True if the comma-separated names contain `name`.
static bool lists(const char *names, const char *name) {
    size_t length = strlen(name);
    for (const char *at = names; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (!strncmp(at, name, length) && (at[length] == ',' || !at[length])) return true;
    }
    return false;
}

// Finds the path of this process's control group in the lines of /proc/self/cgroup,
// "NUMBER:CONTROLLERS:PATH". "": it is the root group, or not known.
static void find_own_group(const group_version *version, char out[PATH_MAX]) {
    char *text, *next;
    size_t size;
    *out = 0;
    if (tri_os_read_file("/proc/self/cgroup", MAX_FILE_BYTES, &text, &size) != TRI_OK) return;
    for (char *line = strtok_r(text, "\n", &next); line; line = strtok_r(NULL, "\n", &next)) {
        char *controllers = strchr(line, ':'), *path = controllers;
        if (path) path = strchr(path + 1, ':');
        if (!path) continue;
        *controllers++ = *path++ = 0;
        if (!lists(controllers, version->controller)) continue;
        snprintf(out, PATH_MAX, "%s", path);
        break;
    }
    free(text);
}

// The least number of bytes that this process's control group and the groups above it leave; -1:
// none has a limit. The groups above matter, because the limit of a group also holds for the groups
// below it. Often only a group above has one: a batch system limits the group of the whole job, and
// a container its root group.
static int64_t groups_free(const group_version *version) {
    char group[PATH_MAX], *end;
    find_own_group(version, group);
    int64_t least = -1;
    while ((end = strrchr(group, '/'))) {
        least = least_of(least, group_free(version, group));
        *end = 0;
    }
    return least_of(least, group_free(version, ""));
}

// How many bytes the limit of this process's address space leaves; -1: there is no such limit.
static int64_t own_free(void) {
    struct rlimit limit;
    int64_t pages = number_in("/proc/self/statm", "");
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur > INT64_MAX || pages < 0) return -1;
    int64_t used = pages * sysconf(_SC_PAGESIZE), most = (int64_t)limit.rlim_cur;
    return most > used ? most - used : 0;
}

int64_t tri_free_memory(int sharers, const char **whose) {
    int64_t least = 1024 * number_in("/proc/meminfo", "MemAvailable:"), own = own_free();
    for (size_t i = 0; i < sizeof group_versions / sizeof *group_versions; i++)
        least = least_of(least, groups_free(&group_versions[i]));
    least = least < 0 ? -1 : least / sharers;
    bool is_own = own >= 0 && (least < 0 || own < least);
    if (whose)
        *whose = is_own ? "that its limit of memory (ulimit -v) leaves it"
                        : "that is free for it on this host";
    int64_t free_bytes = is_own ? own : least;
    if (free_bytes < 0) return 0;
    return free_bytes > 0 ? free_bytes : 1; // not 0, which means that nothing is known
}
