// The functions of the module `cuda`, which has all code that needs the CUDA toolkit. The rest of
// the backend (cuda.c and the files beside it) is part of the program, so that a run can be planned
// for a GPU on a host that has neither a GPU nor CUDA. A second module with the same functions
// emulates a GPU on the host, for tests.
//
// Functions that fail write the reason, one line, to why[CUDA_WHY_BYTES]. TRI_IO: the device no
// longer works, for example because an earlier kernel failed; all later calls fail too. Other codes
// concern this call alone. The module calls no function of the program.
#ifndef TRIREME_DEVICE_CUDA_RUNTIME_H
#define TRIREME_DEVICE_CUDA_RUNTIME_H

#include "device/cuda/params.h"

#include <stddef.h>
#include <trireme/status.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CUDA_RUNTIME_ABI = 17, // has to be raised with every change of this header or of params.h
    CUDA_WHY_BYTES = 512,
    CUDA_NCCL_ID_BYTES = 128,
};
#define CUDA_RUNTIME_INTERFACE "cuda-runtime"

typedef struct cuda_context cuda_context; // an open device
typedef struct cuda_stream cuda_stream;
typedef struct cuda_event cuda_event;
typedef struct cuda_graph cuda_graph; // captured work
typedef struct cuda_nccl cuda_nccl;   // one rank of a communicator of NCCL

typedef struct cuda_properties {
    char name[128];
    int major, minor; // compute capability
    // Kernels and libraries use tensor cores that take BF16 and TF32 (NVIDIA's from compute
    // capability 8.0 on).
    bool has_bf16;
    int multiprocessors;
    int64_t memory_bytes;
    bool has_products; // cuBLASLt was found
    bool has_dnn;      // cuDNN was found
    // Which of these libraries cannot be used, and why, such as "cuDNN (libcudnn.so was not
    // found)"; "": all can, or the module would not use them.
    char missing[CUDA_WHY_BYTES];
} cuda_properties;

// A fault is an invalid label, token or index in a kernel's input. A kernel cannot return an error,
// so the first kernel that finds a fault describes it in the cuda_fault below, `kind` last. The
// cuda_fault lies in pinned memory of the host.
typedef enum cuda_fault_kind {
    CUDA_NO_FAULT,
    CUDA_FAULT_LABEL,
    CUDA_FAULT_TOKEN,
    CUDA_FAULT_INDEX,     // of an axis
    CUDA_FAULT_TAKEN = -1 // a kernel is filling in the cuda_fault just now
} cuda_fault_kind;

typedef struct cuda_fault {
    int32_t kind; // cuda_fault_kind
    // The label, token or index; its position in the micro-batch; valid ones are 0 to limit - 1.
    int64_t value, index, limit;
} cuda_fault;

typedef enum cuda_event_state {
    CUDA_EVENT_PENDING,
    CUDA_EVENT_DONE,
    CUDA_EVENT_FAILED
} cuda_event_state;

// Bits: what the installed version of NCCL can do beyond the functions that every version has:
// split a communicator, and register memory with one.
enum { CUDA_NCCL_SPLITS = 1, CUDA_NCCL_REGISTERS = 2 };

typedef struct cuda_runtime {
    // Counts the devices. TRI_NOT_FOUND: there is none, or no driver.
    tri_status (*count)(int *out, char *why);
    tri_status (*open)(int index, cuda_properties *properties, cuda_context **out, char *why);
    void (*close)(cuda_context *context);
    cuda_fault *(*fault)(cuda_context *context); // where the device's kernels describe a fault
    // What to add to the device's clock to get the host's CLOCK_MONOTONIC, in ns, so that a trace
    // has the times of both on one clock.
    int64_t (*clock_offset_ns)(cuda_context *context);

    // alloc allocates memory of the device; alloc_host allocates pinned memory of the host, which
    // the device can reach at the same address. Neither is zeroed. TRI_NO_MEMORY: too little is
    // free.
    tri_status (*alloc)(cuda_context *context, size_t size_bytes, void **out, char *why);
    void (*free)(cuda_context *context, void *memory);
    tri_status (*alloc_host)(cuda_context *context, size_t size_bytes, void **out, char *why);
    void (*free_host)(cuda_context *context, void *memory);
    int64_t (*free_memory)(cuda_context *context);

    // Begins a named range for a profiler (NVTX): the profiler shows what this thread calls until
    // mark(NULL) under this name.
    void (*mark)(const char *name);

    // Streams. Work is done in the order in which it was issued to a stream. `has_priority`: thread
    // blocks of this stream's kernels start before those of other streams that also wait for a
    // multiprocessor.
    tri_status (*open_stream)(cuda_context *context, bool has_priority, cuda_stream **out,
                              char *why);
    void (*close_stream)(cuda_stream *stream);
    // Copies between any two of: memory of `alloc`, memory of `alloc_host`, other memory of the
    // host.
    tri_status (*copy)(cuda_stream *stream, void *to, const void *from, size_t size_bytes,
                       char *why);
    tri_status (*zero)(cuda_stream *stream, void *memory, size_t size_bytes, char *why);
    // Makes the stream wait until *word, which lies in pinned host memory, is at least `value` (mod
    // 2^32). The host lets the stream go on by raising the word.
    tri_status (*wait_value)(cuda_stream *stream, uint32_t *word, uint32_t value, char *why);

    tri_status (*open_event)(cuda_context *context, cuda_event **out, char *why);
    void (*close_event)(cuda_event *event);
    tri_status (*record)(cuda_stream *stream, cuda_event *event, char *why);
    tri_status (*wait)(cuda_stream *stream, cuda_event *event, char *why);
    // Blocks until the work before the event is done; fails if that work failed.
    tri_status (*finish)(cuda_event *event, char *why);
    cuda_event_state (*query)(cuda_event *event);

    // Work that is issued to the stream between begin and end is not done but captured, so that
    // `repeat` can issue all of it at once.
    tri_status (*begin_capture)(cuda_stream *stream, char *why);
    tri_status (*end_capture)(cuda_stream *stream, cuda_graph **out, char *why);
    tri_status (*repeat)(cuda_stream *stream, cuda_graph *graph, char *why);
    void (*close_graph)(cuda_graph *graph);

    // NCCL. find_nccl sets *abilities to bits as above (CUDA_NCCL_SPLITS, …). TRI_NOT_FOUND: NCCL
    // cannot be used, and `why` says what is missing. Opening a communicator and issuing a group of
    // calls return before they are complete. While nccl_state is CUDA_EVENT_PENDING, the caller may
    // neither use the communicator nor issue other work to the stream to which its calls were
    // issued. CUDA_EVENT_FAILED: the communicator can only be closed.
    tri_status (*find_nccl)(unsigned *abilities, char *why);
    // Makes the id of a new communicator.
    tri_status (*nccl_id)(char id[CUDA_NCCL_ID_BYTES], char *why);
    // most_blocks: how many thread blocks, each with buffers of its own, a call of the communicator
    // may use; 0: NCCL decides. NCCL before 2.17 always decides.
    tri_status (*open_nccl)(cuda_context *context, const char id[CUDA_NCCL_ID_BYTES], int rank,
                            int size, int most_blocks, cuda_nccl **out, char *why);
    // Needs CUDA_NCCL_SPLITS. All ranks of `parent` have to call it. Opens a communicator of the
    // ranks that give the same colour, ordered by key; most_blocks as for open_nccl. With a colour
    // below 0 this rank joins none: *out has no ranks and can only be closed. Until the split is
    // complete, nccl_state of `parent` is CUDA_EVENT_PENDING. Only after that does nccl_state of
    // *out tell whether *out may be used.
    tri_status (*split_nccl)(cuda_nccl *parent, int colour, int key, int most_blocks,
                             cuda_nccl **out, char *why);
    // Needs CUDA_NCCL_REGISTERS. alloc_nccl allocates memory of the device. NCCL is fastest on such
    // memory once it is registered with the communicator that uses it. Memory has to be
    // deregistered before it is freed or the communicator is closed.
    tri_status (*alloc_nccl)(cuda_context *context, size_t size_bytes, void **out, char *why);
    void (*free_nccl)(cuda_context *context, void *memory);
    tri_status (*register_nccl)(cuda_nccl *nccl, void *memory, size_t size_bytes, void **handle,
                                char *why);
    void (*deregister_nccl)(cuda_nccl *nccl, void *handle);
    cuda_event_state (*nccl_state)(cuda_nccl *nccl, char *why);
    tri_status (*issue_nccl)(cuda_nccl *nccl, cuda_stream *stream, const cuda_transfer *calls,
                             int count, char *why);
    // With `aborts`, calls that are under way end at once and are not completed.
    void (*close_nccl)(cuda_nccl *nccl, bool aborts);

#define X(name) tri_status (*name)(cuda_stream * stream, const cuda_##name *params, char *why);
    CUDA_KERNEL_LIST(X)
#undef X
} cuda_runtime;

#ifdef __cplusplus
}
#endif

#endif
