// What the shared-memory backend keeps in each process: the family, its regions, and the state of
// the collective that is under way on each communicator.
#ifndef TRIREME_COMM_SHM_STATE_H
#define TRIREME_COMM_SHM_STATE_H

#include "comm/progress/state.h"
#include "comm/shm/layout.h"

#include <pthread.h>
#include <stdbool.h>

enum {
    SHM_STREAM_BYTES = 24 << 20, // operations that touch more than this write past the caches
};

typedef struct shm_rank_set { // of family ranks
    uint64_t bits[TRI_MAX_LOCAL_RANKS / 64];
} shm_rank_set;

// A region: one buffer for each rank of the communicator that allocated it, all in one segment, so
// that one mapping serves all.
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
    progress_family base;
    shm_control *control;
    shm_segment segment;
    int rank;      // our member
    int *job_rank; // job_rank[m]: the job's rank of member m
    bool by_socket;
    pthread_mutex_t regions_lock, watched_lock;
    shm_region *regions;
    uint64_t regions_made;
    shm_watched *watched; // one per member
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

// How far the collective at the head of the queue is.
typedef struct shm_current {
    shm_state state;
    bool eager;  // the data went with the announcement
    bool staged; // the data go through staging memory, one window after the other
    // The window, in elements of the operation's `count`; all of them when nothing is staged.
    int64_t begin, count;
    int64_t cursor; // shares (all-reduce) or chunks (others) that this rank has finished
    const char *from[TRI_MAX_LOCAL_RANKS]; // where each rank's data of the window lie
    char *to[TRI_MAX_LOCAL_RANKS];
} shm_current;

typedef struct shm_comm {
    progress_comm base;
    shm_segment segment;
    shm_board *board;
    shm_channel *channels;
    char *pipes, *staging;
    shm_rank_set members;
    int *member;       // member[r]: the family's member that is our rank r
    uint64_t meetings; // that this rank has entered
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
