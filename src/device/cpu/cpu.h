// oneDNN and own fused kernels on blocked layouts, threads by OpenMP.
#ifndef TRIREME_DEVICE_CPU_H
#define TRIREME_DEVICE_CPU_H

#include "device/bench.h"

// The variable TRIREME_CPU_ISA (amx, bf16, avx512, avx2 or base) keeps the kernels of this device,
// and with them the layouts of parameters, to what the least of several unlike machines has.
extern const tri_device_backend tri_device_cpu;

// Measures what this machine reaches with the device's threads; takes about a second.
// TRI_UNSUPPORTED without AVX2.
tri_status cpu_measure_peak(tri_device *device, tri_bench_peak *out);

#endif
