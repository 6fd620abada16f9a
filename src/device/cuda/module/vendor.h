// The vendor's libraries cuBLASLt, cuDNN and NCCL, which are opened at run time if they are
// installed. None of them is required: without them our own kernels compute products and
// convolutions, and communication between ranks goes through the host's memory.
#ifndef TRIREME_DEVICE_CUDA_MODULE_VENDOR_H
#define TRIREME_DEVICE_CUDA_MODULE_VENDOR_H

#include "device/cuda/runtime.h"

#include <functional>
#include <string>

// Opens lib<name>.so of the newest major version. It searches where the dynamic loader does, then
// in the folders of $TRIREME_CUDA_LIBRARIES (separated by ':'), $CUDA_HOME/lib64 and
// /usr/local/cuda/lib64 (for AMD: $ROCM_PATH/lib and /opt/rocm/lib). NULL: the library was not
// found, or $TRIREME_CUDA_LIBRARIES is "none".
void *vendor_open(const char *name);
// Says in a few words why the library `name` cannot be used, although vendor_open may have opened
// it.
std::string vendor_reason(const char *name);
// Lists the libraries that cannot be used, for cuda_properties.missing.
void vendor_list_missing(char text[CUDA_WHY_BYTES]);
void *vendor_symbol(void *library, const char *name);
// vendor_stream returns the stream in the type of the vendor's libraries. vendor_device returns the
// number of the stream's device, and makes that device current for this thread, so that libraries
// use it; -1: this failed.
void *vendor_stream(cuda_stream *stream);
int vendor_device(cuda_stream *stream);
// Returns a text that identifies the kind of the stream's device, for the keys of stored choices:
// its name and number of multiprocessors.
std::string vendor_device_name(cuda_stream *stream);
// Measures how long the device takes for what `issue` issues to the stream, in seconds: issues it
// once, then VENDOR_TIMES times, and returns the mean time of these. Blocks until all is done.
// Below 0: the stream is captured, so that nothing can be measured, or a call failed.
enum { VENDOR_TIMES = 10 };
double vendor_seconds(cuda_stream *stream, const std::function<bool()> &issue);
// Returns the status for a library's failure, with the message `said`. It is TRI_IO if the device
// no longer works, else TRI_INTERNAL. The device has to be asked which, because the library's error
// does not tell.
tri_status vendor_failed(cuda_stream *stream, const char *said, char *why);
// Makes the context's device current for this thread, so that the vendor's libraries use it. False:
// that failed.
bool vendor_use(cuda_context *context);

bool vendor_has_products();
// Issues the product to the stream and sets *status. Sets *sums_bias to whether the library
// computes the gradient of the bias too; if it does not, and params->bias_grad asks for this
// gradient, the caller has to compute it. Returns false if the library is not installed, or cannot
// compute this product.
bool vendor_product(cuda_stream *stream, const cuda_product *params, bool *sums_bias,
                    tri_status *status, char *why);

bool vendor_has_dnn(); // cuDNN is installed
// What of a convolution the library has not done, so that the caller has to do it.
typedef enum vendor_left {
    VENDOR_LEFT_NOTHING,
    VENDOR_LEFT_FINISH, // apply bias and ReLU to y
    // Convert the gradient of the weight to F32, from the start of the workspace, where it lies in
    // in_type, to c.
    VENDOR_LEFT_WIDEN,
} vendor_left;
// Issues the convolution to the stream and sets *status, and sets *left to the work that the caller
// has to do afterwards. Returns false if the library is not installed, or cannot compute this
// convolution.
bool vendor_convolution(cuda_stream *stream, const cuda_convolution *params, vendor_left *left,
                        tri_status *status, char *why);
// Issues attention, or its gradient, to the stream and sets *status. Returns false if the library
// is not installed, or cannot compute this attention.
bool vendor_attention(cuda_stream *stream, const cuda_attention *params, tri_status *status,
                      char *why);
bool vendor_attention_grad(cuda_stream *stream, const cuda_attention_grad *params,
                           tri_status *status, char *why);

// The functions of cuda_runtime that need NCCL; runtime.h says what each does.
tri_status vendor_find_nccl(unsigned *abilities, char *why);
tri_status vendor_nccl_id(char *id, char *why);
tri_status vendor_open_nccl(cuda_context *context, const char *id, int rank, int size,
                            int most_blocks, cuda_nccl **out, char *why);
tri_status vendor_split_nccl(cuda_nccl *parent, int colour, int key, int most_blocks,
                             cuda_nccl **out, char *why);
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
