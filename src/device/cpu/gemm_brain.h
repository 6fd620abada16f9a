// Matrix products of BF16 with sums in F32 that are rounded to BF16, for devices with AVX512_BF16:
// c = a·b.
#ifndef TRIREME_DEVICE_CPU_GEMM_BRAIN_H
#define TRIREME_DEVICE_CPU_GEMM_BRAIN_H

#include "device/cpu/internal.h"

typedef struct cpu_brain_gemm {
    int64_t m, n, k;   // a [m, k], b [k, n], c [m, n], plain; at least 1 each, k even
    bool b_transposed; // b lies as [n, k]
    const uint16_t *a, *b;
    const uint16_t *bias; // [n], added to each row; NULL: none
    uint16_t *c;
} cpu_brain_gemm;

// Bytes that cpu_brain_gemm_run needs; depends on sizes and the device alone.
size_t cpu_brain_gemm_workspace(const cpu_device *device, const cpu_brain_gemm *gemm);
// Every element is summed in one order of k, whatever the number of threads.
void cpu_brain_gemm_run(const cpu_device *device, const cpu_brain_gemm *gemm, void *workspace);

#endif
