// Tests the common base of communicators (comm/progress): communicators of some of a job's ranks,
// families that fail together, and calls that tell when an operation is done. A family is all
// communicators split from one; linked families fail together.
#include "support/comm_ranks.h"

#include "base/limits.h"
#include "comm/op.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

// Opens a communicator over `size` ranks of the job: rank `first` and every `step`th rank after it.
static tri_comm *open_group(tri_comm *job, ranks_table *table, int first, int step, int size,
                            int timeout_ms) {
    int numbers[RANKS_MAX];
    char name[32];
    for (int r = 0; r < size; r++) numbers[r] = first + r * step;
    snprintf(name, sizeof name, "%d+%d", first, step);
    tri_comm_meeting meeting = {.context = table, .set = ranks_set, .get = ranks_get};
    tri_shm_config config = {
        .job_ranks = numbers, .group = name, .timeout_ms = timeout_ms, .control = job};
    tri_comm *group;
    CHECK_OK(tri_comm_shm_open_at((job->rank - first) / step, size, &meeting, &config, &group));
    CHECK(numbers[group->rank] == job->rank && group->size == size);
    return group;
}

// ---- messages of a group of some ranks name a rank by its number in the job

static void body_named(tri_comm *job, ranks_table *table, void *argument) {
    // Ranks 1 and 3 open one group, and ranks 0 and 2 open another.
    tri_comm *group = open_group(job, table, job->rank % 2, 2, 2, 0);
    CHECK(tri_comm_job_rank(group, 0) == job->rank % 2 && tri_comm_job_rank(job, 3) == 3);
    tri_status mine = job->rank == 3 ? TRI_FAIL(TRI_IO, "no such file") : TRI_OK;
    tri_status status = tri_comm_agree(group, mine, "opening");
    CHECK(status == (job->rank % 2 ? TRI_IO : TRI_OK));
    if (job->rank % 2) ranks_says("rank 3: no such file");
    tri_comm *child;
    CHECK_OK(group->backend->split(group, 0, -group->rank, &child));
    CHECK(tri_comm_job_rank(child, 0) == 2 + job->rank % 2);
    int64_t x[8] = {0};
    tri_comm_op op = {.kind = TRI_COMM_ALL_REDUCE,
                      .dtype = TRI_I64,
                      .count = 1 + child->rank,
                      .send = x,
                      .recv = x,
                      .label = "SUM"};
    CHECK(tri_comm_run(child, &op) == TRI_MISMATCH);
    if (job->rank % 2) {
        ranks_says("rank 1 (host ");
        ranks_says(") calls all_reduce 'SUM' of 2 I64");
        ranks_says("rank 3 (host ");
        ranks_says(") calls all_reduce 'SUM' of 1 I64");
    }
    tri_comm_close(child);
    tri_comm_close(group);
    CHECK_OK(tri_comm_barrier(job, "another family lives on"));
}

static void test_named(void **state) { assert_int_equal(ranks_run(4, NULL, body_named, NULL), 0); }

// ---- linked families: communicators that were opened one by one and fail together

// Four ranks as a grid. The rows {0, 1} and {2, 3} and the columns {0, 2} and {1, 3} each have a
// communicator.
typedef struct grid {
    tri_comm *row, *column;
} grid;

static grid open_grid(tri_comm *job, ranks_table *table, int timeout_ms) {
    grid g = {.row = open_group(job, table, job->rank / 2 * 2, 1, 2, timeout_ms)};
    g.column = open_group(job, table, job->rank % 2, 2, 2, timeout_ms);
    tri_comm_link(g.row, g.column);
    tri_comm_link(g.column, g.row); // they are linked already: this has no effect
    return g;
}

static void close_grid(grid *g) {
    tri_comm_close(g->row);
    CHECK(g->column->backend->failed(g->column) != TRI_OK);
    tri_comm_close(g->column);
}

// Rank 3 is killed. Rank 0 shares no communicator with it, and learns of it from the other ranks.
static void body_linked(tri_comm *job, ranks_table *table, void *argument) {
    grid g = open_grid(job, table, 0);
    CHECK_OK(tri_comm_barrier(job, "begin"));
    ranks_meet(table, 1, 4);
    if (job->rank == 3) raise(SIGKILL);
    // Rank 1 shares its column with the lost rank, and waits there. Ranks 0 and 2 wait in their
    // rows.
    tri_comm *waits = job->rank == 2 ? g.row : job->rank == 1 ? g.column : g.row;
    CHECK(tri_comm_barrier(waits, "STEP") == TRI_PEER_LOST);
    ranks_says("rank 3 (host ");
    ranks_says(" died ");
    CHECK(tri_comm_barrier(g.row, "later") == TRI_PEER_LOST);
    ranks_says("rank 3 (host ");
    CHECK(tri_comm_barrier(g.column, "later") == TRI_PEER_LOST);
    ranks_says("rank 3 (host ");
    // No rank closes its communicators before ranks 0, 1 and 2 have seen the failure.
    ranks_meet(table, 0, 3);
    close_grid(&g);
}

static void test_linked(void **state) {
    ranks all = ranks_start(4, NULL, body_linked, NULL);
    for (int r = 0; r < 3; r++) assert_int_equal(ranks_join(&all, r, 20), 0);
    assert_int_equal(ranks_join(&all, 3, 20), 128 + SIGKILL);
    munmap(all.table, sizeof *all.table);
}

// If one rank aborts a communicator, the calls of all ranks fail with that rank's text.
static void body_aborted(tri_comm *job, ranks_table *table, void *argument) {
    grid g = open_grid(job, table, 0);
    CHECK_OK(tri_comm_barrier(job, "begin"));
    if (job->rank == 0) g.row->backend->abort(g.row, "rank 0: the data ended early");
    CHECK(tri_comm_barrier(job->rank == 3 ? g.row : g.column, "STEP") == TRI_PEER_LOST);
    CHECK(strcmp(tri_error_message(), "rank 0: the data ended early") == 0);
    ranks_meet(table, 0, 4);
    close_grid(&g);
}

static void test_aborted(void **state) {
    assert_int_equal(ranks_run(4, NULL, body_aborted, NULL), 0);
}

// Rank 0 computes and never joins. Rank 2 waits for rank 0 in the communicator of their column of
// the grid, and rank 3 waits for rank 2 in that of their row. Rank 3 has to name rank 0 as the
// cause, although rank 0 is not in its row.
static void body_chain(tri_comm *job, ranks_table *table, void *argument) {
    static const char forward[] = "FORWARD";
    grid g = open_grid(job, table, job->rank == 3 ? 900 : 2500);
    tri_comm *row = g.row; // rank 3 has the shortest time limit, so it fails first
    if (job->rank == 0) {
        tri_ledger_begin(job->ledger, &(tri_ledger_action){.kind = forward, .label = "block3"});
        while (atomic_load(&table->notes[0]) < 2) ranks_sleep_ms(5);
    } else if (job->rank == 1) {
        while (atomic_load(&table->notes[0]) < 2) ranks_sleep_ms(5);
    } else {
        tri_comm *waits = job->rank == 2 ? g.column : row;
        CHECK(tri_comm_barrier(waits, "STEP") == TRI_TIMEOUT);
        ranks_says("rank 0 (host ");
        ranks_says(" did not join in 0.9 s (comm.timeout_s); it is in FORWARD 'block3'");
        ranks_says("rank 2 is in barrier 'STEP'"); // from the text of rank 3, which fails first
        atomic_fetch_add(&table->notes[0], 1);
    }
    while (atomic_load(&table->notes[0]) < 2) ranks_sleep_ms(1);
    CHECK_OK(tri_comm_barrier(job, "end"));
    tri_comm_close(g.row);
    tri_comm_close(g.column);
}

static void test_chain(void **state) { assert_int_equal(ranks_run(4, NULL, body_chain, NULL), 0); }

// ---- a function that is called when an operation is done (notify)

static void count_call(void *context) { atomic_fetch_add((_Atomic int *)context, 1); }

static void body_notified(tri_comm *comm, ranks_table *table, void *argument) {
    _Atomic int calls = 0;
    comm->backend->notify(comm, count_call, &calls, true); // calls at once: nothing is under way
    CHECK(atomic_load(&calls) == 1);
    for (int round = 1; round <= 20; round++) {
        int64_t sums[3000] = {comm->rank};
        tri_comm_op op = {.kind = TRI_COMM_ALL_REDUCE,
                          .dtype = TRI_I64,
                          .count = round % 2 ? 1 : 3000,
                          .send = sums,
                          .recv = sums,
                          .waits_at_once = true};
        tri_comm_ticket ticket;
        atomic_store(&calls, 0);
        if (comm->rank == 1) ranks_sleep_ms(round % 5);
        CHECK_OK(comm->backend->start(comm, &op, 1, &ticket));
        comm->backend->notify(comm, count_call, &calls, round % 3);
        // No thread waits for the operation, and no thread tests it.
        double end = ranks_seconds() + 20;
        while (atomic_load(&calls) == 0 && ranks_seconds() < end) ranks_sleep_ms(1);
        CHECK(atomic_load(&calls) == 1);
        CHECK(comm->backend->test(comm, ticket));
        CHECK_OK(comm->backend->wait(comm, ticket));
        CHECK(sums[0] == comm->size * (comm->size - 1) / 2);
    }
    CHECK_OK(tri_comm_barrier(comm, "end"));
}

static void test_notified(void **state) {
    assert_int_equal(ranks_run(2, NULL, body_notified, NULL), 0);
    assert_int_equal(ranks_run(3, NULL, body_notified, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_named),    cmocka_unit_test(test_linked),
        cmocka_unit_test(test_aborted),  cmocka_unit_test(test_chain),
        cmocka_unit_test(test_notified),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
