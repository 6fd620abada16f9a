// Communicators that are made of others, the inner communicators. A collective is a list of steps
// that are carried out one after the other: each is an operation of an inner communicator, or work
// of this rank. If the steps need memory, the collective's elements are divided into ranges
// (windows), and all steps are repeated for one window after the other, so that the amount of
// memory is bounded. The progress base (comm/progress) queues the operations and calls this layer
// to advance them. comm/pair and comm/generic supply the lists of steps.
#ifndef TRIREME_COMM_LAYERED_LAYERED_H
#define TRIREME_COMM_LAYERED_LAYERED_H

#include "comm/progress/communicator.h"

enum { LAYERED_INNER = 3, LAYERED_STEPS = 10 };

typedef struct layered_comm layered_comm;

// The elements of an operation on which its steps work at present, because scratch memory may not
// hold all: `count` elements from element `begin` on, counted as the operation's `count` is.
typedef struct layered_window {
    int64_t begin, count;
} layered_window;

typedef struct layered_step {
    int inner;      // index of the inner communicator; -1: the step is `work`
    tri_comm_op op; // the operation of the inner communicator
    tri_status (*work)(layered_comm *comm); // work of this rank, on the elements comm->window
} layered_step;

typedef struct layered_kind {
    tri_comm_backend backend; // the functions of communicators of this kind
    // Returns how many elements of the operation a window has: as many as the scratch memory holds,
    // at least 1. If the steps need no scratch memory, it is op->count.
    int64_t (*window)(const layered_comm *comm, const tri_comm_op *op);
    // Lists the steps of comm->op for comm->window, the elements on which they work: calls
    // layered_run or layered_do for each step.
    void (*list)(layered_comm *comm);
    // Finds the inner communicator that carries a message to a peer or from it, and the peer's rank
    // in that communicator. TRI_UNSUPPORTED: no inner communicator has both ranks.
    tri_status (*route)(const layered_comm *comm, int peer, int *inner, int *inner_peer);
    // Finds the colour and the key with which this rank splits each inner communicator to form a
    // group of ranks, as for MPI_Comm_split. Colour -1: the rank gets no communicator from that
    // split.
    tri_status (*divide)(const layered_comm *comm, const progress_group *group,
                         int colour[LAYERED_INNER], int key[LAYERED_INNER]);
    // Returns the index of the inner communicator over which the two ends of a message compare
    // their calls before the data are sent; -1: they do not compare them. The function pointer
    // NULL: they never compare them.
    int (*header)(const layered_comm *comm);
} layered_kind;

struct layered_comm {
    progress_comm base;
    const layered_kind *kind;
    tri_comm *inner[LAYERED_INNER];       // NULL: there is no inner communicator of this index
    _Atomic int in_flight[LAYERED_INNER]; // operations in flight on each inner communicator
    char *scratch;                        // memory of scratch_bytes bytes, allocated by inner[0]
    size_t scratch_bytes;
    // The abilities (bits of tri_comm_ability) that this layer supplies itself. Only comm/generic
    // uses this.
    unsigned added_abilities;
    // The state of the collective at the head of the queue: its current window (the elements that
    // fit into the scratch memory at one time), the steps for that window, and the index of the
    // current step. If that step is an inner operation, `started` tells whether it was started, and
    // `ticket` stands for it.
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
    tri_comm *inner[LAYERED_INNER]; // the new communicator takes them over, even if opening fails
    int rank, size;
    const int *job_rank; // job_rank[r]: the number in the job of rank r
    size_t scratch_bytes;
    unsigned added_abilities; // the value of layered_comm.added_abilities
} layered_open;

tri_status layered_open_comm(const layered_open *open, tri_comm **out);

// Add a step to the list: layered_run adds an operation of the inner communicator with index
// `inner`, which gets the label of the whole operation; layered_do adds work of this rank.
void layered_run(layered_comm *comm, int inner, tri_comm_op op);
void layered_do(layered_comm *comm, tri_status (*work)(layered_comm *comm));

// Functions of tri_comm_backend that all kinds of layered communicators share.

// `alloc` and `free` of tri_comm_backend: the inner communicator inner[0] allocates the memory.
tri_status layered_alloc(tri_comm *comm, size_t size_bytes, void **out);
void layered_free(tri_comm *comm, void *memory);
#define LAYERED_SLOTS .alloc = layered_alloc, .free = layered_free, PROGRESS_SLOTS

#endif
