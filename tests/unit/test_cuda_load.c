// Checks which module the device cuda loads: the one for the maker of the host's GPUs, which the
// installed drivers show. If this module is not installed, or is of another version, the device is
// refused with a line that says so.
#include "base/os.h"
#include "device/choose.h"
#include "device/cpu/cpu.h"
#include "device/cuda/cuda.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *drivers; // the drivers' files in /dev that the host seems to have

static int access_of_host(const char *path, int mode) {
    if (strncmp(path, "/dev/", 5) != 0) return access(path, mode);
    if (strstr(drivers, path)) return 0;
    errno = ENOENT;
    return -1;
}

static char modules[] = "/tmp/trireme-load-XXXXXX"; // the folder of the modules

// Installs the build's module `file` in the folder `modules` under the name `name`. `file` NULL:
// removes the module that has this name.
static void install(const char *file, const char *name) {
    char from[512], to[512];
    snprintf(from, sizeof from, "%s/lib/%s", TRIREME_BUILD_DIR, file ? file : "");
    snprintf(to, sizeof to, "%s/%s.so", modules, name);
    (void)unlink(to);
    if (file) assert_int_equal(symlink(from, to), 0);
}

static void check_refused(tri_status wanted, const char *says) {
    tri_device_description d;
    tri_status status = tri_device_cuda.describe(&(tri_device_config){0}, &d);
    if (!strstr(tri_error_message(), says)) fail_msg("%s", tri_error_message());
    assert_int_equal(status, wanted);
}

static void check_kind(const char *kind) {
    tri_device_description d;
    if (tri_device_cuda.describe(&(tri_device_config){0}, &d) != TRI_OK)
        fail_msg("%s", tri_error_message());
    if (!kind) assert_null(d.kind);
    if (kind) assert_string_equal(d.kind, kind);
}

static void test_refused(void **state) {
    (void)state;
    drivers = "";
    char where[128];
    snprintf(where, sizeof where, "there is no cuda.so in %s, which TRIREME_MODULES", modules);
    check_refused(TRI_NOT_FOUND, where);
    unsetenv("TRIREME_MODULES");
    check_refused(TRI_NOT_FOUND, "/dev/kfd): is this");
    setenv("TRIREME_MODULES", modules, 1);
    drivers = "/dev/nvidiactl";
    check_refused(TRI_NOT_FOUND, "module cuda is not installed: there is no cuda.so in");
    drivers = "/dev/kfd";
    check_refused(TRI_NOT_FOUND, "module hip is not installed: there is no hip.so in");
    install("test-modules/hip_old.so", "hip");
    check_refused(TRI_UNSUPPORTED, "hip.so is of another version");
    install("emulated/cuda.so", "hip");
    check_refused(TRI_UNSUPPORTED, "and not the cuda-runtime hip");
    install(NULL, "hip");
}

// Chooses by --device auto twice. Returns how many lines it has written to standard error.
static int choose_twice(const tri_device_backend *wanted) {
    static const tri_device_backend *const devices[] = {&tri_device_cuda, &tri_device_cpu, NULL};
    tri_device_description d;
    FILE *said = tmpfile();
    int lines = 0, usual = dup(STDERR_FILENO);
    assert_true(said && usual >= 0 && dup2(fileno(said), STDERR_FILENO) >= 0);
    for (int i = 0; i < 2; i++) {
        tri_status status = tri_device_describe(devices, "auto", &d);
        assert_int_equal(status, wanted ? TRI_OK : TRI_UNSUPPORTED);
        if (wanted) assert_ptr_equal(d.backend, wanted);
    }
    assert_true(dup2(usual, STDERR_FILENO) >= 0 && close(usual) == 0);
    rewind(said);
    for (char line[1024]; fgets(line, sizeof line, said); lines++)
        assert_non_null(strstr(line, "--device auto cannot use: module hip is not installed"));
    (void)fclose(said);
    return lines;
}

// --device auto takes the CPU if the module is missing, and warns once if the host has a GPU. If
// the module is of another version, --device auto fails.
static void test_auto(void **state) {
    (void)state;
    drivers = "";
    assert_int_equal(choose_twice(&tri_device_cpu), 0);
    drivers = "/dev/kfd";
    assert_int_equal(choose_twice(&tri_device_cpu), 1);
    install("test-modules/hip_old.so", "hip");
    assert_int_equal(choose_twice(NULL), 0);
    install(NULL, "hip");
}

static void test_chosen(void **state) {
    (void)state;
    install("test-modules/hip.so", "hip");
    drivers = "/dev/kfd";
    check_kind("mi250x");
    drivers = "/dev/kfd /dev/nvidiactl"; // both drivers: the installed module decides
    check_kind("mi250x");
    install("emulated/cuda.so", "cuda");
    check_kind(NULL); // the emulated GPU is of no known kind
    drivers = "/dev/kfd";
    check_kind("mi250x");
    // The emulated GPU, the only module left in the folder TRIREME_MODULES, needs no driver.
    install(NULL, "hip");
    check_kind(NULL);
    drivers = "";
    check_kind(NULL);
    install(NULL, "cuda");
}

// The kind of a GPU follows from words of the driver's name for it, and from its memory.
static void test_kinds(void **state) {
    (void)state;
    static const char *const cases[][3] = {{"NVIDIA A100-SXM4-40GB", "42.3", "a100-40"},
                                           {"NVIDIA A100-SXM-64GB", "68.3", "a100-64"},
                                           {"NVIDIA A100 80GB PCIe", "85.1", "a100-80"},
                                           {"NVIDIA A10", "23.6", "a10"},
                                           {"NVIDIA RTX A1000", "8.3", NULL},
                                           {"NVIDIA H100 80GB HBM3", "85.0", "h100-80"},
                                           {"NVIDIA GH200 480GB", "102.0", "gh200"},
                                           {"NVIDIA H200", "150.7", "h200"},
                                           {"NVIDIA L40S", "47.7", "l40s"},
                                           {"Tesla T4", "15.8", "t4"},
                                           {"Tesla V100-SXM2-16GB", "16.9", "v100-16"},
                                           {"AMD Instinct MI300X", "206.1", "mi300x"}};
    install("test-modules/hip.so", "hip");
    drivers = "/dev/kfd";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("TEST_GPU_NAME", cases[i][0], 1);
        setenv("TEST_GPU_GB", cases[i][1], 1);
        check_kind(cases[i][2]);
    }
    unsetenv("TEST_GPU_NAME");
    unsetenv("TEST_GPU_GB");
    install(NULL, "hip");
}

// The device model cuda:mi250x, for which plans are made without a GPU, has the features and the
// alignment of a GPU that the module for AMD reports.
static void test_described(void **state) {
    (void)state;
    tri_device_description here, model;
    static const tri_device_backend *const devices[] = {&tri_device_cuda, NULL};
    install("test-modules/hip.so", "hip");
    drivers = "/dev/kfd";
    assert_int_equal(tri_device_describe(devices, "cuda", &here), TRI_OK);
    assert_int_equal(tri_device_describe(devices, "cuda:mi250x", &model), TRI_OK);
    assert_int_equal(here.features, model.features);
    assert_int_equal(here.alignment, model.alignment);
    install(NULL, "hip");
}

int main(void) {
    if (!mkdtemp(modules)) return 1;
    setenv("TRIREME_MODULES", modules, 1);
    setenv("TRIREME_TEST_MODULE", TRIREME_BUILD_DIR "/lib/emulated/cuda.so", 1);
    tri_os.access = access_of_host;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused), cmocka_unit_test(test_auto),
                                       cmocka_unit_test(test_chosen), cmocka_unit_test(test_kinds),
                                       cmocka_unit_test(test_described)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)rmdir(modules);
    return failed;
}
