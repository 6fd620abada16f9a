// The device `cpu`: oneDNN and our own fused kernels, with threads by OpenMP. Where the CPU has
// AVX-512, convolutions, pooling and batch norm work on blocked layouts, in which 16 channels of a
// pixel lie side by side.
#ifndef TRIREME_DEVICE_CPU_H
#define TRIREME_DEVICE_CPU_H

#include "device/bench.h"

// The backend of this device. The environment variable TRIREME_CPU_ISA (amx, bf16, avx512, avx2 or
// base) limits the instruction set of its kernels, and with it the layouts in which parameters are
// kept. If the machines of a run differ, set it to the best instruction set that all of them have,
// because all ranks must keep parameters in the same layouts.
extern const tri_device_backend tri_device_cpu;

// Measures the highest rates of arithmetic and of memory that this machine reaches with the
// device's threads. `trireme bench kernels` reports the speed of kernels as fractions of them.
// Takes about a second. Fails with TRI_UNSUPPORTED on a CPU without AVX2.
tri_status cpu_measure_peak(tri_device *device, tri_bench_peak *out);

#endif
