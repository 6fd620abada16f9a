// Communicators that are made of others, on the progress base. A collective is a list of steps that
// are carried out one after the other: each is an operation of an inner communicator, or work of
// this rank. If the steps need memory, they are repeated for one window after the other, so that
// the memory is bounded.
#ifndef TRIREME_COMM_LAYERED_LAYERED_H
#define TRIREME_COMM_LAYERED_LAYERED_H

#include "comm/progress/communicator.h"

enum { LAYERED_INNER = 3, LAYERED_STEPS = 10 };

typedef struct layered_comm layered_comm;

typedef struct layered_window { // in elements of the operation's `count`
    int64_t begin, count;
} layered_window;

typedef struct layered_step {
    int inner;                              // index of the inner communicator; -1: `work` is done
    tri_comm_op op;                         // of the inner communicator
    tri_status (*work)(layered_comm *comm); // on comm->op and comm->window
} layered_step;

typedef struct layered_kind {
    tri_comm_backend slots; // the functions of communicators of this kind
    // Elements of one window, at least 1; op->count for an operation that needs no memory.
    int64_t (*window)(const layered_comm *comm, const tri_comm_op *op);
    // Lists the steps of comm->op for comm->window; calls layered_run and layered_do for each step.
    void (*list)(layered_comm *comm);
    // Finds the inner communicator that carries a message to a peer, and the peer's rank in it.
    // TRI_UNSUPPORTED: no inner communicator has both ranks.
    tri_status (*route)(const layered_comm *comm, int peer, int *inner, int *inner_peer);
    // Finds the colours and keys with which the inner communicators are split for a group; colour
    // -1: not at all.
    tri_status (*divide)(const layered_comm *comm, const progress_group *group,
                         int colour[LAYERED_INNER], int key[LAYERED_INNER]);
    // The inner communicator over which the ends of a message compare it before it goes; -1: nobody
    // compares.
    int (*header)(const layered_comm *comm);
} layered_kind;

struct layered_comm {
    progress_comm base;
    const layered_kind *kind;
    tri_comm *inner[LAYERED_INNER];       // NULL: there is none
    _Atomic int under_way[LAYERED_INNER]; // operations in flight on each inner communicator
    char *scratch;                        // scratch_bytes, which inner[0] allocated
    size_t scratch_bytes;
    unsigned detail; // the kind's own
    // How far the collective at the head of the queue is: its window, the steps for it, and the
    // step that is carried out now.
    tri_comm_op op;
    layered_window window;
    layered_step steps[LAYERED_STEPS];
    int step_count, at;
    bool started;
    tri_comm_ticket ticket;
};

static inline layered_comm *layered_of(const tri_comm *comm) { return (layered_comm *)comm; }
static inline size_t layered_width(const layered_comm *comm) {
    return tri_dtype_bytes(comm->op.dtype);
}

typedef struct layered_open {
    const layered_kind *kind;
    tri_comm *inner[LAYERED_INNER]; // taken over, also when it fails
    int rank, size;
    const int *job_rank; // job_rank[size]
    size_t scratch_bytes;
    unsigned detail;
} layered_open;

tri_status layered_open_comm(const layered_open *open, tri_comm **out);

// Add a step to the list: an inner operation (`op` needs no label), or work of this rank.
void layered_run(layered_comm *comm, int inner, tri_comm_op op);
void layered_do(layered_comm *comm, tri_status (*work)(layered_comm *comm));

// Functions of tri_comm_backend that all kinds of layered communicators share.
tri_status layered_alloc(tri_comm *comm, size_t size_bytes, void **out); // from inner[0]
void layered_free(tri_comm *comm, void *memory);
#define LAYERED_SLOTS .alloc = layered_alloc, .free = layered_free, PROGRESS_SLOTS

#endif
