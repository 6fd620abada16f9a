// Calls of two ranks that do not fit together, and what the error on both ranks has to say. A
// backend may compare the calls itself; for other backends the generic layer (comm/generic) does.
#ifndef TESTS_COMM_MISMATCH_H
#define TESTS_COMM_MISMATCH_H

#include "support/comm_ranks.h"

typedef struct mismatch {
    tri_comm_op ops[2];  // what rank 0 calls, and what the other ranks call
    const char *says[2]; // what the error of every rank has to contain
} mismatch;

// The arguments of OP may set a field that OP itself sets too (dtype, count). Their value then
// counts, but GCC would warn about the field that is set twice.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
#define OP(k, ...)                                                                                 \
    { .kind = TRI_COMM_##k, .dtype = TRI_F32, .count = 4, __VA_ARGS__ }

static const mismatch mismatches[] = {
    {{OP(ALL_REDUCE, .label = "REDUCE a"), OP(ALL_GATHER, .label = "GATHER b")},
     {"all_reduce 'REDUCE a' of 4 F32", "all_gather 'GATHER b' of 4 F32"}},
    {{OP(ALL_REDUCE, ), OP(ALL_REDUCE, .dtype = TRI_F64)}, {"of 4 F32", "of 4 F64"}},
    {{OP(ALL_REDUCE, ), OP(ALL_REDUCE, .count = 5)}, {"of 4 F32", "of 5 F32"}},
    {{OP(ALL_REDUCE, ), OP(ALL_REDUCE, .count = 50000)}, {"of 4 F32", "of 50000 F32"}},
    {{OP(ALL_REDUCE, .count = 60000), OP(ALL_TO_ALL, .count = 50000)},
     {"all_reduce '' of 60000", "all_to_all '' of 50000"}},
    {{OP(ALL_REDUCE, ), OP(ALL_REDUCE, .reduction = TRI_REDUCE_MIN)}, {"(sum)", "(min)"}},
    {{OP(ALL_REDUCE, ), OP(ALL_REDUCE, .wire = TRI_BF16)}, {"(sum)", "(sum, by BF16)"}},
    {{OP(REDUCE_SCATTER, ), OP(REDUCE_SCATTER, .reduction = TRI_REDUCE_MAX)}, {"(sum)", "(max)"}},
    {{OP(REDUCE_SCATTER, .accumulate = true), OP(REDUCE_SCATTER, )},
     {"(sum, accumulated)", "(sum)"}},
    {{OP(ALL_GATHER, .dtype = TRI_BF16), OP(ALL_GATHER, )}, {"of 4 BF16", "of 4 F32"}},
    {{OP(BROADCAST, ), OP(BROADCAST, .root = 1)}, {"from rank 0", "from rank 1"}},
    {{OP(BARRIER, .label = "end"), OP(ALL_REDUCE, )}, {"barrier 'end'", "all_reduce"}},
    {{OP(SEND, .peer = 1), OP(RECV, .count = 3)}, {"send '' of 4 F32", "recv '' of 3 F32"}},
    {{OP(RECV, .peer = 1, .label = "edge 3"), OP(ALL_REDUCE, .label = "REDUCE a")},
     {"recv 'edge 3'", "'REDUCE a'"}},
    // Rank 0 sends a message while rank 1 begins a collective. The generic layer exchanges the
    // ranks' calls first: for a collective by an all-gather, which gets the collective's label.
    // That exchange then fails, so the error names the label and not "all_reduce".
    {{OP(SEND, .peer = 1, .label = "edge 3"), OP(ALL_REDUCE, .label = "REDUCE a")},
     {"send 'edge 3'", "'REDUCE a'"}},
};
enum { MISMATCHES = sizeof mismatches / sizeof *mismatches };

#undef OP
#pragma GCC diagnostic pop

// Calls this rank's operation of a row.
static inline void mismatch_call(tri_comm *comm, const mismatch *row) {
    static char send[1 << 19], recv[1 << 19];
    tri_comm_op op = row->ops[comm->rank != 0];
    op.send = send;
    op.recv = recv;
    tri_status status = tri_comm_run(comm, &op);
    // Over a transport, a small SEND is done once it has left this rank, so it may succeed. Then
    // the next operation reports the mismatch.
    if (ranks_transport && op.kind == TRI_COMM_SEND && status == TRI_OK)
        status = tri_comm_barrier(comm, "after");
    CHECK(status == TRI_MISMATCH); // ranks_join ends a rank that waits for its time limit
    ranks_says("rank 0 (host ");
    ranks_says("rank 1 (host ");
    ranks_says(row->says[0]);
    ranks_says(row->says[1]);
}

// For each row of `mismatches`, runs `body` on two ranks, with the row as its argument. Returns on
// how many ranks the body failed, in all.
static inline int mismatch_run(ranks_body *body) {
    int bad = 0;
    for (int i = 0; i < MISMATCHES; i++) {
        mismatch row = mismatches[i];
        bool is_lone_send = row.ops[0].kind == TRI_COMM_SEND && row.ops[1].kind != TRI_COMM_RECV;
        // Over a transport the small SEND succeeds, and the error names the operation after it, so
        // this row is left out.
        if (ranks_transport && is_lone_send) continue;
        bad += ranks_run(2, NULL, body, &row);
    }
    return bad;
}

#endif
