// Replaces what a plan of the real cuDNN needs of a GPU: described_gpu.h says why.
#include "emulated_gpu/described_gpu.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cudnn_graph.h>
#include <dlfcn.h>

described_gpu described;

#if CUDNN_VERSION >= 90800

namespace {

// What cudaGetDeviceProperties returns, under cuDNN's names.
const char properties[] =
    R"({"version": 1, "deviceName": "NVIDIA %s", "deviceVer": %d, "driverVer": 13000,
"cudaDeviceId": 0, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "warpSize": 32,
"multiProcessorCount": %d, "totalGlobalMem": %ld, "l2CacheSize": %d,
"maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "maxCtasPerSM": 32,
"maxBlockSize": [1024, 1024, 64], "maxGridSize": [2147483647, 65535, 65535],
"regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxSharedMemoryPerBlock": 49152,
"maxSharedMemoryPerBlockOptin": %d, "reservedSharedMemoryPerBlock": 1024,
"smClockRateKHz": %d, "memClockRateKHz": %d})";

// The numbers of the kinds of described_kind.
const struct {
    const char *name;
    int capability, multiprocessors;
    long memory_bytes;
    int l2_bytes, shared_bytes, clock_khz, memory_clock_khz;
} kinds[] = {{"H200", 900, 132, 150000000000, 52428800, 232448, 1980000, 3201000},
             {"A100-SXM4-80GB", 800, 108, 85000000000, 41943040, 166912, 1410000, 1593000}};

void *library;
cudnnBackendDescriptor_t device;

template <typename F> F *real(const char *name, F *) { return (F *)dlsym(library, name); }
#define REAL(name) real("cudnn" #name, &cudnn##name)

cudnnStatus_t create(cudnnHandle_t *out) {
    *out = (cudnnHandle_t)&library;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_stream(cudnnHandle_t, cudaStream_t) { return CUDNN_STATUS_SUCCESS; }

cudnnStatus_t name_device(cudnnBackendDescriptor_t at, cudnnBackendAttributeName_t name) {
    return REAL(BackendSetAttribute)(at, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
}

cudnnStatus_t set(cudnnBackendDescriptor_t at, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) return CUDNN_STATUS_SUCCESS;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
        return name_device(at, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
    cudnnStatus_t status = REAL(BackendSetAttribute)(at, name, type, count, values);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (name == CUDNN_ATTR_ENGINE_OPERATION_GRAPH)
        return name_device(at, CUDNN_ATTR_ENGINE_DEVICEPROP);
    return name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH
               ? name_device(at, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP)
               : status;
}

cudnnStatus_t get(cudnnBackendDescriptor_t const at, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t wanted, int64_t *count, void *out) {
    cudnnStatus_t status = REAL(BackendGetAttribute)(at, name, type, wanted, count, out);
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && status == CUDNN_STATUS_SUCCESS)
        described.workspace_bytes = *(const int64_t *)out;
    return status;
}

cudnnStatus_t execute(cudnnHandle_t, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t) {
    int64_t count = 0;
    described.executed++;
    if (!described.wants_plan) return CUDNN_STATUS_SUCCESS;
    const cudnnBackendAttributeName_t name = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
    cudnnStatus_t status =
        REAL(BackendGetAttribute)(plan, name, CUDNN_TYPE_CHAR, 0, &count, nullptr);
    described.last_plan.resize((size_t)count);
    return status != CUDNN_STATUS_SUCCESS
               ? status
               : REAL(BackendGetAttribute)(plan, name, CUDNN_TYPE_CHAR, count, &count,
                                           described.last_plan.data());
}

const struct {
    const char *name;
    void *function;
} replaced[] = {{"cudnnCreate", (void *)create},
                {"cudnnSetStream", (void *)set_stream},
                {"cudnnBackendSetAttribute", (void *)set},
                {"cudnnBackendGetAttribute", (void *)get},
                {"cudnnBackendExecute", (void *)execute}};

// cuDNN opens CUDA's compiler for each plan, and closes it again. As long as the test has it open,
// it is not loaded again each time.
void keep_compiler() {
    std::string name = "libnvrtc.so." + std::to_string(CUDART_VERSION / 1000);
    dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
}

void *open_library() {
    const char *home = getenv("CUDA_HOME");
    std::string folders[] = {"", home ? std::string(home) + "/lib64/" : "",
                             "/usr/local/cuda/lib64/"};
    for (const std::string &folder : folders) {
        void *found = dlopen((folder + "libcudnn.so.9").c_str(), RTLD_NOW | RTLD_LOCAL);
        if (found) return found;
    }
    return nullptr;
}

bool describe_device(described_kind kind) {
    char text[2048];
    const auto &k = kinds[kind];
    int length =
        snprintf(text, sizeof text, properties, k.name, k.capability, k.multiprocessors,
                 k.memory_bytes, k.l2_bytes, k.shared_bytes, k.clock_khz, k.memory_clock_khz);
    return REAL(BackendCreateDescriptor)(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device) ==
               CUDNN_STATUS_SUCCESS &&
           REAL(BackendSetAttribute)(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                     CUDNN_TYPE_CHAR, length, text) == CUDNN_STATUS_SUCCESS &&
           REAL(BackendFinalize)(device) == CUDNN_STATUS_SUCCESS;
}

} // namespace

void *vendor_open(const char *) { return library; }

void *vendor_symbol(void *, const char *name) {
    for (const auto &r : replaced)
        if (strcmp(r.name, name) == 0) return r.function;
    return dlsym(library, name);
}

void *vendor_stream(cuda_stream *) { return nullptr; }
int vendor_device(cuda_stream *) { return described.device_number; }
std::string vendor_device_name(cuda_stream *) { return "described GPU"; }

// Pretends that each plan takes less time than the one that was measured before it.
double vendor_seconds(cuda_stream *, const std::function<bool()> &issue) {
    static double seconds = 1;
    for (int i = 0; i <= VENDOR_TIMES; i++)
        if (!issue()) return -1;
    return seconds *= 0.9;
}

tri_status vendor_failed(cuda_stream *, const char *, char *) { return TRI_INTERNAL; }

bool describe_gpu(described_kind kind) {
    if (!library) {
        keep_compiler();
        library = open_library();
    }
    described.device_number++;
    if (!library) {
        printf("skipped: cuDNN is not installed\n");
        return false;
    }
    described.version = REAL(GetVersion)();
    if (described.version >= 90800 && describe_device(kind)) return true;
    printf("skipped: cuDNN %zu does not plan for a device that is not here\n", described.version);
    return false;
}
#else
bool describe_gpu(described_kind) {
    printf("skipped: cuDNN %d does not plan for a device that is not here\n", CUDNN_VERSION);
    return false;
}
#endif
