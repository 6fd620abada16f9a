// The device `cuda`: GPUs of NVIDIA, and of AMD. All code that needs the GPU's toolkit is in a
// shared object, the module (runtime.h), which is loaded when a GPU of this host is used.
#ifndef TRIREME_DEVICE_CUDA_CUDA_H
#define TRIREME_DEVICE_CUDA_CUDA_H

#include "device/device.h"

extern const tri_device_backend tri_device_cuda;

#endif
