// The functions of the module `cuda` (device/cuda/runtime.h) that are not kernels: devices, memory,
// streams, events and captured graphs, by the runtime of CUDA or, for AMD's GPUs, of HIP. The
// program calls them through the table at the end of this file.
#include "device/cuda/module/gpu.h"
#include "device/cuda/module/table.h"

#include <new>
#include <stdlib.h>
#if !defined(__HIP__)
#include <nvtx3/nvToolsExt.h>
#endif
#include <time.h>

struct cuda_event {
    cuda_context *context;
    GPU_API(Event_t) handle;
};

struct cuda_graph {
    cuda_context *context;
    GPU_API(GraphExec_t) handle;
};

// Whether the error ends the use of the device, so that every later call returns it too. CUDA and
// HIP have the same numbers.
static bool ends_device(int error) {
    static const int errors[] = {
        214, 220, 226, // uncorrectable errors of memory and NVLink, an error that was contained
        700, 702, 709, // an illegal address, a kernel that takes too long, a destroyed context
        710, 721,      // an assertion, a kernel that did not free its tensor memory
        714, 715, 716, // a corrupt stack, an illegal instruction, a misaligned address
        717, 718, 719, // an illegal address space, an illegal program counter, any other failure
        810, 911, 999, // a client of MPS that was ended, another device's failure, unknown
    };
    for (int one : errors)
        if (one == error) return true;
    return false;
}

tri_status gpu_failed(gpu_error error, const char *call, char *why) {
    const char *paren = strchr(call, '(');
    int name = paren ? (int)(paren - call) : (int)strlen(call);
    snprintf(why, CUDA_WHY_BYTES, "%.*s: %s (%s)", name, call, GPU_API(GetErrorString)(error),
             GPU_API(GetErrorName)(error));
    (void)GPU_API(GetLastError)(); // so that the next call does not return it again
    if (error == GPU_API(ErrorMemoryAllocation)) return TRI_NO_MEMORY;
    return ends_device((int)error) ? TRI_IO : TRI_INTERNAL;
}

bool gpu_launches_block() {
    const char *text = getenv("CUDA_LAUNCH_BLOCKING");
    return text && strcmp(text, "1") == 0;
}

namespace {

// Chooses the device for the calling thread, as CUDA demands. Every function that needs a device
// calls this first.
#define USE(context) GPU_TRY(GPU_API(SetDevice)((context)->index))

tri_status no_memory(char *why) {
    snprintf(why, CUDA_WHY_BYTES, "no memory");
    return TRI_NO_MEMORY;
}

// Asks for as many connections to the GPU as possible: CUDA has 8 by default and at most 32. If
// streams share a connection, one may have to wait for the others. This could be a deadlock: one of
// our streams may wait for work of the host that itself waits for another stream.
void ask_for_connections() { (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); }

tri_status count_devices(int *out, char *why) {
    ask_for_connections(); // has to come before the first call of CUDA
    *out = 0;
    gpu_error error = GPU_API(GetDeviceCount)(out);
    if (error == GPU_API(Success) && *out > 0) return TRI_OK;
    if (error != GPU_API(Success)) gpu_failed(error, "cudaGetDeviceCount", why);
    if (error == GPU_API(Success)) snprintf(why, CUDA_WHY_BYTES, "there is no GPU");
    return TRI_NOT_FOUND;
}

int64_t now_ns() {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// Finds the difference between the host's clock and the GPU's, which a kernel reads. The kernel is
// assumed to read it in the middle of the time for which the host waits for the kernel. The
// shortest of a few waits gives the most exact result.
tri_status compare_clocks(cuda_context *context, char *why) {
    enum { TURNS = 8 };
    cuda_stream stream = {context, 0};
    int64_t *ns, best = INT64_MAX;
    GPU_TRY(GPU_HOST_ALLOC((void **)&ns, sizeof *ns, 0));
    tri_status status = TRI_OK;
    for (int i = 0; i < TURNS && status == TRI_OK; i++) {
        cuda_clock params = {ns, 0};
        int64_t before = now_ns();
        status = cuda_launch_clock(&stream, &params, why);
        gpu_error error = GPU_API(StreamSynchronize)(0);
        int64_t after = now_ns();
        if (status == TRI_OK && error != GPU_API(Success))
            status = gpu_failed(error, "cudaStreamSynchronize", why);
        if (status != TRI_OK || after - before >= best) continue;
        best = after - before;
        context->clock_offset_ns = before + (after - before) / 2 - *ns;
    }
    (void)GPU_HOST_FREE(ns);
    return status;
}

tri_status set_up(cuda_context *context, char *why) {
    cuda_properties *p = &context->properties;
    gpu_properties found;
    USE(context);
    GPU_TRY(GPU_API(GetDeviceProperties)(&found, context->index));
    snprintf(p->name, sizeof p->name, "%s", found.name);
    p->major = found.major;
    p->minor = found.minor;
#if !defined(__HIP__) // our kernels do not use AMD's matrix cores yet
    p->has_bf16 = found.major >= 8;
#endif
    p->multiprocessors = found.multiProcessorCount;
    p->memory_bytes = (int64_t)found.totalGlobalMem;
    p->has_products = vendor_has_products();
    p->has_dnn = vendor_has_dnn();
    vendor_list_missing(p->missing);
    GPU_TRY(GPU_HOST_ALLOC((void **)&context->fault, sizeof *context->fault, 0));
    *context->fault = cuda_fault{};
    return compare_clocks(context, why);
}

void close_device(cuda_context *context) {
    if (!context) return;
    if (context->fault) (void)GPU_HOST_FREE(context->fault);
    delete context;
}

tri_status open_device(int index, cuda_properties *properties, cuda_context **out, char *why) {
    *out = nullptr;
    cuda_context *context = new (std::nothrow) cuda_context{};
    if (!context) return no_memory(why);
    context->index = index;
    tri_status status = set_up(context, why);
    if (status != TRI_OK) {
        close_device(context);
        return status;
    }
    *properties = context->properties;
    *out = context;
    return TRI_OK;
}

cuda_fault *fault_of(cuda_context *context) { return context->fault; }
int64_t clock_offset(cuda_context *context) { return context->clock_offset_ns; }

tri_status alloc_memory(cuda_context *context, size_t size_bytes, void **out, char *why) {
    *out = nullptr;
    USE(context);
    GPU_TRY(GPU_API(Malloc)(out, size_bytes ? size_bytes : 1));
    return TRI_OK;
}

void free_memory(cuda_context *context, void *memory) {
    if (GPU_API(SetDevice)(context->index) == GPU_API(Success)) (void)GPU_API(Free)(memory);
}

tri_status alloc_host(cuda_context *context, size_t size_bytes, void **out, char *why) {
    *out = nullptr;
    USE(context);
    GPU_TRY(GPU_HOST_ALLOC(out, size_bytes ? size_bytes : 1, 0));
    return TRI_OK;
}

void free_host(cuda_context *context, void *memory) {
    if (GPU_API(SetDevice)(context->index) == GPU_API(Success)) (void)GPU_HOST_FREE(memory);
}

int64_t memory_left(cuda_context *context) {
    size_t left = 0, all = 0;
    if (GPU_API(SetDevice)(context->index) != GPU_API(Success)) return 0;
    return GPU_API(MemGetInfo)(&left, &all) == GPU_API(Success) ? (int64_t)left : 0;
}

// Begins a named range for a profiler, or ends the latest one (NULL). NVTX consists of headers
// only: its calls do nothing unless a profiler is attached, because only a profiler loads a library
// behind them.
void mark(const char *name) {
#if !defined(__HIP__)
    if (name)
        nvtxRangePushA(name);
    else
        nvtxRangePop();
#endif
}

tri_status open_stream(cuda_context *context, bool has_priority, cuda_stream **out, char *why) {
    *out = nullptr;
    USE(context);
    GPU_API(Stream_t) handle;
    int least = 0, greatest = 0; // the smaller the number, the greater the priority
    GPU_TRY(GPU_API(DeviceGetStreamPriorityRange)(&least, &greatest));
    GPU_TRY(GPU_API(StreamCreateWithPriority)(&handle, GPU_API(StreamNonBlocking),
                                              has_priority ? greatest : 0));
    *out = new (std::nothrow) cuda_stream{context, handle};
    if (*out) return TRI_OK;
    (void)GPU_API(StreamDestroy)(handle);
    return no_memory(why);
}

void close_stream(cuda_stream *stream) {
    if (!stream) return;
    if (GPU_API(SetDevice)(stream->context->index) == GPU_API(Success)) {
        (void)GPU_API(StreamSynchronize)(stream->handle);
        (void)GPU_API(StreamDestroy)(stream->handle);
    }
    delete stream;
}

tri_status copy(cuda_stream *stream, void *to, const void *from, size_t size_bytes, char *why) {
    USE(stream->context);
#if defined(__HIP__)
    GPU_TRY(hipMemcpyAsync(to, from, size_bytes, hipMemcpyDefault, stream->handle));
#else
    GPU_TRY(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, stream->handle));
#endif
    return TRI_OK;
}

tri_status zero(cuda_stream *stream, void *memory, size_t size_bytes, char *why) {
    USE(stream->context);
    GPU_TRY(GPU_API(MemsetAsync)(memory, 0, size_bytes, stream->handle));
    return TRI_OK;
}

// Lets a stream wait until the host has raised *word to at least `value`, where the driver has no
// function for this (find_wait): one thread reads the word, 4 bytes of the host's memory, again and
// again. It writes nothing.
GPU_KERNEL wait_for_value(const volatile uint32_t *word, uint32_t value) {
    while ((int32_t)(*word - value) < 0) {
    }
}

#if !defined(__HIP__)
// The type of the driver's function cuStreamWaitValue32. The runtime library does not have it, so
// it is looked up.
typedef int (*wait_function)(cudaStream_t, unsigned long long, uint32_t, unsigned);

wait_function find_wait() {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &found, 12000, cudaEnableDefault,
                                         &result) != cudaSuccess ||
        result != cudaDriverEntryPointSuccess)
        return nullptr;
    return (wait_function)found;
}
#endif

tri_status wait_value(cuda_stream *stream, uint32_t *word, uint32_t value, char *why) {
    USE(stream->context);
#if defined(__HIP__)
    GPU_TRY(hipStreamWaitValue32(stream->handle, word, value, hipStreamWaitValueGte, 0xffffffff));
#else
    static const wait_function driver_wait = find_wait();
    if (driver_wait &&
        driver_wait(stream->handle, (unsigned long long)(uintptr_t)word, value, 0) == 0)
        return TRI_OK;
    wait_for_value<<<1, 1, 0, stream->handle>>>(word, value);
    GPU_TRY(cudaGetLastError());
#endif
    return TRI_OK;
}

tri_status open_event(cuda_context *context, cuda_event **out, char *why) {
    *out = nullptr;
    USE(context);
    GPU_API(Event_t) handle;
#if defined(__HIP__)
    GPU_TRY(hipEventCreateWithFlags(&handle, hipEventDisableTiming));
#else
    GPU_TRY(cudaEventCreateWithFlags(&handle, cudaEventDisableTiming));
#endif
    *out = new (std::nothrow) cuda_event{context, handle};
    if (*out) return TRI_OK;
    (void)GPU_API(EventDestroy)(handle);
    return no_memory(why);
}

void close_event(cuda_event *event) {
    if (!event) return;
    if (GPU_API(SetDevice)(event->context->index) == GPU_API(Success))
        (void)GPU_API(EventDestroy)(event->handle);
    delete event;
}

tri_status record(cuda_stream *stream, cuda_event *event, char *why) {
    USE(stream->context);
    GPU_TRY(GPU_API(EventRecord)(event->handle, stream->handle));
    return TRI_OK;
}

tri_status wait(cuda_stream *stream, cuda_event *event, char *why) {
    USE(stream->context);
    GPU_TRY(GPU_API(StreamWaitEvent)(stream->handle, event->handle, 0));
    return TRI_OK;
}

tri_status finish(cuda_event *event, char *why) {
    USE(event->context);
    GPU_TRY(GPU_API(EventSynchronize)(event->handle));
    return TRI_OK;
}

cuda_event_state query(cuda_event *event) {
    if (GPU_API(SetDevice)(event->context->index) != GPU_API(Success)) return CUDA_EVENT_FAILED;
    gpu_error error = GPU_API(EventQuery)(event->handle);
    if (error == GPU_API(Success)) return CUDA_EVENT_DONE;
    return error == GPU_API(ErrorNotReady) ? CUDA_EVENT_PENDING : CUDA_EVENT_FAILED;
}

tri_status begin_capture(cuda_stream *stream, char *why) {
    USE(stream->context);
#if defined(__HIP__)
    GPU_TRY(hipStreamBeginCapture(stream->handle, hipStreamCaptureModeThreadLocal));
#else
    GPU_TRY(cudaStreamBeginCapture(stream->handle, cudaStreamCaptureModeThreadLocal));
#endif
    return TRI_OK;
}

tri_status end_capture(cuda_stream *stream, cuda_graph **out, char *why) {
    *out = nullptr;
    USE(stream->context);
    GPU_API(Graph_t) graph;
    GPU_API(GraphExec_t) ready;
    GPU_TRY(GPU_API(StreamEndCapture)(stream->handle, &graph));
#if defined(__HIP__)
    gpu_error error = hipGraphInstantiate(&ready, graph, nullptr, nullptr, 0);
#else
    gpu_error error = cudaGraphInstantiate(&ready, graph, 0);
#endif
    (void)GPU_API(GraphDestroy)(graph);
    if (error != GPU_API(Success)) return gpu_failed(error, "cudaGraphInstantiate", why);
    *out = new (std::nothrow) cuda_graph{stream->context, ready};
    if (*out) return TRI_OK;
    (void)GPU_API(GraphExecDestroy)(ready);
    return no_memory(why);
}

tri_status repeat(cuda_stream *stream, cuda_graph *graph, char *why) {
    USE(stream->context);
    GPU_TRY(GPU_API(GraphLaunch)(graph->handle, stream->handle));
    return TRI_OK;
}

void close_graph(cuda_graph *graph) {
    if (!graph) return;
    if (GPU_API(SetDevice)(graph->context->index) == GPU_API(Success))
        (void)GPU_API(GraphExecDestroy)(graph->handle);
    delete graph;
}

} // namespace

#if !defined(__HIP_DEVICE_COMPILE__) // else HIP would put this constant table on the device too
extern "C" const cuda_runtime cuda_runtime_table = CUDA_RUNTIME_TABLE;
#endif
