// Tests ranks that die, stop, are late or call another operation: the other ranks notice it in
// time, name the rank, and leave no shared memory behind.
#include "support/comm_fault_cases.h"

#include <dirent.h>

static void test_stopped(void **state) {
    attack_once(2, (attack_plan){.victim = 1, .signal = SIGSTOP, .delay_ms = 20});
    attack_once(3, (attack_plan){.victim = 0, .signal = SIGSTOP, .delay_ms = 700, .behind = true});
}

// Checks that no rank counts as lost if all ranks are stopped together, as Ctrl+Z does. The ranks
// count their rounds, until the parent tells rank 0 by the note END that they may end.
enum { END = RANKS_MAX - 1 };

static void body_suspended(tri_comm *comm, ranks_table *table, void *argument) {
    int64_t stop = 0;
    while (!stop) {
        atomic_fetch_add(&table->notes[comm->rank], 1);
        stop = comm->rank == 0 && atomic_load(&table->notes[END]);
        tri_comm_op op = {.kind = TRI_COMM_ALL_REDUCE,
                          .dtype = TRI_I64,
                          .count = 1,
                          .send = &stop,
                          .recv = &stop};
        CHECK_OK(tri_comm_run(comm, &op));
        ranks_sleep_ms(5);
    }
    CHECK(stop == 1); // the sum over the ranks, of which only rank 0 has sent a 1
}

static void test_suspended(void **state) {
    ranks all = ranks_start(3, NULL, body_suspended, NULL);
    for (int r = 0; r < 3; r++)
        while (atomic_load(&all.table->notes[r]) < 10) ranks_sleep_ms(1);
    for (int r = 0; r < 3; r++) kill(all.pids[r], SIGSTOP);
    ranks_sleep_ms(TRI_DEAD_AFTER_MS + 1500); // by the ranks' clocks, which nobody can turn
    for (int r = 0; r < 3; r++) {
        kill(all.pids[r], SIGCONT);
        ranks_sleep_ms(50);
    }
    ranks_sleep_ms(2 * TRI_HEARTBEAT_MS); // each looks at the heartbeats of the others
    atomic_store(&all.table->notes[END], 1);
    for (int r = 0; r < 3; r++) assert_int_equal(ranks_join(&all, r, RANKS_LIMIT_S), 0);
    munmap(all.table, sizeof *all.table);
}

// True if some process still maps the ranks' shared memory, which has no name and is found by its
// inode.
static bool is_held(ino_t inode) {
    DIR *processes = opendir("/proc");
    assert_non_null(processes);
    char path[300], line[512];
    unsigned long long number;
    bool found = false;
    for (struct dirent *entry; (entry = readdir(processes)) && !found;) {
        snprintf(path, sizeof path, "/proc/%s/maps", entry->d_name);
        FILE *maps = fopen(path, "r");
        while (maps && !found && fgets(line, sizeof line, maps))
            found = strstr(line, "/memfd:trireme") &&
                    sscanf(line, "%*s %*s %*s %*s %llu", &number) == 1 && number == inode;
        if (maps) fclose(maps);
    }
    closedir(processes);
    return found;
}

static int inode_of_shared_memory(void) {
    char line[512];
    int inode = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    while (fgets(line, sizeof line, maps))
        if (strstr(line, "/memfd:trireme")) CHECK(sscanf(line, "%*s %*s %*s %*s %d", &inode) == 1);
    fclose(maps);
    return inode;
}

static void body_forever(tri_comm *comm, ranks_table *table, void *argument) {
    float *x;
    CHECK_OK(comm->backend->alloc(comm, N * sizeof *x, (void **)&x));
    atomic_store(&table->notes[comm->rank], inode_of_shared_memory());
    for (;;)
        CHECK_OK(tri_comm_run(
            comm,
            &(tri_comm_op){
                .kind = TRI_COMM_ALL_REDUCE, .dtype = TRI_F32, .count = N, .send = x, .recv = x}));
}

static void test_all_killed(void **state) {
    ranks all = ranks_start(3, NULL, body_forever, NULL);
    for (int r = 0; r < 3; r++)
        while (!atomic_load(&all.table->notes[r])) ranks_sleep_ms(1);
    for (int r = 0; r < 3; r++) assert_true(is_held((ino_t)atomic_load(&all.table->notes[r])));
    for (int r = 0; r < 3; r++) kill(all.pids[r], SIGKILL);
    for (int r = 0; r < 3; r++) {
        int code = ranks_join(&all, r, RANKS_LIMIT_S);
        // A rank may notice the death of another, and fail, before its own signal comes.
        if (code != 1) assert_int_equal(code, 128 + SIGKILL);
    }
    for (int r = 0; r < 3; r++) assert_false(is_held((ino_t)atomic_load(&all.table->notes[r])));
    munmap(all.table, sizeof *all.table);
}

static void test_never_came(void **state) {
    ranks_table *table = ranks_share_table();
    tri_comm_meeting meeting = {.context = table, .set = ranks_set, .get = ranks_get};
    tri_shm_config config = {.timeout_ms = 200};
    tri_comm *comm;
    assert_int_equal(tri_comm_shm_open_at(0, 2, &meeting, &config, &comm), TRI_TIMEOUT);
    assert_non_null(strstr(tri_error_message(), "rank 1 did not join"));
    assert_int_equal(tri_comm_shm_open_at(1, 2, &meeting, &config, &comm), TRI_TIMEOUT);
    assert_non_null(strstr(tri_error_message(), "rank 0 did not join"));
    assert_null(comm);
    munmap(table, sizeof *table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_came), cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_timeout),    cmocka_unit_test(test_leaver),
        cmocka_unit_test(test_abort),      cmocka_unit_test(test_killed),
        cmocka_unit_test(test_all_killed), cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_suspended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
