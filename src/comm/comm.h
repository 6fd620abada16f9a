// Collective communication. One table of functions per backend (self, shm; mpi and nccl as
// modules).
//
// Every rank of a communicator starts the same operations in the same order; an operation is
// started and waited for later, and makes progress in between. A mismatch of kind, type or count
// between ranks is TRI_MISMATCH naming both; a rank that died or does not move within timeout_ms is
// TRI_PEER_LOST or TRI_TIMEOUT naming the rank and its action. After a failure every later call on
// the communicator, and on all that were split from the same one, fails likewise, so that a rank
// which waits elsewhere hears of the first cause and not of those who left because of it.
//
// Sums are made in rank order, ((send_0 + send_1) + send_2) + …, one addition after the other in
// the type itself, so that their bits depend on nothing but the values. BF16 and F16 are added in
// F32 and rounded once at the end.
//
// Sends and receives are matched in order between one rank and another in one direction, and only
// those wait for each other: messages of other pairs, and of the other direction, overtake them. A
// collective waits for all sends and receives that were started before it, and those started after
// it wait for it. A message of a rank to itself needs both halves in one group.
#ifndef TRIREME_COMM_COMM_H
#define TRIREME_COMM_COMM_H

#include "base/ledger.h"
#include "base/status.h"

#include <trireme/tensor.h>

typedef enum tri_comm_kind {
    TRI_COMM_ALL_REDUCE,     // recv[count] = reduction of every rank's send[count]; send == recv
                             // allowed
    TRI_COMM_REDUCE_SCATTER, // recv[count] = this rank's part of the reduction of send[count *
                             // size]; recv == send + rank * count allowed
    TRI_COMM_ALL_GATHER,     // recv[count * size] = every rank's send[count], in rank order;
                             // send == recv + rank * count allowed
    TRI_COMM_ALL_TO_ALL,     // part r of send[count * size] goes to rank r; recv likewise
    TRI_COMM_BROADCAST,      // recv[count] on all = send[count] of `root`
    TRI_COMM_SEND,           // send[count] to rank `peer`; matched with its RECV in order
    TRI_COMM_RECV,           // recv[count] from rank `peer`
    TRI_COMM_BARRIER,        // nothing but the meeting
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
    tri_dtype dtype; // F32, F64, I64, I32, BF16, F16 reduce; any type moves
    // REDUCE_SCATTER of sums of F32 or F64: recv[i] = recv[i] + send_0[i] + send_1[i] + …, so that
    // round after round comes to the bits of one rank that adds all parts in that order. `recv`
    // lies apart from `send`.
    bool accumulate;
    // Sums of F32: BF16 or F16 when values are rounded to it (to nearest, ties to even) as they
    // travel: each rank's `send`, and the sum that an ALL_REDUCE hands back. They are added in F32
    // all the same; a rank alone rounds nothing.
    tri_dtype wire;
    int64_t count;    // elements, as the kind says; 0 is legal
    const void *send; // must stay unchanged until the operation was waited for
    void *recv;
    int root;          // of a broadcast
    int peer;          // of send and recv
    const char *label; // who asks ("REDUCE block conv2, step 17"); named in errors; must live until
                       // waited for
    bool waits;        // a hint: the caller waits at once, nothing need run behind its back
} tri_comm_op;

// Names an operation that was started; value 0 is none.
typedef struct tri_comm_ticket {
    uint64_t value;
} tri_comm_ticket;

typedef struct tri_comm tri_comm;

typedef struct tri_comm_backend {
    const char *name;
    // Ends the communicator. Not collective; nothing may be in flight unless it was aborted.
    void (*close)(tri_comm *comm);
    // Collective: a new communicator of the ranks that give the same colour, ordered by key, then
    // by old rank. colour < 0: this rank takes part and gets *out = NULL.
    tri_status (*split)(tri_comm *comm, int colour, int key, tri_comm **out);
    // Memory that this backend's operations are fastest on, aligned to 64 bytes (4096 from a page
    // up), zeroed. Collective: every rank asks for the same size in the same order. Free is not
    // collective. It serves operations of any communicator of the family (all that were split from
    // one), and is as fast there as long as all of that one's ranks took part in allocating it:
    // what several axes of a mesh reduce is best allocated by the communicator over all of them.
    tri_status (*alloc)(tri_comm *comm, size_t size_bytes, void **out);
    void (*free)(tri_comm *comm, void *memory);
    // Starts `count` operations of any kinds and types as one group; *out names the group. Copies
    // the ops. Called from one thread at a time.
    tri_status (*start)(tri_comm *comm, const tri_comm_op *ops, int count, tri_comm_ticket *out);
    // True when the group is done, or the communicator failed. Never blocks.
    bool (*test)(tri_comm *comm, tri_comm_ticket ticket);
    // Waits for the group. A collective in it implies everything that was started before; a SEND or
    // RECV only what it has to wait for itself, so that a RECV may be waited for while an earlier
    // SEND goes on.
    tri_status (*wait)(tri_comm *comm, tri_comm_ticket ticket);
    // Makes every rank's pending and later calls, on all communicators of the family, fail with
    // TRI_PEER_LOST and `why`. Any thread.
    void (*abort)(tri_comm *comm, const char *why);
    // TRI_OK, or how the communicator failed. Never waits for other ranks. Any thread.
    tri_status (*failed)(tri_comm *comm);
    // What another rank did last; NULL: it cannot be seen from here.
    const tri_ledger_ring *(*ledger_of)(tri_comm *comm, int rank);
} tri_comm_backend;

// The head of every communicator; a backend's own struct begins with it.
struct tri_comm {
    const tri_comm_backend *backend;
    int rank, size;
    // Of this rank, one for the whole family: every operation is an action of the communicator's
    // lane there, and a wait that has to wait is one of lane 0 (on the thread that computes).
    tri_ledger *ledger;
    int lane;
};

// One rank alone: every operation is a copy or nothing.
tri_status tri_comm_self_open(tri_comm **out);

// start and wait in one.
tri_status tri_comm_run(tri_comm *comm, const tri_comm_op *op);
tri_status tri_comm_barrier(tri_comm *comm, const char *label);
// Collective: TRI_OK if every rank comes with TRI_OK, else on every rank the status and message of
// the lowest rank that failed. `what` is named where ranks are told what the others are in.
tri_status tri_comm_agree(tri_comm *comm, tri_status mine, const char *what);
// "all_reduce", …: as `bench comm --op` and the ledger call them.
const char *tri_comm_kind_name(tri_comm_kind kind);
// How the communicator's lane is called in a trace: "shard", ….
void tri_comm_name(tri_comm *comm, const char *name);
void tri_comm_close(tri_comm *comm); // NULL allowed

#endif
