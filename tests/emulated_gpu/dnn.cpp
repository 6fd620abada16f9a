// A test double of cuDNN's graph API: the functions that module/dnn.cu calls, for memory of the
// host. Descriptors keep the attributes that are set. A convolution is computed from its
// descriptors alone, so that a wrong description gives wrong numbers.
//
// The heuristic proposes the configurations below: each is an engine (a way to compute) and, for
// one engine, the value of a knob (its parameter). The first two must not be taken: the results of
// one differ from run to run, the other needs a huge workspace. An engine that is taken fills its
// whole workspace with garbage. As in the real library, all tensors of a configuration have one
// type in memory. The knob decides in which order its engine adds up, and so how it rounds.
// EMULATED_DNN_FASTEST=N: configuration N takes the least time.
//
// Two things are refused, so that tests run our own code too: odd numbers of samples, for which our
// own kernel then computes; and operations after a convolution of an even number of groups, for
// which a kernel of our own then applies bias and activation to y.
#include "device/cuda/module/vendor.h"

#include "emulated_gpu/emulation.h"
#include "emulated_gpu/libraries.h"

#include <cstdlib>
#include <cstring>
#include <cudnn_graph.h>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

enum {
    ENGINE_OF_CHANCE,       // not deterministic
    ENGINE_OF_SPACE,        // needs a workspace of 1 TiB
    ENGINE_OF_TENSOR_CORES, // rounds F32 to TF32
    ENGINE_THAT_SERVES,     // can always be taken
    ENGINE_WITH_KNOB,       // can always be taken too, and has a knob
    WORKSPACE_BYTES = 4096
};

const cudnnBackendKnobType_t KNOB = CUDNN_KNOB_TYPE_SPLIT_K_BUF;

// The engines that the heuristic proposes, the best first, and the value of each engine's knob; 0:
// the engine has no knob.
const struct {
    int engine;
    int64_t knob;
} proposals[] = {{ENGINE_OF_CHANCE, 0},   {ENGINE_OF_SPACE, 0},  {ENGINE_OF_TENSOR_CORES, 0},
                 {ENGINE_THAT_SERVES, 0}, {ENGINE_WITH_KNOB, 1}, {ENGINE_WITH_KNOB, 2}};
enum { PROPOSALS = sizeof proposals / sizeof *proposals };

// Any object of cuDNN. Engines, configurations and plans also have an engine's number, the value of
// its knob, and the graph of operations that they compute.
struct descriptor {
    cudnnBackendDescriptorType_t type;
    std::map<int, std::string> values; // by attribute: its value, as bytes
    bool finished = false;             // all attributes are set (BackendFinalize)
    int engine = 0;
    int64_t knob = 0;
    const descriptor *graph = nullptr;
};

struct handle {
    cudaStream_t stream = nullptr;
};

descriptor *of(cudnnBackendDescriptor_t at) { return (descriptor *)at; }

size_t size_of(cudnnBackendAttributeType_t type) {
    switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    default:
        return 4; // enumerations and floats
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    }
}

// Returns value number i of an attribute; ends the program if it has not been set.
template <typename T> T get(const descriptor *x, cudnnBackendAttributeName_t name, int i = 0) {
    auto found = x->values.find(name);
    T value;
    if (found == x->values.end() || found->second.size() < (size_t)(i + 1) * sizeof value) abort();
    memcpy(&value, found->second.data() + (size_t)i * sizeof value, sizeof value);
    return value;
}

bool has(const descriptor *x, cudnnBackendAttributeName_t name) {
    return x->values.count(name) > 0;
}

#define ATTRIBUTE(PASS, NAME) CUDNN_ATTR_OPERATION_CONVOLUTION_##PASS##_##NAME

enum convolution_kind { FORWARD, GRAD_INPUT, GRAD_WEIGHT };

struct kind_names {
    convolution_kind which;
    cudnnBackendAttributeName_t x, weight, y, window;
};

kind_names names_of(const descriptor *op) {
    if (op->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
        return {GRAD_INPUT, ATTRIBUTE(BWD_DATA, DX), ATTRIBUTE(BWD_DATA, W),
                ATTRIBUTE(BWD_DATA, DY), ATTRIBUTE(BWD_DATA, CONV_DESC)};
    if (op->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR)
        return {GRAD_WEIGHT, ATTRIBUTE(BWD_FILTER, X), ATTRIBUTE(BWD_FILTER, DW),
                ATTRIBUTE(BWD_FILTER, DY), ATTRIBUTE(BWD_FILTER, CONV_DESC)};
    return {FORWARD, ATTRIBUTE(FORWARD, X), ATTRIBUTE(FORWARD, W), ATTRIBUTE(FORWARD, Y),
            ATTRIBUTE(FORWARD, CONV_DESC)};
}

int operations_of(const descriptor *graph) {
    return (int)(graph->values.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).size() / sizeof(void *));
}

// Whether the double has plans for the operations: see the top of this file.
bool is_supported(const descriptor *graph) {
    const descriptor *op = get<descriptor *>(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    kind_names names = names_of(op);
    const descriptor *x = get<descriptor *>(op, names.x);
    const descriptor *weight = get<descriptor *>(op, names.weight);
    for (const descriptor *t : {weight, (const descriptor *)get<descriptor *>(op, names.y)})
        if (!get<bool>(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL) &&
            get<cudnnDataType_t>(t, CUDNN_ATTR_TENSOR_DATA_TYPE) !=
                get<cudnnDataType_t>(x, CUDNN_ATTR_TENSOR_DATA_TYPE))
            return false;
    int64_t groups = get<int64_t>(x, CUDNN_ATTR_TENSOR_DIMENSIONS, 1) /
                     get<int64_t>(weight, CUDNN_ATTR_TENSOR_DIMENSIONS, 1);
    return operations_of(graph) == 1 || groups % 2;
}

cudnnStatus_t create(cudnnHandle_t *out) {
    *out = (cudnnHandle_t) new handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_stream(cudnnHandle_t at, cudaStream_t stream) {
    ((handle *)at)->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t create_descriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out) {
    *out = (cudnnBackendDescriptor_t) new descriptor{type};
    return CUDNN_STATUS_SUCCESS;
}

// Graphs, plans and what they consist of, which are never deleted. They are listed here, so that a
// sanitizer does not take them for leaks.
void keep(descriptor *kept) {
    static std::mutex lock;
    static auto *const all = new std::vector<descriptor *>;
    std::lock_guard<std::mutex> guard(lock);
    all->push_back(kept);
}

// Deletes a descriptor, but not a graph, plan, or anything of which they consist: our code keeps
// its plans until the process ends, and what plans consist of belongs to several of them.
cudnnStatus_t destroy(cudnnBackendDescriptor_t at) {
    switch (of(at)->type) {
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
    case CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR:
        delete of(at);
        break;
    default:
        keep(of(at));
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set(cudnnBackendDescriptor_t at, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    if (of(at)->finished || count < 1) return CUDNN_STATUS_BAD_PARAM;
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR && !of(*(void *const *)values)->finished)
        return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    of(at)->values[name].assign((const char *)values, (size_t)count * size_of(type));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize(cudnnBackendDescriptor_t at) {
    descriptor *x = of(at);
    x->finished = true;
    if (x->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR &&
        get<int64_t>(x, CUDNN_ATTR_TENSOR_UNIQUE_ID) == 1 &&
        get<int64_t>(x, CUDNN_ATTR_TENSOR_DIMENSIONS) % 2)
        return CUDNN_STATUS_NOT_SUPPORTED;
    if (x->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
        x->graph = get<descriptor *>(x, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    if (x->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR) {
        x->graph = get<descriptor *>(x, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
        x->engine = (int)get<int64_t>(x, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
    }
    const descriptor *from = x->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR
                                 ? get<descriptor *>(x, CUDNN_ATTR_ENGINECFG_ENGINE)
                             : x->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR
                                 ? get<descriptor *>(x, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
                                 : nullptr;
    if (!from) return CUDNN_STATUS_SUCCESS;
    x->graph = from->graph;
    x->engine = from->engine;
    x->knob = from->knob;
    if (!has(x, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES)) return CUDNN_STATUS_SUCCESS;
    const descriptor *knob = get<descriptor *>(x, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
    if (x->engine != ENGINE_WITH_KNOB ||
        get<cudnnBackendKnobType_t>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE) != KNOB)
        return CUDNN_STATUS_NOT_SUPPORTED;
    x->knob = get<int64_t>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
    return CUDNN_STATUS_SUCCESS;
}

// Copies an attribute out of a descriptor.
template <typename T> cudnnStatus_t give(T value, int64_t *count, void *out) {
    memcpy(out, &value, sizeof value);
    *count = 1;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t get_attribute(cudnnBackendDescriptor_t const at, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t, int64_t wanted, int64_t *count,
                            void *out) {
    const descriptor *x = of(at);
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        *count = is_supported(x->graph) ? PROPOSALS : 0;
        for (int i = 0; i < *count && i < wanted; i++) {
            descriptor *config = ((descriptor **)out)[i];
            config->finished = true;
            config->engine = proposals[i].engine;
            config->knob = proposals[i].knob;
            config->graph = x->graph;
        }
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        (*(descriptor **)out)->engine = x->engine;
        *count = 1;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
        *count = x->knob != 0;
        if (x->knob && wanted > 0) (*(descriptor **)out)->knob = x->knob;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE:
        return give(KNOB, count, out);
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE:
        return give(x->knob, count, out);
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
        return give((int64_t)x->engine, count, out);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        return give(x->engine == ENGINE_OF_CHANCE         ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
                    : x->engine == ENGINE_OF_TENSOR_CORES ? CUDNN_NUMERICAL_NOTE_TENSOR_CORE
                                                          : CUDNN_NUMERICAL_NOTE_FFT,
                    count, out);
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        return give(x->engine == ENGINE_OF_SPACE ? INT64_C(1) << 40 : (int64_t)WORKSPACE_BYTES,
                    count, out);
    default:
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
}

// A tensor with its memory.
struct tensor {
    int64_t dims[4], strides[4];
    cudnnDataType_t type;
    char *data;
};

int64_t offset_of(const tensor &x, int64_t a, int64_t b, int64_t c, int64_t d) {
    return a * x.strides[0] + b * x.strides[1] + c * x.strides[2] + d * x.strides[3];
}

float read(const tensor &x, int64_t i) {
    if (x.type == CUDNN_DATA_FLOAT) return ((const float *)x.data)[i];
    if (x.type == CUDNN_DATA_HALF) return (float)((const _Float16 *)x.data)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)x.data)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void write(const tensor &x, int64_t i, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (x.type == CUDNN_DATA_FLOAT)
        ((float *)x.data)[i] = value;
    else if (x.type == CUDNN_DATA_HALF)
        ((_Float16 *)x.data)[i] = (_Float16)value;
    else
        ((uint16_t *)x.data)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

struct window {
    int64_t padding[2], stride[2], dilation[2];
};

// Calls product(i, j, k) for every product of the convolution, where i, j and k are the offsets of
// its elements of x, weight and y. Begins with sample and tap number `first`, so that `first`
// decides in which order sums are added.
template <typename F>
void for_products(int64_t first, const window &w, const tensor &x, const tensor &weight,
                  const tensor &y, F product) {
    int64_t features = weight.dims[0] / (x.dims[1] / weight.dims[1]); // output channels of a group
    int64_t taps = weight.dims[1] * weight.dims[2] * weight.dims[3];
    for (int64_t sample = 0; sample < y.dims[0]; sample++)
        for (int64_t f = 0; f < y.dims[1]; f++)
            for (int64_t i = 0; i < y.dims[2]; i++)
                for (int64_t j = 0; j < y.dims[3]; j++)
                    for (int64_t at = 0; at < taps; at++) {
                        int64_t n = (sample + first) % y.dims[0], tap = (at + first) % taps;
                        int64_t k = tap / weight.dims[3] % weight.dims[2], l = tap % weight.dims[3];
                        int64_t c = tap / (weight.dims[2] * weight.dims[3]);
                        int64_t row = i * w.stride[0] - w.padding[0] + k * w.dilation[0];
                        int64_t column = j * w.stride[1] - w.padding[1] + l * w.dilation[1];
                        if (row < 0 || row >= x.dims[2] || column < 0 || column >= x.dims[3])
                            continue;
                        int64_t channel = f / features * weight.dims[1] + c;
                        product(offset_of(x, n, channel, row, column),
                                offset_of(weight, f, c, k, l), offset_of(y, n, f, i, j));
                    }
}

float as_it_is(float value) { return value; }

// Sums the products for each element of the output. The output's tensor has no gaps, so an offset
// is the number of an element.
std::vector<float> convolve(convolution_kind which, int64_t first, float (*round)(float),
                            const window &w, const tensor &x, const tensor &weight,
                            const tensor &y) {
    const tensor &out = which == FORWARD ? y : which == GRAD_INPUT ? x : weight;
    std::vector<float> sums((size_t)(out.dims[0] * out.dims[1] * out.dims[2] * out.dims[3]));
    if (offset_of(out, out.dims[0], 0, 0, 0) != (int64_t)sums.size()) abort();
    for_products(first, w, x, weight, y, [&](int64_t i, int64_t j, int64_t k) {
        if (which == FORWARD)
            sums[(size_t)k] += round(read(x, i)) * round(read(weight, j));
        else if (which == GRAD_INPUT)
            sums[(size_t)i] += round(read(y, k)) * round(read(weight, j));
        else
            sums[(size_t)j] += round(read(x, i)) * round(read(y, k));
    });
    return sums;
}

tensor tensor_of(const descriptor *x, const descriptor *pack) {
    tensor t;
    t.type = get<cudnnDataType_t>(x, CUDNN_ATTR_TENSOR_DATA_TYPE);
    for (int i = 0; i < 4; i++) {
        t.dims[i] = get<int64_t>(x, CUDNN_ATTR_TENSOR_DIMENSIONS, i);
        t.strides[i] = get<int64_t>(x, CUDNN_ATTR_TENSOR_STRIDES, i);
    }
    t.data = nullptr;
    if (get<bool>(x, CUDNN_ATTR_TENSOR_IS_VIRTUAL)) return t;
    int64_t id = get<int64_t>(x, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    int i = 0;
    while (get<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i) != id) i++;
    t.data = get<char *>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, i);
    if ((uintptr_t)t.data % (uintptr_t)get<int64_t>(x, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)) abort();
    return t;
}

window window_of(const descriptor *x) {
    window w;
    for (int i = 0; i < 2; i++) {
        w.padding[i] = get<int64_t>(x, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i);
        w.stride[i] = get<int64_t>(x, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i);
        w.dilation[i] = get<int64_t>(x, CUDNN_ATTR_CONVOLUTION_DILATIONS, i);
    }
    return w;
}

// An operation after the convolution: what it does with each element.
struct step {
    cudnnPointwiseMode_t mode;
    tensor bias; // [1, channels, 1, 1]
    float slope;
};

step step_of(const descriptor *op, const descriptor *pack) {
    const descriptor *what = get<descriptor *>(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    step s = {};
    s.mode = get<cudnnPointwiseMode_t>(what, CUDNN_ATTR_POINTWISE_MODE);
    if (s.mode == CUDNN_POINTWISE_ADD)
        s.bias = tensor_of(get<descriptor *>(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC), pack);
    else if (s.mode != CUDNN_POINTWISE_RELU_FWD)
        abort();
    if (has(what, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE))
        s.slope = (float)get<double>(what, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE);
    return s;
}

void apply(const step &s, const tensor &y, std::vector<float> *numbers) {
    int64_t channels = y.dims[1], inner = y.dims[2] * y.dims[3];
    bool is_last = y.strides[1] == 1; // channels are the last axis in memory
    for (size_t i = 0; i < numbers->size(); i++) {
        float &x = (*numbers)[i];
        if (s.mode == CUDNN_POINTWISE_ADD)
            x += read(s.bias, (is_last ? (int64_t)i : (int64_t)i / inner) % channels);
        else if (x <= 0)
            x *= s.slope;
    }
}

cudnnStatus_t execute(cudnnHandle_t at, cudnnBackendDescriptor_t plan_handle,
                      cudnnBackendDescriptor_t pack_handle) {
    const descriptor *plan = of(plan_handle), *pack = of(pack_handle);
    if (emulated_failed((cuda_stream *)((handle *)at)->stream))
        return CUDNN_STATUS_EXECUTION_FAILED;
    bool has_tensor_cores = plan->engine == ENGINE_OF_TENSOR_CORES;
    if (!pack->finished || plan->engine <= ENGINE_OF_SPACE ||
        (plan->engine == ENGINE_WITH_KNOB) != (plan->knob != 0))
        return CUDNN_STATUS_BAD_PARAM;
    for (uint64_t i = 0; i < PROPOSALS; i++)
        if (proposals[i].engine == plan->engine && proposals[i].knob == plan->knob)
            emulated_seconds += emulated_seconds_of("EMULATED_DNN_FASTEST", i);
    int64_t knob = plan->knob;
    const descriptor *op = get<descriptor *>(plan->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    auto operand = [&](cudnnBackendAttributeName_t name) { return get<descriptor *>(op, name); };
    kind_names names = names_of(op);
    tensor x = tensor_of(operand(names.x), pack), weight = tensor_of(operand(names.weight), pack);
    tensor y = tensor_of(operand(names.y), pack);
    tensor out = names.which == FORWARD ? y : names.which == GRAD_INPUT ? x : weight;
    window w = window_of(operand(names.window));
    std::vector<step> steps;
    for (int i = 1; i < operations_of(plan->graph); i++) {
        const descriptor *next = get<descriptor *>(plan->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, i);
        steps.push_back(step_of(next, pack));
        out = tensor_of(get<descriptor *>(next, CUDNN_ATTR_OPERATION_POINTWISE_YDESC), pack);
    }
    if (!out.data) abort(); // the graph's last tensor is not in memory
    void *room = get<void *>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    emulated_push((cuda_stream *)((handle *)at)->stream, [=] {
        memset(room, 0xff, WORKSPACE_BYTES);
        std::vector<float> numbers = convolve(
            names.which, knob, has_tensor_cores ? emulated_tf32 : as_it_is, w, x, weight, y);
        for (const step &s : steps) apply(s, out, &numbers);
        for (size_t i = 0; i < numbers.size(); i++) write(out, (int64_t)i, numbers[i]);
    });
    return CUDNN_STATUS_SUCCESS;
}

const char *name_of(cudnnStatus_t status) {
    return status == CUDNN_STATUS_EXECUTION_FAILED ? "CUDNN_STATUS_EXECUTION_FAILED" : "another";
}

size_t version() { return 1; }

const emulated_function functions[] = {{"GetErrorString", (void *)name_of},
                                       {"GetVersion", (void *)version},
                                       {"Create", (void *)create},
                                       {"SetStream", (void *)set_stream},
                                       {"BackendCreateDescriptor", (void *)create_descriptor},
                                       {"BackendDestroyDescriptor", (void *)destroy},
                                       {"BackendSetAttribute", (void *)set},
                                       {"BackendGetAttribute", (void *)get_attribute},
                                       {"BackendFinalize", (void *)finalize},
                                       {"BackendExecute", (void *)execute}};

} // namespace

bool emulated_dnn_is_there() {
    const char *wanted = getenv("EMULATED_DNN");
    return !wanted || strcmp(wanted, "0") != 0;
}

void *emulated_dnn(const char *name) { return emulated_find(functions, "cudnn", name); }
