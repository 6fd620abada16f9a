// What the shared-memory backend keeps in each process: the family, its communicators and their
// queues of operations.
#ifndef TRIREME_COMM_SHM_STATE_H
#define TRIREME_COMM_SHM_STATE_H

#include "comm/comm.h"
#include "comm/shm/layout.h"

#include <pthread.h>
#include <stdbool.h>

enum {
    SHM_STREAM_BYTES = 24 << 20, // operations that touch more than this write past the caches
};

typedef struct shm_rank_set { // of family ranks
    uint64_t bits[TRI_MAX_LOCAL_RANKS / 64];
} shm_rank_set;

// One buffer for each rank of the communicator that allocated it, all in one segment.
typedef struct shm_region {
    struct shm_region *next;
    uint64_t id;
    shm_segment segment;
    shm_rank_set members; // the ranks that map it
    int size, rank;       // of the communicator that allocated it
    size_t buffer_bytes;  // of one rank
    bool freed;           // by this rank
} shm_region;

typedef enum shm_watched_by {
    SHM_WATCHED_BY_NOTHING, // it has not joined yet
    SHM_WATCHED_BY_PIDFD,
    SHM_WATCHED_BY_PID,       // pidfd_open does not work here
    SHM_WATCHED_BY_HEARTBEAT, // its pid may mean another process in our namespace
} shm_watched_by;

typedef struct shm_watched { // what this process saw of another rank
    shm_watched_by by;
    int pidfd; // with SHM_WATCHED_BY_PIDFD
    uint64_t heartbeat;
    int64_t changed_ns, looked_ns; // when the heartbeat last changed, and was last read
} shm_watched;

typedef struct shm_family {
    shm_control *control;
    shm_segment segment;
    tri_ledger *ledger;
    int rank, size, timeout_ms;
    bool by_socket, can_spin;
    // Taken in this order: the worker holds `lock` while it advances an operation.
    pthread_mutex_t lock, regions_lock, watched_lock;
    struct shm_comm *comms;
    shm_region *regions;
    uint64_t regions_made;
    shm_watched *watched; // one per rank of the family
    pthread_t worker;
    bool has_worker;
    _Atomic uint32_t stop;
    _Atomic uint32_t work, work_sleeper; // futex on which the idle worker sleeps
} shm_family;

typedef enum shm_state {
    SHM_ANNOUNCE,
    SHM_MEET,   // waits until all ranks have announced
    SHM_FILL,   // copies a window of the data into staging memory
    SHM_READY,  // waits until all ranks have filled theirs
    SHM_WORK,   // reduces or copies
    SHM_FINISH, // waits until no other rank reads or writes our memory any more
    SHM_DONE,
} shm_state;

// Progress of the operation at the head of the queue.
typedef struct shm_current {
    shm_state state;
    bool eager;  // the data went with the announcement
    bool staged; // the data go through staging memory, one window after the other
    // The window, in elements of the operation's `count`; the whole when nothing is staged.
    int64_t begin, count;
    int64_t cursor; // shares (all-reduce) or chunks (others) that this rank has finished
    int pair_count; // sends and receives at the head that advance side by side; 0: a collective
    const char *from[TRI_MAX_LOCAL_RANKS]; // where each rank's data of the window lie
    char *to[TRI_MAX_LOCAL_RANKS];
} shm_current;

typedef struct shm_pending {
    tri_comm_op op;
    uint64_t group_ticket; // number of the last operation of its group
    tri_ledger_mark mark;
    // Of sends and receives:
    bool posted, done;
    uint64_t message; // its number among those of the pair
    uint64_t bytes_done;
} shm_pending;

typedef struct shm_comm {
    tri_comm head;
    shm_family *family;
    struct shm_comm *next;
    shm_segment segment;
    shm_board *board;
    shm_pair *pairs;
    char *pipes, *staging;
    shm_rank_set members;
    int *world_rank;   // world_rank[r]: the family's rank of our rank r
    uint64_t meetings; // that this rank has entered
    // Operations from `completed` to `started`, as a ring; under `lock`.
    pthread_mutex_t lock;
    shm_pending *queue;
    uint64_t capacity;
    _Atomic uint64_t started, completed;
    _Atomic uint64_t worker_target; // the worker carries out operations up to this one
    _Atomic uint32_t executing, waiters;
    // All below belongs to the thread that has set `executing`, except busy_since_ns.
    shm_current current;
    uint64_t advances, advances_seen; // calls that advanced, and how many shm_watch has seen
    int64_t advanced_ns, checked_ns;  // when shm_watch last saw an advance, and last looked
    _Atomic int64_t busy_since_ns;    // when the queue was last empty and an operation started
} shm_comm;

typedef enum shm_progress { SHM_IDLE, SHM_BLOCKED, SHM_ADVANCED } shm_progress; // worst first

static inline shm_comm *shm_of(tri_comm *comm) { return (shm_comm *)comm; }
static inline shm_member *shm_own_member(shm_family *family) {
    return &family->control->members[family->rank];
}
static inline shm_pending *shm_queue_at(shm_comm *comm, uint64_t index) {
    return &comm->queue[index % comm->capacity];
}

#endif
