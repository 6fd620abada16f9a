// A module (shared object) `hip` of an older build; unit/test_cuda_load checks that it is not used.
#include "base/module.h"
#include "device/cuda/runtime.h"

TRI_MODULE(CUDA_RUNTIME_INTERFACE, CUDA_RUNTIME_ABI - 1, "hip", "a table");
