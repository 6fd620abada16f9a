// Finds and loads modules: shared objects that the program loads when a run needs them. A module of
// another version is rejected before any of its functions is called, because the interface may
// differ.
#include "base/module.h"

#include "base/program.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FOLDERS = 3 };

typedef char module_folder[PATH_MAX];

static bool beside_program(module_folder out) {
    char path[PATH_MAX];
    if (!tri_program_file(path) || !tri_program_folder(path)) return false;
    return snprintf(out, PATH_MAX, "%s/../lib/trireme", path) < PATH_MAX;
}

// Finds the folder of modules beside the library, for a user's own program that links the library.
static bool beside_library(module_folder out) {
    char path[PATH_MAX];
    return tri_program_library_folder(path) &&
           snprintf(out, PATH_MAX, "%s/trireme", path) < PATH_MAX;
}

const char *tri_module_chosen_folder(void) {
    const char *chosen = getenv("TRIREME_MODULES");
    return chosen && *chosen ? chosen : NULL;
}

static int list_folders(module_folder folders[FOLDERS]) {
    const char *chosen = tri_module_chosen_folder();
    int count = 0;
    if (chosen) {
        snprintf(folders[0], PATH_MAX, "%s", chosen);
        return 1;
    }
    count += beside_program(folders[count]);
    count += beside_library(folders[count]);
    snprintf(folders[count++], PATH_MAX, "%s", TRIREME_MODULE_FOLDER);
    return count;
}

static tri_status not_found(const char *name, module_folder folders[FOLDERS], int count) {
    char where[TRI_MESSAGE_MAX_BYTES] = "";
    size_t used = 0;
    for (int i = 0; i < count && used < sizeof where; i++)
        used +=
            (size_t)snprintf(where + used, sizeof where - used, "%s%s", i ? ", " : "", folders[i]);
    if (tri_module_chosen_folder())
        return TRI_FAIL(TRI_NOT_FOUND,
                        "module %s is not installed: there is no %s.so in %s, the only folder in "
                        "which TRIREME_MODULES lets it be: set another one, or unset it",
                        name, name, where);
    return TRI_FAIL(TRI_NOT_FOUND,
                    "module %s is not installed: there is no %s.so in %s; install the library that "
                    "it needs and build again, or set TRIREME_MODULES to its folder",
                    name, name, where);
}

static tri_status check(const char *path, const tri_module *module, const char *name,
                        const char *interface, uint32_t abi) {
    if (!module || module->magic != TRI_MODULE_MAGIC)
        return TRI_FAIL(TRI_UNSUPPORTED, "%s is not a module of trireme", path);
    if (module->abi != abi)
        return TRI_FAIL(TRI_UNSUPPORTED,
                        "%s is of another version of trireme (interface %u, this program has %u); "
                        "install both from one build",
                        path, module->abi, abi);
    if (strcmp(module->interface, interface) != 0 || strcmp(module->name, name) != 0)
        return TRI_FAIL(TRI_UNSUPPORTED, "%s is the %s %s, and not the %s %s", path,
                        module->interface, module->name, interface, name);
    return TRI_OK;
}

// Finds the module in the first folder that has it.
static bool find(const char *name, module_folder folders[FOLDERS], int count, char path[PATH_MAX]) {
    for (int i = 0; i < count; i++) {
        bool fits = snprintf(path, PATH_MAX, "%s/%s.so", folders[i], name) < PATH_MAX;
        if (fits && access(path, F_OK) == 0) return true;
    }
    return false;
}

bool tri_module_is_installed(const char *name) {
    module_folder folders[FOLDERS];
    char path[PATH_MAX];
    return find(name, folders, list_folders(folders), path);
}

tri_status tri_module_load(const char *name, const char *interface, uint32_t abi,
                           const void **table) {
    module_folder folders[FOLDERS];
    int count = list_folders(folders);
    char path[PATH_MAX];
    *table = NULL;
    if (!find(name, folders, count, path)) return not_found(name, folders, count);
    // RTLD_GLOBAL, because some versions of MPI load further libraries that need MPI's symbols.
    void *object = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!object)
        return TRI_FAIL(TRI_UNSUPPORTED,
                        "module %s cannot be loaded: %s; load the site's module that has the "
                        "library, or name the library's folder in LD_LIBRARY_PATH",
                        name, dlerror());
    const tri_module *module = dlsym(object, TRI_MODULE_SYMBOL);
    tri_status status = check(path, module, name, interface, abi);
    if (status != TRI_OK) {
        dlclose(object);
        return status;
    }
    *table = module->table;
    return TRI_OK;
}
