// What the shared-memory backend keeps in each process: the family (all communicators split from
// one), its shared buffers, and the state of the collective that is under way on each communicator.
// A region is shared memory with one buffer for each rank. Data that lie outside regions pass
// through staging memory, because other ranks cannot read them where they lie.
#ifndef TRIREME_COMM_SHM_STATE_H
#define TRIREME_COMM_SHM_STATE_H

#include "comm/progress/state.h"
#include "comm/shm/layout.h"

#include <pthread.h>
#include <stdbool.h>

enum {
    // An operation that reads and writes more bytes than this stores its results by instructions
    // that bypass the caches, because so many results would only evict other data from them. The
    // function `streams` in work.c lists exceptions.
    SHM_STREAM_BYTES = 24 << 20,
};

typedef struct shm_rank_set { // a set of ranks, by their numbers in the family
    uint64_t bits[TRI_MAX_LOCAL_RANKS / 64];
} shm_rank_set;

// A region: one buffer for each rank of the communicator that allocated it, all in one segment, so
// that one mapping serves all.
typedef struct shm_region {
    struct shm_region *next;
    uint64_t id;
    shm_segment segment;
    shm_rank_set members; // the ranks that map the region
    // Size of the communicator that has allocated the region, and this rank's number in it.
    int size, rank;
    size_t buffer_bytes; // size of each rank's buffer
    bool freed;          // true: this rank has freed its buffer
} shm_region;

typedef enum shm_watched_by {
    SHM_WATCHED_BY_NOTHING, // the rank has not joined yet
    SHM_WATCHED_BY_PIDFD,
    SHM_WATCHED_BY_PID, // the rank's pid is watched, because pidfd_open does not work here
    // The rank's heartbeat is watched, because its pid may mean another process in this PID
    // namespace.
    SHM_WATCHED_BY_HEARTBEAT,
} shm_watched_by;

typedef struct shm_watched { // what this process knows about whether another rank still lives
    shm_watched_by by;
    int pidfd; // used with SHM_WATCHED_BY_PIDFD
    uint64_t heartbeat;
    int64_t changed_ns, read_ns; // when the heartbeat last changed, and was last read
} shm_watched;

// A family (all communicators split from one), as this process sees it. Its members are its ranks.
typedef struct shm_family {
    progress_family base;
    shm_control *control;
    shm_segment segment;
    int rank;       // number of this process among the members of the family
    int *job_rank;  // job_rank[m]: the number in the job of member m
    bool by_socket; // true: shared memory is passed by a socket instead of opened through /proc
    pthread_mutex_t regions_lock, watched_lock;
    shm_region *regions;
    uint64_t regions_made;
    shm_watched *watched; // watched[m]: whether member m still lives
    char silence[64];     // what shm_loss returns for a rank whose heartbeats have stopped
} shm_family;

typedef enum shm_state {
    SHM_ANNOUNCE, // writes a description of this rank's call into memory that all ranks read
    SHM_MEET,     // waits until all ranks have announced
    SHM_FILL,     // copies as much of the data as fits into staging memory
    SHM_READY,    // waits until all ranks have filled their staging memory
    SHM_WORK,     // reduces or copies data
    SHM_FINISH,   // waits until no other rank reads or writes this rank's memory any more
    SHM_DONE,
} shm_state;

// The state of the collective at the head of the queue.
typedef struct shm_current {
    shm_state state;
    // True: the data of every rank are so small that they lie in the entry (shm_entry.payload) by
    // which it announces the operation.
    bool eager;
    bool staged; // true: the data go through staging memory, as much as fits at a time
    // The window: which of the operation's `count` elements are in staging memory at present.
    // Without staging it is the whole operation.
    int64_t begin, count;
    // All-reduce: each rank has a share of the elements, which is reduced in chunks. This rank
    // first reduces chunks of its own share, then helps with the share of rank `rank + 1`, and so
    // on. The cursor is the number of shares of which every chunk has been begun. Other
    // collectives: the cursor is how many chunks this rank has copied or reduced.
    int64_t cursor;
    const char *from[TRI_MAX_LOCAL_RANKS]; // from[r]: where rank r's data of this window lie
    char *to[TRI_MAX_LOCAL_RANKS];         // to[r]: where rank r's results of this window go
} shm_current;

typedef struct shm_comm {
    progress_comm base;
    shm_segment segment;
    shm_board *board;
    shm_channel *channels;
    char *pipes, *staging;
    shm_rank_set members;
    int *member; // member[r]: the family's member that is this communicator's rank r
    // How many meetings, the points at which all ranks synchronise (layout.h), this rank has
    // entered.
    uint64_t meetings;
    shm_current current;
} shm_comm;

static inline shm_comm *shm_of(tri_comm *comm) { return (shm_comm *)comm; }
static inline shm_family *shm_family_of(const shm_comm *comm) {
    return (shm_family *)comm->base.family;
}
static inline shm_member *shm_own_member(shm_family *family) {
    return &family->control->members[family->rank];
}

#endif
