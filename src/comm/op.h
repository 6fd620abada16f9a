// Checks operations and computes their sizes, so that all backends do both in the same way.
#ifndef TRIREME_COMM_OP_H
#define TRIREME_COMM_OP_H

#include "comm/comm.h"

#include <string.h>

// Checks an operation before it starts, so that a mistake is reported here and not by another rank.
// TRI_BAD_INPUT for a kind, count, root or peer out of range, TRI_UNSUPPORTED for a type that the
// kind does not take.
tri_status tri_comm_op_check(const tri_comm *comm, const tri_comm_op *op);

// Count the elements that one rank reads from `send`, or writes to `recv`; 0 if an operation of
// this kind does not use that memory. For a broadcast, `send` is counted on every rank, though only
// the root's is read.
int64_t tri_comm_send_count(const tri_comm_op *op, int size);
int64_t tri_comm_recv_count(const tri_comm_op *op, int size);

// Records the beginning of an operation in the communicator's ledger of actions, so that traces and
// messages about hangs show the operation. `sequence`: its number in the communicator, from 1.
tri_ledger_mark tri_comm_op_begin(const tri_comm *comm, const tri_comm_op *op, uint64_t sequence);

// Those numbers of an operation that ranks compare. They lie in memory that other processes read,
// so there are no pointers.
typedef struct tri_comm_numbers {
    uint32_t kind, dtype, reduction, accumulate, wire;
    int32_t root;
    int64_t count;
} tri_comm_numbers;

enum { TRI_COMM_LABEL_BYTES = 80 };
// What a rank has called, in the form in which the ranks compare their calls.
typedef struct tri_comm_call {
    // Some communicators do an operation in several steps, each of which is an operation of another
    // communicator. For such a step, `op` is the step and `whole` the operation that the caller
    // started. Otherwise both are the same.
    tri_comm_numbers op, whole;
    char label[TRI_COMM_LABEL_BYTES];
} tri_comm_call;

// Copies a label, cut off if it is too long. It does not use snprintf, which would take a tenth of
// the time of a small operation.
static inline void tri_comm_copy_label(const tri_comm_op *op, char to[TRI_COMM_LABEL_BYTES]) {
    size_t bytes = op->label ? strnlen(op->label, TRI_COMM_LABEL_BYTES - 1) : 0;
    if (bytes) memcpy(to, op->label, bytes);
    to[bytes] = 0;
}

static inline void tri_comm_numbers_of(const tri_comm_op *op, tri_comm_numbers *out) {
    out->kind = op->kind;
    out->dtype = op->dtype;
    out->reduction = op->reduction;
    out->accumulate = op->accumulate;
    out->wire = op->wire;
    out->root = op->root;
    out->count = op->count;
}

static inline void tri_comm_call_of(const tri_comm_op *op, tri_comm_call *out) {
    tri_comm_numbers_of(op, &out->op);
    tri_comm_numbers_of(op->part_of ? op->part_of : op, &out->whole);
    tri_comm_copy_label(op, out->label);
}

// True if two ranks may call these collectives together, or if the SEND `a` fits the RECV `b`. If
// not, one of the ranks has made a mistake.
bool tri_comm_calls_agree(const tri_comm_call *a, const tri_comm_call *b);
// Writes the call's operation `whole` as text, for messages about ranks that disagree: "all_reduce
// 'REDUCE a' of 4 F32 (sum)".
void tri_comm_call_text(const tri_comm_call *call, char *out, size_t size);

static inline bool tri_comm_kind_is_message(tri_comm_kind kind) {
    return kind == TRI_COMM_SEND || kind == TRI_COMM_RECV;
}

// True if `send` holds `count` elements for every rank.
static inline bool tri_comm_kind_scatters(tri_comm_kind kind) {
    return kind == TRI_COMM_REDUCE_SCATTER || kind == TRI_COMM_ALL_TO_ALL;
}

static inline bool tri_comm_kind_reduces(tri_comm_kind kind) {
    return kind == TRI_COMM_ALL_REDUCE || kind == TRI_COMM_REDUCE_SCATTER;
}

#endif
