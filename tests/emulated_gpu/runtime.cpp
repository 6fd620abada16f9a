// The functions of the module `cuda` (device/cuda/runtime.h) for a GPU that tests emulate; they
// stand in for those of module/runtime.cu. A stream is a thread of the host that does a list of
// work, so that work really goes on after a call has returned. The memory of the device is memory
// of the host.
#include "device/cuda/runtime.h"

#include "device/cuda/module/table.h"
#include "emulated_gpu/emulation.h"
#include "emulated_gpu/fibers.h"

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

namespace {

// CLOCK_ERROR_NS: the host's clock minus the emulated GPU's, so that tests notice code that takes
// one for the other.
enum { DEVICES = 8, ALIGNMENT = 256, POISON = 0xff, CLOCK_ERROR_NS = 123456789 };
const int64_t memory_bytes = (int64_t)4 << 30;

// The point in a stream's work for which an event stands.
struct moment {
    std::mutex lock;
    std::condition_variable changed;
    bool done = false;
};

typedef std::function<void()> work;

} // namespace

struct cuda_context {
    cuda_fault fault;
    std::atomic<bool> failed; // a kernel trapped
    std::mutex memory_lock;
    // The device's memory, and pinned memory of the host: by address of an allocation, its bytes.
    std::map<uintptr_t, size_t> device, pinned;
    std::mutex lock; // protects `streams`
    std::set<cuda_stream *> streams;
};

struct cuda_graph {
    std::vector<work> items; // the captured work, in order
};

struct cuda_stream {
    cuda_context *context;
    std::mutex lock;
    std::condition_variable changed, idle;
    std::deque<work> items;
    bool busy = false, ends = false;
    std::unique_ptr<cuda_graph> captured; // the work captured so far; NULL: nothing is captured
    bool invalid = false;                 // a call was refused, so the capture gives no graph
    std::thread thread;
};

// An event. Each time it is recorded, `at` becomes a new object, because threads may still wait for
// the previous recording.
struct cuda_event {
    cuda_context *context;
    std::mutex lock;
    std::shared_ptr<moment> at;

    std::shared_ptr<moment> now() {
        std::lock_guard<std::mutex> guard(lock);
        return at;
    }
};

namespace {

void work_off(cuda_stream *stream) {
    for (;;) {
        std::unique_lock<std::mutex> guard(stream->lock);
        stream->changed.wait(guard, [=] { return stream->ends || !stream->items.empty(); });
        if (stream->items.empty()) return;
        work next = std::move(stream->items.front());
        stream->items.pop_front();
        stream->busy = true;
        guard.unlock();
        next();
        guard.lock();
        stream->busy = false;
        stream->idle.notify_all();
    }
}

std::atomic<int64_t> issued;         // how many calls gave a stream work
std::atomic<int64_t> blocked;        // for how many copies the caller waited
thread_local cuda_stream *capturing; // the stream that this thread captures

void add(cuda_stream *stream, work item) {
    std::lock_guard<std::mutex> guard(stream->lock);
    if (stream->captured) {
        stream->captured->items.push_back(std::move(item));
        return;
    }
    stream->items.push_back(std::move(item));
    stream->changed.notify_one();
}

std::atomic<int> host_waits; // how many wait_value calls were issued and are not done
std::mutex loading;          // held while a kernel is loaded, so that no other call goes on

// Loads the kernel at its first launch. With CUDA, this may wait until the GPU does nothing else;
// here it waits until no stream waits for the host. So if the host lets a stream go on only after
// such a launch, a test hangs, as a run on a GPU may.
void load(const std::vector<int64_t> &kernel) {
    static std::set<std::vector<int64_t>> loaded;
    std::lock_guard<std::mutex> guard(loading);
    if (!loaded.insert(kernel).second) return;
    while (host_waits > 0) usleep(20);
}

// Gives the stream work. As with CUDA's driver, at most MOST_WAITING calls, of all streams
// together, may be issued and not done; then all callers block.
void push(cuda_stream *stream, work item) {
    enum { MOST_WAITING = 1024 };
    static std::atomic<int> waiting;
    issued++;
    if (capturing) {
        add(stream, std::move(item));
        return;
    }
    loading.lock();
    loading.unlock();
    while (waiting >= MOST_WAITING) usleep(20);
    waiting++;
    add(stream, [=] {
        item();
        waiting--;
    });
}

// Fails if the calling thread captures: CUDA then refuses calls of this thread that could not be
// repeated or would wait. After such a call the capture gives no graph.
tri_status check_capture(char *why) {
    if (!capturing) return TRI_OK;
    capturing->invalid = true;
    snprintf(why, CUDA_WHY_BYTES, "operation not permitted when stream is capturing");
    return TRI_INTERNAL;
}

// Fails if a kernel of the device has failed, as every call of CUDA does then.
tri_status check_device(const cuda_context *context, char *why) {
    if (!context->failed) return TRI_OK;
    snprintf(why, CUDA_WHY_BYTES, "unspecified launch failure");
    return TRI_IO;
}
#define IF_IT_WORKS(context, why)                                                                  \
    do {                                                                                           \
        if (check_device(context, why) != TRI_OK) return TRI_IO;                                   \
    } while (0)
#define NOT_WHILE_CAPTURING(why)                                                                   \
    do {                                                                                           \
        if (check_capture(why) != TRI_OK) return TRI_INTERNAL;                                     \
    } while (0)

tri_status count_devices(int *out, char *) {
    *out = DEVICES;
    return TRI_OK;
}

tri_status open_device(int, cuda_properties *properties, cuda_context **out, char *) {
    *properties = cuda_properties{};
    snprintf(properties->name, sizeof properties->name, "emulated GPU");
    properties->major = 8;
    properties->has_bf16 = true;
    properties->multiprocessors = gpu_multiprocessors(nullptr);
    properties->memory_bytes = memory_bytes;
    properties->has_products = vendor_has_products();
    properties->has_dnn = vendor_has_dnn();
    vendor_list_missing(properties->missing);
    *out = new cuda_context{};
    return TRI_OK;
}

void close_device(cuda_context *context) { delete context; }
cuda_fault *fault_of(cuda_context *context) { return &context->fault; }
int64_t clock_offset(cuda_context *) { return CLOCK_ERROR_NS; }

typedef std::map<uintptr_t, size_t> ranges;

tri_status allocate(cuda_context *context, ranges *kind, size_t size_bytes, void **out, char *why) {
    *out = nullptr;
    NOT_WHILE_CAPTURING(why);
    IF_IT_WORKS(context, why);
    *out = size_bytes > (size_t)memory_bytes
               ? nullptr
               : aligned_alloc(ALIGNMENT, (size_bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
    if (*out) {
        memset(*out, POISON, size_bytes);
        std::lock_guard<std::mutex> guard(context->memory_lock);
        (*kind)[(uintptr_t)*out] = size_bytes;
        return TRI_OK;
    }
    snprintf(why, CUDA_WHY_BYTES, "cudaMalloc: out of memory");
    return TRI_NO_MEMORY;
}

tri_status alloc_memory(cuda_context *context, size_t size_bytes, void **out, char *why) {
    return allocate(context, &context->device, size_bytes, out, why);
}

tri_status alloc_host(cuda_context *context, size_t size_bytes, void **out, char *why) {
    return allocate(context, &context->pinned, size_bytes, out, why);
}

bool lies_in(cuda_context *context, const ranges &kind, const void *memory) {
    std::lock_guard<std::mutex> guard(context->memory_lock);
    auto next = kind.upper_bound((uintptr_t)memory);
    if (next == kind.begin()) return false;
    --next;
    return (uintptr_t)memory < next->first + next->second;
}

void wait_until_idle(cuda_stream *stream) {
    std::unique_lock<std::mutex> guard(stream->lock);
    stream->idle.wait(guard, [=] { return stream->items.empty() && !stream->busy; });
}

// Waits for all work of the device, as cudaFree does.
void free_memory(cuda_context *context, void *memory) {
    char why[CUDA_WHY_BYTES];
    if (check_capture(why) != TRI_OK) return;
    std::lock_guard<std::mutex> streams(context->lock);
    for (cuda_stream *stream : context->streams) wait_until_idle(stream);
    {
        std::lock_guard<std::mutex> guard(context->memory_lock);
        context->device.erase((uintptr_t)memory);
        context->pinned.erase((uintptr_t)memory);
    }
    free(memory);
}

void free_host(cuda_context *context, void *memory) { free_memory(context, memory); }

std::atomic<int64_t> marks;  // how many ranges of a profiler were begun
std::atomic<int> marks_open; // how many of these ranges have not ended

void mark(const char *name) {
    marks += name != nullptr;
    marks_open += name ? 1 : -1;
}

int64_t memory_left(cuda_context *) { return memory_bytes; }

std::atomic<int64_t> priority_streams; // how many streams were opened with has_priority

tri_status open_stream(cuda_context *context, bool has_priority, cuda_stream **out, char *why) {
    *out = nullptr;
    IF_IT_WORKS(context, why);
    priority_streams += has_priority;
    *out = new cuda_stream;
    (*out)->context = context;
    {
        std::lock_guard<std::mutex> guard(context->lock);
        context->streams.insert(*out);
    }
    (*out)->thread = std::thread(work_off, *out);
    return TRI_OK;
}

void close_stream(cuda_stream *stream) {
    if (!stream) return;
    {
        std::lock_guard<std::mutex> guard(stream->lock);
        stream->ends = true;
        stream->changed.notify_one();
    }
    stream->thread.join();
    {
        std::lock_guard<std::mutex> guard(stream->context->lock);
        stream->context->streams.erase(stream);
    }
    delete stream;
}

// Issues a copy. As with CUDA, a copy from the device to memory of the host that is not pinned
// blocks the caller until it is done.
tri_status copy(cuda_stream *stream, void *to, const void *from, size_t size_bytes, char *why) {
    cuda_context *context = stream->context;
    IF_IT_WORKS(context, why);
    push(stream, [=] { memmove(to, from, size_bytes); });
    if (capturing || !lies_in(context, context->device, from) ||
        lies_in(context, context->device, to) || lies_in(context, context->pinned, to))
        return TRI_OK;
    blocked++;
    wait_until_idle(stream);
    return TRI_OK;
}

tri_status zero(cuda_stream *stream, void *memory, size_t size_bytes, char *why) {
    IF_IT_WORKS(stream->context, why);
    push(stream, [=] { memset(memory, 0, size_bytes); });
    return TRI_OK;
}

tri_status wait_value(cuda_stream *stream, uint32_t *word, uint32_t value, char *why) {
    NOT_WHILE_CAPTURING(why);
    host_waits++;
    push(stream, [=] {
        while ((int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) < 0) usleep(20);
        host_waits--;
    });
    return TRI_OK;
}

tri_status open_event(cuda_context *context, cuda_event **out, char *why) {
    *out = nullptr;
    IF_IT_WORKS(context, why);
    *out = new cuda_event;
    (*out)->context = context;
    (*out)->at = std::make_shared<moment>();
    (*out)->at->done = true; // an event that was never recorded has happened
    return TRI_OK;
}

void close_event(cuda_event *event) { delete event; }

void wait_here(const std::shared_ptr<moment> &at) {
    std::unique_lock<std::mutex> guard(at->lock);
    at->changed.wait(guard, [&] { return at->done; });
}

tri_status record(cuda_stream *stream, cuda_event *event, char *why) {
    NOT_WHILE_CAPTURING(why);
    IF_IT_WORKS(stream->context, why);
    std::shared_ptr<moment> at = std::make_shared<moment>();
    {
        std::lock_guard<std::mutex> guard(event->lock);
        event->at = at;
    }
    push(stream, [=] {
        std::lock_guard<std::mutex> guard(at->lock);
        at->done = true;
        at->changed.notify_all();
    });
    return TRI_OK;
}

tri_status wait(cuda_stream *stream, cuda_event *event, char *why) {
    NOT_WHILE_CAPTURING(why);
    IF_IT_WORKS(stream->context, why);
    std::shared_ptr<moment> at = event->now();
    push(stream, [=] { wait_here(at); });
    return TRI_OK;
}

tri_status finish(cuda_event *event, char *why) {
    NOT_WHILE_CAPTURING(why);
    wait_here(event->now());
    return check_device(event->context, why);
}

cuda_event_state query(cuda_event *event) {
    char why[CUDA_WHY_BYTES];
    if (event->context->failed || check_capture(why) != TRI_OK) return CUDA_EVENT_FAILED;
    std::shared_ptr<moment> at = event->now();
    std::lock_guard<std::mutex> guard(at->lock);
    return at->done ? CUDA_EVENT_DONE : CUDA_EVENT_PENDING;
}

tri_status begin_capture(cuda_stream *stream, char *why) {
    NOT_WHILE_CAPTURING(why);
    IF_IT_WORKS(stream->context, why);
    std::lock_guard<std::mutex> guard(stream->lock);
    stream->captured.reset(new cuda_graph);
    stream->invalid = false;
    capturing = stream;
    return TRI_OK;
}

tri_status end_capture(cuda_stream *stream, cuda_graph **out, char *why) {
    std::lock_guard<std::mutex> guard(stream->lock);
    std::unique_ptr<cuda_graph> graph = std::move(stream->captured);
    *out = nullptr;
    capturing = nullptr;
    snprintf(why, CUDA_WHY_BYTES, "operation failed due to a previous error during capture");
    if (stream->invalid) return TRI_INTERNAL;
    *out = graph.release();
    return TRI_OK;
}

tri_status repeat(cuda_stream *stream, cuda_graph *graph, char *why) {
    NOT_WHILE_CAPTURING(why);
    IF_IT_WORKS(stream->context, why);
    issued++;
    for (const work &item : graph->items) add(stream, item);
    return TRI_OK;
}

void close_graph(cuda_graph *graph) { delete graph; }

} // namespace

// Tests find the visible functions from here on by name.

// Returns how many ranges a profiler would have seen; -1: some were not ended.
extern "C" __attribute__((visibility("default"))) int64_t emulated_marks() {
    return marks_open == 0 ? (int64_t)marks : -1;
}

// With emulated_sample(true), a grid has as many blocks as its kernel could use on any GPU, of
// which only the first and the last run.
static std::atomic<bool> is_sampled;
extern "C" __attribute__((visibility("default"))) void emulated_sample(bool is) { is_sampled = is; }

int gpu_multiprocessors(const cuda_stream *) { return is_sampled ? 1 << 26 : 1; }

extern "C" __attribute__((visibility("default"))) int64_t emulated_issued() { return issued; }
extern "C" __attribute__((visibility("default"))) int64_t emulated_blocked() { return blocked; }
extern "C" __attribute__((visibility("default"))) int64_t emulated_priority_streams() {
    return priority_streams;
}

static std::atomic<int64_t> clocks; // how many times kernels have read the clock
extern "C" __attribute__((visibility("default"))) int64_t emulated_clocks() { return clocks; }

int64_t emulated_clock_ns() {
    struct timespec now;
    clocks++;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - CLOCK_ERROR_NS;
}

bool emulated_is_pinned(cuda_stream *stream, const void *memory) {
    return lies_in(stream->context, stream->context->pinned, memory);
}

bool emulated_failed(const cuda_stream *stream) { return stream->context->failed; }

void emulated_push(cuda_stream *stream, work item) { push(stream, std::move(item)); }
void emulated_load(const std::vector<int64_t> &kernel) { load(kernel); }

// Launches a kernel. With CUDA_LAUNCH_BLOCKING=1, waits until the kernel is done and returns its
// failure.
tri_status emulated_launch(cuda_stream *stream, const void *kernel, int64_t blocks, int threads,
                           int shared_bytes, const std::function<void()> &body, char *why) {
    cuda_context *context = stream->context;
    IF_IT_WORKS(context, why);
    load({(int64_t)(intptr_t)kernel});
    push(stream, [=] {
        if (!context->failed && !emulated_run(blocks, threads, shared_bytes, is_sampled, body))
            context->failed = true;
    });
    const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    if (!blocking || strcmp(blocking, "1") != 0 || capturing) return TRI_OK;
    wait_until_idle(stream);
    return check_device(context, why) == TRI_OK ? TRI_OK : TRI_INTERNAL;
}

extern "C" const cuda_runtime cuda_runtime_table = CUDA_RUNTIME_TABLE;
