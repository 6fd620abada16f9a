// The table through which the program finds all functions of the module `cuda`.
#include "base/module.h"
#include "device/cuda/runtime.h"

extern const cuda_runtime cuda_runtime_table;

TRI_MODULE(CUDA_RUNTIME_INTERFACE, CUDA_RUNTIME_ABI, "cuda", &cuda_runtime_table);
