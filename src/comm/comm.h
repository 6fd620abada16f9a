// Collective communication. One table of functions per backend (self, shm, pair, …). A backend
// whose operations advance while the caller does other work is built on comm/progress.
//
// Every rank of a communicator starts the same operations in the same order. An operation is
// started and waited for later, and advances in between. The operations that one call of `start`
// begins together are an operation group. A ticket stands for work that was started and is waited
// for later: an operation group, or work of a device.
//
// Errors: ranks that disagree on kind, type or count get TRI_MISMATCH, with a message that names
// both operations. If a rank has died, the others get TRI_PEER_LOST; if it does not join within the
// time limit (the recipe's option comm.timeout_s), TRI_TIMEOUT. Both messages name that rank and
// its latest action. After a failure every later call on the communicator, and on all communicators
// of its family (those split from the same one), fails with the same error. So a rank that waits in
// another communicator reports what failed first, and not only that some other rank has left.
//
// A communicator with the ability TRI_COMM_RANK_ORDER computes sums in rank order, ((send_0 +
// send_1) + send_2) + …, each addition in the type of the operation; BF16 and F16 are added in F32
// and rounded once at the end. So the bits of a sum depend on the values only. Other communicators
// add in another order.
//
// Sends and receives are matched in order, for each pair of ranks and each direction on its own:
// the first SEND with the first RECV. A message waits for earlier messages of its pair and
// direction, but may overtake all other messages. A collective waits for all sends and receives
// that were started before it, and the sends and receives that were started after it wait for it.
// If a rank sends to itself, the send and the receive have to be in one operation group.
#ifndef TRIREME_COMM_COMM_H
#define TRIREME_COMM_COMM_H

#include "base/ledger.h"
#include "base/status.h"
#include "base/ticket.h"

#include <trireme/tensor.h>

typedef struct tri_health tri_health; // rendezvous/health.h

typedef enum tri_comm_kind {
    // recv[count] = reduction of every rank's send[count]; send == recv allowed.
    TRI_COMM_ALL_REDUCE,
    // Rank r gets recv[i] = reduction of every rank's send[r * count + i]. `send` has size * count
    // elements and `recv` has `count`. recv == send + rank * count allowed.
    TRI_COMM_REDUCE_SCATTER,
    // recv[r * count + i] = send[i] of rank r. `send` has `count` elements and `recv` size * count.
    // send == recv + rank * count allowed.
    TRI_COMM_ALL_GATHER,
    // On rank q: recv[r * count + i] = send[q * count + i] of rank r. Both buffers have
    // size * count elements.
    TRI_COMM_ALL_TO_ALL,
    TRI_COMM_BROADCAST, // recv[count] on all ranks = send[count] of rank `root`
    TRI_COMM_SEND,      // send[count] to rank `peer`; matched with its RECV in order
    TRI_COMM_RECV,      // recv[count] from rank `peer`
    TRI_COMM_BARRIER,   // moves no data: waits until every rank has started it
    TRI_COMM_KIND_COUNT
} tri_comm_kind;

typedef enum tri_comm_reduction {
    TRI_REDUCE_SUM,
    TRI_REDUCE_MAX,
    TRI_REDUCE_MIN
} tri_comm_reduction;

typedef struct tri_comm_op {
    tri_comm_kind kind;
    tri_comm_reduction reduction;
    tri_dtype dtype; // reductions take F32, F64, I64, I32, BF16, F16; the other kinds take any type
    // REDUCE_SCATTER of sums of F32 or F64: adds to the old contents of recv, in the order recv[i]
    // + send_0[i] + send_1[i] + …. Gradients of several micro-batches are added in this way, with
    // the same bits as on one rank that adds all terms in that order. `recv` and `send` must not
    // overlap.
    bool accumulate;
    // The type in which the values of a sum of F32 travel between ranks. With BF16 or F16, each
    // rank's `send` and the result of an ALL_REDUCE are rounded to that type (to nearest, ties to
    // even), which halves the bytes. The additions stay in F32. A communicator of one rank rounds
    // nothing.
    tri_dtype wire;
    int64_t count;    // number of elements, counted as tri_comm_kind describes; 0 is allowed
    const void *send; // must stay unchanged until the caller has waited for the operation
    void *recv;
    int root; // the rank whose data a broadcast sends
    int peer; // the other rank of a SEND or RECV
    // The purpose of the operation ("REDUCE block conv2, step 17"), which messages about failures
    // name. It must live until the caller has waited for the operation.
    const char *label;
    // A hint: the caller waits right after the start, so no other thread need advance the
    // operation.
    bool waits_at_once;
    // A communicator that is made of others (comm/pair, comm/generic) does each operation in
    // several steps, which are operations of its inner communicators. In such a step this is the
    // whole operation: ranks compare it too, and messages name it, because users do not know the
    // steps. It must live as long as `label`. NULL: this is no step.
    const struct tri_comm_op *part_of;
} tri_comm_op;

// Stands for an operation group: the operations that one call of `start` begins together. A caller
// can test it or wait for it. Value 0: no group.
typedef struct tri_comm_ticket {
    uint64_t value;
} tri_comm_ticket;

typedef struct tri_comm tri_comm;

// What a communicator can do by itself. The layer comm/generic adds those of the first four
// abilities that are missing, so that a backend may be small.
typedef enum tri_comm_ability {
    // Sums are added in rank order: ((send_0 + send_1) + send_2) + …. Without this ability the bits
    // of a sum depend on the values and on how the ranks are arranged, but are the same in every
    // run. Only the recipe's option trainer.deterministic demands rank order.
    TRI_COMM_RANK_ORDER = 1 << 0,
    TRI_COMM_ACCUMULATES = 1 << 1, // does operations with `accumulate`
    TRI_COMM_WIRE_TYPES = 1 << 2,  // does operations whose `wire` is BF16 or F16
    // Reports an error if the ranks' calls disagree. Without this ability such ranks get a wrong
    // result, or wait for each other.
    TRI_COMM_FINDS_MISMATCHES = 1 << 3,
    TRI_COMM_HOST_MEMORY = 1 << 4,   // takes memory that the host can read and write
    TRI_COMM_DEVICE_MEMORY = 1 << 5, // takes memory of the device for which it was opened
    TRI_COMM_ARITHMETIC = TRI_COMM_RANK_ORDER | TRI_COMM_ACCUMULATES | TRI_COMM_WIRE_TYPES,
} tri_comm_ability;

// The purpose of a communicator, by which its need of a device's memory is estimated.
typedef enum tri_comm_use {
    TRI_COMM_BULK,    // carries large tensors by collectives
    TRI_COMM_NUMBERS, // carries only a few numbers at a time
    TRI_COMM_MESSAGES // carries SEND and RECV, but no collectives
} tri_comm_use;

typedef struct tri_comm_backend {
    const char *name;
    unsigned (*abilities)(const tri_comm *comm); // bits of tri_comm_ability
    // How many bytes one rank of a communicator of `ranks` ranks uses for the backend's own
    // buffers, so that plans can count them. `is_private`: operations also work on memory that
    // `alloc` did not allocate, for which the backend may need additional buffers.
    int64_t (*scratch_bytes)(int ranks, bool is_private);
    // Ends the communicator. Not collective. No operation may be in flight, unless the communicator
    // was aborted.
    void (*close)(tri_comm *comm);
    // Makes everything that is under way fail at once, and starts nothing else. It is called before
    // a device's queues (its lists of work) are closed, because a queue may wait for the
    // communicator, and the communicator for a queue. After the call no queue waits for the
    // communicator's tickets any more, and the communicator no longer uses tickets that it got
    // through `after`. NULL: the communicator never waits for tickets.
    void (*stop)(tri_comm *comm);
    // Makes a new communicator of the ranks that give the same colour, ordered by key, then by old
    // rank, as MPI_Comm_split. Collective. colour < 0: this rank takes part and gets *out = NULL.
    tri_status (*split)(tri_comm *comm, int colour, int key, tri_comm **out);
    // Allocates zeroed memory on which this backend's operations are fastest, aligned to 64 bytes
    // (to 4096 if it has 4096 bytes or more). Collective: every rank asks for the same size in the
    // same order; `free` is not collective. Any communicator that was split from the same one may
    // use the memory, and is fast on it if all its ranks took part in the allocation. So a buffer
    // that is reduced along several axes of a mesh is best allocated by the communicator over all
    // of them.
    tri_status (*alloc)(tri_comm *comm, size_t size_bytes, void **out);
    void (*free)(tri_comm *comm, void *memory);
    // Makes the next operation group wait for the work that the ticket stands for (of a device's
    // queue, for example), so that the caller need not wait. NULL: the caller itself waits for that
    // work before it starts the group.
    tri_status (*after)(tri_comm *comm, const tri_ticket *ticket);
    // Starts `count` operations of any kinds and types as one group; *out names the group. Copies
    // the ops. Called from one thread at a time.
    tri_status (*start)(tri_comm *comm, const tri_comm_op *ops, int count, tri_comm_ticket *out);
    // True when the group is done or the communicator has failed. Never blocks. While another
    // thread advances the operations, the result may be false although the group is done.
    bool (*test)(tri_comm *comm, tri_comm_ticket ticket);
    // Waits until all operations of the group are done. A collective is done only after everything
    // that was started before it. A SEND or RECV is done only after the collectives before it, and
    // after the earlier messages between the same two ranks in the same direction. So a caller can
    // wait for a RECV while an earlier SEND is still going on.
    tri_status (*wait)(tri_comm *comm, tri_comm_ticket ticket);
    // Makes the pending and later calls of every rank fail with TRI_PEER_LOST and the message
    // `why`, on all communicators of the family (those that were split from the same one). Any
    // thread may call it.
    void (*abort)(tri_comm *comm, const char *why);
    // TRI_OK, or the failure of the communicator. Never waits for other ranks. Any thread may call
    // it.
    tri_status (*failed)(tri_comm *comm);
    // Asks for one call of `wake`, so that the caller can sleep instead of testing again and again.
    // The call comes from any thread, as soon as an operation has ended; operations advance without
    // the caller until then. It comes at once if no operation is under way or the communicator has
    // failed already. A later failure does not call `wake`. To wake in that case too, the caller
    // has to link a family of its own to this one (tri_comm_link): its own family then fails as
    // well, and the backend of that family wakes its threads. `waits`: a thread of the caller does
    // nothing but wait for `wake`; then the other ranks are told for which rank this one waits. The
    // function pointer NULL: the caller has to test again and again.
    void (*notify)(tri_comm *comm, void (*wake)(void *context), void *context, bool waits);
    // The communicator's family: all communicators that were split from the same one, and so fail
    // together. tri_comm_link makes several families fail together. NULL: no operation of this
    // backend ever waits for another rank, so tri_comm_link has nothing to do.
    struct progress_family *(*family)(tri_comm *comm);
    // Returns the record of another rank's latest actions; NULL: it cannot be read. The function
    // pointer NULL: this backend can never read it.
    const tri_ledger_ring *(*ledger_of)(tri_comm *comm, int rank);
} tri_comm_backend;

// The head of every communicator. A backend's own struct begins with it, so that callers can use a
// communicator without knowing its backend.
struct tri_comm {
    const tri_comm_backend *backend;
    int rank, size;
    // job_rank[r]: the number of rank r among all ranks of the job, which messages name; NULL: rank
    // r has the number r there too.
    const int *job_rank;
    // The ledger, this rank's record of its actions. All communicators that were split from the
    // same one share it. Every operation is recorded as an action of `lane`, the lane of this
    // communicator: a lane is a sequence of actions that are started one after the other. If a wait
    // blocks the thread that runs the training steps, the ledger also records the wait as an action
    // of the compute lane.
    tri_ledger *ledger;
    int lane;
};

// Makes a communicator of one rank alone: each operation is a copy, or does nothing.
tri_status tri_comm_self_open(tri_comm **out);

// Makes the next operation group wait for the work that the ticket stands for (of a device's queue,
// for example). If the backend has no `after`, this call itself waits for that work.
tri_status tri_comm_after(tri_comm *comm, const tri_ticket *ticket);
// Turns the number of a started group into a ticket (base/ticket.h), so that a device's queue can
// wait for the group as it waits for a kernel.
tri_ticket tri_comm_ticket_of(tri_comm *comm, tri_comm_ticket group);
// Starts one operation and waits for it.
tri_status tri_comm_run(tri_comm *comm, const tri_comm_op *op);
tri_status tri_comm_barrier(tri_comm *comm, const char *label);
// Makes ranks agree on a status. Collective. Returns TRI_OK if every rank passes TRI_OK as `mine`.
// Else every rank gets the status and message of the lowest rank that failed. `what` is the label
// of the operations by which the ranks agree.
tri_status tri_comm_agree(tri_comm *comm, tri_status mine, const char *what);
static inline int tri_comm_job_rank(const tri_comm *comm, int rank) {
    return comm->job_rank ? comm->job_rank[rank] : rank;
}
// Links the families of a and b (the communicators that were split from the same one as a, or as
// b): if one of them fails, a rank that is in both makes the other fail with the same cause.
// Without the link, ranks would wait in b for a rank that has ended because of a failure in a. The
// link ends when either family is closed.
void tri_comm_link(tri_comm *a, tri_comm *b);
// The name of a kind of operation, such as "all_reduce". `bench comm --op` uses these names, and so
// do traces and messages about what a rank does.
const char *tri_comm_kind_name(tri_comm_kind kind);
// Gives `health` to the communicator's family (all communicators that were split from the same one)
// and to the families linked to it by tri_comm_link. `health` knows which ranks of other hosts are
// lost, and what the others do; shared memory shows only the ranks of one host. All of these
// families must end before `health`.
void tri_comm_set_health(tri_comm *comm, tri_health *health);
// Gives the communicator's lane (the sequence of its actions, shown as a thread in traces) a name:
// that of the axis of the mesh of ranks that it serves, such as "shard".
void tri_comm_name(tri_comm *comm, const char *name);
// Returns the record of another rank's latest actions; NULL: it cannot be read.
const tri_ledger_ring *tri_comm_ledger_of(tri_comm *comm, int rank);
void tri_comm_close(tri_comm *comm); // NULL allowed

#endif
