// A bundle is a folder with Trireme and all libraries that it needs, which runs on other Linux
// hosts. This is the starter: bin/trireme of a bundle, and under other names each program in its
// folder tests. It starts the real program, which has the starter's name and lies in libexec, with
// this host's C library if that is new enough, and otherwise with the C library in the bundle. It
// chooses libstdc++ in the same way (docs/decisions/0018). The starter is linked statically, so
// that it starts even if the host's C library is too old for Trireme. scripts/bundle defines the
// versions that the programs and libraries in the bundle need:
//   NEEDS_LIBC      the version of the C library, such as "GLIBC_2.34"
//   NEEDS_CXX       the version of libstdc++, such as "GLIBCXX_3.4.29"
//   CXX_NEEDS_LIBC  the version of the C library, if the bundle's libstdc++ is used
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// The dynamic loader, at the path that all programs for x86-64 Linux name. Usually this is a link;
// the host's C library lies in the same folder as the loader itself.
#define HOST_LOADER "/lib64/ld-linux-x86-64.so.2"

enum { CANNOT_START = 126, OPTIONS_MAX = 8 };

static int fail(const char *path, const char *why) {
    fprintf(stderr, "trireme: %s: %s\n", path, why);
    return CANNOT_START;
}

// Formats a text. It is never freed, because execv soon replaces this process by the real program.
__attribute__((format(printf, 1, 2))) static char *text(const char *format, ...) {
    char *out;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&out, format, arguments);
    va_end(arguments);
    if (length < 0) abort();
    return out;
}

static char *folder_of(char *path) {
    char *slash = path ? strrchr(path, '/') : NULL;
    if (slash) *slash = 0;
    return path;
}

typedef struct library {
    const char *bytes; // the contents of the whole file
    size_t size;
} library;

// Returns the `size` bytes of the file that begin at `offset`. NULL: the file ends before them.
static const void *at(const library *l, size_t offset, size_t size) {
    return offset <= l->size && size <= l->size - offset ? l->bytes + offset : NULL;
}

// Whether the library defines the version `wanted`. `versions`: the ELF section that lists the
// versions that the library defines; `names`: the ELF section with the names of the versions.
static bool is_defined(const library *l, const Elf64_Shdr *versions, const Elf64_Shdr *names,
                       const char *wanted) {
    size_t offset = versions->sh_offset, length = strlen(wanted) + 1;
    for (unsigned i = 0; i < versions->sh_info; i++) {
        const Elf64_Verdef *version = at(l, offset, sizeof *version);
        if (!version) return false;
        const Elf64_Verdaux *name = at(l, offset + version->vd_aux, sizeof *name);
        const char *letters = name ? at(l, names->sh_offset + name->vda_name, length) : NULL;
        if (letters && !memcmp(letters, wanted, length)) return true;
        offset += version->vd_next;
    }
    return false;
}

static bool defines(const library *l, const char *wanted) {
    const Elf64_Ehdr *header = at(l, 0, sizeof *header);
    if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return false;
    const Elf64_Shdr *sections = at(l, header->e_shoff, header->e_shnum * sizeof *sections);
    for (int i = 0; sections && i < header->e_shnum; i++)
        if (sections[i].sh_type == SHT_GNU_verdef && sections[i].sh_link < header->e_shnum)
            return is_defined(l, &sections[i], &sections[sections[i].sh_link], wanted);
    return false;
}

// Whether the library in the file `path` defines `version`. False if `path` is NULL: there is no
// library.
static bool has_version(const char *path, const char *version) {
    struct stat info;
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return false;
    bool found = false;
    if (fstat(fd, &info) == 0 && info.st_size > 0) {
        library l = {.size = (size_t)info.st_size};
        void *bytes = mmap(NULL, l.size, PROT_READ, MAP_PRIVATE, fd, 0);
        l.bytes = bytes;
        if (bytes != MAP_FAILED) found = defines(&l, version);
    }
    close(fd);
    return found;
}

// Returns the path of the libstdc++ that a program of this host would find: in LD_LIBRARY_PATH
// (`listed`; then *is_listed is true), or else among the system's libraries. NULL: there is none.
// `host`: the folder of the host's C library.
static char *find_cxx(const char *host, const char *listed, bool *is_listed) {
    for (const char *next = listed; *next; next += *next != 0) {
        size_t length = strcspn(next, ":;");
        char *path = text("%.*s/libstdc++.so.6", (int)length, next);
        *is_listed = length && access(path, R_OK) == 0;
        if (*is_listed) return path;
        next += length;
    }
    const char *const folders[] = {host, text("/usr%s", host), "/usr/lib64",
                                   "/usr/lib/x86_64-linux-gnu"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char *path = text("%s/libstdc++.so.6", folders[i]);
        if (access(path, R_OK) == 0) return path;
    }
    return NULL;
}

// Returns the path of this program's file, such as BUNDLE/bin/trireme. NULL: it is not known.
static char *find_self(void) {
    char *path = realpath("/proc/self/exe", NULL);
    return path ? path : realpath((const char *)getauxval(AT_EXECFN), NULL); // without /proc
}

static const char *before(const char *folder, const char *paths) {
    return *paths ? text("%s:%s", folder, paths) : folder;
}

// Starts `program` through the dynamic loader `loader`, which then searches the folders in `paths`
// for libraries. `cxx`: a libstdc++ that the loader loads before all other libraries; NULL: none.
// Returns only if this fails.
static int load(const char *loader, const char *paths, const char *cxx, const char *program,
                int argc, char **argv) {
    const char **words = calloc((size_t)argc + OPTIONS_MAX, sizeof *words);
    int count = 0;
    if (!words) abort();
    words[count++] = loader;
    words[count++] = "--argv0";
    words[count++] = argc ? argv[0] : "trireme";
    words[count++] = "--library-path";
    words[count++] = paths;
    if (cxx) words[count++] = "--preload";
    if (cxx) words[count++] = cxx;
    words[count++] = program;
    for (int i = 1; i < argc; i++) words[count++] = argv[i];
    execv(loader, (char **)words);
    return fail(loader, strerror(errno));
}

int main(int argc, char **argv) {
    const char *listed = getenv("LD_LIBRARY_PATH"), *choice = getenv("TRIREME_LIBC");
    char *self = find_self(), *host = folder_of(realpath(HOST_LOADER, NULL));
    if (!self) return fail("bin/trireme", "the folder of this program is not known");
    if (!listed) listed = "";
    const char *name = strrchr(self, '/') + 1;
    const char *bundle = folder_of(folder_of(self));
    bool is_carried = choice && !strcmp(choice, "carried"), is_listed = false;
    char *program = text("%s/libexec/%s", bundle, name);
    char *cxx = host && !is_carried ? find_cxx(host, listed, &is_listed) : NULL;
    if (!has_version(cxx, NEEDS_CXX)) cxx = NULL;
    if (!host || !has_version(text("%s/libc.so.6", host), cxx ? NEEDS_LIBC : CXX_NEEDS_LIBC))
        is_carried = true;
    if (cxx && !is_carried) {
        execv(program, argv);
        return fail(program, strerror(errno));
    }
    if (strpbrk(bundle, ":;"))
        return fail(bundle, "the loader cannot search a folder with : or ; in its name; move it");
    const char *loader = HOST_LOADER, *paths = listed;
    if (!cxx) paths = before(text("%s/lib/gcc", bundle), paths);
    if (is_carried) {
        loader = text("%s/lib/libc/ld-linux-x86-64.so.2", bundle);
        paths = before(text("%s/lib/libc", bundle), paths);
    }
    return load(loader, paths, is_listed ? NULL : cxx, program, argc, argv);
}
