// Checks and sizes of operations, for the backends.
#ifndef TRIREME_COMM_OP_H
#define TRIREME_COMM_OP_H

#include "comm/comm.h"

// TRI_BAD_INPUT for a kind, count, root or peer out of range, TRI_UNSUPPORTED for a type that the
// kind does not take.
tri_status tri_comm_op_check(const tri_comm *comm, const tri_comm_op *op);

// Elements that one rank reads from `send` and writes to `recv`; 0 where the kind has none. The
// send of a broadcast is counted on every rank, though only the root's is read.
int64_t tri_comm_send_count(const tri_comm_op *op, int size);
int64_t tri_comm_recv_count(const tri_comm_op *op, int size);

// Records the beginning of an operation in the ledger. `sequence`: its number in the communicator,
// from 1.
tri_ledger_mark tri_comm_op_begin(const tri_comm *comm, const tri_comm_op *op, uint64_t sequence);

static inline bool tri_comm_kind_is_message(tri_comm_kind kind) {
    return kind == TRI_COMM_SEND || kind == TRI_COMM_RECV;
}

// `send` has `count` elements for every rank.
static inline bool tri_comm_kind_scatters(tri_comm_kind kind) {
    return kind == TRI_COMM_REDUCE_SCATTER || kind == TRI_COMM_ALL_TO_ALL;
}

static inline bool tri_comm_kind_reduces(tri_comm_kind kind) {
    return kind == TRI_COMM_ALL_REDUCE || kind == TRI_COMM_REDUCE_SCATTER;
}

#endif
