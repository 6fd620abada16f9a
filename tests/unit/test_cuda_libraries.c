// Prints which GPU, driver and libraries of the GPU's maker the device cuda finds, in the order in
// which it looks for them. tests/gpu/test-gpu shows this beside its results, so that readers know
// to which versions the results belong.
#include "base/module.h"
#include "device/cuda/runtime.h"
#include "support/test_gpu.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool is_real;
static char why[CUDA_WHY_BYTES];

// Returns the version that a library reports; NULL: it reports none.
static const char *version_of(void *library, char *out, size_t size) {
    size_t (*number)(void);
    int (*write)(int *);
    int version = 0;
    static const char *const numbers[] = {"cublasLtGetVersion", "cudnnGetVersion"};
    static const char *const writers[] = {"ncclGetVersion", "cuDriverGetVersion"};
    for (int i = 0; i < 2; i++) {
        *(void **)&number = dlsym(library, numbers[i]);
        if (*(void **)&number) version = (int)number();
        *(void **)&write = dlsym(library, writers[i]);
        if (*(void **)&write) (void)write(&version);
    }
    snprintf(out, size, "%d", version);
    return version ? out : NULL;
}

// Prints each of NVIDIA's libraries that is loaded in this process.
static void print_libraries(void) {
    static const char *const names[] = {"/libcuda.so", "/libcublasLt.so", "/libcudnn.so",
                                        "/libnccl.so"};
    char line[4400], last[4400] = "", text[32];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        char *path = strchr(line, '/');
        bool is_wanted = false;
        for (size_t i = 0; path && i < sizeof names / sizeof *names; i++)
            is_wanted = is_wanted || strstr(path, names[i]);
        if (!is_wanted || strcmp(path, last) == 0) continue;
        snprintf(last, sizeof last, "%s", path);
        path[strcspn(path, "\n")] = 0;
        void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
        const char *version = library ? version_of(library, text, sizeof text) : NULL;
        printf("  loaded: %s, version %s\n", path, version ? version : "unknown");
        if (library) dlclose(library);
    }
    if (maps) fclose(maps);
}

static void test_found(void **state) {
    const void *table;
    cuda_properties p;
    cuda_context *context;
    unsigned abilities;
    int count = 0;
    if (tri_module_load("cuda", CUDA_RUNTIME_INTERFACE, CUDA_RUNTIME_ABI, &table) != TRI_OK)
        fail_msg("%s", tri_error_message());
    const cuda_runtime *runtime = table;
    if (runtime->count(&count, why) != TRI_OK) fail_msg("%s", why);
    if (runtime->open(0, &p, &context, why) != TRI_OK) fail_msg("%s", why);
    printf("  GPU 1 of %d: %s, compute capability %d.%d, %d multiprocessors, %lld MB\n", count,
           p.name, p.major, p.minor, p.multiprocessors, (long long)(p.memory_bytes / 1000000));
    bool has_nccl = runtime->find_nccl(&abilities, why) == TRI_OK;
    printf("  products: %s\n", p.has_products ? "cuBLASLt" : "cuBLASLt was not found");
    printf("  convolutions: %s\n", p.has_dnn ? "cuDNN" : "cuDNN was not found");
    printf("  between GPUs: %s\n", has_nccl ? "NCCL" : why);
    print_libraries();
    assert_true(p.name[0] && p.major > 0 && p.multiprocessors > 0 && p.memory_bytes > 0);
    if (!is_real) assert_string_equal(p.name, "emulated GPU");
    runtime->close(context);
}

int main(void) {
    is_real = test_gpu_choose();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
