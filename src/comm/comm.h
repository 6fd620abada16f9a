// Collective communication. One table of functions per backend (self, shm, pair, …). A backend
// whose operations advance beside the caller is built on comm/progress.
//
// Every rank of a communicator starts the same operations in the same order. An operation is
// started and waited for later, and advances in between.
//
// Errors: ranks that disagree on kind, type or count get TRI_MISMATCH, which names both operations.
// A rank that died is TRI_PEER_LOST, one that does not join within timeout_ms is TRI_TIMEOUT; both
// name the rank and its latest action. After a failure every later call on the communicator, and on
// all communicators of its family (those split from the same one), fails with the same error. So a
// rank that waits in another communicator reports the first cause, and not a rank that left because
// of it.
//
// Sums are computed in rank order, ((send_0 + send_1) + send_2) + …, one addition after the other
// in the type itself, so that their bits depend on the values only; communicators without
// TRI_COMM_RANK_ORDER say in which order they add. BF16 and F16 are added in F32 and rounded once
// at the end.
//
// Sends and receives are matched in order, for each pair of ranks and each direction on its own:
// the first SEND with the first RECV. A message waits only for earlier ones of its pair and
// direction, so it may overtake all others. A collective waits for all sends and receives that were
// started before it, and those started after it wait for it. A message of a rank to itself needs
// its send and its receive in one group.
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
    // Rank r gets recv[i] = reduction of every rank's send[r * count + i], i < count, of
    // send[size * count]; recv == send + rank * count allowed.
    TRI_COMM_REDUCE_SCATTER,
    // recv[r * count + i] = send[i] of rank r, of send[count] and recv[size * count];
    // send == recv + rank * count allowed.
    TRI_COMM_ALL_GATHER,
    // On rank q recv[r * count + i] = send[q * count + i] of rank r; both have size * count.
    TRI_COMM_ALL_TO_ALL,
    TRI_COMM_BROADCAST, // recv[count] on all ranks = send[count] of `root`
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
    tri_dtype dtype; // reductions: F32, F64, I64, I32, BF16, F16; the other kinds: any
    // REDUCE_SCATTER of sums of F32 or F64: adds to what recv holds, recv[i] + send_0[i] +
    // send_1[i] + …. Gradients of several rounds are added in this way, with the bits of one rank
    // that adds all terms in that order. `recv` and `send` must not overlap.
    bool accumulate;
    // The wire type of a sum of F32: BF16 or F16 round values (to nearest, ties to even) where they
    // travel, which halves the bytes: each rank's `send` and the result of an ALL_REDUCE. The
    // additions stay in F32; a communicator of one rank rounds nothing.
    tri_dtype wire;
    int64_t count;    // elements, as the kind says; 0 is legal
    const void *send; // must stay unchanged until the operation was waited for
    void *recv;
    int root; // of a broadcast
    int peer; // of send and recv
    // What it is for ("REDUCE block conv2, step 17"); named in errors; must live until waited for.
    const char *label;
    bool waits_at_once; // a hint: the caller waits right after the start, no thread need help
    // The operation of which this one is a step, on a communicator that is made of others. Ranks
    // compare it as well, and messages name it, because users know only that one. It must live as
    // long as `label`. NULL: none.
    const struct tri_comm_op *part_of;
} tri_comm_op;

// Stands for an operation group: the operations that one call of `start` begins together. A caller
// tests it or waits for it. Value 0: none.
typedef struct tri_comm_ticket {
    uint64_t value;
} tri_comm_ticket;

typedef struct tri_comm tri_comm;

// What a communicator can do by itself. The layer comm/generic adds what is missing, so that a
// backend may be small.
typedef enum tri_comm_ability {
    // Sums are ((send_0 + send_1) + send_2) + …. Without this ability their bits depend on the
    // values and on how the ranks are arranged, but not on the time; only trainer.deterministic
    // demands it.
    TRI_COMM_RANK_ORDER = 1 << 0,
    TRI_COMM_ACCUMULATES = 1 << 1,
    TRI_COMM_WIRE_TYPES = 1 << 2,
    TRI_COMM_FINDS_MISMATCHES = 1 << 3, // else ranks that disagree get any result, or wait
    TRI_COMM_HOST_MEMORY = 1 << 4,      // takes memory that the host can touch
    TRI_COMM_DEVICE_MEMORY = 1 << 5,    // takes memory of the device for which it was opened
    TRI_COMM_ARITHMETIC = TRI_COMM_RANK_ORDER | TRI_COMM_ACCUMULATES | TRI_COMM_WIRE_TYPES,
} tri_comm_ability;

// What a communicator is for, which decides how much of a device's memory it takes.
typedef enum tri_comm_use {
    TRI_COMM_BULK,
    TRI_COMM_NUMBERS, // few at a time
    TRI_COMM_MESSAGES // no collectives
} tri_comm_use;

typedef struct tri_comm_backend {
    const char *name;
    unsigned (*abilities)(const tri_comm *comm); // tri_comm_ability, or-ed
    // In a communicator of `ranks` ranks: how many bytes of the backend's own memory one rank
    // touches, which plans count. `is_private`: operations use memory that alloc did not give.
    int64_t (*scratch_bytes)(int ranks, bool is_private);
    // Ends the communicator. Not collective; nothing may be in flight unless it was aborted.
    void (*close)(tri_comm *comm);
    // Everything that is under way fails at once, and nothing else is started. Afterwards whatever
    // waits for the communicator's tickets ends, and the tickets that it waited for are not used
    // any more. NULL: it waits for no tickets.
    void (*stop)(tri_comm *comm);
    // Makes a new communicator of the ranks that give the same colour, ordered by key, then by old
    // rank, as MPI_Comm_split. Collective. colour < 0: this rank takes part and gets *out = NULL.
    tri_status (*split)(tri_comm *comm, int colour, int key, tri_comm **out);
    // Zeroed memory on which this backend's operations are fastest, aligned to 64 bytes (to 4096
    // from 4096 bytes on). Collective: every rank asks for the same size in the same order; `free`
    // is not collective. Any communicator of the family may use it, and is fast on it if all its
    // ranks took part in the allocation. So a buffer that several axes of a mesh reduce is best
    // allocated by the communicator over all of them.
    tri_status (*alloc)(tri_comm *comm, size_t size_bytes, void **out);
    void (*free)(tri_comm *comm, void *memory);
    // Makes the operation group that is started next wait for the ticket's work, so that the caller
    // need not. NULL: the caller waits for that work itself before it starts the group.
    tri_status (*after)(tri_comm *comm, const tri_ticket *ticket);
    // Starts `count` operations of any kinds and types as one group; *out names the group. Copies
    // the ops. Called from one thread at a time.
    tri_status (*start)(tri_comm *comm, const tri_comm_op *ops, int count, tri_comm_ticket *out);
    // True when the group is done, or the communicator failed. Never blocks: while another thread
    // advances operations, it may be false also for a group that is done.
    bool (*test)(tri_comm *comm, tri_comm_ticket ticket);
    // Waits until all operations of the group are done. A collective is done only after everything
    // that was started before it. A SEND or RECV needs only earlier messages of its pair and
    // direction to be done, so that a caller can wait for a RECV while an earlier SEND is still
    // going on.
    tri_status (*wait)(tri_comm *comm, tri_comm_ticket ticket);
    // Makes every rank's pending and later calls, on all communicators of the family, fail with
    // TRI_PEER_LOST and `why`. Any thread may call it.
    void (*abort)(tri_comm *comm, const char *why);
    // TRI_OK, or how the communicator failed. Never waits for other ranks. Any thread may call it.
    tri_status (*failed)(tri_comm *comm);
    // Calls `wake` once, from any thread, when an operation has ended or the communicator has
    // failed. Until then what was started advances without the caller. `waits`: a thread of the
    // caller does nothing but wait for this call. Where `notify` is NULL, the caller has to test
    // again and again.
    void (*notify)(tri_comm *comm, void (*wake)(void *context), void *context, bool waits);
    // The communicator's family, so that tri_comm_link can make it fail with others. NULL: no
    // operation ever waits for another rank.
    struct progress_family *(*family)(tri_comm *comm);
    // The latest actions of another rank; NULL: this backend cannot show them.
    const tri_ledger_ring *(*ledger_of)(tri_comm *comm, int rank);
} tri_comm_backend;

// The head of every communicator: a backend's own struct begins with it, so that callers need not
// know the backend.
struct tri_comm {
    const tri_comm_backend *backend;
    int rank, size;
    const int *job_rank; // by rank: its number in the job, which messages name; NULL: the same
    // This rank's ledger, one for the whole family. It records every operation as an action of the
    // lane `lane`, which is this communicator's. If a wait blocks the thread that runs the steps,
    // the ledger records the wait as an action of the compute lane, too.
    tri_ledger *ledger;
    int lane;
};

// Makes a communicator of one rank alone: every operation is a copy or nothing.
tri_status tri_comm_self_open(tri_comm **out);

// Makes the operation group that is started next wait for the ticket's work. Where the backend has
// no `after`, this call blocks until that work is done.
tri_status tri_comm_after(tri_comm *comm, const tri_ticket *ticket);
// Turns the number of a started group into a ticket for work of any kind (base/ticket.h), so that a
// device's queue can wait for the group as for a kernel.
tri_ticket tri_comm_ticket_of(tri_comm *comm, tri_comm_ticket group);
// Starts one operation and waits for it.
tri_status tri_comm_run(tri_comm *comm, const tri_comm_op *op);
tri_status tri_comm_barrier(tri_comm *comm, const char *label);
// Makes ranks decide alike. Collective: TRI_OK if every rank passes TRI_OK, else on every rank the
// status and message of the lowest rank that failed. `what` is the operation's label.
tri_status tri_comm_agree(tri_comm *comm, tri_status mine, const char *what);
static inline int tri_comm_job_rank(const tri_comm *comm, int rank) {
    return comm->job_rank ? comm->job_rank[rank] : rank;
}
// Links the families of a and b: if one of them fails, the other fails with the same cause, as soon
// as a rank that is in both notices it. Else ranks would wait in b for a rank that has ended
// because of a. The link ends when either is closed.
void tri_comm_link(tri_comm *a, tri_comm *b);
// The name of a kind, "all_reduce", …, as `bench comm --op` and the ledger have it.
const char *tri_comm_kind_name(tri_comm_kind kind);
// From now on messages about ranks of other hosts, which shared memory does not show, use what
// `health` knows; in this family and in those that are linked to it, which must end before
// `health`.
void tri_comm_set_health(tri_comm *comm, tri_health *health);
// Names the communicator's lane, so that traces show the axis that it serves: "shard", ….
void tri_comm_name(tri_comm *comm, const char *name);
// The latest actions of another rank; NULL: they cannot be seen.
const tri_ledger_ring *tri_comm_ledger_of(tri_comm *comm, int rank);
void tri_comm_close(tri_comm *comm); // NULL allowed

#endif
