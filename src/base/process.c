// Reads from /proc what identifies a process, and finds out whether it still runs.
#include "base/process.h"

#include "base/os.h"
#include "base/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PF_EXITING = 4 }; // defined in the kernel's linux/sched.h

uint64_t tri_process_start_time(int64_t pid) {
    char path[64], *text;
    size_t size;
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    if (tri_os_read_file(path, 1 << 16, &text, &size) != TRI_OK) return 0;
    // The file is one line. Its field 2, the program's name in parentheses, may contain any
    // character, so parsing begins after the last parenthesis. Field 3 is the process's state, 9
    // its flags in the kernel, 22 its start time.
    const char *at = strrchr(text, ')');
    bool lives = at && strlen(at) > 2 && !strchr("ZXx", at[2]);
    at = lives ? at + 2 : NULL;
    for (int field = 3; field < 22 && at; field++) {
        at = strchr(at + 1, ' ');
        if (field == 8 && at && strtoul(at, NULL, 10) & PF_EXITING) at = NULL;
    }
    uint64_t started = at ? strtoull(at + 1, NULL, 10) : 0;
    free(text);
    return started;
}

static void read_boot(char *out, size_t size) {
    char *text;
    size_t length;
    out[0] = 0;
    if (tri_os_read_file("/proc/sys/kernel/random/boot_id", 256, &text, &length) != TRI_OK) return;
    snprintf(out, size, "%.*s", (int)strcspn(text, "\n"), text);
    free(text);
}

// Finds the PID namespace of this process, without which a pid has no meaning. 0: it is not known,
// or /proc shows the processes of another namespace, which have other pids.
static int64_t own_namespace(void) {
    struct stat info;
    char self[32];
    ssize_t length = readlink("/proc/self", self, sizeof self - 1);
    if (length <= 0) return 0;
    self[length] = 0;
    if (strtol(self, NULL, 10) != (long)getpid()) return 0;
    return stat("/proc/self/ns/pid", &info) == 0 ? (int64_t)info.st_ino : 0;
}

void tri_process_self(tri_process *out) {
    *out = (tri_process){.pid = getpid(),
                         .started = (int64_t)tri_process_start_time(getpid()),
                         .pid_namespace = own_namespace()};
    if (gethostname(out->host, sizeof out->host - 1) != 0) snprintf(out->host, 2, "?");
    read_boot(out->boot, sizeof out->boot);
}

bool tri_process_is_here(const tri_process *process) {
    char boot[sizeof process->boot];
    read_boot(boot, sizeof boot);
    return boot[0] && !strcmp(boot, process->boot);
}

tri_life tri_process_life(const tri_process *process) {
    int64_t namespace = own_namespace();
    if (!namespace || process->pid_namespace != namespace || !tri_process_is_here(process))
        return TRI_LIFE_UNKNOWN;
    uint64_t started = tri_process_start_time(process->pid);
    return started && started == (uint64_t)process->started ? TRI_LIFE_ALIVE : TRI_LIFE_GONE;
}

void tri_process_write(const tri_process *process, char text[TRI_PROCESS_TEXT_BYTES]) {
    tri_arena *arena = tri_arena_create(NULL, "process");
    tri_tree *map = tri_tree_map(arena);
    tri_tree_put(arena, map, "host", tri_tree_string(arena, process->host));
    tri_tree_put(arena, map, "pid", tri_tree_int(arena, process->pid));
    tri_tree_put(arena, map, "started", tri_tree_int(arena, process->started));
    tri_tree_put(arena, map, "boot", tri_tree_string(arena, process->boot));
    tri_tree_put(arena, map, "pid_namespace", tri_tree_int(arena, process->pid_namespace));
    snprintf(text, TRI_PROCESS_TEXT_BYTES, "%s\n", tri_json_emit(arena, map));
    tri_arena_destroy(arena);
}

static void copy_text(const tri_tree *map, const char *key, char *to, size_t size) {
    const tri_tree *node = tri_tree_get(map, key);
    snprintf(to, size, "%s", node && node->kind == TRI_TREE_SCALAR ? node->text : "?");
}

bool tri_process_read(const char *text, size_t size, tri_process *out) {
    tri_arena *arena = tri_arena_create(NULL, "process");
    tri_tree *map;
    *out = (tri_process){.pid = 0};
    bool reads = tri_json_parse(arena, text, size, "process", &map) == TRI_OK &&
                 tri_tree_to_int(tri_tree_get(map, "pid"), &out->pid) && out->pid > 0 &&
                 tri_tree_to_int(tri_tree_get(map, "started"), &out->started) &&
                 tri_tree_to_int(tri_tree_get(map, "pid_namespace"), &out->pid_namespace);
    if (reads) {
        copy_text(map, "host", out->host, sizeof out->host);
        copy_text(map, "boot", out->boot, sizeof out->boot);
    }
    tri_arena_destroy(arena);
    return reads;
}
