// Checks the generic layer (comm/generic): if a backend cannot add in rank order, accumulate, send
// half types or find mismatches, the layer does it, with the same bits and error messages as a
// backend that can. The test makes such a backend of shm: it hides one of shm's abilities at a
// time, or all that concern sums, and refuses the operations that need a hidden ability.
#include "support/comm_draw.h"
#include "support/comm_mismatch.h"

#include "comm/generic/generic.h"
#include "comm/op.h"
#include "comm/options.h"
#include "comm/pair/pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { OPS = 60, MOST_COUNT = 90001, MOST_RANKS = 4 };

// ---- a backend without some of its abilities

static unsigned hidden;               // the abilities that `poor` lacks
static const tri_comm_backend *whole; // the backend with all its abilities
static tri_comm_backend poor;         // the same backend without the abilities in `hidden`
static int sums_seen;                 // how many sums reached `poor`

static unsigned poor_abilities(const tri_comm *comm) { return whole->abilities(comm) & ~hidden; }

static tri_status poor_start(tri_comm *comm, const tri_comm_op *ops, int count,
                             tri_comm_ticket *out) {
    for (int i = 0; i < count; i++) {
        bool sums = tri_comm_kind_reduces(ops[i].kind) && ops[i].reduction == TRI_REDUCE_SUM;
        CHECK(!(hidden & TRI_COMM_ACCUMULATES) || !ops[i].accumulate);
        CHECK(!(hidden & TRI_COMM_WIRE_TYPES) || ops[i].wire == TRI_F32);
        CHECK(!(hidden & TRI_COMM_RANK_ORDER) || !sums);
        sums_seen += sums;
    }
    return whole->start(comm, ops, count, out);
}

static void hide(tri_comm *comm, unsigned abilities) {
    hidden = abilities;
    whole = comm->backend;
    poor = *whole;
    poor.abilities = poor_abilities;
    poor.start = poor_start;
    comm->backend = &poor;
}

static tri_comm *copy_of(tri_comm *comm) {
    tri_comm *out;
    CHECK_OK(comm->backend->split(comm, 0, comm->rank, &out));
    return out;
}

// ---- results have the same bits through the generic layer as from the backend itself

static tri_comm_op draw_op(const tri_comm *comm, unsigned seed, int number) {
    static const tri_comm_kind kinds[] = {
        TRI_COMM_ALL_REDUCE, TRI_COMM_REDUCE_SCATTER, TRI_COMM_ALL_REDUCE, TRI_COMM_REDUCE_SCATTER,
        TRI_COMM_ALL_GATHER, TRI_COMM_ALL_TO_ALL,     TRI_COMM_BROADCAST,  TRI_COMM_BARRIER};
    static const tri_dtype dtypes[] = {TRI_F32, TRI_F64, TRI_BF16, TRI_F32};
    static const int64_t counts[] = {0, 1, 7, 1001, 30011, MOST_COUNT};
    tri_comm_op op = {.kind = kinds[draw(seed, number, 0, 8)],
                      .reduction = (tri_comm_reduction)(draw(seed, number, 1, 5) % 3 % 2),
                      .dtype = dtypes[draw(seed, number, 2, 4)],
                      .count = counts[draw(seed, number, 3, 6)],
                      .root = (int)draw(seed, number, 5, (uint32_t)comm->size),
                      .label = "TEST"};
    bool sums = tri_comm_kind_reduces(op.kind) && op.reduction == TRI_REDUCE_SUM;
    uint32_t wire = draw(seed, number, 6, 3);
    if (sums && op.dtype == TRI_F32 && wire) op.wire = wire == 1 ? TRI_BF16 : TRI_F16;
    if (sums && op.kind == TRI_COMM_REDUCE_SCATTER && op.dtype != TRI_BF16)
        op.accumulate = draw(seed, number, 7, 2);
    return op;
}

typedef struct same_case {
    unsigned hides, seed;
} same_case;

static void compare(tri_comm *native, tri_comm *generic, const same_case *c, char *memory[4]) {
    for (int i = 0; i < OPS; i++) {
        tri_comm_op ops[2];
        ops[0] = ops[1] = draw_op(native, c->seed, i);
        tri_dtype dtype = ops[0].dtype;
        int64_t sent = tri_comm_send_count(&ops[0], native->size),
                received = tri_comm_recv_count(&ops[0], native->size);
        size_t own = (size_t)native->rank * (size_t)ops[0].count * tri_dtype_bytes(dtype);
        bool in_place = !ops[0].accumulate && draw(c->seed, i, 8, 3) == 0;
        for (int k = 0; k < 2; k++) {
            uint64_t key = c->seed * 1000 + (uint64_t)i * 10 + (uint64_t)native->rank;
            ops[k].send = memory[2 * k];
            ops[k].recv = memory[2 * k + 1];
            draw_numbers(memory[2 * k + 1], dtype, received, key + 7777);
            draw_numbers(memory[2 * k], dtype, sent, key);
            if (in_place && ops[k].kind == TRI_COMM_ALL_REDUCE) ops[k].recv = memory[2 * k];
            if (in_place && ops[k].kind == TRI_COMM_REDUCE_SCATTER)
                ops[k].recv = memory[2 * k] + own;
            CHECK_OK(tri_comm_run(k ? generic : native, &ops[k]));
        }
        CHECK(memcmp(ops[0].recv, ops[1].recv, (size_t)received * tri_dtype_bytes(dtype)) == 0);
    }
}

static void body_same_bits(tri_comm *comm, ranks_table *table, void *argument) {
    const same_case *c = argument;
    tri_comm *inner = copy_of(comm), *generic;
    char *memory[4];
    for (int i = 0; i < 4; i++) memory[i] = malloc((size_t)comm->size * MOST_COUNT * 8);
    hide(inner, c->hides);
    CHECK_OK(tri_comm_generic_open(inner, copy_of(comm), TRI_COMM_ARITHMETIC, &generic));
    CHECK((generic == inner) == (comm->size == 1));
    unsigned can = generic->backend->abilities(generic);
    CHECK(comm->size == 1 || (can & TRI_COMM_ARITHMETIC) == TRI_COMM_ARITHMETIC);
    if (comm->size > 1) compare(comm, generic, c, memory);
    if (comm->size > 1) CHECK((sums_seen > 0) == !(c->hides & TRI_COMM_RANK_ORDER));
    tri_comm_close(generic);
    for (int i = 0; i < 4; i++) free(memory[i]);
}

static void test_same_bits(void **state) {
    static const unsigned hides[] = {TRI_COMM_RANK_ORDER, TRI_COMM_ACCUMULATES, TRI_COMM_WIRE_TYPES,
                                     TRI_COMM_ARITHMETIC};
    for (int i = 0; i < 4; i++)
        for (int size = 1; size <= MOST_RANKS; size++) {
            same_case c = {hides[i], (unsigned)(i * 10 + size)};
            assert_int_equal(ranks_run(size, NULL, body_same_bits, &c), 0);
        }
}

// A hierarchy of communicators does not add in rank order. The generic layer on top of it gives
// sums with the same bits as one plain communicator of all ranks.
static void body_on_pair(tri_comm *comm, ranks_table *table, void *argument) {
    const same_case *c = argument;
    tri_comm_pair parts = {0};
    tri_comm *pair, *generic;
    CHECK_OK(comm->backend->split(comm, comm->rank / 2, comm->rank, &parts.inside));
    CHECK_OK(comm->backend->split(comm, comm->rank % 2, comm->rank, &parts.across));
    CHECK_OK(tri_comm_pair_open(&parts, &pair));
    CHECK_OK(tri_comm_generic_open(pair, copy_of(comm),
                                   TRI_COMM_RANK_ORDER | TRI_COMM_FINDS_MISMATCHES, &generic));
    char *memory[4];
    for (int i = 0; i < 4; i++) memory[i] = malloc((size_t)comm->size * MOST_COUNT * 8);
    compare(comm, generic, c, memory);
    for (int i = 0; i < 4; i++) free(memory[i]);
    tri_comm *child; // has the same abilities as its parent
    CHECK_OK(generic->backend->split(generic, comm->rank / 2, comm->rank, &child));
    CHECK(child->backend->abilities(child) & TRI_COMM_RANK_ORDER);
    CHECK_OK(tri_comm_barrier(child, "child"));
    tri_comm_close(child);
    tri_comm_close(generic);
}

static void test_on_pair(void **state) {
    same_case c = {.seed = 77};
    assert_int_equal(ranks_run(4, NULL, body_on_pair, &c), 0);
}

// ---- mismatches

static void body_mismatch(tri_comm *comm, ranks_table *table, void *argument) {
    tri_comm *inner = copy_of(comm), *generic;
    hide(inner, TRI_COMM_FINDS_MISMATCHES);
    CHECK_OK(tri_comm_generic_open(inner, copy_of(comm), TRI_COMM_FINDS_MISMATCHES, &generic));
    mismatch_call(generic, argument);
    CHECK(tri_comm_barrier(generic, "after") == TRI_MISMATCH);
    ranks_meet(table, 0, comm->size);
    tri_comm_close(generic);
}

static void test_mismatch(void **state) { assert_int_equal(mismatch_run(body_mismatch), 0); }

// Every rank sends a message to every rank, over a generic layer that compares the calls of sender
// and receiver before the data are sent.
static void body_messages(tri_comm *comm, ranks_table *table, void *argument) {
    enum { N = 3000 };
    tri_comm *inner = copy_of(comm), *generic;
    static int64_t out[MOST_RANKS][N], in[MOST_RANKS][N];
    tri_comm_op group[2 * MOST_RANKS];
    hide(inner, TRI_COMM_FINDS_MISMATCHES);
    CHECK_OK(tri_comm_generic_open(inner, copy_of(comm), TRI_COMM_FINDS_MISMATCHES, &generic));
    for (int r = 0; r < comm->size; r++) {
        for (int i = 0; i < N; i++) out[r][i] = comm->rank * 100 + r * 10 + i;
        group[2 * r] = (tri_comm_op){
            .kind = TRI_COMM_SEND, .dtype = TRI_I64, .count = N, .send = out[r], .peer = r};
        group[2 * r + 1] = (tri_comm_op){
            .kind = TRI_COMM_RECV, .dtype = TRI_I64, .count = N, .recv = in[r], .peer = r};
    }
    tri_comm_ticket ticket;
    CHECK_OK(generic->backend->start(generic, group, 2 * comm->size, &ticket));
    CHECK_OK(generic->backend->wait(generic, ticket));
    for (int r = 0; r < comm->size; r++)
        for (int i = 0; i < N; i++) CHECK(in[r][i] == r * 100 + comm->rank * 10 + i);
    tri_comm_close(generic);
}

static void test_messages(void **state) {
    assert_int_equal(ranks_run(3, NULL, body_messages, NULL), 0);
}

// ---- what communicators report about themselves

static void body_scratch(tri_comm *comm, ranks_table *table, void *argument) {
    for (int is_private = 0; is_private < 2; is_private++)
        CHECK(comm->backend->scratch_bytes(comm->size, is_private) ==
              tri_comm_scratch_bytes(TRI_COMM_AUTO, comm->size, is_private));
    CHECK(comm->backend->scratch_bytes(comm->size, true) >
          comm->backend->scratch_bytes(comm->size, false));
    tri_comm *self;
    CHECK_OK(tri_comm_self_open(&self));
    CHECK(self->backend->scratch_bytes(1, true) == 0);
    CHECK(self->backend->abilities(self) & TRI_COMM_HOST_MEMORY);
    CHECK(tri_comm_generic_open(self, copy_of(comm), TRI_COMM_ARITHMETIC, &self) == TRI_OK);
    tri_comm_close(self);
    // The generic layer cannot make a communicator take device memory if its backend does not.
    tri_comm *out;
    CHECK(tri_comm_generic_open(copy_of(comm), copy_of(comm), TRI_COMM_DEVICE_MEMORY, &out) ==
          TRI_UNSUPPORTED);
}

static void test_scratch(void **state) {
    assert_int_equal(ranks_run(2, NULL, body_scratch, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_on_pair),
        cmocka_unit_test(test_mismatch),  cmocka_unit_test(test_messages),
        cmocka_unit_test(test_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
