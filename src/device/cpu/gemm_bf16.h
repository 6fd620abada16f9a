// Matrix products of BF16 with sums in F32, for devices with AVX512_BF16 or AMX: c = a·b.
#ifndef TRIREME_DEVICE_CPU_GEMM_BF16_H
#define TRIREME_DEVICE_CPU_GEMM_BF16_H

#include "device/cpu/epilogue.h"

typedef struct cpu_bf16_gemm {
    int64_t m, n, k;   // a [m, k], b [k, n], c [m, n], plain; at least 1 each
    bool a_transposed; // a lies as [k, m]
    bool b_transposed; // b lies as [n, k]
    bool wide;         // c is F32, else the sums are rounded to BF16
    const uint16_t *a, *b;
    cpu_epilogue epilogue; // its bias is BF16
    void *c;
} cpu_bf16_gemm;

// Bytes that cpu_bf16_gemm_run needs; depends on sizes and the device alone.
size_t cpu_bf16_gemm_workspace(const cpu_device *device, const cpu_bf16_gemm *gemm);
// Every element is summed in one order of k, whatever the number of threads.
void cpu_bf16_gemm_run(const cpu_device *device, const cpu_bf16_gemm *gemm, void *workspace);

// The same by AMX, which the functions above call on devices that have it.
size_t cpu_amx_gemm_workspace(const cpu_device *device, const cpu_bf16_gemm *gemm);
void cpu_amx_gemm_run(const cpu_device *device, const cpu_bf16_gemm *gemm, void *workspace);

#endif
