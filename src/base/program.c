// Finds this program's file from the memory into which it was loaded, because /proc/self/exe may
// name a loader that was started with the program as its argument.
#include "base/program.h"

#include "base/os.h"

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAPS_MAX_BYTES = 16 << 20 };

// Called by dl_iterate_phdr for the first loaded object, which is the main program; 1 ends the
// iteration.
static int take_first(struct dl_phdr_info *info, size_t size, void *context) {
    *(uintptr_t *)context = (uintptr_t)info->dlpi_phdr;
    return 1;
}

// Finds, in one line of /proc/self/maps, the path of the file at `address`: "55d0-55e0 r--p
// 00000000 fe:01 1234 /path". False: the line describes other memory, or there is no file.
static bool match(const char *line, uintptr_t address, char out[PATH_MAX]) {
    char *end;
    uintptr_t first = strtoull(line, &end, 16);
    if (*end != '-' || address < first || address >= strtoull(end + 1, NULL, 16)) return false;
    const char *path = strchr(line, '/');
    return path && snprintf(out, PATH_MAX, "%s", path) < PATH_MAX;
}

static bool find_mapped(uintptr_t address, char out[PATH_MAX]) {
    char *text, *rest;
    size_t size;
    bool found = false;
    if (tri_os_read_file("/proc/self/maps", MAPS_MAX_BYTES, &text, &size) != TRI_OK) return false;
    for (char *line = strtok_r(text, "\n", &rest); line && !found;
         line = strtok_r(NULL, "\n", &rest))
        found = match(line, address, out);
    free(text);
    return found;
}

bool tri_program_file(char out[PATH_MAX]) {
    uintptr_t address = 0;
    dl_iterate_phdr(take_first, &address);
    if (address && find_mapped(address, out)) return true;
    ssize_t length = readlink("/proc/self/exe", out, PATH_MAX - 1);
    out[length > 0 ? length : 0] = 0;
    return length > 0;
}

bool tri_program_start(char out[PATH_MAX]) {
    static const char inner[] = "/libexec";
    char path[PATH_MAX], starter[PATH_MAX];
    if (!tri_program_file(out)) return false;
    memcpy(path, out, sizeof path);
    if (!tri_program_folder(path)) return true;
    const char *name = path + strlen(path) + 1;
    size_t length = strlen(path), ending = strlen(inner);
    if (length < ending || strcmp(path + length - ending, inner) != 0) return true;
    int written =
        snprintf(starter, sizeof starter, "%.*s/bin/%s", (int)(length - ending), path, name);
    if (written < PATH_MAX && access(starter, X_OK) == 0) memcpy(out, starter, sizeof starter);
    return true;
}

bool tri_program_library_folder(char out[PATH_MAX]) {
    Dl_info where;
    void *here = (void *)(uintptr_t)&tri_program_library_folder;
    if (!dladdr(here, &where) || !where.dli_fname) return false;
    return realpath(where.dli_fname, out) && tri_program_folder(out);
}

bool tri_program_folder(char *path) {
    char *slash = strrchr(path, '/');
    if (slash) *slash = 0;
    return slash != NULL;
}
