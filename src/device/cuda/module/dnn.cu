// Convolutions by cuDNN's "graph API" (cudnn_graph.h). The library is opened when the first
// convolution is asked for. If it is not installed, our own kernel in convolution.cu computes.
//
// In this file, a plan is cuDNN's execution plan: a way to compute a convolution. For each shape
// and type one is chosen once: the first one proposed by cuDNN's heuristics that gives the same
// bits in every run, computes F32 in F32 (or in TF32, if the recipe wants that) and fits into the
// workspace.
//
// If possible, the plan also adds the bias and applies the activation, in F32, and rounds once. If
// the library has no such plan, a kernel of our own does this afterwards (convolution.cu). No plan
// writes the gradient of a weight in F32 from inputs of a half type. So this gradient is rounded to
// the half type, as in PyTorch, and a kernel of our own widens it.
#include "device/cuda/module/vendor.h"

#if !defined(__HIP__) && __has_include(<cudnn_graph.h>)

#include <cudnn_graph.h>
#include <map>
#include <mutex>
#include <stdio.h>
#include <string.h>
#include <vector>

namespace {

// The functions of the library that are used here, each looked up by name.
#define DNN_FUNCTIONS(X)                                                                           \
    X(Create)                                                                                      \
    X(SetStream)                                                                                   \
    X(GetErrorString)                                                                              \
    X(BackendCreateDescriptor)                                                                     \
    X(BackendDestroyDescriptor)                                                                    \
    X(BackendSetAttribute)                                                                         \
    X(BackendGetAttribute)                                                                         \
    X(BackendFinalize)                                                                             \
    X(BackendExecute)

struct library {
#define X(name) decltype(&cudnn##name) name;
    DNN_FUNCTIONS(X)
#undef X
    void (*last_error)(char *, size_t); // cudnnGetLastErrorString; NULL before version 9
};

// Opens the library and looks up its functions. NULL: it is not installed.
const library *find_library() {
    static library functions;
    void *handle = vendor_open("cudnn");
    if (!handle) return nullptr;
#define X(name)                                                                                    \
    functions.name = (decltype(functions.name))vendor_symbol(handle, "cudnn" #name);               \
    if (!functions.name) return nullptr;
    DNN_FUNCTIONS(X)
#undef X
    functions.last_error =
        (decltype(functions.last_error))vendor_symbol(handle, "cudnnGetLastErrorString");
    return &functions;
}

const library *dnn() {
    static const library *const found = find_library();
    return found;
}

// A descriptor that is destroyed at the end of its scope, unless it is taken out. `good` becomes
// false if any call fails, so that calls need not be checked one by one.
struct descriptor {
    cudnnBackendDescriptor_t at = nullptr;
    bool good;

    explicit descriptor(cudnnBackendDescriptorType_t type)
        : good(dnn()->BackendCreateDescriptor(type, &at) == CUDNN_STATUS_SUCCESS) {}
    descriptor(descriptor &&other) : at(other.at), good(other.good) { other.at = nullptr; }
    descriptor(const descriptor &) = delete;
    ~descriptor() {
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
    void set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
        set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
    }
    void set(cudnnBackendAttributeName_t name, const descriptor &value) {
        good = good && value.good;
        set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.at);
    }
    bool finalize() {
        good = good && dnn()->BackendFinalize(at) == CUDNN_STATUS_SUCCESS;
        return good;
    }
};

enum { X_ID = 1, WEIGHT_ID, Y_ID, BIAS_ID, SUM_ID, BIASED_ID, ALIGNMENT = 16 };
enum { WORKSPACE_ALIGNMENT = 256 };

const cudnnDataType_t F32 = CUDNN_DATA_FLOAT;

cudnnDataType_t type_of(tri_dtype dtype) {
    return dtype == TRI_F32   ? CUDNN_DATA_FLOAT
           : dtype == TRI_F16 ? CUDNN_DATA_HALF
                              : CUDNN_DATA_BFLOAT16;
}

// Describes a tensor of 4 axes, of which the second is that of the channels. If `is_in_memory` is
// false, the tensor only passes from one operation of the plan to the next one, and is never
// stored.
descriptor tensor_of(const cuda_convolution *p, int64_t id, cudnnDataType_t type, bool is_in_memory,
                     int64_t a, int64_t b, int64_t c, int64_t d) {
    int64_t dims[] = {a, b, c, d}, strides[] = {b * c * d, c * d, d, 1};
    int64_t last[] = {b * c * d, 1, d * b, b};
    bool is_virtual = !is_in_memory;
    descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, p->channels_last ? last : strides);
    tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
    tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, (int64_t)ALIGNMENT);
    tensor.finalize();
    return tensor;
}

descriptor window_of(const cuda_convolution *p) {
    descriptor window(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    auto set_pair = [&](cudnnBackendAttributeName_t name, const int(&values)[2]) {
        int64_t pair[] = {values[0], values[1]};
        window.set(name, CUDNN_TYPE_INT64, 2, pair);
    };
    window.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    window.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    window.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, (int64_t)2);
    set_pair(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, p->padding);
    set_pair(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, p->padding);
    set_pair(CUDNN_ATTR_CONVOLUTION_DILATIONS, p->dilation);
    set_pair(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, p->stride);
    window.finalize();
    return window;
}

// What cuDNN calls one of the three computations of cuda_convolution_kind: the type of its
// operation, and the operation's attributes.
struct kind_names {
    cudnnBackendDescriptorType_t operation;
    cudnnBackendAttributeName_t x, weight, y, window, alpha, beta;
};

const kind_names names[] = {
    // Indexed by cuda_convolution_kind.
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

descriptor convolution_of(const cuda_convolution *p, const descriptor &y) {
    const kind_names &n = names[p->kind];
    cudnnDataType_t type = type_of(p->in_type);
    descriptor x = tensor_of(p, X_ID, type, true, p->samples, p->channels, p->in[0], p->in[1]);
    descriptor weight = tensor_of(p, WEIGHT_ID, type, true, p->features, p->channels / p->groups,
                                  p->kernel[0], p->kernel[1]);
    descriptor window = window_of(p), operation(n.operation);
    operation.set(n.x, x);
    operation.set(n.weight, weight);
    operation.set(n.y, y);
    operation.set(n.window, window);
    operation.set(n.alpha, 1.0f);
    operation.set(n.beta, 0.0f);
    operation.finalize();
    return operation;
}

// Describes an operation on each element of x, with `b` as its second operand; NULL: it has none.
descriptor pointwise_of(cudnnPointwiseMode_t mode, float slope, const descriptor &x,
                        const descriptor *b, const descriptor &y) {
    descriptor what(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    cudnnNanPropagation_t keeps_nan = CUDNN_PROPAGATE_NAN;
    double lower_slope = (double)slope;
    what.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    what.set(CUDNN_ATTR_POINTWISE_MATH_PREC, F32);
    if (mode == CUDNN_POINTWISE_RELU_FWD) {
        what.set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &keeps_nan);
        if (slope != 0)
            what.set(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, CUDNN_TYPE_DOUBLE, 1,
                     &lower_slope);
    }
    what.finalize();
    descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    operation.finalize();
    return operation;
}

bool has_finish(const cuda_convolution *p) {
    return p->kind == CUDA_FORWARD && (p->bias || p->activation != 0);
}

// Describes the convolution and, if `finishes`, bias and activation after it. Values that pass from
// one operation to the next are F32.
descriptor graph_of(cudnnHandle_t handle, const cuda_convolution *p, bool finishes) {
    cudnnDataType_t type = type_of(p->in_type);
    bool has_bias = finishes && p->bias;
    bool has_activation = finishes && p->activation != 0;
    auto output = [=](int64_t id, bool is_last) {
        return tensor_of(p, id, is_last ? type : F32, is_last, p->samples, p->features, p->out[0],
                         p->out[1]);
    };
    descriptor sum = finishes ? output(SUM_ID, false) : output(Y_ID, true);
    descriptor biased = output(has_activation ? BIASED_ID : Y_ID, !has_activation);
    descriptor y = output(Y_ID, true),
               bias = tensor_of(p, BIAS_ID, type, true, 1, p->features, 1, 1);
    std::vector<descriptor> operations;
    operations.push_back(convolution_of(p, sum));
    if (has_bias) operations.push_back(pointwise_of(CUDNN_POINTWISE_ADD, 0, sum, &bias, biased));
    if (has_activation)
        operations.push_back(
            pointwise_of(CUDNN_POINTWISE_RELU_FWD, p->slope, has_bias ? biased : sum, nullptr, y));
    cudnnBackendDescriptor_t handles[3];
    descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    for (size_t i = 0; i < operations.size(); i++) {
        handles[i] = operations[i].at;
        graph.good = graph.good && operations[i].good;
    }
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
              (int64_t)operations.size(), handles);
    graph.finalize();
    return graph;
}

// Whether the configuration gives the same bits in every run, and rounds no more than the types
// say. Tensor cores round F32 inputs to TF32, which only `tf32` allows.
bool is_exact(const descriptor &config, const cuda_convolution *p) {
    descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    if (!engine.good ||
        dnn()->BackendGetAttribute(config.at, CUDNN_ATTR_ENGINECFG_ENGINE,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                   &engine.at) != CUDNN_STATUS_SUCCESS ||
        dnn()->BackendGetAttribute(engine.at, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                   CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                   &count, notes) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < count && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++) {
        switch (notes[i]) {
        case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
            return false;
        case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
            if (!p->tf32) return false;
            break;
        case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
            if (p->in_type == TRI_F32 && !p->tf32) return false;
            break;
        default:
            break;
        }
    }
    return true;
}

// A plan that is ready to run; it lives as long as the process.
struct prepared {
    cudnnBackendDescriptor_t plan = nullptr; // NULL: the library has no suitable plan
    bool finishes = false; // the computation adds the bias and applies the activation
};

// How many bytes at the start of the workspace hold the gradient of the weight in a half type; 0:
// the plan writes the output directly.
int64_t held_bytes(const cuda_convolution *p) {
    if (p->kind != CUDA_GRAD_WEIGHT || p->in_type == TRI_F32) return 0;
    int64_t elements = p->features * (p->channels / p->groups) * p->kernel[0] * p->kernel[1];
    int64_t bytes = elements * (int64_t)sizeof(uint16_t);
    return (bytes + WORKSPACE_ALIGNMENT - 1) / WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT;
}

bool make_plan(cudnnHandle_t handle, const descriptor &config, const cuda_convolution *p,
               prepared *out) {
    if (!is_exact(config, p)) return false;
    descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    int64_t bytes = 0, count = 0;
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (!plan.finalize() ||
        dnn()->BackendGetAttribute(plan.at, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                   CUDNN_TYPE_INT64, 1, &count, &bytes) != CUDNN_STATUS_SUCCESS ||
        bytes > p->workspace_bytes - held_bytes(p))
        return false;
    out->plan = plan.at;
    plan.at = nullptr;
    return true;
}

// Asks one of cuDNN's heuristics (`mode`) for execution plans, and takes the first that make_plan
// accepts. False: it accepts none.
bool choose_plan(cudnnHandle_t handle, const descriptor &graph, cudnnBackendHeurMode_t mode,
                 const cuda_convolution *p, prepared *out) {
    // How many of the proposed plans are looked at. It is large, because about thirty others come
    // before the first that is exact in F32.
    enum { MOST = 64 };
    descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (!heuristic.finalize()) return false;
    std::vector<descriptor> configs;
    cudnnBackendDescriptor_t handles[MOST];
    int64_t count = 0;
    for (int i = 0; i < MOST; i++) {
        configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        if (!configs[i].good) return false;
        handles[i] = configs[i].at;
    }
    if (dnn()->BackendGetAttribute(heuristic.at, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST, &count,
                                   handles) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < count && i < MOST; i++)
        if (make_plan(handle, configs[i], p, out)) return true;
    return false;
}

// The numbers on which the choice of a plan depends.
typedef std::vector<int64_t> convolution_key;

convolution_key key_of(const cuda_convolution *p) {
    convolution_key key = {p->kind,     p->in_type,        p->tf32,     p->channels_last,
                           p->out_type, p->samples,        p->channels, p->features,
                           p->groups,   p->workspace_bytes};
    if (has_finish(p)) {
        uint32_t slope;
        memcpy(&slope, &p->slope, sizeof slope);
        for (int64_t value :
             {(int64_t)(p->bias != nullptr), (int64_t)p->activation, (int64_t)slope})
            key.push_back(value);
    }
    for (int i = 0; i < 2; i++)
        for (int value : {p->in[i], p->kernel[i], p->stride[i], p->padding[i], p->dilation[i]})
            key.push_back(value);
    return key;
}

// What is kept for each device that the process has opened.
struct dnn_state {
    std::mutex lock;
    cudnnHandle_t handle = nullptr;
    std::map<convolution_key, prepared> convolutions;
};

dnn_state *state_of(int device) {
    enum { DEVICES = 64 };
    static dnn_state states[DEVICES];
    if (device < 0 || device >= DEVICES) return nullptr;
    dnn_state *state = &states[device];
    std::lock_guard<std::mutex> guard(state->lock);
    if (!state->handle && dnn()->Create(&state->handle) != CUDNN_STATUS_SUCCESS) return nullptr;
    return state;
}

// Prepares a convolution, or finds it prepared. A convolution without a plan is remembered too, so
// that the library is asked only once.
const prepared *prepare(dnn_state *state, const cuda_convolution *p) {
    auto [at, is_new] = state->convolutions.try_emplace(key_of(p));
    for (bool finishes : {true, false}) {
        if (!is_new || at->second.plan || (finishes && !has_finish(p))) continue;
        descriptor graph = graph_of(state->handle, p, finishes);
        if (graph.good && !choose_plan(state->handle, graph, CUDNN_HEUR_MODE_A, p, &at->second))
            (void)choose_plan(state->handle, graph, CUDNN_HEUR_MODE_FALLBACK, p, &at->second);
        at->second.finishes = finishes;
    }
    return &at->second;
}

tri_status run(dnn_state *state, const prepared *x, cuda_stream *stream, const cuda_convolution *p,
               char *why) {
    int64_t held = held_bytes(p);
    const void *weight_gradient = held ? p->workspace : p->c;
    // The addresses of x, weight and y, in the order of cuda_convolution_kind, and the address of
    // the bias.
    const void *addresses[][4] = {{p->a, p->b, p->c, p->bias},
                                  {p->c, p->b, p->a, nullptr},
                                  {p->a, weight_gradient, p->b, nullptr}};
    const int64_t ids[] = {X_ID, WEIGHT_ID, Y_ID, BIAS_ID};
    int64_t count = x->finishes && p->bias ? 4 : 3;
    void *workspace = (char *)p->workspace + held;
    descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, addresses[p->kind]);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    cudnnStatus_t status = dnn()->SetStream(state->handle, (cudaStream_t)vendor_stream(stream));
    if (status == CUDNN_STATUS_SUCCESS)
        status = pack.finalize() ? dnn()->BackendExecute(state->handle, x->plan, pack.at)
                                 : CUDNN_STATUS_BAD_PARAM;
    if (status == CUDNN_STATUS_SUCCESS) return TRI_OK;
    char reason[200] = "", said[300];
    if (dnn()->last_error) dnn()->last_error(reason, sizeof reason);
    snprintf(said, sizeof said, "cudnnBackendExecute: %s %s", dnn()->GetErrorString(status),
             reason);
    return vendor_failed(stream, said, why);
}

} // namespace

bool vendor_has_convolutions() { return dnn() != nullptr; }

bool vendor_convolution(cuda_stream *stream, const cuda_convolution *p, vendor_left *left,
                        tri_status *status, char *why) {
    uintptr_t addresses = (uintptr_t)p->a | (uintptr_t)p->b | (uintptr_t)p->c | (uintptr_t)p->bias;
    bool takes = dnn() && p->workspace && p->samples > 0 && addresses % ALIGNMENT == 0;
    dnn_state *state = takes ? state_of(vendor_device(stream)) : nullptr;
    if (!state) return false;
    std::lock_guard<std::mutex> guard(state->lock);
    const prepared *x = prepare(state, p);
    if (!x->plan) return false;
    *left = held_bytes(p)                   ? VENDOR_LEFT_WIDEN
            : has_finish(p) && !x->finishes ? VENDOR_LEFT_FINISH
                                            : VENDOR_LEFT_NOTHING;
    *status = run(state, x, stream, p, why);
    return true;
}
#else // neither MIOpen nor cuDNN's header is there: our own kernel computes every convolution
bool vendor_has_convolutions() { return false; }
bool vendor_convolution(cuda_stream *, const cuda_convolution *, vendor_left *, tri_status *,
                        char *) {
    return false;
}
#endif
