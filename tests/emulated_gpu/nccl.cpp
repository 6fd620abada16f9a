// A double of NCCL for tests: the functions that module/nccl.cu calls, for ranks that are processes
// of one host. The ranks of a communicator meet in a file of shared memory that the unique id
// names, where each has a mailbox for every other. All calls become messages through them, on the
// stream's thread. It checks what is cheap to check: that the calls of two ranks fit together, and
// that nothing is asked of a communicator that still works on the last request.
//
// EMULATED_NCCL=HOW:RANK:N makes group N (from 1) of a rank go wrong: "error": the communicator
// fails; "hang": the group never ends.
#include "emulated_gpu/emulation.h"
#include "emulated_gpu/libraries.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <nccl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <vector>

namespace {

enum { MOST_RANKS = 8, CHUNK_BYTES = 32768, POLLS = 2 };

// What a receiver checks of the call that a chunk belongs to.
struct call_header {
    int kind, type, reduction,
        root; // kind: cuda_transfer_kind, CUDA_SEND of both ends of a message
    uint64_t count;
};

struct mailbox {
    std::atomic<uint32_t> full;
    call_header header;
    uint64_t bytes;
    char data[CHUNK_BYTES];
};

struct hub {
    std::atomic<int> arrived;
    mailbox boxes[MOST_RANKS][MOST_RANKS]; // [from][to]
};

struct core {
    hub *shared = nullptr;
    int rank = 0, size = 0, groups = 0;
    std::atomic<bool> aborted{false};
    std::atomic<int> failure{ncclSuccess};
    ~core() {
        if (shared) munmap(shared, sizeof *shared);
    }
};

struct part { // one direction of a message between two ranks
    bool sends;
    int peer;
    char *at;
    uint64_t bytes, done;
    call_header header;
    bool ended;
};

struct job {
    std::vector<part> parts;
    std::vector<std::function<void()>> ends; // after all parts
    std::vector<std::pair<const char *, uint64_t>> to_self;
    std::vector<std::pair<char *, uint64_t>> from_self;
};

} // namespace

struct ncclComm {
    std::shared_ptr<core> state;
    std::function<void()> pending; // a group that was issued, and is not on the stream yet
    int polls = 0;
};

namespace {

thread_local struct {
    int depth = 0;
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    std::shared_ptr<job> work;
    bool bad = false;
} group;

size_t width_of(ncclDataType_t type) {
    switch (type) {
    case ncclFloat64:
    case ncclInt64:
        return 8;
    case ncclFloat32:
    case ncclInt32:
        return 4;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    default:
        return 1;
    }
}

bool send_chunk(core *c, part *p) {
    mailbox &box = c->shared->boxes[c->rank][p->peer];
    if (box.full.load(std::memory_order_acquire)) return false;
    box.header = p->header;
    box.bytes = std::min<uint64_t>(p->bytes - p->done, CHUNK_BYTES);
    if (box.bytes) memcpy(box.data, p->at + p->done, box.bytes);
    p->done += box.bytes;
    p->ended = p->done == p->bytes;
    box.full.store(1, std::memory_order_release);
    return true;
}

bool receive_chunk(core *c, part *p) {
    mailbox &box = c->shared->boxes[p->peer][c->rank];
    if (!box.full.load(std::memory_order_acquire)) return false;
    if (memcmp(&box.header, &p->header, sizeof box.header) != 0 || p->done + box.bytes > p->bytes) {
        fprintf(stderr, "emulated NCCL: the calls of ranks %d and %d do not fit together\n",
                p->peer, c->rank);
        c->failure = ncclInvalidUsage;
        return false;
    }
    if (box.bytes) memcpy(p->at + p->done, box.data, box.bytes);
    p->done += box.bytes;
    p->ended = p->done == p->bytes;
    box.full.store(0, std::memory_order_release);
    return true;
}

// Between two ranks, and in one direction, only the oldest message moves.
bool move_all(core *c, job *work, bool *ended) {
    bool busy[2][MOST_RANKS] = {}, moved = false;
    *ended = true;
    for (part &p : work->parts) {
        if (p.ended || busy[p.sends][p.peer]) continue;
        moved = (p.sends ? send_chunk(c, &p) : receive_chunk(c, &p)) || moved;
        busy[p.sends][p.peer] = !p.ended;
        *ended = *ended && p.ended;
    }
    return moved;
}

void pause() {
    struct timespec time = {0, 20000};
    nanosleep(&time, nullptr);
}

void run(const std::shared_ptr<core> &c, const std::shared_ptr<job> &work) {
    for (bool ended = false; !ended;) {
        if (c->aborted) return;
        if (c->failure != ncclSuccess || !move_all(c.get(), work.get(), &ended)) pause();
        ended = ended && c->failure == ncclSuccess;
    }
    for (size_t i = 0; i < work->to_self.size(); i++)
        memmove(work->from_self[i].first, work->to_self[i].first, work->to_self[i].second);
    for (const auto &end : work->ends) end();
}

template <typename T> T combine(T a, T b, ncclRedOp_t reduction) {
    return reduction == ncclSum ? a + b : (reduction == ncclMax) == (a > b) ? a : b;
}

// Adds from the last rank to the first, so that nobody takes the result for one in rank order.
template <typename T>
void reduce_as(const std::vector<std::vector<char>> &terms, char *out, uint64_t count,
               ncclRedOp_t reduction) {
    for (uint64_t i = 0; i < count; i++) {
        T sum, next;
        memcpy(&sum, terms.back().data() + i * sizeof sum, sizeof sum);
        for (size_t r = terms.size() - 1; r-- > 0;) {
            memcpy(&next, terms[r].data() + i * sizeof next, sizeof next);
            sum = combine(sum, next, reduction);
        }
        memcpy(out + i * sizeof sum, &sum, sizeof sum);
    }
}

void widen(std::vector<char> *values, ncclDataType_t type, uint64_t count) {
    std::vector<char> wide(count * sizeof(float));
    for (uint64_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, values->data() + 2 * i, sizeof bits);
        uint32_t moved = (uint32_t)bits << 16;
        float value;
        if (type == ncclBfloat16) {
            memcpy(&value, &moved, sizeof value);
        } else {
            _Float16 half;
            memcpy(&half, &bits, sizeof half);
            value = (float)half;
        }
        memcpy(wide.data() + i * sizeof value, &value, sizeof value);
    }
    *values = std::move(wide);
}

// Maxima and minima of halves only: they are exact.
void reduce_halves(std::vector<std::vector<char>> &terms, char *out, ncclDataType_t type,
                   uint64_t count, ncclRedOp_t reduction) {
    std::vector<char> wide(count * sizeof(float));
    for (auto &term : terms) widen(&term, type, count);
    reduce_as<float>(terms, wide.data(), count, reduction);
    for (uint64_t i = 0; i < count; i++) {
        float value;
        uint32_t bits;
        memcpy(&value, wide.data() + i * sizeof value, sizeof value);
        memcpy(&bits, &value, sizeof bits);
        _Float16 half = (_Float16)value;
        uint16_t top = (uint16_t)(bits >> 16);
        memcpy(out + 2 * i, type == ncclBfloat16 ? (void *)&top : (void *)&half, 2);
    }
}

void reduce(std::vector<std::vector<char>> &terms, char *out, ncclDataType_t type, uint64_t count,
            ncclRedOp_t reduction) {
    switch (type) {
    case ncclFloat32:
        return reduce_as<float>(terms, out, count, reduction);
    case ncclFloat64:
        return reduce_as<double>(terms, out, count, reduction);
    case ncclInt64:
        return reduce_as<int64_t>(terms, out, count, reduction);
    case ncclInt32:
        return reduce_as<int32_t>(terms, out, count, reduction);
    default:
        return reduce_halves(terms, out, type, count, reduction);
    }
}

void add_part(bool sends, int peer, const void *at, uint64_t bytes, const call_header &header) {
    group.work->parts.push_back({sends, peer, (char *)(uintptr_t)at, bytes, 0, header, false});
}

// Joins the call to the group. False: it may not be made now.
bool join(ncclComm_t comm, cudaStream_t stream) {
    bool fits = group.depth > 0 && comm->state->failure == ncclSuccess && !comm->pending &&
                comm->state->shared->arrived == comm->state->size &&
                (!group.comm || (group.comm == comm && group.stream == stream));
    if (!fits) {
        fprintf(stderr, "emulated NCCL: a call outside a group, or of a busy communicator\n");
        group.bad = true;
        return false;
    }
    group.comm = comm;
    group.stream = stream;
    if (!group.work) group.work = std::make_shared<job>();
    return true;
}

// Sums, or all terms side by side, of `count` elements; `scatters`: every rank gets a slice.
ncclResult_t reduction(const void *send, void *recv, size_t count, ncclDataType_t type,
                       ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, bool scatters) {
    if (!join(comm, stream)) return ncclInvalidUsage;
    core *c = comm->state.get();
    uint64_t bytes = count * width_of(type);
    call_header header = {scatters ? CUDA_REDUCE_SCATTER : CUDA_ALL_REDUCE, type, op, 0, count};
    auto terms = std::make_shared<std::vector<std::vector<char>>>(c->size);
    for (int r = 0; r < c->size; r++) {
        const char *from = (const char *)send + (scatters ? (uint64_t)r * bytes : 0);
        (*terms)[r].resize(bytes);
        if (r == c->rank) continue;
        add_part(true, r, from, bytes, header);
        add_part(false, r, (*terms)[r].data(), bytes, header);
    }
    const char *own = (const char *)send + (scatters ? (uint64_t)c->rank * bytes : 0);
    int rank = c->rank;
    group.work->ends.push_back([=] {
        if (bytes) memcpy((*terms)[rank].data(), own, bytes);
        reduce(*terms, (char *)recv, type, count, op);
    });
    return ncclSuccess;
}

ncclResult_t all_reduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return reduction(send, recv, count, type, op, comm, stream, false);
}

ncclResult_t reduce_scatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return reduction(send, recv, count, type, op, comm, stream, true);
}

ncclResult_t all_gather(const void *send, void *recv, size_t count, ncclDataType_t type,
                        ncclComm_t comm, cudaStream_t stream) {
    if (!join(comm, stream)) return ncclInvalidUsage;
    core *c = comm->state.get();
    uint64_t bytes = count * width_of(type);
    call_header header = {CUDA_ALL_GATHER, type, 0, 0, count};
    for (int r = 0; r < c->size; r++) {
        char *to = (char *)recv + (uint64_t)r * bytes;
        if (r != c->rank) {
            add_part(true, r, send, bytes, header);
            add_part(false, r, to, bytes, header);
        } else {
            group.work->ends.push_back([=] { memmove(to, send, bytes); });
        }
    }
    return ncclSuccess;
}

ncclResult_t broadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, cudaStream_t stream) {
    if (!join(comm, stream)) return ncclInvalidUsage;
    core *c = comm->state.get();
    uint64_t bytes = count * width_of(type);
    call_header header = {CUDA_BROADCAST, type, 0, root, count};
    if (c->rank != root) {
        add_part(false, root, recv, bytes, header);
        return ncclSuccess;
    }
    for (int r = 0; r < c->size; r++)
        if (r != root) add_part(true, r, send, bytes, header);
    group.work->ends.push_back([=] { memmove(recv, send, bytes); });
    return ncclSuccess;
}

ncclResult_t send(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
    if (!join(comm, stream)) return ncclInvalidUsage;
    uint64_t bytes = count * width_of(type);
    if (peer == comm->state->rank)
        group.work->to_self.push_back({(const char *)from, bytes});
    else
        add_part(true, peer, from, bytes, {CUDA_SEND, type, 0, 0, count});
    return ncclSuccess;
}

ncclResult_t receive(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                     cudaStream_t stream) {
    if (!join(comm, stream)) return ncclInvalidUsage;
    uint64_t bytes = count * width_of(type);
    if (peer == comm->state->rank)
        group.work->from_self.push_back({(char *)to, bytes});
    else
        add_part(false, peer, to, bytes, {CUDA_SEND, type, 0, 0, count});
    return ncclSuccess;
}

ncclResult_t group_start() {
    group.depth++;
    return ncclSuccess;
}

// What EMULATED_NCCL asks for; true: the group does not end by itself.
bool goes_wrong(core *c) {
    const char *wanted = getenv("EMULATED_NCCL");
    char how[16];
    int rank, number;
    c->groups++;
    if (!wanted || sscanf(wanted, "%15[a-z]:%d:%d", how, &rank, &number) != 3) return false;
    if (rank != c->rank || number != c->groups) return false;
    if (strcmp(how, "error") == 0) c->failure = ncclRemoteError;
    return true;
}

// As with NCCL, a group is on the stream only some time later.
ncclResult_t group_end() {
    if (--group.depth > 0) return ncclSuccess;
    ncclComm_t comm = group.comm;
    std::shared_ptr<job> work = std::move(group.work);
    cudaStream_t stream = group.stream;
    bool bad = group.bad || (work && work->to_self.size() != work->from_self.size());
    group.comm = nullptr;
    group.work = nullptr;
    group.bad = false;
    if (bad) return ncclInvalidUsage;
    if (!comm) return ncclSuccess;
    std::shared_ptr<core> c = comm->state;
    bool wrong = goes_wrong(c.get());
    comm->polls = 0;
    comm->pending = [=] {
        emulated_push((cuda_stream *)stream, [=] {
            while (wrong && !c->aborted) pause();
            run(c, work);
        });
    };
    return ncclInProgress;
}

ncclResult_t unique_id(ncclUniqueId *id) {
    static std::atomic<int> count;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/trireme-nccl-%d-%d", (int)getpid(), count++);
    shm_unlink(id->internal); // of a process that had this number before
    int file = shm_open(id->internal, O_RDWR | O_CREAT | O_EXCL, 0600);
    bool made = file >= 0 && ftruncate(file, sizeof(hub)) == 0;
    if (file >= 0) close(file);
    return made ? ncclSuccess : ncclSystemError;
}

ncclResult_t init(ncclComm_t *out, int size, ncclUniqueId id, int rank, ncclConfig_t *config) {
    *out = nullptr;
    if (config->blocking != 0 || size > MOST_RANKS) return ncclInvalidArgument;
    int file = shm_open(id.internal, O_RDWR, 0);
    if (file < 0) return ncclInvalidArgument;
    void *memory = mmap(nullptr, sizeof(hub), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) return ncclSystemError;
    *out = new ncclComm;
    (*out)->state = std::make_shared<core>();
    core *c = (*out)->state.get();
    c->shared = (hub *)memory;
    c->rank = rank;
    c->size = size;
    if (++c->shared->arrived == size) shm_unlink(id.internal);
    return ncclInProgress;
}

ncclResult_t async_error(ncclComm_t comm, ncclResult_t *out) {
    core *c = comm->state.get();
    *out = (ncclResult_t)c->failure.load();
    if (*out != ncclSuccess) return ncclSuccess;
    if (c->shared->arrived < c->size) *out = ncclInProgress;
    if (!comm->pending) return ncclSuccess;
    if (++comm->polls < POLLS) {
        *out = ncclInProgress;
        return ncclSuccess;
    }
    comm->pending();
    comm->pending = nullptr;
    return ncclSuccess;
}

ncclResult_t finalize(ncclComm_t comm) { return comm->pending ? ncclInvalidUsage : ncclSuccess; }

ncclResult_t destroy(ncclComm_t comm) {
    delete comm;
    return ncclSuccess;
}

ncclResult_t abort_all(ncclComm_t comm) {
    comm->state->aborted = true;
    return destroy(comm);
}

const char *error_string(ncclResult_t result) {
    return result == ncclRemoteError    ? "remote process exited or there was a network error"
           : result == ncclInvalidUsage ? "invalid usage"
                                        : "an error";
}

const struct {
    const char *name;
    void *function;
} functions[] = {{"GetUniqueId", (void *)unique_id},
                 {"GetErrorString", (void *)error_string},
                 {"CommInitRankConfig", (void *)init},
                 {"CommGetAsyncError", (void *)async_error},
                 {"CommFinalize", (void *)finalize},
                 {"CommDestroy", (void *)destroy},
                 {"CommAbort", (void *)abort_all},
                 {"GroupStart", (void *)group_start},
                 {"GroupEnd", (void *)group_end},
                 {"AllReduce", (void *)all_reduce},
                 {"ReduceScatter", (void *)reduce_scatter},
                 {"AllGather", (void *)all_gather},
                 {"Broadcast", (void *)broadcast},
                 {"Send", (void *)send},
                 {"Recv", (void *)receive}};

} // namespace

void *emulated_nccl(const char *name) {
    for (const auto &f : functions)
        if (strcmp(name + strlen("nccl"), f.name) == 0) return f.function;
    return nullptr;
}
