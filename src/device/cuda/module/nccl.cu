// Communication between GPUs by NCCL, or by AMD's RCCL, which has the same functions. The library
// is opened when it is first needed, and need not be installed. Communicators are non-blocking
// (ncclConfig_t): no call of NCCL waits for another rank, and every call can be aborted while it is
// under way.
#include "device/cuda/module/vendor.h"

#if defined(__HIP__) && __has_include(<rccl/rccl.h>)
#include <hip/hip_runtime.h>
#include <rccl/rccl.h>
#define HAS_NCCL_HEADER 1
typedef hipStream_t nccl_stream;
#elif !defined(__HIP__) && __has_include(<nccl.h>)
#include <nccl.h>
#define HAS_NCCL_HEADER 1
typedef cudaStream_t nccl_stream;
#endif

#if defined(HAS_NCCL_HEADER)

#include <atomic>
#include <new>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct cuda_nccl {
    cuda_context *context;
    ncclComm_t handle; // after a split, NCCL writes it once the ranks have found each other
    bool is_split;     // made by a split in which this rank takes part
    cuda_nccl *next;   // the next one in the list `lost`
};

namespace {

// How long closing waits until the other ranks have read what they still need. Then it aborts.
enum { CLOSE_MS = 5000 };

// The functions of the library that are used here, and those that only newer versions have.
#define NCCL_FUNCTIONS(X)                                                                          \
    X(GetVersion)                                                                                  \
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

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 1)
#define NCCL_SPLIT_FUNCTIONS(X) X(CommSplit)
#else
#define NCCL_SPLIT_FUNCTIONS(X)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 1)
#define NCCL_MEMORY_FUNCTIONS(X) X(MemAlloc) X(MemFree) X(CommRegister) X(CommDeregister)
#else
#define NCCL_MEMORY_FUNCTIONS(X)
#endif

#if defined(__HIP__)
const char library_name[] = "rccl";
#else
const char library_name[] = "nccl";
#endif

struct library {
#define X(name) decltype(&nccl##name) name;
    NCCL_FUNCTIONS(X)
    NCCL_SPLIT_FUNCTIONS(X)
    NCCL_MEMORY_FUNCTIONS(X)
#undef X
    unsigned abilities;
    char missing[CUDA_WHY_BYTES]; // why NCCL cannot be used; empty: it can
};

// Writes the version as text, for example 2.28.9.
void write_version(const library *n, char *out, size_t size) {
    int version = 0;
    if (n->GetVersion) (void)n->GetVersion(&version);
    int major = version >= 10000 ? version / 10000 : version / 1000;
    int minor = version >= 10000 ? version / 100 % 100 : version / 100 % 10;
    snprintf(out, size, "%d.%d.%d", major, minor, version % 100);
}

void find_library(library *n) {
    void *handle = vendor_open(library_name);
    const char *lacks = nullptr;
    *n = library{};
    if (!handle) {
        snprintf(n->missing, sizeof n->missing,
                 "lib%s.so was not found; install it, or name its folder in TRIREME_CUDA_LIBRARIES",
                 library_name);
        return;
    }
#define X(name)                                                                                    \
    n->name = (decltype(n->name))vendor_symbol(handle, "nccl" #name);                              \
    if (!n->name) lacks = "nccl" #name;
    NCCL_FUNCTIONS(X)
    char version[32];
    write_version(n, version, sizeof version);
    if (lacks)
        snprintf(n->missing, sizeof n->missing,
                 "lib%s.so is version %s, which has no %s; 2.14 or a later one is needed",
                 library_name, version, lacks);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 1)
    lacks = nullptr;
    NCCL_SPLIT_FUNCTIONS(X)
    if (!lacks) n->abilities |= CUDA_NCCL_SPLITS;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 1)
    lacks = nullptr;
    NCCL_MEMORY_FUNCTIONS(X)
    if (!lacks) n->abilities |= CUDA_NCCL_REGISTERS;
#endif
#undef X
}

const library *nccl() {
    static library found;
    static const bool is_found = (find_library(&found), true);
    (void)is_found;
    return &found;
}

// A list of communicators that were closed, after a failure, before the split that makes them was
// complete. NCCL may still write their handles, so they are not freed.
std::atomic<cuda_nccl *> lost;

void lose(cuda_nccl *c) {
    c->next = lost;
    while (!lost.compare_exchange_weak(c->next, c)) {
    }
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

tri_status call(cuda_nccl *c, const cuda_transfer *t, nccl_stream stream, char *why) {
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

// How a communicator is set up: most_blocks as for open_nccl (runtime.h).
ncclConfig_t config_of(int most_blocks) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 17, 1)
    if (most_blocks > 0) config.maxCTAs = most_blocks;
#endif
    return config;
}

bool is_pending(ncclComm_t comm) {
    ncclResult_t state = ncclSuccess;
    return nccl()->CommGetAsyncError(comm, &state) == ncclSuccess && state == ncclInProgress;
}

// Waits until the other ranks, too, have finished all operations of the communicator, because they
// may still read this rank's data. False: that took too long. If ranks did not finish with one
// communicator, they will not finish with others either, so later calls do not wait.
bool finalize(ncclComm_t comm) {
    static std::atomic<bool> are_gone;
    if (are_gone) return false;
    ncclResult_t result = nccl()->CommFinalize(comm);
    if (result != ncclSuccess && result != ncclInProgress) return false;
    for (int waited = 0; is_pending(comm); waited++) {
        if (waited == CLOSE_MS) are_gone = true;
        if (are_gone) return false;
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, nullptr);
    }
    return true;
}

} // namespace

tri_status vendor_find_nccl(unsigned *abilities, char *why) {
    const library *n = nccl();
    *abilities = n->abilities;
    if (!n->missing[0]) return TRI_OK;
    snprintf(why, CUDA_WHY_BYTES, "%s", n->missing);
    return TRI_NOT_FOUND;
}

tri_status vendor_nccl_id(char *id, char *why) {
    ncclUniqueId unique;
    static_assert(sizeof unique == CUDA_NCCL_ID_BYTES, "the size of NCCL's id");
    tri_status status = check(nccl()->GetUniqueId(&unique), "GetUniqueId", why);
    if (status == TRI_OK) memcpy(id, &unique, sizeof unique);
    return status;
}

tri_status vendor_open_nccl(cuda_context *context, const char *id, int rank, int size,
                            int most_blocks, cuda_nccl **out, char *why) {
    ncclConfig_t config = config_of(most_blocks);
    ncclUniqueId unique;
    *out = nullptr;
    tri_status status = use(context, why);
    if (status != TRI_OK) return status;
    cuda_nccl *c = new (std::nothrow) cuda_nccl{context, nullptr, false, nullptr};
    if (!c) return TRI_NO_MEMORY;
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

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 1)
tri_status vendor_split_nccl(cuda_nccl *parent, int colour, int key, int most_blocks,
                             cuda_nccl **out, char *why) {
    ncclConfig_t config = config_of(most_blocks); // without one, the parent's would be taken
    *out = nullptr;
    tri_status status = use(parent->context, why);
    if (status != TRI_OK) return status;
    bool takes_part = colour >= 0;
    cuda_nccl *c = new (std::nothrow) cuda_nccl{parent->context, nullptr, takes_part, nullptr};
    if (!c) return TRI_NO_MEMORY;
    status = check(nccl()->CommSplit(parent->handle, colour < 0 ? NCCL_SPLIT_NOCOLOR : colour, key,
                                     &c->handle, &config),
                   "CommSplit", why);
    if (status != TRI_OK) {
        vendor_close_nccl(c, true);
        return status;
    }
    *out = c;
    return TRI_OK;
}
#else
tri_status vendor_split_nccl(cuda_nccl *, int, int, int, cuda_nccl **, char *) {
    return TRI_UNSUPPORTED;
}
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 1)
tri_status vendor_alloc_nccl(cuda_context *context, size_t size_bytes, void **out, char *why) {
    *out = nullptr;
    tri_status status = use(context, why);
    if (status != TRI_OK) return status;
    status = check(nccl()->MemAlloc(out, size_bytes ? size_bytes : 1), "MemAlloc", why);
    return status == TRI_OK ? TRI_OK : TRI_NO_MEMORY;
}

void vendor_free_nccl(cuda_context *context, void *memory) {
    char why[CUDA_WHY_BYTES];
    if (use(context, why) == TRI_OK) (void)nccl()->MemFree(memory);
}

tri_status vendor_register_nccl(cuda_nccl *c, void *memory, size_t size_bytes, void **handle,
                                char *why) {
    *handle = nullptr;
    tri_status status = use(c->context, why);
    if (status != TRI_OK) return status;
    return check(nccl()->CommRegister(c->handle, memory, size_bytes, handle), "CommRegister", why);
}

void vendor_deregister_nccl(cuda_nccl *c, void *handle) {
    char why[CUDA_WHY_BYTES];
    if (use(c->context, why) == TRI_OK) (void)nccl()->CommDeregister(c->handle, handle);
}
#else
tri_status vendor_alloc_nccl(cuda_context *, size_t, void **, char *) { return TRI_UNSUPPORTED; }
void vendor_free_nccl(cuda_context *, void *) {}
tri_status vendor_register_nccl(cuda_nccl *, void *, size_t, void **, char *) {
    return TRI_UNSUPPORTED;
}
void vendor_deregister_nccl(cuda_nccl *, void *) {}
#endif

cuda_event_state vendor_nccl_state(cuda_nccl *c, char *why) {
    ncclResult_t state = ncclSuccess;
    if (!c->handle) return CUDA_EVENT_DONE; // a split in which this rank takes no part
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
        status = call(c, &calls[i], (nccl_stream)vendor_stream(stream), why);
    char other[CUDA_WHY_BYTES];
    bool failed = status != TRI_OK; // the group must be ended even after a failure
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
    if (!c->handle && c->is_split)
        lose(c);
    else
        delete c;
}

#else // built without NCCL: communication between ranks goes through the host's memory

tri_status vendor_find_nccl(unsigned *abilities, char *why) {
    *abilities = 0;
    snprintf(why, CUDA_WHY_BYTES, "the module was built without the header of NCCL");
    return TRI_NOT_FOUND;
}
tri_status vendor_nccl_id(char *, char *) { return TRI_UNSUPPORTED; }
tri_status vendor_open_nccl(cuda_context *, const char *, int, int, int, cuda_nccl **, char *) {
    return TRI_UNSUPPORTED;
}
tri_status vendor_split_nccl(cuda_nccl *, int, int, int, cuda_nccl **, char *) {
    return TRI_UNSUPPORTED;
}
tri_status vendor_alloc_nccl(cuda_context *, size_t, void **, char *) { return TRI_UNSUPPORTED; }
void vendor_free_nccl(cuda_context *, void *) {}
tri_status vendor_register_nccl(cuda_nccl *, void *, size_t, void **, char *) {
    return TRI_UNSUPPORTED;
}
void vendor_deregister_nccl(cuda_nccl *, void *) {}
cuda_event_state vendor_nccl_state(cuda_nccl *, char *) { return CUDA_EVENT_FAILED; }
tri_status vendor_issue_nccl(cuda_nccl *, cuda_stream *, const cuda_transfer *, int, char *) {
    return TRI_UNSUPPORTED;
}
void vendor_close_nccl(cuda_nccl *, bool) {}

#endif
