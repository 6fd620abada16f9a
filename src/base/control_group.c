// Finds the control groups of this process. /proc/self/cgroup has its groups' paths, and
// /proc/self/mountinfo tells where the hierarchies with these groups are mounted.
#include "base/control_group.h"

#include "base/os.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE_BYTES = 1 << 20 };

int64_t tri_number_in_file(const char *folder, const char *file, const char *key) {
    char path[PATH_MAX], *text, *end;
    size_t size;
    int length = snprintf(path, sizeof path, "%s/%s", folder, file);
    if (length >= (int)sizeof path) return -1;
    if (tri_os_read_file(path, MAX_FILE_BYTES, &text, &size) != TRI_OK) return -1;
    char *at = strstr(text, key);
    int64_t value = -1;
    if (at) {
        at += strlen(key);
        value = strtoll(at, &end, 10);
        if (end == at) value = -1;
    }
    free(text);
    return value;
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
// "NUMBER:CONTROLLERS:PATH"; the line of version 2 names no controller. "": it is the root group,
// or not known.
static void find_own_group(const char *controller, char out[PATH_MAX]) {
    char *text, *next;
    size_t size;
    *out = 0;
    if (tri_os_read_file("/proc/self/cgroup", MAX_FILE_BYTES, &text, &size) != TRI_OK) return;
    for (char *line = strtok_r(text, "\n", &next); line; line = strtok_r(NULL, "\n", &next)) {
        char *controllers = strchr(line, ':'), *path = controllers;
        if (path) path = strchr(path + 1, ':');
        if (!path) continue;
        *controllers++ = *path++ = 0;
        if (!lists(controllers, controller)) continue;
        snprintf(out, PATH_MAX, "%s", path);
        break;
    }
    free(text);
}

// Where a hierarchy is mounted: `point` is the folder of the group `root`. (In a container, that is
// often the container's group and not the hierarchy's root.)
typedef struct mount {
    const char *root, *point;
    bool is_v1;
} mount;

// Reads a line of mountinfo, "ID PARENT DEVICE ROOT POINT OPTIONS … - TYPE SOURCE OPTIONS". False:
// this is no hierarchy with groups of the controller.
static bool read_mount(char *line, const char *controller, mount *out) {
    char *fields[5], *next, *type = strstr(line, " - ");
    if (!type) return false;
    *type = 0;
    type = strtok_r(type + 3, " ", &next);
    if (!type || strncmp(type, "cgroup", 6) != 0) return false;
    out->is_v1 = strcmp(type, "cgroup2") != 0;
    (void)strtok_r(NULL, " ", &next);
    const char *options = strtok_r(NULL, " ", &next);
    if (out->is_v1 && (!options || !lists(options, controller))) return false;
    for (int i = 0; i < 5; i++)
        if (!(fields[i] = strtok_r(i ? NULL : line, " ", &next))) return false;
    out->root = strcmp(fields[3], "/") != 0 ? fields[3] : "";
    out->point = fields[4];
    return true;
}

static void look_at(const mount *m, char group[PATH_MAX], tri_control_group_look look,
                    void *context) {
    char folder[PATH_MAX], *end;
    size_t length = strlen(m->root);
    // A group that the mounted part of the hierarchy does not contain cannot be seen.
    bool is_inside = !strncmp(group, m->root, length) && (group[length] == '/' || !group[length]);
    const char *below = is_inside ? group + length : "";
    snprintf(folder, sizeof folder, "%.*s%s", PATH_MAX / 2, m->point, below);
    size_t point_length = strlen(m->point);
    while (strlen(folder) > point_length && (end = strrchr(folder, '/'))) {
        if (end[1]) look(context, m->is_v1, folder);
        *end = 0;
    }
    look(context, m->is_v1, m->point);
}

void tri_control_groups(const char *controller, tri_control_group_look look, void *context) {
    char group[PATH_MAX], *text, *next;
    size_t size;
    if (tri_os_read_file("/proc/self/mountinfo", MAX_FILE_BYTES, &text, &size) != TRI_OK) return;
    for (char *line = strtok_r(text, "\n", &next); line; line = strtok_r(NULL, "\n", &next)) {
        mount m;
        if (!read_mount(line, controller, &m)) continue;
        find_own_group(m.is_v1 ? controller : "", group);
        look_at(&m, group, look, context);
    }
    free(text);
}
