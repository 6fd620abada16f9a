// A stream, and how a kernel is launched on it, in CUDA and HIP. HIP has the functions of CUDA with
// the prefix hip instead of cuda: GPU_API(name) adds the prefix of the one for which this is
// compiled.
#ifndef TRIREME_DEVICE_CUDA_MODULE_STREAM_H
#define TRIREME_DEVICE_CUDA_MODULE_STREAM_H

#include "device/cuda/runtime.h"

#include <stdio.h>

#if defined(__HIP__)
#define GPU_API(name) hip##name
typedef hipDeviceProp_t gpu_properties;
#define GPU_HOST_ALLOC hipHostMalloc
#define GPU_HOST_FREE hipHostFree
#else
#define GPU_API(name) cuda##name
typedef cudaDeviceProp gpu_properties;
#define GPU_HOST_ALLOC cudaHostAlloc
#define GPU_HOST_FREE cudaFreeHost
#endif

typedef GPU_API(Error_t) gpu_error;

struct cuda_context {
    int index; // number of the device
    cuda_properties properties;
    cuda_fault *fault;       // where kernels describe an invalid label or token
    int64_t clock_offset_ns; // host's CLOCK_MONOTONIC minus the GPU's clock
};

struct cuda_stream {
    cuda_context *context;
    GPU_API(Stream_t) handle;
};

// Turns an error of CUDA into a status; the message contains the call's name.
tri_status gpu_failed(gpu_error error, const char *call, char *why);
// Whether CUDA_LAUNCH_BLOCKING=1 is set: a launch then returns only when its kernel is done, and
// returns the kernel's failure.
bool gpu_launches_block();

// Calls a function of CUDA; if it fails, the calling function returns the status.
#define GPU_TRY(call)                                                                              \
    do {                                                                                           \
        gpu_error gpu_error_ = (call);                                                             \
        if (gpu_error_ != GPU_API(Success)) return gpu_failed(gpu_error_, #call, why);             \
    } while (0)

static inline int gpu_multiprocessors(const cuda_stream *stream) {
    return stream->context->properties.multiprocessors;
}

template <typename P>
static inline tri_status gpu_launch(cuda_stream *stream, void (*kernel)(P), int64_t blocks,
                                    int threads, P params, char *why, int shared_bytes = 0) {
    if (blocks == 0) return TRI_OK;
    GPU_TRY(GPU_API(SetDevice)(stream->context->index)); // the thread may have used another device
    if (shared_bytes > 48 * 1024) // more shared memory than this has to be requested
        GPU_TRY(GPU_API(FuncSetAttribute)(
            (const void *)kernel, GPU_API(FuncAttributeMaxDynamicSharedMemorySize), shared_bytes));
    kernel<<<(unsigned)blocks, (unsigned)threads, (unsigned)shared_bytes, stream->handle>>>(params);
    gpu_error error = GPU_API(GetLastError)();
    if (error == GPU_API(Success)) return TRI_OK;
    tri_status status = gpu_failed(error, "launch", why);
    return status == TRI_IO && gpu_launches_block() ? TRI_INTERNAL : status;
}

#endif
