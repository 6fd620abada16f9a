// Matrix products of BF16 with sums in F32, for devices with AVX512_BF16 or AMX: c = a·b. k is the
// axis that is summed over.
#ifndef TRIREME_DEVICE_CPU_GEMM_BF16_H
#define TRIREME_DEVICE_CPU_GEMM_BF16_H

#include "device/cpu/epilogue.h"

typedef struct cpu_bf16_gemm {
    int64_t m, n, k;   // sizes: a [m, k], b [k, n], c [m, n], all plain; each is at least 1
    bool a_transposed; // a is stored as [k, m]
    bool b_transposed; // b is stored as [n, k]
    bool c_f32;        // true: c is F32; false: BF16
    // True: adds the product to what c holds, which must be F32; false: overwrites c.
    bool accumulate;
    const uint16_t *a, *b;
    const uint16_t *bias;     // [n], added to finished sums; NULL: there is none
    const cpu_finish *finish; // NULL: what is stored in c is what is wanted
    void *c;
} cpu_bf16_gemm;

// How many bytes of workspace cpu_bf16_gemm_run needs. Reads only sizes of `gemm`, not data.
size_t cpu_bf16_gemm_workspace(const tri_device_description *device, const cpu_bf16_gemm *gemm);
// Computes the product. The terms of every element are added in the order of k, whatever the number
// of threads, so that the bits of the result do not depend on it.
void cpu_bf16_gemm_run(const cpu_device *device, const cpu_bf16_gemm *gemm, void *workspace);

// The same product for at most this many rows of `a`, where b is stored as [n, k]: it reads b once,
// at the memory's rate. cpu_bf16_gemm_run calls it.
enum { CPU_FEW_ROWS = 8 };
bool cpu_few_supports(const cpu_bf16_gemm *gemm);
void cpu_few_run(const cpu_device *device, const cpu_bf16_gemm *gemm);

// The same two functions for devices with AMX, which multiplies BF16 much faster than AVX512_BF16
// does. On these devices the functions above call them.
size_t cpu_amx_gemm_workspace(const tri_device_description *device, const cpu_bf16_gemm *gemm);
void cpu_amx_gemm_run(const cpu_device *device, const cpu_bf16_gemm *gemm, void *workspace);

#endif
