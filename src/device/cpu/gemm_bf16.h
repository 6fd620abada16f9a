// Matrix products of BF16 with sums in F32, for devices with AVX512_BF16 or AMX: c = a·b.
#ifndef TRIREME_DEVICE_CPU_GEMM_BF16_H
#define TRIREME_DEVICE_CPU_GEMM_BF16_H

#include "device/cpu/epilogue.h"

typedef struct cpu_bf16_gemm {
    int64_t m, n, k;   // a [m, k], b [k, n], c [m, n], plain; at least 1 each
    bool a_transposed; // a is stored as [k, m]
    bool b_transposed; // b is stored as [n, k]
    bool c_f32;        // else c is BF16
    const uint16_t *a, *b;
    cpu_epilogue epilogue; // its bias is BF16
    void *c;
} cpu_bf16_gemm;

// Bytes of workspace that cpu_bf16_gemm_run needs. Only reads sizes, not data.
size_t cpu_bf16_gemm_workspace(const tri_device_description *device, const cpu_bf16_gemm *gemm);
// Computes the product. Adds up every element in the same order of k, whatever the number of
// threads, so that its bits do not depend on them.
void cpu_bf16_gemm_run(const cpu_device *device, const cpu_bf16_gemm *gemm, void *workspace);

// The forms of both functions for AMX. The functions above call them on devices that have it,
// because it is much faster there.
size_t cpu_amx_gemm_workspace(const tri_device_description *device, const cpu_bf16_gemm *gemm);
void cpu_amx_gemm_run(const cpu_device *device, const cpu_bf16_gemm *gemm, void *workspace);

#endif
