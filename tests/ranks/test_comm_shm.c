// Communicators over shared memory: the cases that all backends have to pass (comm_cases.h), and
// tests of what only this backend does.
#include "support/comm_cases.h"

// Ranks pass shared memory to each other over sockets, as on hosts where a process may not open
// /proc/PID/fd of another process.
static void test_split_by_socket(void **state) {
    tri_shm_config config = {.pass_by_socket = true};
    assert_int_equal(ranks_run(4, &config, body_split, NULL), 0);
}

// Allocating memory is collective: all ranks must ask for the same size.
static void body_uneven(tri_comm *comm, ranks_table *table, void *argument) {
    void *nothing;
    CHECK(comm->backend->alloc(comm, 100 + (size_t)comm->rank, &nothing) == TRI_MISMATCH);
    // A refused call has no effect on later ones.
    CHECK_OK(tri_comm_barrier(comm, "still alive"));
}

static void test_uneven(void **state) {
    assert_int_equal(ranks_run(3, NULL, body_uneven, NULL), 0);
}

static void test_bad_open(void **state) {
    tri_comm *comm;
    assert_int_equal(tri_comm_shm_open_at(0, 0, NULL, NULL, &comm), TRI_BAD_INPUT);
    assert_int_equal(tri_comm_shm_open_at(3, 3, NULL, NULL, &comm), TRI_BAD_INPUT);
    assert_int_equal(tri_comm_shm_open_at(0, 1 << 20, NULL, NULL, &comm), TRI_BAD_INPUT);
}

int main(void) {
    const struct CMUnitTest own[] = {
        cmocka_unit_test(test_split_by_socket),
        cmocka_unit_test(test_uneven),
        cmocka_unit_test(test_bad_open),
    };
    return comm_cases_main("shm", own, sizeof own / sizeof *own);
}
