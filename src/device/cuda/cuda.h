// The device `cuda`: NVIDIA's GPUs. Its runtime is a module (runtime.h), loaded when it is opened.
#ifndef TRIREME_DEVICE_CUDA_CUDA_H
#define TRIREME_DEVICE_CUDA_CUDA_H

#include "device/device.h"

extern const tri_device_backend tri_device_cuda;

#endif
