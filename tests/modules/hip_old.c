// A module `hip` of an older build, for unit/test_cuda_load.
#include "base/module.h"
#include "device/cuda/runtime.h"

TRI_MODULE(CUDA_RUNTIME_INTERFACE, CUDA_RUNTIME_ABI - 1, "hip", "a table");
