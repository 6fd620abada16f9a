// Finds and runs cuDNN's plans for what other files describe: convolutions (dnn_convolution.cu) and
// attention (dnn_attention.cu). The library is opened when the first of them is asked for. If it is
// not installed, our own kernels compute.
//
// For each shape and type one plan is chosen once, from those that cuDNN's heuristics propose. It
// has to give the same bits in every run, as far as cuDNN tells, to compute F32 in F32 (or in TF32,
// if the run allows that) and to fit into the workspace. The first such plan is taken or, with
// TRIREME_CUDA_CHOICES, the fastest of the first few. Which is the fastest is measured once, and
// the choice is kept (choices.h).
#include "device/cuda/module/choices.h"
#include "device/cuda/module/dnn.h"

#if defined(DNN_IS_THERE)

#include <map>
#include <mutex>
#include <stdio.h>

namespace {

// Opens the library and looks up its functions. NULL: it is not installed.
const dnn_library *find_library() {
    static dnn_library functions;
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

typedef dnn_descriptor descriptor;

bool get(const descriptor &from, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
         int64_t most, int64_t *count, void *values) {
    return from.good && dnn()->BackendGetAttribute(from.at, name, type, most, count, values) ==
                            CUDNN_STATUS_SUCCESS;
}

// Whether `config` (a plan's engine and settings) gives the same bits in every run, and rounds no
// more than the types say. Tensor cores round F32 inputs to TF32, which only `tf32` allows.
bool is_exact(const descriptor &config, const dnn_request &r) {
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
            if (!r.tf32) return false;
            break;
        case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
            if (r.in_type == TRI_F32 && !r.tf32) return false;
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
    bool with_epilogue = false;              // the plan also carries out the epilogue
};

// Makes the plan that `config` describes. `good`: it exists, is exact and fits into the workspace.
descriptor plan_of(cudnnHandle_t handle, const descriptor &config, const dnn_request &r) {
    descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    int64_t bytes = 0, count = 0;
    plan.good = plan.good && is_exact(config, r);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    plan.good =
        plan.finalize() &&
        get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes) &&
        bytes <= r.workspace_bytes;
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
// heuristics: whether it carries out the epilogue, the number of its engine (cuDNN's
// algorithm), then type and value of each knob (setting) of the engine. Empty choice: cuDNN does
// not tell them.
enum { KEPT_EPILOGUE, KEPT_ENGINE, KEPT_KNOBS, MOST_KNOBS = 64 };

choice choice_of(const descriptor &config, bool with_epilogue) {
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
    choice made = {with_epilogue, (uint64_t)number};
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

// A plan of cuDNN which this program may use.
struct candidate {
    descriptor plan;
    choice how; // what choices.h stores if the plan is chosen; empty: it cannot be stored
};

// Asks one of cuDNN's heuristics (`mode`) for plans. Lists the first `most` that plan_of takes; if
// `most` is above 1 (to measure them), only those that a choice (choices.h) can store.
std::vector<candidate> list_plans(cudnnHandle_t handle, const descriptor &graph,
                                  cudnnBackendHeurMode_t mode, const dnn_request &r,
                                  bool with_epilogue, size_t most) {
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
        descriptor plan = plan_of(handle, configs[i], r);
        choice how = plan.good && most > 1 ? choice_of(configs[i], with_epilogue) : choice();
        if (plan.good && (most == 1 || !how.empty()))
            found.push_back({std::move(plan), std::move(how)});
    }
    return found;
}

// What the process keeps for each device: cuDNN's handle, and the plan chosen for each computation.
struct dnn_state {
    std::mutex lock;
    cudnnHandle_t handle = nullptr;
    std::map<std::pair<std::string, std::vector<int64_t>>, prepared> plans; // by kind and key
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

tri_status run(dnn_state *state, const prepared *x, cuda_stream *stream, const dnn_request &r,
               char *why) {
    int64_t count = (int64_t)(r.ids.size() - (x->with_epilogue ? 0 : r.epilogue_operands));
    descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, r.addresses.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, r.ids.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &r.workspace);
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
std::string line_of(cuda_stream *stream, const dnn_request &r) {
    std::string line = vendor_device_name(stream) + "; cuDNN " +
                       std::to_string(dnn()->GetVersion()) + "; " + r.kind + ":";
    for (int64_t number : r.key) line += " " + std::to_string(number);
    return line;
}

// Lists the plans between which to choose, the best first: if possible, plans that also carry out
// the epilogue. *with_epilogue tells whether they do.
std::vector<candidate> list_candidates(dnn_state *state, const dnn_request &r, bool *with_epilogue,
                                       size_t most) {
    std::vector<candidate> found;
    for (bool with : {true, false}) {
        if (!found.empty() || (with && !r.has_epilogue)) continue;
        *with_epilogue = with;
        descriptor graph = r.graph(state->handle, with);
        for (cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
            if (graph.good && found.empty())
                found = list_plans(state->handle, graph, mode, r, with, most);
    }
    return found;
}

void take(descriptor *plan, bool with_epilogue, prepared *x) {
    x->plan = plan->at;
    x->with_epilogue = with_epilogue;
    plan->at = nullptr;
}

// Makes the plan that an earlier run has chosen and written to a file (choices.h). False: cuDNN
// cannot compute by this plan, or the plan has an epilogue that this request lacks.
bool take_kept(dnn_state *state, const dnn_request &r, const choice &kept, prepared *x) {
    if (kept.size() < KEPT_KNOBS || (kept[KEPT_EPILOGUE] && !r.has_epilogue)) return false;
    bool with_epilogue = kept[KEPT_EPILOGUE];
    descriptor graph = r.graph(state->handle, with_epilogue), config = config_of(graph, kept);
    descriptor plan = plan_of(state->handle, config, r);
    if (plan.good) take(&plan, with_epilogue, x);
    return plan.good;
}

// Chooses the plan by which cuDNN computes. x->plan stays NULL if cuDNN has none. This can fail
// only with TRIREME_CUDA_CHOICES, because only then files are read and written. Plans are measured
// on the tensors of the computation itself; the chosen plan then overwrites the result.
tri_status choose(dnn_state *state, cuda_stream *stream, const dnn_request &r, prepared *x,
                  char *why) {
    bool is_kept = choices_folder() != nullptr, with_epilogue = false;
    std::string line = is_kept ? line_of(stream, r) : "";
    choice kept;
    if (is_kept && choices_read(line, &kept))
        return take_kept(state, r, kept, x) ? TRI_OK : choices_refuse(line, why);
    std::vector<candidate> found =
        list_candidates(state, r, &with_epilogue, is_kept ? CHOICES_MEASURED : 1);
    int count = (int)found.size();
    int best = choices_fastest(is_kept ? count : 0, [&](int i) {
        prepared tried = {found[i].plan.at, with_epilogue};
        return vendor_seconds(stream, [&] { return run(state, &tried, stream, r, why) == TRI_OK; });
    });
    if (best >= 0) {
        kept = found[best].how;
        tri_status status = choices_write(line, &kept, why);
        if (status != TRI_OK) return status;
        if (kept != found[best].how) // another process has stored its choice first
            return take_kept(state, r, kept, x) ? TRI_OK : choices_refuse(line, why);
    }
    if (count > 0) take(&found[best < 0 ? 0 : best].plan, with_epilogue, x);
    return TRI_OK;
}

// Prepares a computation, or finds it prepared. One without a plan is remembered too, so that the
// library is asked only once.
tri_status prepare(dnn_state *state, cuda_stream *stream, const dnn_request &r,
                   const prepared **out, char *why) {
    auto [at, is_new] = state->plans.try_emplace({r.kind, r.key});
    *out = &at->second;
    return is_new ? choose(state, stream, r, &at->second, why) : TRI_OK;
}

} // namespace

const dnn_library *dnn() {
    static const dnn_library *const found = find_library();
    return found;
}

cudnnDataType_t dnn_type(tri_dtype dtype) {
    return dtype == TRI_F32   ? CUDNN_DATA_FLOAT
           : dtype == TRI_F16 ? CUDNN_DATA_HALF
                              : CUDNN_DATA_BFLOAT16;
}

dnn_descriptor dnn_tensor(int64_t id, cudnnDataType_t type, dnn_where where, const int64_t *dims,
                          const int64_t *strides) {
    descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, where == DNN_VIRTUAL);
    if (where == DNN_BY_VALUE) tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
    tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
    tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, (int64_t)DNN_ALIGNMENT);
    tensor.finalize();
    return tensor;
}

dnn_descriptor dnn_pointwise(const dnn_pointwise_attr &attr, const dnn_descriptor &x,
                             const dnn_descriptor *b, const dnn_descriptor *mask,
                             const dnn_descriptor &y) {
    descriptor what(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    cudnnNanPropagation_t keeps_nan = CUDNN_PROPAGATE_NAN;
    what.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &attr.mode);
    what.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    if (attr.axis >= 0) what.set(CUDNN_ATTR_POINTWISE_AXIS, attr.axis);
    if (attr.mode == CUDNN_POINTWISE_RELU_FWD)
        what.set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &keeps_nan);
    what.finalize();
    descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
    if (mask) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *mask);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    operation.finalize();
    return operation;
}

dnn_descriptor dnn_graph(cudnnHandle_t handle, const std::vector<dnn_descriptor> &operations) {
    std::vector<cudnnBackendDescriptor_t> handles;
    descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    for (const descriptor &operation : operations) {
        handles.push_back(operation.at);
        graph.good = graph.good && operation.good;
    }
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, (int64_t)handles.size(),
              handles.data());
    graph.finalize();
    return graph;
}

bool dnn_compute(cuda_stream *stream, const dnn_request &request, bool *with_epilogue,
                 tri_status *status, char *why) {
    dnn_state *state = dnn() ? state_of(vendor_device(stream)) : nullptr;
    if (!state) return false;
    std::lock_guard<std::mutex> guard(state->lock);
    const prepared *x;
    *status = prepare(state, stream, request, &x, why);
    if (*status != TRI_OK) return true;
    if (!x->plan) return false;
    *with_epilogue = x->with_epilogue;
    *status = run(state, x, stream, request, why);
    return true;
}
#endif
