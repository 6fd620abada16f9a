// Finds the vendor's libraries at run time. vendor.h says why they are not linked.
#include "device/cuda/module/gpu.h"
#include "device/cuda/module/vendor.h"

#include <dlfcn.h>
#include <map>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace {

enum { NEWEST = 15, OLDEST = 1, PATH_BYTES = 4096 }; // major versions of the libraries

// By library: why it cannot be used. The entry of a library that was opened says "it lacks a
// function", and counts only if its caller then finds a function missing.
std::map<std::string, std::string> reasons;
std::mutex reasons_lock;

void set_reason(const char *name, const std::string &reason) {
    std::lock_guard<std::mutex> guard(reasons_lock);
    reasons[name] = reason;
}

// Keeps the loader's message if the file `path` is there, but cannot be loaded, for example because
// another library that it needs is missing.
void keep_error(const char *name, const char *path) {
    const char *error = dlerror();
    bool is_absent =
        error && strncmp(error, path, strlen(path)) == 0 && strstr(error, "No such file");
    if (error && !is_absent) set_reason(name, error);
}

// Opens the newest version of the library `name` in a folder. `folder` ends with '/'; if it is
// empty, the dynamic loader searches for the library.
void *open_in(const char *folder, int folder_bytes, const char *name) {
    char path[PATH_BYTES];
    for (int version = NEWEST; version >= OLDEST; version--) {
        snprintf(path, sizeof path, "%.*slib%s.so.%d", folder_bytes, folder, name, version);
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library) return library;
        keep_error(name, path);
    }
    return nullptr;
}

// Opens the library in the first folder that has it, of those in `list` (separated by ':'), each
// with `suffix` behind it.
void *open_in_list(const char *list, const char *suffix, const char *name) {
    char folder[PATH_BYTES];
    while (list && *list) {
        int length = (int)strcspn(list, ":");
        int bytes = snprintf(folder, sizeof folder, "%.*s%s/", length, list, suffix);
        void *library = length > 0 && bytes < PATH_BYTES ? open_in(folder, bytes, name) : nullptr;
        if (library) return library;
        list += length + (list[length] == ':');
    }
    return nullptr;
}

} // namespace

void *vendor_open(const char *name) {
    // Where to search: in the folder that an environment variable names, or in a fixed one.
    static const struct {
        const char *variable, *fixed, *suffix;
    } folders[] = {
        {"TRIREME_CUDA_LIBRARIES", nullptr, ""},
#if defined(__HIP__)
        {"ROCM_PATH", nullptr, "/lib"},
        {nullptr, "/opt/rocm", "/lib"},
#else
        {"CUDA_HOME", nullptr, "/lib64"},
        {nullptr, "/usr/local/cuda", "/lib64"},
#endif
    };
    const char *named = getenv("TRIREME_CUDA_LIBRARIES");
    if (named && strcmp(named, "none") == 0) {
        set_reason(name, "TRIREME_CUDA_LIBRARIES=none");
        return nullptr;
    }
    set_reason(name, "lib" + std::string(name) + ".so was not found");
    void *library = open_in("", 0, name);
    for (const auto &folder : folders) {
        if (library) break;
        const char *list = folder.variable ? getenv(folder.variable) : folder.fixed;
        library = open_in_list(list, folder.suffix, name);
    }
    if (library) set_reason(name, "it lacks a function");
    return library;
}

std::string vendor_reason(const char *name) {
    std::lock_guard<std::mutex> guard(reasons_lock);
    const auto found = reasons.find(name);
    return found == reasons.end() ? "the module was built without its header" : found->second;
}

void *vendor_symbol(void *library, const char *name) { return dlsym(library, name); }
void *vendor_stream(cuda_stream *stream) { return stream->handle; }
int vendor_device(cuda_stream *stream) {
    return vendor_use(stream->context) ? stream->context->index : -1;
}

std::string vendor_device_name(cuda_stream *stream) {
    const cuda_properties &p = stream->context->properties;
    return std::string(p.name) + ", " + std::to_string(p.multiprocessors) + " multiprocessors";
}

double vendor_seconds(cuda_stream *stream, const std::function<bool()> &issue) {
    GPU_API(StreamCaptureStatus) captures = GPU_API(StreamCaptureStatusNone);
    GPU_API(Event_t) events[2] = {};
    float ms = -1;
    if (GPU_API(StreamIsCapturing)(stream->handle, &captures) != GPU_API(Success) ||
        captures != GPU_API(StreamCaptureStatusNone))
        return -1;
    bool good = GPU_API(EventCreate)(&events[0]) == GPU_API(Success) &&
                GPU_API(EventCreate)(&events[1]) == GPU_API(Success) && issue() &&
                GPU_API(EventRecord)(events[0], stream->handle) == GPU_API(Success);
    for (int i = 0; i < VENDOR_TIMES; i++) good = good && issue();
    good = good && GPU_API(EventRecord)(events[1], stream->handle) == GPU_API(Success) &&
           GPU_API(EventSynchronize)(events[1]) == GPU_API(Success) &&
           GPU_API(EventElapsedTime)(&ms, events[0], events[1]) == GPU_API(Success);
    for (GPU_API(Event_t) event : events)
        if (event) (void)GPU_API(EventDestroy)(event);
    return good ? (double)ms * 1e-3 / VENDOR_TIMES : -1;
}

tri_status vendor_failed(cuda_stream *stream, const char *said, char *why) {
    gpu_error error = GPU_API(StreamQuery)(stream->handle);
    bool is_fine = error == GPU_API(Success) || error == GPU_API(ErrorNotReady);
    tri_status status = is_fine ? TRI_INTERNAL : gpu_failed(error, said, why);
    if (status == TRI_IO) return gpu_launches_block() ? TRI_INTERNAL : TRI_IO;
    snprintf(why, CUDA_WHY_BYTES, "%s", said);
    return TRI_INTERNAL;
}

bool vendor_use(cuda_context *context) {
    return GPU_API(SetDevice)(context->index) == GPU_API(Success);
}
