// Convolutions by cuDNN's "graph API" (cudnn_graph.h). The library is opened when the first
// convolution is asked for. If it is not installed, our own kernel in convolution.cu computes.
//
// In this file, a plan is cuDNN's execution plan: a way to compute a convolution. For each shape
// and type one plan is chosen once, from those that cuDNN's heuristics propose. It has to give the
// same bits in every run, to compute F32 in F32 (or in TF32, if the run allows that) and to fit
// into the workspace. The first such plan is taken or, with TRIREME_CUDA_CHOICES, the fastest of
// the first few. Which is the fastest is measured once, and the choice is kept (choices.h).
//
// If possible, the plan also adds the bias and applies the activation, in F32, and rounds once. If
// the library has no such plan, a kernel of our own does this afterwards (convolution.cu). No plan
// writes the gradient of a weight in F32 from inputs of a half type (F16, BF16). So this gradient
// is rounded to the half type, as in PyTorch, and a kernel of our own widens it to F32.
#include "device/cuda/module/choices.h"
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
    X(GetVersion)                                                                                  \
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

// A descriptor that is destroyed at the end of its scope, unless its handle was taken (`at` NULL).
// `good` becomes false if any call fails, so that calls need not be checked one by one.
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

bool get(const descriptor &from, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
         int64_t most, int64_t *count, void *values) {
    return from.good && dnn()->BackendGetAttribute(from.at, name, type, most, count, values) ==
                            CUDNN_STATUS_SUCCESS;
}

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

// Whether `config` (a plan's engine and settings) gives the same bits in every run, and rounds no
// more than the types say. Tensor cores round F32 inputs to TF32, which only `tf32` allows.
bool is_exact(const descriptor &config, const cuda_convolution *p) {
    descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    if (!engine.good ||
        !get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
             &engine.at) ||
        !get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
             CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes))
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
    bool finishes = false; // the plan also adds the bias and applies the activation
};

// How many bytes at the start of the workspace hold the gradient of the weight, which cuDNN writes
// in a half type and the caller then converts to F32; 0: cuDNN writes the output directly.
int64_t held_bytes(const cuda_convolution *p) {
    if (p->kind != CUDA_GRAD_WEIGHT || p->in_type == TRI_F32) return 0;
    int64_t elements = p->features * (p->channels / p->groups) * p->kernel[0] * p->kernel[1];
    int64_t bytes = elements * (int64_t)sizeof(uint16_t);
    return (bytes + WORKSPACE_ALIGNMENT - 1) / WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT;
}

// Makes the plan that `config` describes. `good`: it exists, is exact and fits into the workspace.
descriptor plan_of(cudnnHandle_t handle, const descriptor &config, const cuda_convolution *p) {
    descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    int64_t bytes = 0, count = 0;
    plan.good = plan.good && is_exact(config, p);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    plan.good =
        plan.finalize() &&
        get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes) &&
        bytes <= p->workspace_bytes - held_bytes(p);
    return plan;
}

// Makes `count` descriptors for cuDNN to fill in, and writes their handles to `handles`. A
// descriptor that could not be made has `good` false.
std::vector<descriptor> empty_descriptors(cudnnBackendDescriptorType_t type, int count,
                                          cudnnBackendDescriptor_t *handles) {
    std::vector<descriptor> made;
    for (int i = 0; i < count; i++) {
        made.emplace_back(type);
        handles[i] = made[i].at;
    }
    return made;
}

// The order of the numbers that a choice (choices.h) stores of a plan, to make it again without the
// heuristics: whether it applies bias and activation, the number of its engine (cuDNN's algorithm),
// then type and value of each knob (setting) of the engine. Empty choice: cuDNN does not tell them.
enum { KEPT_FINISHES, KEPT_ENGINE, KEPT_KNOBS, MOST_KNOBS = 64 };

choice choice_of(const descriptor &config, bool finishes) {
    descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t handles[MOST_KNOBS];
    std::vector<descriptor> knobs =
        empty_descriptors(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, MOST_KNOBS, handles);
    int64_t number = 0, count = 0, one = 0;
    if (!get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one,
             &engine.at) ||
        !get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &one, &number) ||
        !get(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_KNOBS,
             &count, handles) ||
        count > MOST_KNOBS)
        return {};
    choice made = {finishes, (uint64_t)number};
    for (int64_t i = 0; i < count; i++) {
        cudnnBackendKnobType_t type;
        int64_t value;
        if (!get(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &one,
                 &type) ||
            !get(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &one, &value))
            return {};
        made.push_back((uint64_t)type);
        made.push_back((uint64_t)value);
    }
    return made;
}

// Describes to cuDNN the engine and the knobs of a plan that an earlier run has chosen and written
// to a file (choices.h).
descriptor config_of(const descriptor &graph, const choice &kept) {
    descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR), config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    std::vector<descriptor> knobs;
    std::vector<cudnnBackendDescriptor_t> handles;
    engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
    engine.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, (int64_t)kept[KEPT_ENGINE]);
    engine.finalize();
    config.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    for (size_t i = KEPT_KNOBS; i + 1 < kept.size(); i += 2) {
        cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)kept[i];
        knobs.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
        knobs.back().set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
        knobs.back().set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, (int64_t)kept[i + 1]);
        config.good = knobs.back().finalize() && config.good;
        handles.push_back(knobs.back().at);
    }
    if (!handles.empty())
        config.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                   (int64_t)handles.size(), handles.data());
    config.finalize();
    return config;
}

// A plan of cuDNN with which this program may compute a convolution.
struct candidate {
    descriptor plan;
    choice how; // what choices.h stores if the plan is chosen; empty: it cannot be stored
};

// Asks one of cuDNN's heuristics (`mode`) for plans. Lists the first `most` that plan_of takes; if
// `most` is above 1 (to measure them), only those that a choice (choices.h) can store.
std::vector<candidate> list_plans(cudnnHandle_t handle, const descriptor &graph,
                                  cudnnBackendHeurMode_t mode, const cuda_convolution *p,
                                  bool finishes, size_t most) {
    // How many of the proposed plans are looked at. It is large, because about thirty others come
    // before the first that is exact in F32.
    enum { MOST = 64 };
    std::vector<candidate> found;
    descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    heuristic.finalize();
    cudnnBackendDescriptor_t handles[MOST];
    std::vector<descriptor> configs =
        empty_descriptors(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, MOST, handles);
    int64_t count = 0;
    if (!get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST, &count,
             handles))
        return found;
    for (int64_t i = 0; i < count && i < MOST && found.size() < most; i++) {
        descriptor plan = plan_of(handle, configs[i], p);
        choice how = plan.good && most > 1 ? choice_of(configs[i], finishes) : choice();
        if (plan.good && (most == 1 || !how.empty()))
            found.push_back({std::move(plan), std::move(how)});
    }
    return found;
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

// What the process keeps for each device: cuDNN's handle, and the plan chosen for each convolution.
struct dnn_state {
    std::mutex lock;
    cudnnHandle_t handle = nullptr;
    std::map<convolution_key, prepared> convolutions;
};

dnn_state *state_of(int device) {
    enum { DEVICES = 64 };
    // Never freed, because a thread may still use it while the process ends.
    static dnn_state *const states = new dnn_state[DEVICES];
    if (device < 0 || device >= DEVICES) return nullptr;
    dnn_state *state = &states[device];
    std::lock_guard<std::mutex> guard(state->lock);
    if (!state->handle && dnn()->Create(&state->handle) != CUDNN_STATUS_SUCCESS) return nullptr;
    return state;
}

tri_status run(dnn_state *state, const prepared *x, cuda_stream *stream, const cuda_convolution *p,
               char *why) {
    int64_t held = held_bytes(p);
    const void *weight_gradient = held ? p->workspace : p->c;
    // For each cuda_convolution_kind: the addresses of x, of the weight and of y, or of their
    // gradients, and that of the bias.
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

// Makes the key under which choices.h stores a choice: a line with all that the choice depends on.
std::string line_of(cuda_stream *stream, const cuda_convolution *p) {
    std::string line = vendor_device_name(stream) + "; cuDNN " +
                       std::to_string(dnn()->GetVersion()) + "; convolution 1:";
    for (int64_t number : key_of(p)) line += " " + std::to_string(number);
    return line;
}

// Lists the plans between which to choose, the best first: if possible, plans that also apply bias
// and activation. *finishes tells whether they do.
std::vector<candidate> list_candidates(dnn_state *state, const cuda_convolution *p, bool *finishes,
                                       size_t most) {
    std::vector<candidate> found;
    for (bool with : {true, false}) {
        if (!found.empty() || (with && !has_finish(p))) continue;
        *finishes = with;
        descriptor graph = graph_of(state->handle, p, with);
        for (cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
            if (graph.good && found.empty())
                found = list_plans(state->handle, graph, mode, p, with, most);
    }
    return found;
}

void take(descriptor *plan, bool finishes, prepared *x) {
    x->plan = plan->at;
    x->finishes = finishes;
    plan->at = nullptr;
}

// Makes the plan that an earlier run has chosen and written to a file (choices.h). False: cuDNN
// cannot compute by this plan, or the plan has a bias or an activation that this convolution lacks.
bool take_kept(dnn_state *state, const cuda_convolution *p, const choice &kept, prepared *x) {
    if (kept.size() < KEPT_KNOBS || (kept[KEPT_FINISHES] && !has_finish(p))) return false;
    bool finishes = kept[KEPT_FINISHES];
    descriptor graph = graph_of(state->handle, p, finishes), config = config_of(graph, kept);
    descriptor plan = plan_of(state->handle, config, p);
    if (plan.good) take(&plan, finishes, x);
    return plan.good;
}

// Chooses the plan by which cuDNN computes a convolution. x->plan stays NULL if cuDNN has none.
// This can fail only with TRIREME_CUDA_CHOICES, because only then files are read and written. Plans
// are measured on the convolution's own tensors; the chosen plan then overwrites the result.
tri_status choose(dnn_state *state, cuda_stream *stream, const cuda_convolution *p, prepared *x,
                  char *why) {
    bool is_kept = choices_folder() != nullptr, finishes = false;
    std::string line = is_kept ? line_of(stream, p) : "";
    choice kept;
    if (is_kept && choices_read(line, &kept))
        return take_kept(state, p, kept, x) ? TRI_OK : choices_refuse(line, why);
    std::vector<candidate> found =
        list_candidates(state, p, &finishes, is_kept ? CHOICES_MEASURED : 1);
    int count = (int)found.size();
    int best = choices_fastest(is_kept ? count : 0, [&](int i) {
        prepared tried = {found[i].plan.at, finishes};
        return vendor_seconds(stream, [&] { return run(state, &tried, stream, p, why) == TRI_OK; });
    });
    if (best >= 0) {
        kept = found[best].how;
        tri_status status = choices_write(line, &kept, why);
        if (status != TRI_OK) return status;
        if (kept != found[best].how) // another process has stored its choice first
            return take_kept(state, p, kept, x) ? TRI_OK : choices_refuse(line, why);
    }
    if (count > 0) take(&found[best < 0 ? 0 : best].plan, finishes, x);
    return TRI_OK;
}

// Prepares a convolution, or finds it prepared. A convolution without a plan is remembered too, so
// that the library is asked only once.
tri_status prepare(dnn_state *state, cuda_stream *stream, const cuda_convolution *p,
                   const prepared **out, char *why) {
    auto [at, is_new] = state->convolutions.try_emplace(key_of(p));
    *out = &at->second;
    return is_new ? choose(state, stream, p, &at->second, why) : TRI_OK;
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
    const prepared *x;
    *status = prepare(state, stream, p, &x, why);
    if (*status != TRI_OK) return true;
    if (!x->plan) return false;
    *left = held_bytes(p)                   ? VENDOR_LEFT_WIDEN
            : has_finish(p) && !x->finishes ? VENDOR_LEFT_FINISH
                                            : VENDOR_LEFT_NOTHING;
    *status = run(state, x, stream, p, why);
    return true;
}
#else // for HIP, or without cuDNN's header: our own kernel computes every convolution
bool vendor_has_convolutions() { return false; }
bool vendor_convolution(cuda_stream *, const cuda_convolution *, vendor_left *, tri_status *,
                        char *) {
    return false;
}
#endif
