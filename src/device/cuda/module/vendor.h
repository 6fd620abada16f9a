// The vendor's libraries, which are opened at run time where they are installed: cuBLASLt. No
// library is needed: each has a kernel of ours that does the same, more slowly.
#ifndef TRIREME_DEVICE_CUDA_MODULE_VENDOR_H
#define TRIREME_DEVICE_CUDA_MODULE_VENDOR_H

#include "device/cuda/runtime.h"

// Opens lib<name>.so of the newest major version that is found: where the dynamic loader looks,
// then in the folders of $TRIREME_CUDA_LIBRARIES (separated by ':'), $CUDA_HOME/lib64 and
// /usr/local/cuda/lib64. NULL: none.
void *vendor_open(const char *name);
void *vendor_symbol(void *library, const char *name);
// The stream as the vendor's libraries take it, and the number of its device.
void *vendor_stream(cuda_stream *stream);
int vendor_device(const cuda_stream *stream);

bool vendor_has_products();
// Issues the product to the stream and sets *status. False: the library is not there or cannot
// compute this one.
bool vendor_product(cuda_stream *stream, const cuda_product *params, tri_status *status, char *why);

#endif
