// A module `hip` for unit/test_cuda_load: the emulated GPU (the module that TRIREME_TEST_MODULE
// names), described as the module for AMD's GPUs describes an MI250X, or as a GPU with the name
// TEST_GPU_NAME and TEST_GPU_GB gigabytes of memory.
#include "base/module.h"
#include "device/cuda/runtime.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static const cuda_runtime *real;
static cuda_runtime table;

static tri_status open_amd(int index, cuda_properties *properties, cuda_context **out, char *why) {
    tri_status status = real->open(index, properties, out, why);
    const char *name = getenv("TEST_GPU_NAME"), *gigabytes = getenv("TEST_GPU_GB");
    snprintf(properties->name, sizeof properties->name, "%s", name ? name : "AMD Instinct MI250X");
    if (gigabytes) properties->memory_bytes = (int64_t)(strtod(gigabytes, NULL) * 1e9);
    properties->major = 9; // gfx90a
    properties->has_bf16 = properties->has_products = properties->has_dnn = false;
    return status;
}

__attribute__((constructor)) static void load(void) {
    const char *path = getenv("TRIREME_TEST_MODULE");
    void *object = path ? dlopen(path, RTLD_NOW) : NULL;
    const tri_module *module = object ? dlsym(object, TRI_MODULE_SYMBOL) : NULL;
    if (!module) {
        fprintf(stderr, "no module in TRIREME_TEST_MODULE: %s\n", path ? dlerror() : "not set");
        abort();
    }
    real = module->table;
    table = *real;
    table.open = open_amd;
}

TRI_MODULE(CUDA_RUNTIME_INTERFACE, CUDA_RUNTIME_ABI, "hip", &table);
