// A module `cuda` for tests. It passes all calls on to the module at the path TRIREME_TEST_MODULE,
// but makes one kernel launch fail. TRIREME_TEST_TRAP chooses it: "[fail:]KERNEL:N" is the Nth
// launch of KERNEL. The launch traps on the GPU or, with "fail:", is refused at once.
// tests/gpu/test-gpu tests what a run does then.
#include "base/module.h"
#include "device/cuda/runtime.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const cuda_runtime *real;

// Whether TRIREME_TEST_TRAP (KERNEL:NUMBER or fail:KERNEL:NUMBER) chooses this launch of the
// kernel. *refuse: with "fail:", the launch returns a failure instead of running into a trap.
static bool is_due(const char *kernel, bool *refuse) {
    static int launches;
    const char *wanted = getenv("TRIREME_TEST_TRAP");
    *refuse = wanted && strncmp(wanted, "fail:", 5) == 0;
    if (*refuse) wanted += 5;
    size_t length = strlen(kernel);
    if (!wanted || strncmp(wanted, kernel, length) != 0 || wanted[length] != ':') return false;
    return __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED) == atoi(wanted + length + 1);
}

#define X(name)                                                                                    \
    static tri_status launch_##name(cuda_stream *stream, const cuda_##name *params, char *why) {   \
        const cuda_trap trap = {0};                                                                \
        bool refuse;                                                                               \
        if (!is_due(#name, &refuse)) return real->name(stream, params, why);                       \
        if (!refuse) return real->trap(stream, &trap, why);                                        \
        snprintf(why, CUDA_WHY_BYTES, "refused by the test");                                      \
        return TRI_INTERNAL;                                                                       \
    }
CUDA_KERNEL_LIST(X)
#undef X

static cuda_runtime table;

__attribute__((constructor)) static void load(void) {
    const char *path = getenv("TRIREME_TEST_MODULE");
    void *object = path ? dlopen(path, RTLD_NOW) : NULL;
    const tri_module *module = object ? dlsym(object, TRI_MODULE_SYMBOL) : NULL;
    if (!module || module->abi != CUDA_RUNTIME_ABI) {
        fprintf(stderr, "the module %s of TRIREME_TEST_MODULE cannot be used: %s\n",
                path ? path : "", object ? "another version" : dlerror());
        abort();
    }
    real = module->table;
    table = *real;
#define X(name) table.name = launch_##name;
    CUDA_KERNEL_LIST(X)
#undef X
}

TRI_MODULE(CUDA_RUNTIME_INTERFACE, CUDA_RUNTIME_ABI, "cuda", &table);
