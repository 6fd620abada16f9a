// How the shared-memory backend is made.
//
// A *family* is all communicators that come from one open; its control block has a member per rank:
// who it is, its heartbeat, its ledger of actions, and a doorbell (a futex) on which it sleeps
// while it waits for others. A communicator has a *board*: a seat per rank, on which the rank
// announces its operations, a pipe per pair of ranks, and staging memory.
//
// A seat's `step` counts meetings. Whoever raises it to s has written its entry of parity s & 1,
// and has finished reading all entries of earlier steps; so an entry is free again two steps later,
// and "all seats have reached s" is the only synchronisation there is. All ranks take the same
// steps, because the entries that they meet over are compared first.
#ifndef TRIREME_COMM_SHM_INTERNAL_H
#define TRIREME_COMM_SHM_INTERNAL_H

#include "base/limits.h"
#include "base/process.h"
#include "base/status.h"
#include "comm/comm.h"
#include "comm/shm/segment.h"
#include "comm/shm/shm.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    SHM_LINE = 64, // bytes of a cache line: what ranks write apart lies apart
    SHM_LABEL_BYTES = 80,
    SHM_QUEUE_START = 64,
    SHM_STREAM_BYTES = 24 << 20, // operations that touch more than this pass by the caches
};

// ---- in shared memory

typedef struct shm_member {
    _Alignas(SHM_LINE) tri_process process;
    cpu_set_t cpus;
    _Alignas(SHM_LINE) _Atomic uint32_t joined;
    _Atomic uint64_t heartbeat;
    _Atomic int32_t awaits; // 1 + the member that a waiting caller has waited for long; 0: nobody
    _Alignas(SHM_LINE) tri_ledger_ring ledger;
    _Alignas(SHM_LINE) _Atomic uint32_t doorbell;
    _Atomic uint32_t sleepers; // threads that may be asleep on the doorbell
} shm_member;

typedef struct shm_failure { // the first one, of whatever communicator
    _Atomic uint32_t state;  // 0: none, 1: being written, 2: written
    int32_t status;
    char text[TRI_MESSAGE_MAX_BYTES];
} shm_failure;

typedef struct shm_control {
    shm_header header;
    int32_t size;
    shm_failure failure;
    shm_member members[];
} shm_control;

typedef struct shm_place { // of a buffer in an allocated region; region 0: elsewhere
    uint64_t region, offset;
} shm_place;

typedef struct shm_entry {
    _Alignas(SHM_LINE) uint32_t kind, dtype, reduction, accumulate, wire;
    int32_t root;
    int64_t count;
    uint64_t sequence;
    shm_place send, recv;
    char label[SHM_LABEL_BYTES];
    _Alignas(SHM_LINE) unsigned char payload[TRI_SHM_EAGER_BYTES];
} shm_entry;

typedef struct shm_seat {
    _Alignas(SHM_LINE) _Atomic uint64_t step;
    _Atomic uint32_t left;
    // Chunks of this rank's slice of an all-reduce that were taken and that are done, each with the
    // low half of the step they belong to above them.
    _Alignas(SHM_LINE) _Atomic uint64_t taken;
    _Alignas(SHM_LINE) _Atomic uint64_t done;
    shm_entry entries[2];
} shm_seat;

typedef struct shm_pair {                       // from one rank to another: one message at a time
    _Alignas(SHM_LINE) _Atomic uint64_t posted; // messages; the fields below are the last one's
    uint32_t dtype;
    int64_t count;
    shm_place place; // where it lies; without a region it comes through the pipe
    char label[SHM_LABEL_BYTES];
    _Alignas(SHM_LINE) _Atomic uint64_t head; // bytes that went into the pipe, ever
    _Alignas(SHM_LINE) _Atomic uint64_t tail; // and out of it
    _Atomic uint64_t received;                // messages
} shm_pair;

typedef struct shm_board {
    shm_header header;
    shm_seat seats[]; // then pairs[size * size], their pipes, and the staging memory
} shm_board;

// ---- of this process

typedef struct shm_set { // of family ranks
    uint64_t bits[TRI_MAX_LOCAL_RANKS / 64];
} shm_set;

typedef struct shm_region {
    struct shm_region *next;
    uint64_t id;
    shm_segment segment;
    shm_set members; // who has it mapped
    int parts, part; // one part per rank; this rank's
    size_t part_bytes;
    bool freed;
} shm_region;

typedef struct shm_watched { // what this process saw of another rank
    int pidfd;
    uint64_t heartbeat;
    int64_t changed_ns, looked_ns;
} shm_watched;

typedef struct shm_family {
    shm_control *control;
    shm_segment segment;
    tri_ledger *ledger;
    int rank, size, timeout_ms;
    bool by_socket, can_spin;
    // In this order: the worker holds `lock` while it advances an operation.
    pthread_mutex_t lock, regions_lock, watched_lock;
    struct shm_comm *comms;
    shm_region *regions;
    uint64_t regions_made;
    shm_watched *watched;
    pthread_t worker;
    bool has_worker;
    _Atomic uint32_t stop;
    _Atomic uint32_t work, work_sleeper; // futex on which the idle worker sleeps
} shm_family;

typedef enum shm_phase {
    SHM_BEGIN, // announce
    SHM_MEET,  // wait for all announcements
    SHM_FILL,  // copy a piece into staging memory
    SHM_READY, // wait for all pieces
    SHM_WORK,  // reduce or copy
    SHM_LEAVE, // wait until nobody reads or writes our memory any more
    SHM_DONE,
} shm_phase;

typedef struct shm_current { // progress of the operation at the head of the queue
    shm_phase phase;
    bool eager, staged;
    int64_t begin, count;                  // the piece: elements of what the kind counts
    int64_t unit;                          // next unit of WORK
    int pairs;                             // length of a run of sends and receives
    const char *from[TRI_MAX_LOCAL_RANKS]; // where each rank's part of the piece lies
    char *to[TRI_MAX_LOCAL_RANKS];
} shm_current;

typedef struct shm_pending {
    tri_comm_op op;
    uint64_t group; // ticket of the last of its group
    tri_ledger_mark mark;
    // Of sends and receives:
    bool posted, done;
    uint64_t message; // its number on the pair
    uint64_t moved;   // bytes
} shm_pending;

typedef struct shm_comm {
    tri_comm head;
    shm_family *family;
    struct shm_comm *next;
    shm_segment segment;
    shm_board *board;
    shm_pair *pairs;
    char *pipes, *stage;
    shm_set members;
    int *world; // family rank of each rank
    uint64_t step;
    // Operations from `completed` to `started`, as a ring; under `lock`.
    pthread_mutex_t lock;
    shm_pending *queue;
    uint64_t capacity;
    _Atomic uint64_t started, completed;
    _Atomic uint64_t behind; // the worker is to see to operations up to this one
    _Atomic uint32_t executing, waiters;
    shm_current current; // of whoever set `executing`, as is all below
    uint64_t moves, watched_moves;
    int64_t moved_ns, watched_ns;
    _Atomic int64_t asked_ns; // when the first operation came after there were none
} shm_comm;

typedef enum shm_progress { SHM_IDLE, SHM_BLOCKED, SHM_MOVED } shm_progress;

static inline shm_comm *shm_of(tri_comm *comm) { return (shm_comm *)comm; }
static inline shm_member *shm_me(shm_family *family) {
    return &family->control->members[family->rank];
}
static inline shm_pending *shm_at(shm_comm *comm, uint64_t index) {
    return &comm->queue[index % comm->capacity];
}
static inline bool shm_failed(shm_comm *comm) {
    return atomic_load_explicit(&comm->family->control->failure.state, memory_order_acquire) != 0;
}

// queue.c: operations in order, who carries them out, and sleep
tri_status shm_start(tri_comm *comm, const tri_comm_op *ops, int count, tri_comm_ticket *out);
bool shm_test(tri_comm *comm, tri_comm_ticket ticket);
tri_status shm_wait(tri_comm *comm, tri_comm_ticket ticket);
// One bounded piece of work of the operation at the head. The caller has set `executing`.
shm_progress shm_advance(shm_comm *comm);
bool shm_try_execute(shm_comm *comm);
void shm_end_execute(shm_comm *comm);
// For a caller that does not stay: whoever found it at work and went to sleep is woken.
void shm_hand_over(shm_comm *comm);

// worker.c: the thread that works behind the caller's back and gives the heartbeat
tri_status shm_worker_start(shm_family *family);
void shm_worker_stop(shm_family *family);
void shm_worker_wake(shm_family *family);

// bell.c
void shm_ring_all(shm_comm *comm);
void shm_ring(shm_family *family, int member);
// Announces sleep and returns what to sleep on; what is waited for must be looked at in between.
uint32_t shm_sleep_begin(shm_family *family);
void shm_sleep(shm_family *family, uint32_t seen, int timeout_ms);
void shm_sleep_end(shm_family *family);
void shm_futex_wait(_Atomic uint32_t *word, uint32_t value, int timeout_ms);
void shm_futex_wake(_Atomic uint32_t *word);

// collective.c
shm_progress shm_collective_advance(shm_comm *comm, shm_pending *pending);
// True when `rank` has not come to where the operation at the head waits for it.
bool shm_collective_awaits(shm_comm *comm, int rank);
bool shm_reached(const shm_comm *comm, int rank, uint64_t step);

// direct.c: the work itself
bool shm_places_known(shm_comm *comm); // may all memory be used where it lies? Sets from, to.
void shm_stage_use(shm_comm *comm,
                   const tri_comm_op *op); // sets from, to of a piece in staging memory
void shm_stage_fill(shm_comm *comm, const tri_comm_op *op);
void shm_stage_drain(shm_comm *comm, const tri_comm_op *op);
int64_t shm_stage_capacity(const shm_comm *comm, const tri_comm_op *op);
shm_progress shm_reduce_advance(shm_comm *comm, const tri_comm_op *op);
bool shm_reduce_finished(shm_comm *comm, const tri_comm_op *op);
shm_progress shm_pull_advance(shm_comm *comm, const tri_comm_op *op);
void shm_eager_send(shm_comm *comm, const tri_comm_op *op, shm_entry *entry);
void shm_eager_apply(shm_comm *comm, const tri_comm_op *op);

// pair.c
shm_progress shm_pairs_advance(shm_comm *comm);
// The first send or receive of the run with `peer` that is not done.
const shm_pending *shm_pairs_waiting(shm_comm *comm, int peer);

// region.c
tri_status shm_alloc(tri_comm *comm, size_t size_bytes, void **out);
void shm_free(tri_comm *comm, void *memory);
shm_place shm_place_of(shm_comm *comm, const void *memory, size_t size_bytes);
void *shm_place_find(shm_family *family, shm_place place);
void shm_regions_end(shm_family *family);
// Collective: all ranks map the segment that rank `maker` made; `made` is how that went. On failure
// every rank fails, and none keeps it.
tri_status shm_share(shm_comm *comm, int maker, tri_status made, shm_handle *handle,
                     shm_segment *segment, const char *label);

// watch.c: who lives, what they do, and how a communicator fails
void shm_watch(shm_comm *comm);       // when blocked; the caller has set `executing`
void shm_observe(shm_family *family); // keeps the record of heartbeats
void shm_fail(shm_comm *comm, tri_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
tri_status shm_failure_status(shm_comm *comm);
tri_status shm_failed_status(tri_comm *comm); // TRI_OK while it has not failed
void shm_abort(tri_comm *comm, const char *why);
const tri_ledger_ring *shm_ledger_of(tri_comm *comm, int rank);
tri_status shm_watch_begin(shm_family *family);
void shm_watch_end(shm_family *family);

// open.c
size_t shm_board_bytes(int size);
// Takes the segment over; also when it fails.
tri_status shm_comm_create(shm_family *family, const shm_segment *segment, const int *world,
                           int rank, int size, shm_comm **out);
void shm_close(tri_comm *comm);
tri_status shm_split(tri_comm *comm, int colour, int key, tri_comm **out);
extern const tri_comm_backend shm_backend;

#endif
