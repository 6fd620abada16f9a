// A test double of cuDNN's graph API: the functions that module/dnn*.cu call, for memory of the
// host. Descriptors keep the attributes that are set. Graphs are computed from their descriptors
// alone (dnn_operations.cpp), so that a wrong description gives wrong numbers.
//
// The heuristic proposes the configurations below: each is an engine (a way to compute) and, for
// one engine, the value of a knob (its parameter). The first two must not be taken: the results of
// one differ from run to run, the other needs a huge workspace. An engine that is taken fills its
// whole workspace with garbage, before and after each operation. As in the real library, all
// tensors of a convolution have one type in memory. The knob decides in which order its engine adds
// up, and so how it rounds. EMULATED_DNN_FASTEST=N: configuration N takes the least time.
//
// Three things are refused. Odd numbers of samples, and operations after a convolution of an even
// number of groups, are refused so that tests run our own code too: our own kernels then compute
// everything, or apply bias and activation to y. Products of F32 tensors in memory are refused
// because the real library has no plans for attention in F32.
#include "device/cuda/module/vendor.h"

#include "emulated_gpu/dnn_double.h"
#include "emulated_gpu/emulation.h"

#include <mutex>
#include <vector>

using namespace dnn_double;

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
    for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; i++)
        if (!of(((void *const *)values)[i])->finished) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
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

cudnnStatus_t execute(cudnnHandle_t at, cudnnBackendDescriptor_t plan_handle,
                      cudnnBackendDescriptor_t pack_handle) {
    const descriptor *plan = of(plan_handle), *pack = of(pack_handle);
    if (emulated_failed((cuda_stream *)((handle *)at)->stream))
        return CUDNN_STATUS_EXECUTION_FAILED;
    if (!pack->finished || plan->engine <= ENGINE_OF_SPACE ||
        (plan->engine == ENGINE_WITH_KNOB) != (plan->knob != 0))
        return CUDNN_STATUS_BAD_PARAM;
    for (uint64_t i = 0; i < PROPOSALS; i++)
        if (proposals[i].engine == plan->engine && proposals[i].knob == plan->knob)
            emulated_seconds += emulated_seconds_of("EMULATED_DNN_FASTEST", i);
    engine_rules rules = {plan->engine == ENGINE_OF_TENSOR_CORES, plan->knob,
                          get<void *>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE), WORKSPACE_BYTES};
    emulated_load({'d', (int64_t)(intptr_t)plan->graph});
    emulated_push((cuda_stream *)((handle *)at)->stream, computation_of(plan->graph, pack, rules));
    return CUDNN_STATUS_SUCCESS;
}

const char *name_of(cudnnStatus_t status) {
    return status == CUDNN_STATUS_EXECUTION_FAILED ? "CUDNN_STATUS_EXECUTION_FAILED" : "another";
}

size_t version() { return 91900; }

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
