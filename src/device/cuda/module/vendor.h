// The vendor's libraries, which are opened at run time where they are installed: cuBLASLt, cuDNN
// and NCCL.
// No library is needed: without them our own kernels compute products and convolutions, and data of
// several ranks go through the memory of the host.
#ifndef TRIREME_DEVICE_CUDA_MODULE_VENDOR_H
#define TRIREME_DEVICE_CUDA_MODULE_VENDOR_H

#include "device/cuda/runtime.h"

// Opens lib<name>.so of the newest major version that is found: where the dynamic loader looks,
// then in the folders of $TRIREME_CUDA_LIBRARIES (separated by ':'), $CUDA_HOME/lib64 and
// /usr/local/cuda/lib64. NULL: none.
void *vendor_open(const char *name);
void *vendor_symbol(void *library, const char *name);
// The stream as the vendor's libraries take it, and the number of its device, which becomes the one
// that libraries use in this thread. -1: it does not work.
void *vendor_stream(cuda_stream *stream);
int vendor_device(cuda_stream *stream);
// What a library's failure means, of which `said` tells: it is the library's own (TRI_INTERNAL)
// unless the device does not work any more (TRI_IO), since a library says only that a call failed.
tri_status vendor_failed(cuda_stream *stream, const char *said, char *why);
// Makes the context's device the one that libraries use in this thread. False: it failed.
bool vendor_use(cuda_context *context);

bool vendor_has_products();
// Issues the product to the stream and sets *status. False: the library is not there or cannot
// compute this one.
bool vendor_product(cuda_stream *stream, const cuda_product *params, tri_status *status, char *why);

bool vendor_has_convolutions();
// What the library has left to do of a convolution.
typedef enum vendor_left {
    VENDOR_LEFT_NOTHING,
    VENDOR_LEFT_FINISH, // bias and activation are still to be applied to y
    VENDOR_LEFT_WIDEN,  // the gradient of the weight lies at the start of the workspace, in in_type
} vendor_left;
// Likewise a convolution; also sets *left.
bool vendor_convolution(cuda_stream *stream, const cuda_convolution *params, vendor_left *left,
                        tri_status *status, char *why);

// The functions of cuda_runtime that need NCCL.
tri_status vendor_find_nccl(unsigned *abilities, char *why);
tri_status vendor_nccl_id(char *id, char *why);
tri_status vendor_open_nccl(cuda_context *context, const char *id, int rank, int size,
                            cuda_nccl **out, char *why);
tri_status vendor_split_nccl(cuda_nccl *parent, int colour, int key, cuda_nccl **out, char *why);
tri_status vendor_alloc_nccl(cuda_context *context, size_t size_bytes, void **out, char *why);
void vendor_free_nccl(cuda_context *context, void *memory);
tri_status vendor_register_nccl(cuda_nccl *nccl, void *memory, size_t size_bytes, void **handle,
                                char *why);
void vendor_deregister_nccl(cuda_nccl *nccl, void *handle);
cuda_event_state vendor_nccl_state(cuda_nccl *nccl, char *why);
tri_status vendor_issue_nccl(cuda_nccl *nccl, cuda_stream *stream, const cuda_transfer *calls,
                             int count, char *why);
void vendor_close_nccl(cuda_nccl *nccl, bool aborts);

#endif
