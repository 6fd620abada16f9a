// Communication between GPUs by NCCL, which is opened when it is first asked for, and need not be
// there. Communicators are non-blocking: no call waits for another rank, and all of them can be
// aborted while it is under way.
#include "device/cuda/module/vendor.h"

#if __has_include(<nccl.h>)

#include <nccl.h>
#include <new>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct cuda_nccl {
    cuda_context *context;
    ncclComm_t handle;
};

namespace {

enum { CLOSE_MS = 5000 }; // for what peers still have to read, before the communicator is aborted

// Every function of the library that is used here, to be looked up by name.
#define NCCL_FUNCTIONS(X)                                                                          \
    X(GetUniqueId)                                                                                 \
    X(GetErrorString)                                                                              \
    X(CommInitRankConfig)                                                                          \
    X(CommGetAsyncError)                                                                           \
    X(CommFinalize)                                                                                \
    X(CommDestroy)                                                                                 \
    X(CommAbort)                                                                                   \
    X(GroupStart)                                                                                  \
    X(GroupEnd)                                                                                    \
    X(AllReduce)                                                                                   \
    X(ReduceScatter)                                                                               \
    X(AllGather)                                                                                   \
    X(Broadcast)                                                                                   \
    X(Send)                                                                                        \
    X(Recv)

struct library {
#define X(name) decltype(&nccl##name) name;
    NCCL_FUNCTIONS(X)
#undef X
};

// Opens the library; NULL: it is not installed, or is too old for non-blocking communicators.
const library *find_library() {
    static library functions;
    void *handle = vendor_open("nccl");
    if (!handle) return nullptr;
#define X(name)                                                                                    \
    functions.name = (decltype(functions.name))vendor_symbol(handle, "nccl" #name);                \
    if (!functions.name) return nullptr;
    NCCL_FUNCTIONS(X)
#undef X
    return &functions;
}

const library *nccl() {
    static const library *const found = find_library();
    return found;
}

tri_status check(ncclResult_t result, const char *call, char *why) {
    if (result == ncclSuccess || result == ncclInProgress) return TRI_OK;
    snprintf(why, CUDA_WHY_BYTES, "nccl%s: %s", call, nccl()->GetErrorString(result));
    return TRI_INTERNAL;
}

tri_status use(cuda_context *context, char *why) {
    if (vendor_use(context)) return TRI_OK;
    snprintf(why, CUDA_WHY_BYTES, "the device of the communicator cannot be chosen");
    return TRI_INTERNAL;
}

ncclDataType_t type_of(tri_dtype dtype) {
    switch (dtype) {
    case TRI_F32:
        return ncclFloat32;
    case TRI_F64:
        return ncclFloat64;
    case TRI_F16:
        return ncclFloat16;
    case TRI_BF16:
        return ncclBfloat16;
    case TRI_I64:
        return ncclInt64;
    case TRI_I32:
        return ncclInt32;
    default:
        return ncclUint8;
    }
}

tri_status call(cuda_nccl *c, const cuda_transfer *t, cudaStream_t stream, char *why) {
    static const ncclRedOp_t reductions[] = {ncclSum, ncclMax, ncclMin};
    ncclRedOp_t reduction = reductions[t->reduction];
    ncclDataType_t type = type_of(t->dtype);
    size_t count = (size_t)t->count;
    ncclComm_t comm = c->handle;
    const library *n = nccl();
    switch (t->kind) {
    case CUDA_ALL_REDUCE:
        return check(n->AllReduce(t->send, t->recv, count, type, reduction, comm, stream),
                     "AllReduce", why);
    case CUDA_REDUCE_SCATTER:
        return check(n->ReduceScatter(t->send, t->recv, count, type, reduction, comm, stream),
                     "ReduceScatter", why);
    case CUDA_ALL_GATHER:
        return check(n->AllGather(t->send, t->recv, count, type, comm, stream), "AllGather", why);
    case CUDA_BROADCAST:
        return check(n->Broadcast(t->send, t->recv, count, type, t->peer, comm, stream),
                     "Broadcast", why);
    case CUDA_SEND:
        return check(n->Send(t->send, count, type, t->peer, comm, stream), "Send", why);
    case CUDA_RECV:
        return check(n->Recv(t->recv, count, type, t->peer, comm, stream), "Recv", why);
    }
    return TRI_UNSUPPORTED;
}

bool is_pending(ncclComm_t comm) {
    ncclResult_t state = ncclSuccess;
    return nccl()->CommGetAsyncError(comm, &state) == ncclSuccess && state == ncclInProgress;
}

// Ends a communicator in order, so that the peers can read what they still read. True: in time.
bool finalize(ncclComm_t comm) {
    ncclResult_t result = nccl()->CommFinalize(comm);
    if (result != ncclSuccess && result != ncclInProgress) return false;
    for (int waited = 0; is_pending(comm); waited++) {
        if (waited == CLOSE_MS) return false;
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, nullptr);
    }
    return true;
}

} // namespace

bool vendor_has_nccl() { return nccl() != nullptr; }

tri_status vendor_nccl_id(char *id, char *why) {
    ncclUniqueId unique;
    static_assert(sizeof unique == CUDA_NCCL_ID_BYTES, "the size of NCCL's id");
    tri_status status = check(nccl()->GetUniqueId(&unique), "GetUniqueId", why);
    if (status == TRI_OK) memcpy(id, &unique, sizeof unique);
    return status;
}

tri_status vendor_open_nccl(cuda_context *context, const char *id, int rank, int size,
                            cuda_nccl **out, char *why) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId unique;
    *out = nullptr;
    tri_status status = use(context, why);
    if (status != TRI_OK) return status;
    cuda_nccl *c = new (std::nothrow) cuda_nccl{context, nullptr};
    if (!c) return TRI_NO_MEMORY;
    config.blocking = 0;
    memcpy(&unique, id, sizeof unique);
    status = check(nccl()->CommInitRankConfig(&c->handle, size, unique, rank, &config),
                   "CommInitRankConfig", why);
    if (status != TRI_OK) {
        vendor_close_nccl(c, true);
        return status;
    }
    *out = c;
    return TRI_OK;
}

cuda_event_state vendor_nccl_state(cuda_nccl *c, char *why) {
    ncclResult_t state = ncclSuccess;
    tri_status status =
        check(nccl()->CommGetAsyncError(c->handle, &state), "CommGetAsyncError", why);
    if (status != TRI_OK) return CUDA_EVENT_FAILED;
    if (state == ncclInProgress) return CUDA_EVENT_PENDING;
    if (state == ncclSuccess) return CUDA_EVENT_DONE;
    snprintf(why, CUDA_WHY_BYTES, "NCCL: %s", nccl()->GetErrorString(state));
    return CUDA_EVENT_FAILED;
}

tri_status vendor_issue_nccl(cuda_nccl *c, cuda_stream *stream, const cuda_transfer *calls,
                             int count, char *why) {
    tri_status status = use(c->context, why);
    if (status != TRI_OK) return status;
    status = check(nccl()->GroupStart(), "GroupStart", why);
    if (status != TRI_OK) return status;
    for (int i = 0; i < count && status == TRI_OK; i++)
        status = call(c, &calls[i], (cudaStream_t)vendor_stream(stream), why);
    char other[CUDA_WHY_BYTES];
    bool failed = status != TRI_OK; // the group has to be ended anyway
    tri_status ended = check(nccl()->GroupEnd(), "GroupEnd", failed ? other : why);
    return failed ? status : ended;
}

void vendor_close_nccl(cuda_nccl *c, bool aborts) {
    if (!c) return;
    char why[CUDA_WHY_BYTES];
    if (c->handle && use(c->context, why) == TRI_OK) {
        if (!aborts && finalize(c->handle))
            (void)nccl()->CommDestroy(c->handle);
        else
            (void)nccl()->CommAbort(c->handle);
    }
    delete c;
}

#else // built without NCCL: data of several ranks go through the memory of the host

bool vendor_has_nccl() { return false; }
tri_status vendor_nccl_id(char *, char *) { return TRI_UNSUPPORTED; }
tri_status vendor_open_nccl(cuda_context *, const char *, int, int, cuda_nccl **, char *) {
    return TRI_UNSUPPORTED;
}
cuda_event_state vendor_nccl_state(cuda_nccl *, char *) { return CUDA_EVENT_FAILED; }
tri_status vendor_issue_nccl(cuda_nccl *, cuda_stream *, const cuda_transfer *, int, char *) {
    return TRI_UNSUPPORTED;
}
void vendor_close_nccl(cuda_nccl *, bool) {}

#endif
