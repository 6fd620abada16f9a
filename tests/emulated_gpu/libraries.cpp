// Finds the test doubles of the vendor's libraries, by the functions with which module/vendor.cu
// finds the real ones.
#include "emulated_gpu/libraries.h"

#include "device/cuda/module/vendor.h"

#include "emulated_gpu/emulation.h"

#include <cstdio>
#include <cstring>

namespace {

typedef void *find_function(const char *name);

bool always() { return true; }

const struct {
    const char *name;
    find_function *find;
    bool (*is_there)();
} libraries[] = {
#if defined(EMULATED_BLAS)
    {"cublasLt", emulated_blas, always},
#endif
#if defined(EMULATED_DNN)
    {"cudnn", emulated_dnn, emulated_dnn_is_there},
#endif
#if defined(EMULATED_NCCL)
    {"nccl", emulated_nccl, emulated_nccl_is_there},
#endif
    {"", nullptr, always}};

} // namespace

void *vendor_open(const char *name) {
    for (const auto &library : libraries)
        if (strcmp(library.name, name) == 0 && library.is_there()) return (void *)library.find;
    return nullptr;
}

std::string vendor_reason(const char *name) {
    return "lib" + std::string(name) + ".so was not found";
}

void *vendor_symbol(void *library, const char *name) { return ((find_function *)library)(name); }
void *vendor_stream(cuda_stream *stream) { return stream; }
int vendor_device(cuda_stream *) { return 0; }
std::string vendor_device_name(cuda_stream *) { return "emulated GPU"; }

double emulated_seconds;
double vendor_seconds(cuda_stream *, const std::function<bool()> &issue) {
    if (!issue()) return -1;
    double before = emulated_seconds;
    for (int i = 0; i < VENDOR_TIMES; i++)
        if (!issue()) return -1;
    return (emulated_seconds - before) / VENDOR_TIMES;
}
tri_status vendor_failed(cuda_stream *stream, const char *said, char *why) {
    bool failed = emulated_failed(stream);
    snprintf(why, CUDA_WHY_BYTES, "%s", failed ? "unspecified launch failure" : said);
    return failed ? TRI_IO : TRI_INTERNAL;
}
bool vendor_use(cuda_context *) { return true; }
