// oneDNN and own fused kernels on blocked layouts, threads by OpenMP.
#ifndef TRIREME_DEVICE_CPU_H
#define TRIREME_DEVICE_CPU_H

#include "device/device.h"

extern const tri_device_backend tri_device_cpu;

#endif
