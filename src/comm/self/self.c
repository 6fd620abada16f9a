// The communicator of one rank: an operation only copies data in this rank's memory, adds to them
// or does nothing, and is done when `start` returns. So callers need no special case for a single
// rank.
#include "base/status.h"
#include "comm/comm.h"
#include "comm/op.h"
#include "comm/reduce.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef enum self_abort_state { NOT_ABORTED, ABORT_BEING_WRITTEN, ABORTED } self_abort_state;

enum { SELF_ALIGNMENT = 64, SELF_PAGE = 4096 };

typedef struct self_comm {
    tri_comm head;
    uint64_t started;
    tri_status failed;               // TRI_OK: it has not failed
    _Atomic int aborted;             // a self_abort_state
    char why[TRI_MESSAGE_MAX_BYTES]; // why it failed or was aborted
} self_comm;

static self_comm *self_of(tri_comm *comm) { return (self_comm *)comm; }

static tri_status self_check(self_comm *self) {
    if (atomic_load(&self->aborted) == ABORTED) return TRI_FAIL(TRI_PEER_LOST, "%s", self->why);
    if (self->failed) return TRI_FAIL(self->failed, "%s", self->why);
    return TRI_OK;
}

// Records the failure, so that later calls fail with it too, as with all communicators.
static tri_status self_fail(self_comm *self, tri_status status) {
    self->failed = status;
    memcpy(self->why, tri_error_message(), sizeof self->why);
    self->why[sizeof self->why - 1] = 0;
    return status;
}

static void self_close(tri_comm *comm) {
    tri_ledger_close(comm->ledger);
    free(comm);
}

static const tri_ledger_ring *self_ledger_of(tri_comm *comm, int rank) {
    return tri_ledger_ring_of(comm->ledger);
}

static tri_status self_alloc(tri_comm *comm, size_t size_bytes, void **out) {
    *out = NULL;
    TRI_TRY(self_check(self_of(comm)));
    size_t alignment = size_bytes >= SELF_PAGE ? SELF_PAGE : SELF_ALIGNMENT;
    if (size_bytes > SIZE_MAX / 2)
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for a buffer of %zu bytes", size_bytes);
    size_t rounded = (size_bytes + alignment) / alignment * alignment;
    void *memory = aligned_alloc(alignment, rounded);
    if (!memory) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a buffer of %zu bytes", size_bytes);
    memset(memory, 0, rounded);
    *out = memory;
    return TRI_OK;
}

static void self_free(tri_comm *comm, void *memory) { free(memory); }

static void self_copy(const tri_comm_op *send, const tri_comm_op *recv) {
    if (recv->accumulate) {
        const void *in[] = {recv->recv, send->send};
        void *out[] = {recv->recv};
        comm_reduce(recv, 2, in, 1, out, (size_t)send->count, false);
        return;
    }
    size_t bytes = (size_t)send->count * tri_dtype_bytes(send->dtype);
    if (bytes > 0 && send->send != recv->recv) memmove(recv->recv, send->send, bytes);
}

// Finds the n-th operation of `kind`, from 0, in an operation group; NULL: there are fewer.
static const tri_comm_op *self_nth(const tri_comm_op *ops, int count, tri_comm_kind kind, int n) {
    for (int i = 0; i < count; i++)
        if (ops[i].kind == kind && n-- == 0) return &ops[i];
    return NULL;
}

// Carries out the sends and receives of an operation group. One rank can only send to itself, and
// the matching receive must be in the same group, because a send without it would wait for ever.
static tri_status self_pairs(const tri_comm_op *ops, int count) {
    for (int n = 0;; n++) {
        const tri_comm_op *send = self_nth(ops, count, TRI_COMM_SEND, n);
        const tri_comm_op *recv = self_nth(ops, count, TRI_COMM_RECV, n);
        if (!send && !recv) return TRI_OK;
        if (!send || !recv) {
            const tri_comm_op *single = send ? send : recv;
            return TRI_FAIL(TRI_MISMATCH, "%s '%s' of a rank to itself has no partner in its group",
                            tri_comm_kind_name(single->kind), single->label ? single->label : "");
        }
        if (send->dtype != recv->dtype || send->count != recv->count)
            return TRI_FAIL(TRI_MISMATCH, "send '%s' has %lld %s but recv '%s' wants %lld %s",
                            send->label ? send->label : "", (long long)send->count,
                            tri_dtype_name(send->dtype), recv->label ? recv->label : "",
                            (long long)recv->count, tri_dtype_name(recv->dtype));
        self_copy(send, recv);
    }
}

static tri_status self_start(tri_comm *comm, const tri_comm_op *ops, int count,
                             tri_comm_ticket *out) {
    self_comm *self = self_of(comm);
    TRI_TRY(self_check(self));
    for (int i = 0; i < count; i++) {
        tri_status status = tri_comm_op_check(comm, &ops[i]);
        if (status) return self_fail(self, status);
    }
    for (int i = 0; i < count; i++) {
        if (tri_comm_kind_is_message(ops[i].kind)) continue;
        tri_ledger_mark mark = tri_comm_op_begin(comm, &ops[i], self->started + (uint64_t)i + 1);
        if (ops[i].kind != TRI_COMM_BARRIER) self_copy(&ops[i], &ops[i]);
        tri_ledger_end(comm->ledger, mark);
    }
    tri_status status = self_pairs(ops, count);
    if (status) return self_fail(self, status);
    self->started += (uint64_t)count;
    *out = (tri_comm_ticket){self->started};
    return TRI_OK;
}

static bool self_test(tri_comm *comm, tri_comm_ticket ticket) { return true; }

static tri_status self_wait(tri_comm *comm, tri_comm_ticket ticket) {
    self_comm *self = self_of(comm);
    TRI_ASSERT(ticket.value <= self->started);
    return self_check(self);
}

static void self_abort(tri_comm *comm, const char *why) {
    self_comm *self = self_of(comm);
    int expected = NOT_ABORTED;
    if (!atomic_compare_exchange_strong(&self->aborted, &expected, ABORT_BEING_WRITTEN)) return;
    strncpy(self->why, why ? why : "aborted", sizeof self->why - 1);
    atomic_store(&self->aborted, ABORTED);
}

static tri_status self_failed(tri_comm *comm) { return self_check(self_of(comm)); }

static tri_status self_split(tri_comm *comm, int colour, int key, tri_comm **out);

// There is only one rank, so every sum is in rank order, and no other rank's call can differ from
// its own. So this communicator has all abilities except that it takes no memory of devices.
static unsigned self_abilities(const tri_comm *comm) {
    return TRI_COMM_ARITHMETIC | TRI_COMM_FINDS_MISMATCHES | TRI_COMM_HOST_MEMORY;
}

static int64_t self_scratch_bytes(int ranks, bool is_private) { return 0; }

static const tri_comm_backend self_backend = {
    .name = "self",
    .abilities = self_abilities,
    .scratch_bytes = self_scratch_bytes,
    .close = self_close,
    .split = self_split,
    .alloc = self_alloc,
    .free = self_free,
    .start = self_start,
    .test = self_test,
    .wait = self_wait,
    .abort = self_abort,
    .failed = self_failed,
    .ledger_of = self_ledger_of,
};

// Makes the communicator. It takes over `ledger`, in which it records its operations; if there is
// no memory for the communicator, the ledger is closed.
static tri_status self_create(tri_ledger *ledger, const char *name, tri_comm **out) {
    self_comm *self = calloc(1, sizeof *self);
    if (!self) {
        tri_ledger_close(ledger);
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    }
    self->head = (tri_comm){.backend = &self_backend,
                            .rank = 0,
                            .size = 1,
                            .ledger = ledger,
                            .lane = tri_ledger_lane(ledger, name)};
    *out = &self->head;
    return TRI_OK;
}

static tri_status self_split(tri_comm *comm, int colour, int key, tri_comm **out) {
    *out = NULL;
    TRI_TRY(self_check(self_of(comm)));
    return colour < 0 ? TRI_OK : self_create(tri_ledger_retain(comm->ledger), "split", out);
}

tri_status tri_comm_self_open(tri_comm **out) {
    tri_ledger *ledger;
    TRI_TRY(tri_ledger_open(NULL, &ledger));
    return self_create(ledger, "world", out);
}
