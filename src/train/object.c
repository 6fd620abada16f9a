// Loads a model that a user wrote (a task) from a shared object. Loading runs the object's code. So
// everything that can be checked in the file is checked first, above all for which version of the
// program it was built.
#include "train/object.h"

#include "base/os.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/trireme.h>

static const char symbol_prefix[] = "trireme_task_v", symbol[] = "trireme_task_v1";

// What the file's header and its table of dynamic symbols show, without running its code.
typedef struct findings {
    bool is_object, has_task;
    char other[64]; // a task's symbol for another version of the program; "": there is none
} findings;

static bool read_at(int fd, void *out, size_t size, uint64_t offset) {
    return offset <= INT64_MAX &&
           tri_os_pread_most(fd, out, size, (int64_t)offset) == (ssize_t)size;
}

static void note_name(findings *f, const char *name) {
    if (!strcmp(name, symbol))
        f->has_task = true;
    else if (!strncmp(name, symbol_prefix, strlen(symbol_prefix)))
        snprintf(f->other, sizeof f->other, "%.60s", name);
}

static void look_at_symbols(int fd, const Elf64_Shdr *table, const Elf64_Shdr *names,
                            findings *out) {
    enum { LONGEST = sizeof out->other };
    uint64_t count = table->sh_size / sizeof(Elf64_Sym);
    for (uint64_t i = 0; i < count && !out->has_task; i++) {
        Elf64_Sym entry;
        char name[LONGEST + 1] = "";
        if (!read_at(fd, &entry, sizeof entry, table->sh_offset + i * sizeof entry)) return;
        if (entry.st_shndx == SHN_UNDEF || entry.st_name >= names->sh_size) continue;
        uint64_t left = names->sh_size - entry.st_name;
        if (!read_at(fd, name, left < LONGEST ? left : LONGEST, names->sh_offset + entry.st_name))
            return;
        note_name(out, name);
    }
}

static void look_at_file(int fd, findings *out) {
    Elf64_Ehdr head;
    *out = (findings){0};
    if (!read_at(fd, &head, sizeof head, 0) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_type != ET_DYN ||
        head.e_shentsize != sizeof(Elf64_Shdr))
        return;
    out->is_object = true;
    for (int i = 0; i < head.e_shnum; i++) {
        Elf64_Shdr table, names;
        if (!read_at(fd, &table, sizeof table, head.e_shoff + (uint64_t)i * sizeof table)) return;
        if (table.sh_type != SHT_DYNSYM || table.sh_link >= head.e_shnum) continue;
        if (!read_at(fd, &names, sizeof names, head.e_shoff + table.sh_link * sizeof names)) return;
        look_at_symbols(fd, &table, &names, out);
    }
}

static tri_status check_file(const char *path, const char *real) {
    findings found;
    tri_status status = tri_os_check_file(real);
    if (status != TRI_OK) return tri_status_context(status, "model.name");
    int fd;
    TRI_TRY(tri_status_context(tri_os_open_input(real, &fd), "model.name"));
    look_at_file(fd, &found);
    tri_os.close(fd);
    if (!found.is_object)
        return TRI_FAIL(TRI_BAD_INPUT, "model.name: %s is not a shared object for this machine",
                        path);
    if (found.has_task) return TRI_OK;
    if (*found.other)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "model.name: %s exports %s, which belongs to another version; trireme %s "
                        "needs %s: build it with this version's headers",
                        path, found.other, tri_version(), symbol);
    return TRI_FAIL(TRI_BAD_INPUT,
                    "model.name: %s exports no task: use TRI_EXPORT_TASK in its source, and build "
                    "it for trireme %s",
                    path, tri_version());
}

tri_status tri_task_load_object(const char *path, const tri_task **out) {
    char real[PATH_MAX];
    if (path[0] != '/' && strncmp(path, "./", 2) != 0 && strncmp(path, "../", 3) != 0)
        return TRI_FAIL(
            TRI_BAD_INPUT,
            "model.name: a shared object is code that will run, so its path has to be absolute or "
            "begin with ./ or ../: ./%s",
            path);
    if (!realpath(path, real))
        return TRI_FAIL(TRI_NOT_FOUND, "model.name: there is no shared object %s%s", path,
                        *path == '/' ? "" : "; its path starts at the working directory");
    TRI_TRY(check_file(path, real));
    void *object = dlopen(real, RTLD_NOW | RTLD_LOCAL);
    if (!object) return TRI_FAIL(TRI_BAD_INPUT, "model.name: cannot load %s: %s", path, dlerror());
    const tri_task *(*task)(void) = (const tri_task *(*)(void))dlsym(object, symbol);
    *out = task ? task() : NULL;
    if (!*out)
        return TRI_FAIL(TRI_BAD_INPUT, "model.name: %s has no task: %s returns NULL", path, symbol);
    return TRI_OK;
}
