// The activation (none, ReLU or leaky ReLU) that kernels of linear layers and convolutions apply to
// a sum before they store it.
#ifndef TRIREME_DEVICE_CUDA_MODULE_ACTIVATE_H
#define TRIREME_DEVICE_CUDA_MODULE_ACTIVATE_H

#include "device/cuda/module/gpu.h"

// Applies a tri_activation; `slope` is the factor of negative numbers, 0 for ReLU.
template <typename W> GPU_DEVICE W gpu_activate(int activation, W slope, W x) {
    if (activation == 0 || x > 0) return x;      // activation 0 is TRI_ACTIVATION_NONE
    return slope == 0 && x <= 0 ? 0 : x * slope; // NaN fails the comparison and stays NaN
}

#endif
