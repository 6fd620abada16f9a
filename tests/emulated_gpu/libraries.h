// The test doubles of the vendor's libraries. emulated_blas, emulated_dnn and emulated_nccl return
// the double's function for a name of the library, such as cublasLtCreate; NULL: it has no such
// function.
#ifndef TRIREME_TESTS_EMULATED_GPU_LIBRARIES_H
#define TRIREME_TESTS_EMULATED_GPU_LIBRARIES_H

#include <cstdint>
#include <cstdlib>
#include <cstring>

// A function of an emulated library, with its name without the library's prefix (cublasLt, …).
struct emulated_function {
    const char *name;
    void *address;
};

// Finds the function in an emulated library's table. NULL: the library has no such function.
template <size_t count>
void *emulated_find(const emulated_function (&functions)[count], const char *prefix,
                    const char *name) {
    for (const emulated_function &f : functions)
        if (strcmp(name + strlen(prefix), f.name) == 0) return f.address;
    return nullptr;
}

void *emulated_blas(const char *name);
void *emulated_dnn(const char *name);
// How many seconds the products and convolutions that were issued so far would take; an algorithm's
// or a plan's time is a choice of the test (blas.cpp, dnn.cpp).
extern double emulated_seconds;
bool emulated_dnn_is_there(); // false: EMULATED_DNN=0 hides the emulated cuDNN
void *emulated_nccl(const char *name);
bool emulated_nccl_is_there(); // false: EMULATED_NCCL_VERSION=0 hides the emulated NCCL

// How many seconds a product or convolution takes with algorithm or plan number i. The fastest is
// the one whose number the environment variable gives; if it is not set, number 0.
static inline double emulated_seconds_of(const char *variable, uint64_t i) {
    const char *fastest = getenv(variable);
    return i == (fastest ? strtoull(fastest, nullptr, 10) : 0) ? 1e-3 : 2e-3;
}

// Rounds to TF32, which has 10 bits of fraction: to nearest, ties to even.
static inline float emulated_tf32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0xfff + (bits >> 13 & 1)) & ~(uint32_t)0x1fff;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
