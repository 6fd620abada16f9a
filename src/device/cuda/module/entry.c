// The table through which the program finds all functions of the module: `cuda` or, compiled for
// AMD's GPUs by scripts/hip, `hip`.
#include "base/module.h"
#include "device/cuda/runtime.h"

extern const cuda_runtime cuda_runtime_table;

#if !defined(CUDA_MODULE_NAME)
#define CUDA_MODULE_NAME "cuda"
#endif
TRI_MODULE(CUDA_RUNTIME_INTERFACE, CUDA_RUNTIME_ABI, CUDA_MODULE_NAME, &cuda_runtime_table);
