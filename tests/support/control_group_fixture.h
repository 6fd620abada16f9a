// Files of control groups that a test writes: open(2) looks for files of /sys/fs/cgroup, and for
// cgroup and mountinfo of /proc/self, in the test's folder instead.
#ifndef CONTROL_GROUP_FIXTURE_H
#define CONTROL_GROUP_FIXTURE_H

#include "base/os.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[64];

static int open_in_folder(const char *path, int flags, mode_t mode) {
    static const char group[] = "/sys/fs/cgroup/";
    char own[256];
    if (!strcmp(path, "/proc/self/cgroup")) path = "/sys/fs/cgroup/self";
    if (!strcmp(path, "/proc/self/mountinfo")) path = "/sys/fs/cgroup/mountinfo";
    if (strncmp(path, group, sizeof group - 1) != 0) return tri_os_system.open(path, flags, mode);
    snprintf(own, sizeof own, "%s/%s", folder, path + sizeof group - 1);
    return tri_os_system.open(own, flags, mode);
}

// Writes a file, whose name may have folders.
static void put(const char *name, const char *text) {
    char path[256], *slash;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    slash = strrchr(path, '/');
    *slash = 0;
    assert_int_equal(tri_os_make_folders(path), TRI_OK);
    *slash = '/';
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

// A host with version 2, and some controllers of version 1 beside it.
#define MOUNTS                                                                                     \
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"                                      \
    "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 master:2 - cgroup2 cgroup2 rw,nsdelegate\n"    \
    "31 22 0:27 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n"                          \
    "32 22 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"         \
    "33 22 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"

static int setup(void **state) {
    snprintf(folder, sizeof folder, "/tmp/trireme-groups-XXXXXX");
    tri_os.open = open_in_folder;
    if (!mkdtemp(folder)) return -1;
    put("mountinfo", MOUNTS);
    return 0;
}

static int teardown(void **state) {
    tri_os = tri_os_system;
    return tri_os_remove_tree(folder) == TRI_OK ? 0 : -1;
}

#endif
