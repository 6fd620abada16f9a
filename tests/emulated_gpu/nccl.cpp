// A test double of NCCL: the functions that module/nccl.cu calls, for ranks that are processes of
// one host. The unique id of a communicator is the name of a file of shared memory, in which every
// rank has a mailbox for each other rank. The stream's thread turns all calls into messages through
// these mailboxes. As with NCCL, a send ends only when its receiver has taken all data. The double
// checks that the calls of two ranks fit together, that no call is made while the communicator is
// still busy with the one before, and that memory is registered where it has to be.
//
// EMULATED_NCCL=HOW:RANK:N: group N (from 1) of RANK goes wrong in every communicator. HOW "error":
// the communicator fails; "hang": the group never ends. EMULATED_NCCL_VERSION=2.17: only this
// version's functions are found; 0: no library. EMULATED_NCCL_REFUSES=CommSplit: that call fails.
// EMULATED_NCCL_ALIGNED=1: a large message whose address is no multiple of 16 ends the program.
#include "emulated_gpu/emulation.h"
#include "emulated_gpu/libraries.h"
#include "emulated_gpu/nccl_memory.h"
#include "emulated_gpu/nccl_sums.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <nccl.h>
#include <string>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <vector>

namespace {

enum { MOST_RANKS = 8, MOST_SPLITS = 32, CHUNK_BYTES = 32768, POLLS = 2 };

// Describes the call to which a chunk belongs, so that the receiver can compare it with its own.
// `kind` is a cuda_transfer_kind; a receive has CUDA_SEND too, because it must equal its send.
struct call_header {
    int kind, type, reduction, root;
    uint64_t count;
};

struct mailbox {                // through which the chunks of a message pass, one at a time
    std::atomic<uint32_t> full; // 1: the sender has put a chunk into it; 0: the receiver took it
    call_header header;
    uint64_t bytes;
    char data[CHUNK_BYTES];
};

// The colour and key that a rank gives to a split.
struct wish {
    std::atomic<int> is_there;
    int colour, key;
};

struct hub { // the shared memory of a communicator
    // How many ranks have opened the communicator, and how many are closing it.
    std::atomic<int> arrived, closing;
    wish wishes[MOST_SPLITS][MOST_RANKS];
    mailbox boxes[MOST_RANKS][MOST_RANKS]; // [from][to]
};

struct core {              // what a rank knows of a communicator
    hub *shared = nullptr; // NULL: the split that makes this communicator still goes on
    std::string name;
    int rank = 0, size = 0, groups = 0, splits = 0;
    std::shared_ptr<core> parent; // the communicator that was split; NULL: there is none
    int number = 0;               // number of the split among those of the parent
    bool waits_for_split = false, is_closing = false;
    std::atomic<bool> aborted{false};
    std::atomic<int> failure{ncclSuccess};
    ~core() {
        if (shared) munmap(shared, sizeof *shared);
    }
};

struct direction { // a message that this rank sends to, or receives from, one other rank
    bool sends;
    int peer;
    char *at;
    uint64_t bytes, done;
    call_header header;
    bool last_sent, ended; // last_sent: the last chunk is in the mailbox; ended: all is done
};

struct job { // the work of one group
    std::vector<direction> directions;
    std::vector<std::function<void()>> ends;                // called when all directions are done
    std::vector<std::pair<const char *, uint64_t>> to_self; // sent to itself: address, bytes
    std::vector<std::pair<char *, uint64_t>> from_self;
};

} // namespace

struct ncclComm {
    std::shared_ptr<core> state;   // shared, because work on a stream may outlive the ncclComm
    std::function<void()> pending; // puts the issued group on the stream; empty: there is none
    int polls = 0;                 // how often async_error was called since the group was issued
};

namespace {

std::atomic<int> most_blocks; // of the communicator that was opened last; 0: NCCL decides

thread_local struct {
    int depth = 0;
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    std::shared_ptr<job> work;
    bool bad = false;
} group;

bool send_chunk(core *c, direction *p) {
    mailbox &box = c->shared->boxes[c->rank][p->peer];
    if (box.full.load(std::memory_order_acquire)) return false;
    p->ended = p->last_sent;
    if (p->ended) return true;
    box.header = p->header;
    box.bytes = std::min<uint64_t>(p->bytes - p->done, CHUNK_BYTES);
    if (box.bytes) memcpy(box.data, p->at + p->done, box.bytes);
    p->done += box.bytes;
    p->last_sent = p->done == p->bytes;
    box.full.store(1, std::memory_order_release);
    return true;
}

bool receive_chunk(core *c, direction *p) {
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

// Moves a chunk of each message. If several messages go from one rank to another, only the oldest
// one moves. True: some chunk was moved.
bool move_all(core *c, job *work, bool *ended) {
    bool busy[2][MOST_RANKS] = {}, moved = false;
    *ended = true;
    for (direction &p : work->directions) {
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

void add_direction(bool sends, int peer, const void *at, uint64_t bytes,
                   const call_header &header) {
    group.work->directions.push_back(
        {sends, peer, (char *)(uintptr_t)at, bytes, 0, header, false, false});
}

// Adds a call to the group that the thread has begun. False: our code must not make this call now.
bool join(ncclComm_t comm, cudaStream_t stream, const void *send, const void *recv) {
    nccl_memory_check(comm, send);
    nccl_memory_check(comm, recv);
    const core *c = comm->state.get();
    bool fits = group.depth > 0 && c->failure == ncclSuccess && !comm->pending &&
                !c->waits_for_split && c->shared && c->shared->arrived == c->size &&
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

// Reduces all ranks' terms to `count` results or, with `scatters`, to `count` for each rank.
ncclResult_t reduction(const void *send, void *recv, size_t count, ncclDataType_t type,
                       ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, bool scatters) {
    if (!join(comm, stream, send, recv)) return ncclInvalidUsage;
    core *c = comm->state.get();
    uint64_t bytes = count * nccl_width(type);
    call_header header = {scatters ? CUDA_REDUCE_SCATTER : CUDA_ALL_REDUCE, type, op, 0, count};
    auto terms = std::make_shared<std::vector<std::vector<char>>>(c->size);
    for (int r = 0; r < c->size; r++) {
        const char *from = (const char *)send + (scatters ? (uint64_t)r * bytes : 0);
        (*terms)[r].resize(bytes);
        if (r == c->rank) continue;
        add_direction(true, r, from, bytes, header);
        add_direction(false, r, (*terms)[r].data(), bytes, header);
    }
    const char *own = (const char *)send + (scatters ? (uint64_t)c->rank * bytes : 0);
    int rank = c->rank;
    group.work->ends.push_back([=] {
        if (bytes) memcpy((*terms)[rank].data(), own, bytes);
        nccl_reduce(*terms, (char *)recv, type, count, op);
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
    if (!join(comm, stream, send, recv)) return ncclInvalidUsage;
    core *c = comm->state.get();
    uint64_t bytes = count * nccl_width(type);
    call_header header = {CUDA_ALL_GATHER, type, 0, 0, count};
    for (int r = 0; r < c->size; r++) {
        char *to = (char *)recv + (uint64_t)r * bytes;
        if (r != c->rank) {
            add_direction(true, r, send, bytes, header);
            add_direction(false, r, to, bytes, header);
        } else {
            group.work->ends.push_back([=] { memmove(to, send, bytes); });
        }
    }
    return ncclSuccess;
}

ncclResult_t broadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, cudaStream_t stream) {
    if (!join(comm, stream, send, recv)) return ncclInvalidUsage;
    core *c = comm->state.get();
    uint64_t bytes = count * nccl_width(type);
    call_header header = {CUDA_BROADCAST, type, 0, root, count};
    if (c->rank != root) {
        add_direction(false, root, recv, bytes, header);
        return ncclSuccess;
    }
    for (int r = 0; r < c->size; r++)
        if (r != root) add_direction(true, r, send, bytes, header);
    group.work->ends.push_back([=] { memmove(recv, send, bytes); });
    return ncclSuccess;
}

// NCCL copies a message byte by byte if its address is no multiple of 16.
void check_alignment(const void *at, uint64_t bytes) {
    enum { LARGE = 4096 };
    const char *wanted = getenv("EMULATED_NCCL_ALIGNED");
    if (wanted && strcmp(wanted, "1") == 0 && bytes >= LARGE && (uintptr_t)at % 16 != 0)
        nccl_refuse("a large message lies at an address that is no multiple of 16");
}

ncclResult_t send(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
    if (!join(comm, stream, from, from)) return ncclInvalidUsage;
    uint64_t bytes = count * nccl_width(type);
    check_alignment(from, bytes);
    if (peer == comm->state->rank)
        group.work->to_self.push_back({(const char *)from, bytes});
    else
        add_direction(true, peer, from, bytes, {CUDA_SEND, type, 0, 0, count});
    return ncclSuccess;
}

ncclResult_t receive(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                     cudaStream_t stream) {
    if (!join(comm, stream, to, to)) return ncclInvalidUsage;
    uint64_t bytes = count * nccl_width(type);
    check_alignment(to, bytes);
    if (peer == comm->state->rank)
        group.work->from_self.push_back({(char *)to, bytes});
    else
        add_direction(false, peer, to, bytes, {CUDA_SEND, type, 0, 0, count});
    return ncclSuccess;
}

ncclResult_t group_start() {
    group.depth++;
    return ncclSuccess;
}

// Lets the group go wrong if EMULATED_NCCL asks for that. True: only an abort may end it.
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

// Ends the group. As with NCCL, its work is put on the stream later, by async_error (see POLLS).
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

// Removes shared memory that killed processes have left behind.
void sweep() {
    DIR *folder = opendir("/dev/shm");
    while (struct dirent *entry = folder ? readdir(folder) : nullptr) {
        int process;
        if (sscanf(entry->d_name, "trireme-nccl-%d-", &process) != 1) continue;
        if (kill(process, 0) != 0 && errno == ESRCH) shm_unlink(entry->d_name);
    }
    if (folder) closedir(folder);
}

ncclResult_t unique_id(ncclUniqueId *id) {
    static std::atomic<int> count;
    if (count == 0) sweep();
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/trireme-nccl-%d-%d", (int)getpid(), count++);
    shm_unlink(id->internal); // an earlier process with the same number may have left it
    int file = shm_open(id->internal, O_RDWR | O_CREAT | O_EXCL, 0600);
    bool made = file >= 0 && ftruncate(file, sizeof(hub)) == 0;
    if (file >= 0) close(file);
    return made ? ncclSuccess : ncclSystemError;
}

ncclResult_t enter(core *c, const char *name, bool makes) {
    int file = shm_open(name, makes ? O_RDWR | O_CREAT : O_RDWR, 0600);
    if (file < 0) return ncclInvalidArgument;
    bool fits = !makes || ftruncate(file, sizeof(hub)) == 0;
    void *memory = MAP_FAILED;
    if (fits) memory = mmap(nullptr, sizeof(hub), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) return ncclSystemError;
    c->shared = (hub *)memory;
    c->name = name;
    if (++c->shared->arrived == c->size) shm_unlink(name);
    return ncclSuccess;
}

// Checks how a communicator is to be set up, and keeps the number of thread blocks for tests.
bool takes(const ncclConfig_t *config) {
    if (!config || config->blocking != 0) return false;
    most_blocks = config->maxCTAs == NCCL_CONFIG_UNDEF_INT ? 0 : config->maxCTAs;
    return true;
}

ncclResult_t init(ncclComm_t *out, int size, ncclUniqueId id, int rank, ncclConfig_t *config) {
    *out = nullptr;
    if (!takes(config) || size > MOST_RANKS) return ncclInvalidArgument;
    auto state = std::make_shared<core>();
    state->rank = rank;
    state->size = size;
    ncclResult_t result = enter(state.get(), id.internal, false);
    if (result != ncclSuccess) return result;
    *out = new ncclComm;
    (*out)->state = state;
    return ncclInProgress;
}

ncclResult_t split(ncclComm_t comm, int colour, int key, ncclComm_t *out, ncclConfig_t *config) {
    *out = nullptr;
    if (!takes(config)) return ncclInvalidArgument;
    core *c = comm->state.get();
    const char *refused = getenv("EMULATED_NCCL_REFUSES");
    if (refused && strcmp(refused, "CommSplit") == 0) return ncclInvalidUsage;
    bool busy = comm->pending || c->waits_for_split || c->shared->arrived < c->size;
    if (busy || c->splits == MOST_SPLITS) return ncclInvalidUsage;
    wish &own = c->shared->wishes[c->splits][c->rank];
    own.colour = colour;
    own.key = key;
    own.is_there = 1;
    c->waits_for_split = true;
    if (colour != NCCL_SPLIT_NOCOLOR) {
        *out = new ncclComm;
        (*out)->state = std::make_shared<core>();
        (*out)->state->parent = comm->state;
        (*out)->state->number = c->splits;
    }
    c->splits++;
    return ncclInProgress;
}

// Whether all ranks have given their colour and key for the split.
bool is_agreed(const core *parent, int number) {
    for (int r = 0; r < parent->size; r++)
        if (!parent->shared->wishes[number][r].is_there) return false;
    return true;
}

// Enters the communicator that a split makes, once all ranks of the parent have called the split.
void end_split(core *c) {
    const core *parent = c->parent.get();
    if (!is_agreed(parent, c->number)) return;
    const wish *all = parent->shared->wishes[c->number], &own = all[parent->rank];
    c->rank = c->size = 0;
    for (int r = 0; r < parent->size; r++) {
        if (all[r].colour != own.colour) continue;
        c->size++;
        if (all[r].key < own.key || (all[r].key == own.key && r < parent->rank)) c->rank++;
    }
    std::string name =
        parent->name + "-" + std::to_string(c->number) + "-" + std::to_string(own.colour);
    ncclResult_t result = enter(c, name.c_str(), true);
    if (result != ncclSuccess) c->failure = result;
}

bool is_busy(core *c) {
    if (c->waits_for_split) c->waits_for_split = !is_agreed(c, c->splits - 1);
    if (!c->shared) end_split(c);
    return c->waits_for_split || !c->shared || c->shared->arrived < c->size ||
           (c->is_closing && c->shared->closing < c->size);
}

ncclResult_t async_error(ncclComm_t comm, ncclResult_t *out) {
    core *c = comm->state.get();
    *out = (ncclResult_t)c->failure.load();
    if (*out != ncclSuccess) return ncclSuccess;
    if (is_busy(c)) *out = ncclInProgress;
    if (!comm->pending) return ncclSuccess;
    if (++comm->polls < POLLS) {
        *out = ncclInProgress;
        return ncclSuccess;
    }
    comm->pending();
    comm->pending = nullptr;
    return ncclSuccess;
}

ncclResult_t comm_register(const ncclComm_t comm, void *at, size_t size, void **handle) {
    if (comm->pending) nccl_refuse("memory is registered with a communicator that is busy");
    nccl_memory_register(comm, at, size);
    *handle = at;
    return ncclSuccess;
}

ncclResult_t comm_deregister(const ncclComm_t comm, void *handle) {
    nccl_memory_deregister(comm, handle);
    return ncclSuccess;
}

// ---- closing a communicator
// Begins to close it. As with NCCL, it is closed only once all ranks have called this function.
ncclResult_t finalize(ncclComm_t comm) {
    core *c = comm->state.get();
    if (comm->pending || c->is_closing || !c->shared) return ncclInvalidUsage;
    c->is_closing = true;
    c->shared->closing++;
    return ncclInProgress;
}

ncclResult_t destroy(ncclComm_t comm) {
    nccl_memory_check_end(comm);
    delete comm;
    return ncclSuccess;
}

ncclResult_t abort_all(ncclComm_t comm) {
    core *c = comm->state.get();
    c->aborted = true;
    if (c->shared && !c->is_closing) c->shared->closing++;
    nccl_memory_forget(comm);
    return destroy(comm);
}

// Returns the version as NCCL writes it in one number: 21701 for 2.17 and for 2.17.1.
int version_number() {
    const char *wanted = getenv("EMULATED_NCCL_VERSION");
    int major = 0, minor = 0, patch = 1;
    if (!wanted) return NCCL_VERSION_CODE;
    (void)sscanf(wanted, "%d.%d.%d", &major, &minor, &patch);
    return NCCL_VERSION(major, minor, patch);
}

ncclResult_t get_version(int *out) {
    *out = version_number();
    return ncclSuccess;
}

const char *error_string(ncclResult_t result) {
    return result == ncclRemoteError    ? "remote process exited or there was a network error"
           : result == ncclInvalidUsage ? "invalid usage"
                                        : "an error";
}

// `since`: the first version that has the function; 0: every version.
const struct {
    const char *name;
    void *function;
    int since;
} functions[] = {{"GetVersion", (void *)get_version, 0},
                 {"GetUniqueId", (void *)unique_id, 0},
                 {"GetErrorString", (void *)error_string, 0},
                 {"CommInitRankConfig", (void *)init, NCCL_VERSION(2, 14, 0)},
                 {"CommGetAsyncError", (void *)async_error, 0},
                 {"CommFinalize", (void *)finalize, NCCL_VERSION(2, 14, 0)},
                 {"CommDestroy", (void *)destroy, 0},
                 {"CommAbort", (void *)abort_all, 0},
                 {"CommSplit", (void *)split, NCCL_VERSION(2, 18, 1)},
                 {"MemAlloc", (void *)nccl_memory_alloc, NCCL_VERSION(2, 19, 1)},
                 {"MemFree", (void *)nccl_memory_free, NCCL_VERSION(2, 19, 1)},
                 {"CommRegister", (void *)comm_register, NCCL_VERSION(2, 19, 1)},
                 {"CommDeregister", (void *)comm_deregister, NCCL_VERSION(2, 19, 1)},
                 {"GroupStart", (void *)group_start, 0},
                 {"GroupEnd", (void *)group_end, 0},
                 {"AllReduce", (void *)all_reduce, 0},
                 {"ReduceScatter", (void *)reduce_scatter, 0},
                 {"AllGather", (void *)all_gather, 0},
                 {"Broadcast", (void *)broadcast, 0},
                 {"Send", (void *)send, 0},
                 {"Recv", (void *)receive, 0}};

} // namespace

// Tests find this function by name. Returns how many thread blocks a call of the communicator that
// was opened last may use; 0: NCCL decides.
extern "C" __attribute__((visibility("default"))) int64_t emulated_nccl_blocks() {
    return most_blocks;
}

bool emulated_nccl_is_there() { return version_number() >= NCCL_VERSION(2, 0, 0); }

void *emulated_nccl(const char *name) {
    for (const auto &f : functions)
        if (strcmp(name + strlen("nccl"), f.name) == 0)
            return version_number() >= f.since ? f.function : nullptr;
    return nullptr;
}
