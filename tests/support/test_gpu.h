// Chooses the GPU, emulated or real, on which tests of the device cuda run. Included by test
// programs.
#ifndef TRIREME_TESTS_TEST_GPU_H
#define TRIREME_TESTS_TEST_GPU_H

#include <stdbool.h>
#include <stdlib.h>

// Chooses an emulated GPU and returns false. If TRIREME_TEST_GPU is set, as tests/gpu/test-gpu
// does, chooses nothing and returns true: tests then run on the GPU that the program itself finds.
// This is a real one, unless TRIREME_MODULES names the folder of the emulated GPU.
static inline bool test_gpu_choose(void) {
    if (getenv("TRIREME_TEST_GPU")) return true;
    setenv("TRIREME_MODULES", TRIREME_BUILD_DIR "/lib/emulated", 1);
    return false;
}

// Returns how many random cases a test tries: `few` on an emulated GPU, `many` on a real one, or
// the number in TEST_ROUNDS.
static inline int test_gpu_rounds(int few, int many) {
    const char *wanted = getenv("TEST_ROUNDS");
    if (wanted) return atoi(wanted);
    return getenv("TRIREME_TEST_GPU") ? many : few;
}

#endif
