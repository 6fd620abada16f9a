// Finds the profiles of sites (supercomputers): in share/trireme/sites beside an installed program
// or library, in sites/ of the source tree for one that was not installed, or in a file that the
// user names.
#include "launch/site.h"

#include "base/limits.h"
#include "base/os.h"
#include "base/program.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

// Finds the folder with the sites' profiles from the folder of the program, which is installed as
// bin/trireme or built as build/PRESET/bin/trireme; or from that of the library, for a user's own
// program that links it: lib/ or, on Debian, lib/ARCHITECTURE. A program that has the library in
// itself finds what was installed.
static tri_status find_folder(tri_arena *arena, const char **out) {
    static const char *const folders[] = {"../share/trireme/sites", "../../../sites",
                                          "../../share/trireme/sites"};
    char program[PATH_MAX], library[PATH_MAX];
    bool known = tri_program_file(program) && tri_program_folder(program);
    const char *from[] = {known ? program : NULL,
                          tri_program_library_folder(library) ? library : NULL};
    for (size_t k = 0; k < sizeof from / sizeof *from; k++)
        for (size_t i = 0; from[k] && i < sizeof folders / sizeof *folders; i++) {
            *out = tri_arena_printf(arena, "%s/%s", from[k], folders[i]);
            if (is_folder(*out)) return TRI_OK;
        }
    *out = TRIREME_SITE_FOLDER;
    if (is_folder(*out)) return TRI_OK;
    return TRI_FAIL(
        TRI_NOT_FOUND,
        "there is no folder of sites beside this program (%s/%s) or its library, nor is "
        "there %s; give --site the path of a profile",
        known ? program : "?", folders[0], TRIREME_SITE_FOLDER);
}

static tri_status read_profile(tri_arena *arena, const char *path, tri_site *out) {
    char *text;
    size_t size;
    TRI_TRY(tri_os_check_file(path));
    TRI_TRY(tri_os_read_file(path, TRI_MAX_RECIPE_BYTES, &text, &size));
    tri_status status = tri_site_parse(arena, text, size, path, out);
    free(text);
    return status;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// Lists the names of the folder's .yaml files, without .yaml and sorted.
static tri_status list_names(tri_arena *arena, const char *folder, const char ***out, int *count) {
    int capacity = 0;
    *out = NULL;
    *count = 0;
    DIR *entries = opendir(folder);
    if (!entries) return tri_os_fail("read", folder);
    for (struct dirent *entry; (entry = readdir(entries));) {
        size_t length = strlen(entry->d_name);
        if (length < 6 || strcmp(entry->d_name + length - 5, ".yaml") != 0) continue;
        TRI_PUSH(arena, *out, *count, capacity) =
            tri_arena_printf(arena, "%.*s", (int)length - 5, entry->d_name);
    }
    closedir(entries);
    if (*count) qsort(*out, (size_t)*count, sizeof **out, by_name);
    return TRI_OK;
}

tri_status tri_site_find(tri_arena *arena, const char *name, tri_site *out) {
    size_t length = strlen(name);
    if (strchr(name, '/') || (length > 5 && !strcmp(name + length - 5, ".yaml")))
        return read_profile(arena, name, out);
    const char *folder, **names;
    int count;
    TRI_TRY(find_folder(arena, &folder));
    TRI_TRY(list_names(arena, folder, &names, &count));
    for (int i = 0; i < count; i++)
        if (!strcmp(names[i], name))
            return read_profile(arena, tri_arena_printf(arena, "%s/%s.yaml", folder, name), out);
    const char *near = tri_option_nearest(name, names, count);
    return TRI_FAIL(TRI_BAD_INPUT,
                    "--site: there is no site '%.60s'%s%s%s; trireme submit --list lists them, and "
                    "a path names a profile of your own",
                    name, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

tri_status tri_site_list(tri_arena *arena, tri_site **out, int *count) {
    const char *folder, **names;
    TRI_TRY(find_folder(arena, &folder));
    TRI_TRY(list_names(arena, folder, &names, count));
    *out = TRI_NEW_ARRAY(arena, tri_site, *count);
    for (int i = 0; i < *count; i++)
        TRI_TRY(
            read_profile(arena, tri_arena_printf(arena, "%s/%s.yaml", folder, names[i]), *out + i));
    return TRI_OK;
}
