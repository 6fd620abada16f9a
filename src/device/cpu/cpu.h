// The device `cpu`: oneDNN and our own fused kernels on blocked layouts, with threads by OpenMP.
#ifndef TRIREME_DEVICE_CPU_H
#define TRIREME_DEVICE_CPU_H

#include "device/bench.h"

// The environment variable TRIREME_CPU_ISA (amx, bf16, avx512, avx2 or base) limits the instruction
// set of the kernels, and with it the home layouts of parameters. On machines that differ, set it
// to what all of them have.
extern const tri_device_backend tri_device_cpu;

// Measures the highest rates of arithmetic and of memory that this machine reaches with the
// device's threads. `trireme bench kernels` reports the speed of kernels as fractions of them.
// Takes about a second. TRI_UNSUPPORTED without AVX2.
tri_status cpu_measure_peak(tri_device *device, tri_bench_peak *out);

#endif
