// Finds the module (a shared object) that computes on this host's GPUs: `cuda` for NVIDIA's, `hip`
// for AMD's. Both are made of the same sources.
#include "device/cuda/internal.h"

#include "base/log.h"
#include "base/module.h"
#include "base/os.h"

#include <unistd.h>

// A maker of GPUs: a file of /dev that exists where the maker's driver is loaded, and the module
// for its GPUs. NVIDIA has two rows, because its driver has another file in Linux under Windows
// (WSL).
typedef struct maker {
    const char *device_file, *module;
} maker;
static const maker makers[] = {
    {"/dev/nvidiactl", "cuda"}, {"/dev/dxg", "cuda"}, {"/dev/kfd", "hip"}};
enum { MAKERS = sizeof makers / sizeof *makers };

static bool has_driver(const maker *m) { return tri_os.access(m->device_file, F_OK) == 0; }

// Returns the name of the module to load. NULL: the host has no driver; then no module is loaded,
// so that a run on a CPU starts no slower.
static const char *choose_module(void) {
    // A host can have the drivers of both makers, but only one maker's module. So a maker whose
    // driver and module are both there comes first.
    for (int i = 0; i < MAKERS; i++)
        if (has_driver(&makers[i]) && tri_module_is_installed(makers[i].module))
            return makers[i].module;
    // Tests set TRIREME_MODULES to the folder of a module that needs no driver.
    for (int i = 0; i < MAKERS && tri_module_chosen_folder(); i++)
        if (tri_module_is_installed(makers[i].module)) return makers[i].module;
    for (int i = 0; i < MAKERS; i++)
        if (has_driver(&makers[i])) return makers[i].module;
    return NULL;
}

// Warns once, with the reason, that --device auto takes no GPU although this host has one.
static void warn(const tri_device_config *config) {
    static bool has_warned;
    if (!config->is_optional || config->index > 0 || has_warned) return;
    tri_log_line(TRI_LOG_WARNING, "this host has a GPU that --device auto cannot use: %s",
                 tri_error_message());
    has_warned = true;
}

// Tells why there is nothing to load, and where a module was looked for that needs no driver.
static tri_status fail_without_driver(void) {
    const char *folder = tri_module_chosen_folder();
    return TRI_FAIL(TRI_NOT_FOUND,
                    "device cuda: this host has no driver of NVIDIA or AMD (no /dev/nvidiactl, no "
                    "/dev/kfd)%s%s%s: is this a login node?",
                    folder ? ", and there is no cuda.so in " : "", folder ? folder : "",
                    folder ? ", which TRIREME_MODULES names" : "");
}

tri_status cuda_load(const tri_device_config *config, const cuda_runtime **out) {
    const void *table;
    const char *module = choose_module();
    if (!module) return fail_without_driver();
    tri_status status = tri_module_load(module, CUDA_RUNTIME_INTERFACE, CUDA_RUNTIME_ABI, &table);
    if (status == TRI_NOT_FOUND) warn(config);
    TRI_TRY(status);
    *out = table;
    return TRI_OK;
}
