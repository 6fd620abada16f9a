// Checks operations and computes their sizes, the same for all backends, so that all refuse the
// same mistakes.
#include "comm/op.h"

#include <stdio.h>

static bool numbers_agree(const tri_comm_numbers *a, const tri_comm_numbers *b) {
    bool same_kind = a->kind == b->kind;
    if (a->kind == TRI_COMM_SEND) same_kind = b->kind == TRI_COMM_RECV;
    if (!same_kind) return false;
    if (a->kind == TRI_COMM_BARRIER) return true;
    if (a->dtype != b->dtype || a->count != b->count) return false;
    bool same =
        a->reduction == b->reduction && a->accumulate == b->accumulate && a->wire == b->wire;
    if (tri_comm_kind_reduces((tri_comm_kind)a->kind) && !same) return false;
    return a->kind != TRI_COMM_BROADCAST || a->root == b->root;
}

bool tri_comm_calls_agree(const tri_comm_call *a, const tri_comm_call *b) {
    return numbers_agree(&a->whole, &b->whole) && numbers_agree(&a->op, &b->op);
}

void tri_comm_call_text(const tri_comm_call *call, char *out, size_t size) {
    static const char *const reductions[] = {"sum", "max", "min"};
    const tri_comm_numbers *n = &call->whole;
    tri_comm_kind kind = (tri_comm_kind)n->kind;
    if (kind == TRI_COMM_BARRIER) {
        snprintf(out, size, "barrier '%s'", call->label);
        return;
    }
    char detail[48] = "";
    bool rounds = n->wire != TRI_F32;
    if (tri_comm_kind_reduces(kind))
        snprintf(detail, sizeof detail, " (%s%s%s%s)", reductions[n->reduction % 3],
                 n->accumulate ? ", accumulated" : "", rounds ? ", by " : "",
                 rounds ? tri_dtype_name((tri_dtype)n->wire) : "");
    if (kind == TRI_COMM_BROADCAST) snprintf(detail, sizeof detail, " from rank %d", n->root);
    snprintf(out, size, "%s '%s' of %lld %s%s", tri_comm_kind_name(kind), call->label,
             (long long)n->count, tri_dtype_name((tri_dtype)n->dtype), detail);
}

tri_ledger_mark tri_comm_op_begin(const tri_comm *comm, const tri_comm_op *op, uint64_t sequence) {
    int64_t sent = tri_comm_send_count(op, comm->size),
            received = tri_comm_recv_count(op, comm->size);
    bool has_data = op->kind != TRI_COMM_BARRIER;
    return tri_ledger_begin(
        comm->ledger,
        &(tri_ledger_action){.kind = tri_comm_kind_name(op->kind),
                             .label = op->label,
                             .lane = comm->lane,
                             .subject = TRI_LEDGER_NONE,
                             .round = TRI_LEDGER_NONE,
                             .bytes = has_data ? (sent > received ? sent : received) *
                                                     (int64_t)tri_dtype_bytes(op->dtype)
                                               : 0,
                             .sequence = sequence});
}

static bool reduces(tri_dtype dtype) {
    return dtype == TRI_F32 || dtype == TRI_F64 || dtype == TRI_I64 || dtype == TRI_I32 ||
           dtype == TRI_BF16 || dtype == TRI_F16;
}

static tri_status check_accumulate(const tri_comm_op *op, int size) {
    const char *name = tri_comm_kind_name(op->kind), *label = op->label ? op->label : "";
    bool wide = op->dtype == TRI_F32 || op->dtype == TRI_F64;
    if (op->kind != TRI_COMM_REDUCE_SCATTER || op->reduction != TRI_REDUCE_SUM || !wide)
        return TRI_FAIL(TRI_UNSUPPORTED,
                        "%s '%s': only a reduce_scatter of sums of F32 or F64 accumulates", name,
                        label);
    int64_t width = (int64_t)tri_dtype_bytes(op->dtype);
    intptr_t recv = (intptr_t)op->recv, send = (intptr_t)op->send;
    if (op->count > 0 && recv < send + op->count * size * width && send < recv + op->count * width)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s '%s': recv overlaps send, which is not possible where it accumulates",
                        name, label);
    return TRI_OK;
}

static tri_status check_wire(const tri_comm_op *op) {
    bool sums = tri_comm_kind_reduces(op->kind) && op->reduction == TRI_REDUCE_SUM;
    if (sums && op->dtype == TRI_F32 && (op->wire == TRI_BF16 || op->wire == TRI_F16))
        return TRI_OK;
    return TRI_FAIL(TRI_UNSUPPORTED, "%s '%s': only sums of F32 travel as BF16 or F16",
                    tri_comm_kind_name(op->kind), op->label ? op->label : "");
}

tri_status tri_comm_op_check(const tri_comm *comm, const tri_comm_op *op) {
    const char *label = op->label ? op->label : "";
    if ((unsigned)op->kind >= TRI_COMM_KIND_COUNT)
        return TRI_FAIL(TRI_BAD_INPUT, "operation '%s': no kind %d", label, (int)op->kind);
    if (op->kind == TRI_COMM_BARRIER) return TRI_OK;
    const char *name = tri_comm_kind_name(op->kind);
    if ((unsigned)op->dtype >= TRI_DTYPE_COUNT)
        return TRI_FAIL(TRI_BAD_INPUT, "%s '%s': no element type %d", name, label, (int)op->dtype);
    int64_t limit = INT64_MAX / 16 / comm->size;
    if (op->count < 0 || op->count > limit)
        return TRI_FAIL(TRI_BAD_INPUT, "%s '%s': %lld elements are not possible", name, label,
                        (long long)op->count);
    if (op->kind == TRI_COMM_BROADCAST && (op->root < 0 || op->root >= comm->size))
        return TRI_FAIL(TRI_BAD_INPUT, "%s '%s': root %d is not one of %d ranks", name, label,
                        op->root, comm->size);
    if (tri_comm_kind_is_message(op->kind) && (op->peer < 0 || op->peer >= comm->size))
        return TRI_FAIL(TRI_BAD_INPUT, "%s '%s': peer %d is not one of %d ranks", name, label,
                        op->peer, comm->size);
    if (op->accumulate) TRI_TRY(check_accumulate(op, comm->size));
    if (op->wire != TRI_F32) TRI_TRY(check_wire(op));
    if (!tri_comm_kind_reduces(op->kind)) return TRI_OK;
    if ((unsigned)op->reduction > TRI_REDUCE_MIN)
        return TRI_FAIL(TRI_BAD_INPUT, "%s '%s': no reduction %d", name, label, (int)op->reduction);
    if (!reduces(op->dtype))
        return TRI_FAIL(TRI_UNSUPPORTED,
                        "%s '%s': %s does not reduce; F32, F64, BF16, F16, I64 and I32 do", name,
                        label, tri_dtype_name(op->dtype));
    return TRI_OK;
}

int64_t tri_comm_send_count(const tri_comm_op *op, int size) {
    switch (op->kind) {
    case TRI_COMM_ALL_REDUCE:
    case TRI_COMM_ALL_GATHER:
    case TRI_COMM_BROADCAST:
    case TRI_COMM_SEND:
        return op->count;
    case TRI_COMM_REDUCE_SCATTER:
    case TRI_COMM_ALL_TO_ALL:
        return op->count * size;
    default:
        return 0;
    }
}

int64_t tri_comm_recv_count(const tri_comm_op *op, int size) {
    switch (op->kind) {
    case TRI_COMM_ALL_REDUCE:
    case TRI_COMM_REDUCE_SCATTER:
    case TRI_COMM_BROADCAST:
    case TRI_COMM_RECV:
        return op->count;
    case TRI_COMM_ALL_GATHER:
    case TRI_COMM_ALL_TO_ALL:
        return op->count * size;
    default:
        return 0;
    }
}
