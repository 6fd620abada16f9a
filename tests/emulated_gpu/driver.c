// A double of CUDA's driver without a GPU, so that cuDNN compiles kernels at run time. It does so
// for attention, once it has found a driver with these functions. The double loads what cuDNN has
// compiled by returning a handle for it, and nothing is ever launched.
#define VISIBLE __attribute__((visibility("default")))

enum { SUCCESS = 0, NO_DEVICE = 100 }; // CUDA_SUCCESS, CUDA_ERROR_NO_DEVICE

VISIBLE int cuInit(unsigned flags);
VISIBLE int cuInit(unsigned flags) {
    (void)flags;
    return NO_DEVICE;
}

// Both write a handle that is not NULL, and ignore the further arguments.
VISIBLE int cuLibraryLoadData(void **library);
VISIBLE int cuLibraryLoadData(void **library) {
    *library = library;
    return SUCCESS;
}

VISIBLE int cuLibraryGetKernel(void **kernel);
VISIBLE int cuLibraryGetKernel(void **kernel) {
    *kernel = kernel;
    return SUCCESS;
}

// The functions that have to be there.
#define FUNCTIONS(X)                                                                               \
    X(cuCtxGetCurrent)                                                                             \
    X(cuCtxGetLimit)                                                                               \
    X(cuCtxPopCurrent)                                                                             \
    X(cuCtxPushCurrent)                                                                            \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetCount)                                                                            \
    X(cuDriverGetVersion)                                                                          \
    X(cuGetErrorName)                                                                              \
    X(cuGetErrorString)                                                                            \
    X(cuKernelGetAttribute)                                                                        \
    X(cuKernelSetAttribute)                                                                        \
    X(cuLaunchCooperativeKernel)                                                                   \
    X(cuLaunchKernel)                                                                              \
    X(cuLaunchKernelEx)                                                                            \
    X(cuLibraryLoadFromFile)                                                                       \
    X(cuLibraryUnload)                                                                             \
    X(cuLinkAddData)                                                                               \
    X(cuLinkComplete)                                                                              \
    X(cuLinkCreate)                                                                                \
    X(cuLinkDestroy)                                                                               \
    X(cuOccupancyMaxPotentialClusterSize)                                                          \
    X(cuStreamGetCtx)
#define X(name)                                                                                    \
    VISIBLE int name(void);                                                                        \
    VISIBLE int name(void) { return SUCCESS; }
FUNCTIONS(X)
