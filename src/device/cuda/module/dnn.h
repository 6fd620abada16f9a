// What the files that describe computations to cuDNN's "graph API" (cudnn_graph.h) share: the
// library's functions, descriptors, and dnn_compute, which finds a plan and runs it. In these files
// a plan is cuDNN's execution plan: a way to compute what a graph of operations describes.
// DNN_IS_THERE is defined if cuDNN's header was found when the module was built.
#ifndef TRIREME_DEVICE_CUDA_MODULE_DNN_H
#define TRIREME_DEVICE_CUDA_MODULE_DNN_H

#include "device/cuda/module/vendor.h"

#if !defined(__HIP__) && __has_include(<cudnn_graph.h>)
#define DNN_IS_THERE

#include <cudnn_graph.h>
#include <stddef.h>
#include <vector>

// The functions of the library that are used, each looked up by name.
#define DNN_FUNCTIONS(X)                                                                           \
    X(Create)                                                                                      \
    X(SetStream)                                                                                   \
    X(GetErrorString)                                                                              \
    X(GetVersion)                                                                                  \
    X(BackendCreateDescriptor)                                                                     \
    X(BackendDestroyDescriptor)                                                                    \
    X(BackendSetAttribute)                                                                         \
    X(BackendGetAttribute)                                                                         \
    X(BackendFinalize)                                                                             \
    X(BackendExecute)

struct dnn_library {
#define X(name) decltype(&cudnn##name) name;
    DNN_FUNCTIONS(X)
#undef X
    void (*last_error)(char *, size_t); // cudnnGetLastErrorString; NULL before version 9
};

// The library, which the first call opens. NULL: it is not installed.
const dnn_library *dnn();

// A descriptor that is destroyed at the end of its scope, unless its handle was taken (`at` NULL).
// `good` becomes false if any call fails, so that calls need not be checked one by one.
struct dnn_descriptor {
    cudnnBackendDescriptor_t at = nullptr;
    bool good;

    explicit dnn_descriptor(cudnnBackendDescriptorType_t type)
        : good(dnn()->BackendCreateDescriptor(type, &at) == CUDNN_STATUS_SUCCESS) {}
    dnn_descriptor(dnn_descriptor &&other) noexcept : at(other.at), good(other.good) {
        other.at = nullptr;
    }
    dnn_descriptor(const dnn_descriptor &) = delete;
    ~dnn_descriptor() {
        if (at) (void)dnn()->BackendDestroyDescriptor(at);
    }

    void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
             const void *values) {
        good = good &&
               dnn()->BackendSetAttribute(at, name, type, count, values) == CUDNN_STATUS_SUCCESS;
    }
    void set(cudnnBackendAttributeName_t name, int64_t value) {
        set(name, CUDNN_TYPE_INT64, 1, &value);
    }
    void set(cudnnBackendAttributeName_t name, float value) {
        set(name, CUDNN_TYPE_FLOAT, 1, &value);
    }
    void set(cudnnBackendAttributeName_t name, bool value) {
        set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
    }
    void set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
        set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
    }
    void set(cudnnBackendAttributeName_t name, const dnn_descriptor &value) {
        good = good && value.good;
        set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.at);
    }
    bool finalize() {
        good = good && dnn()->BackendFinalize(at) == CUDNN_STATUS_SUCCESS;
        return good;
    }
};

// Where a tensor of a graph is.
enum dnn_where {
    DNN_IN_MEMORY, // in the device's memory
    DNN_VIRTUAL,   // nowhere: an operation of the plan makes it and another one reads it
    DNN_BY_VALUE,  // one number in the host's memory, read when the plan is run
};

// Tensors in the device's memory begin at multiples of this many bytes.
enum { DNN_ALIGNMENT = 16 };

// Describes a tensor of 4 axes. Strides are counted in elements. `id` tells tensors of a graph
// apart; dnn_request has the addresses by id.
dnn_descriptor dnn_tensor(int64_t id, cudnnDataType_t type, dnn_where where, const int64_t *dims,
                          const int64_t *strides);
cudnnDataType_t dnn_type(tri_dtype dtype);
// Describes an operation on each element: y = mode(x), mode(x, b), or, for BINARY_SELECT,
// y = mask ? x : b. NULL: the operation has no such operand. Computed in F32. `axis`: the
// axis whose positions GEN_INDEX writes to y.
struct dnn_pointwise_attr {
    cudnnPointwiseMode_t mode;
    int64_t axis = -1; // -1: the mode has none
};
dnn_descriptor dnn_pointwise(const dnn_pointwise_attr &attr, const dnn_descriptor &x,
                             const dnn_descriptor *b, const dnn_descriptor *mask,
                             const dnn_descriptor &y);
// Describes the graph that carries out these operations.
dnn_descriptor dnn_graph(cudnnHandle_t handle, const std::vector<dnn_descriptor> &operations);

// A computation for which a plan is looked for.
struct dnn_request {
    // Kind of the computation, and the numbers on which the choice of its plan depends: together
    // they tell plans apart, in this process and in kept choices (choices.h).
    const char *kind;
    std::vector<int64_t> key;
    tri_dtype in_type; // of the inputs
    bool tf32;         // F32 inputs may be rounded to TF32
    bool has_epilogue; // `graph` can describe the computation with an epilogue and without one
    // Describes the computation; with its epilogue (bias, ReLU) if `with_epilogue`.
    std::function<dnn_descriptor(cudnnHandle_t, bool with_epilogue)> graph;
    // Ids and addresses of the graph's tensors that are not DNN_VIRTUAL. The last
    // `epilogue_operands` of them belong only to the epilogue.
    std::vector<int64_t> ids;
    std::vector<const void *> addresses;
    size_t epilogue_operands;
    void *workspace; // memory that the plan may use
    int64_t workspace_bytes;
};

// Finds a plan for the computation, which has to give the same bits in every run as far as cuDNN
// tells, and issues it to the stream. Sets *status, and *with_epilogue to whether the epilogue
// was carried out too. Returns false if the library is not installed or has no such plan.
bool dnn_compute(cuda_stream *stream, const dnn_request &request, bool *with_epilogue,
                 tri_status *status, char *why);

#endif
#endif
