// Several ranks save one checkpoint: its bytes do not depend on the number of ranks, and if one
// rank fails or dies, no checkpoint is committed.
#include "support/checkpoint_fixture.h"
#include "support/comm_ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>

enum { WIDTH = 200, CHUNK = 1024 };

static char run_dir[64];

static int setup(void **state) {
    snprintf(run_dir, sizeof run_dir, "/tmp/trireme-checkpoint-XXXXXX");
    return mkdtemp(run_dir) == NULL;
}

static int teardown(void **state) { return tri_os_remove_tree(run_dir) != TRI_OK; }

typedef struct order {
    fixture_save save;
    int bad_rank; // the rank whose writes fail, or which exits; -1: none
    ssize_t (*bad_pwrite)(int fd, const void *data, size_t size, off_t offset);
    int (*bad_open)(const char *path, int flags, mode_t mode);
} order;

// Stands for gathering the shards of a tensor: waits for all ranks.
static tri_status meet(tri_comm *comm) { return tri_comm_barrier(comm, "gather of the state"); }

static void break_system(const order *all) {
    if (all->bad_pwrite) tri_os.pwrite = all->bad_pwrite;
    if (all->bad_open) tri_os.open = all->bad_open;
}

static fixture_save options(int64_t step) {
    return (fixture_save){.step = step, .width = WIDTH, .chunk_bytes = CHUNK, .save_top_k = -1};
}

static void read_part(const char *name, int64_t step, char **data, size_t *size) {
    char path[160];
    snprintf(path, sizeof path, "%s/checkpoints/step-%08lld/%s", run_dir, (long long)step, name);
    assert_int_equal(tri_os_read_file(path, 1 << 24, data, size), TRI_OK);
}

static void save_body(tri_comm *comm, ranks_table *table, void *argument) {
    fixture_save save = ((order *)argument)->save;
    save.comm = comm;
    CHECK_OK(fixture_do_save(run_dir, save));
    // Each rank loads the whole checkpoint.
    tri_arena *arena = tri_arena_create(NULL, "test");
    const char *path;
    int64_t step;
    CHECK_OK(tri_checkpoint_find(arena, comm, run_dir, "auto", &path));
    CHECK_OK(fixture_do_load(path, WIDTH, 0, &step));
    CHECK(step == save.step);
    tri_arena_destroy(arena);
}

static void test_same_bytes(void **state) {
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};
    char *alone, *together;
    size_t alone_size, together_size;
    for (int size = 1; size <= 4; size++) {
        order all = {.save = options(5)};
        assert_int_equal(fixture_do_save(run_dir, options(5)), TRI_OK);
        for (int f = 0; f < 2; f++) {
            assert_int_equal(ranks_run(size, NULL, save_body, &all), 0);
            read_part(files[f], 5, &together, &together_size);
            assert_int_equal(fixture_do_save(run_dir, options(5)), TRI_OK);
            read_part(files[f], 5, &alone, &alone_size);
            assert_int_equal(alone_size, together_size);
            assert_memory_equal(alone, together, alone_size);
            free(alone);
            free(together);
        }
        assert_int_equal(fixture_auto(run_dir, WIDTH), 5);
    }
}

static void finding_body(tri_comm *comm, ranks_table *table, void *argument) {
    const order *all = argument;
    tri_arena *arena = tri_arena_create(NULL, "test");
    const char *path;
    int64_t step;
    CHECK_OK(tri_checkpoint_find(arena, comm, run_dir, "auto", &path));
    CHECK_OK(fixture_do_load(path, WIDTH, 0, &step));
    CHECK(step == all->save.step);
    char newest[96];
    snprintf(newest, sizeof newest, "%s/checkpoints/step-00000002", run_dir);
    CHECK(tri_checkpoint_find(arena, comm, run_dir, newest, &path) == TRI_CORRUPT);
    CHECK(strstr(tri_error_message(), "optimizer.safetensors: tensor 'fc1.weight.exp_avg'"));
    tri_arena_destroy(arena);
}

// Each rank verifies some of a checkpoint's chunks; damage found by one is reported by all.
static void test_damage_is_found_together(void **state) {
    char path[128], *data;
    size_t size;
    order all = {.save = options(1)};
    assert_int_equal(fixture_do_save(run_dir, options(1)), TRI_OK);
    for (int i = 1; i < 7; i++) {
        assert_int_equal(fixture_do_save(run_dir, options(2)), TRI_OK);
        read_part("optimizer.safetensors", 2, &data, &size);
        data[size - (size_t)(WIDTH * 33 * 8) + (size_t)(i * CHUNK)] ^= 4;
        snprintf(path, sizeof path, "%s/checkpoints/step-00000002/optimizer.safetensors", run_dir);
        assert_int_equal(tri_os_replace_file(path, data, size), TRI_OK);
        free(data);
        assert_int_equal(ranks_run(3, NULL, finding_body, &all), 0);
    }
}

static ssize_t full_disk(int fd, const void *data, size_t size, off_t offset) {
    errno = ENOSPC;
    return -1;
}

static int full_open(const char *path, int flags, mode_t mode) {
    if (!(flags & O_CREAT) && (flags & O_WRONLY) && strstr(path, ".safetensors")) {
        errno = ENOSPC;
        return -1;
    }
    return tri_os_system.open(path, flags, mode);
}

static void failing_body(tri_comm *comm, ranks_table *table, void *argument) {
    const order *all = argument;
    fixture_save save = all->save;
    char words[32];
    snprintf(words, sizeof words, "rank %d: ", all->bad_rank);
    save.comm = comm;
    if (comm->rank == all->bad_rank) break_system(all);
    CHECK(fixture_do_save(run_dir, save) == TRI_NO_SPACE);
    CHECK(strncmp(tri_error_message(), words, strlen(words)) == 0);
    tri_os = tri_os_system;
    save.step++; // training goes on, and the next save succeeds
    CHECK_OK(fixture_do_save(run_dir, save));
}

static void test_one_rank_fails(void **state) {
    assert_int_equal(fixture_do_save(run_dir, options(1)), TRI_OK);
    // Each of the three ranks fails once in `open` and once in `pwrite`, both with a save in the
    // foreground and with one in the background, which works on a snapshot (copy) of the state.
    for (int i = 0; i < 12; i++) {
        order all = {.save = options(10 * (i + 1)), .bad_rank = i % 3};
        all.save.fetch = meet;
        if (i >= 6) all.save.snapshot_bytes = 1 << 20;
        if (i / 3 % 2)
            all.bad_open = full_open;
        else
            all.bad_pwrite = full_disk;
        assert_int_equal(ranks_run(3, NULL, failing_body, &all), 0);
        assert_int_equal(fixture_auto(run_dir, WIDTH), 10 * (i + 1) + 1);
    }
    char path[160];
    snprintf(path, sizeof path, "%s/checkpoints/step-00000010", run_dir);
    assert_int_not_equal(access(path, F_OK), 0);
}

static ssize_t end_here(int fd, const void *data, size_t size, off_t offset) {
    kill(getpid(), SIGKILL);
    return -1;
}

// Only rank 0 has memory for a snapshot, a copy of the state from which a save works in the
// background. Then no rank takes one: all save in the foreground.
static void uneven_body(tri_comm *comm, ranks_table *table, void *argument) {
    fixture_save save = ((order *)argument)->save;
    save.comm = comm;
    save.snapshot_bytes = comm->rank == 0 ? 1 << 20 : 1;
    CHECK_OK(fixture_do_save(run_dir, save));
}

static void test_no_room_for_a_snapshot(void **state) {
    order all = {.save = options(3)};
    assert_int_equal(ranks_run(2, NULL, uneven_body, &all), 0);
    assert_int_equal(fixture_auto(run_dir, WIDTH), 3);
}

static tri_status end_while_others_meet(tri_comm *comm) {
    static int fetches;
    if (comm->rank == 1 && ++fetches == 3) kill(getpid(), SIGKILL);
    return meet(comm);
}

static void dying_body(tri_comm *comm, ranks_table *table, void *argument) {
    const order *all = argument;
    fixture_save save = all->save;
    save.comm = comm;
    if (comm->rank == all->bad_rank) break_system(all);
    tri_status status = fixture_do_save(run_dir, save);
    CHECK(status == TRI_PEER_LOST || status == TRI_TIMEOUT);
    char words[32];
    snprintf(words, sizeof words, "rank %d", all->bad_rank);
    CHECK(strstr(tri_error_message(), words));
}

// If a rank dies, the others commit nothing, whether or not the dead rank is rank 0.
static void test_one_rank_dies(void **state) {
    tri_shm_config config = {.timeout_ms = 3000};
    assert_int_equal(fixture_do_save(run_dir, options(1)), TRI_OK);
    for (int i = 0; i < 5; i++) {
        int bad = i % 2;
        order all = {.save = options(10), .bad_rank = bad, .bad_pwrite = end_here};
        if (i >= 2) all.save.snapshot_bytes = 1 << 20;
        if (i == 4)
            bad = all.bad_rank = 1, all.bad_pwrite = NULL, all.save.fetch = end_while_others_meet;
        ranks started = ranks_start(2, &config, dying_body, &all);
        assert_int_equal(ranks_join(&started, bad, RANKS_LIMIT_S), 128 + SIGKILL);
        assert_int_equal(ranks_join(&started, 1 - bad, RANKS_LIMIT_S), 0);
        munmap(started.table, sizeof *started.table);
        assert_int_equal(fixture_auto(run_dir, WIDTH), 1);
    }
}

// Saves until it is killed; reports the last committed step to the parent.
static void saving_body(tri_comm *comm, ranks_table *table, void *argument) {
    fixture_save save = ((order *)argument)->save;
    save.comm = comm;
    save.save_top_k = 1;
    for (;; save.step++) {
        CHECK_OK(fixture_do_save(run_dir, save));
        atomic_store(&table->notes[comm->rank], (int)save.step);
    }
}

static void test_killed_while_saving(void **state) {
    int last = 1;
    unsigned seed = 7;
    assert_int_equal(fixture_do_save(run_dir, options(1)), TRI_OK);
    for (int i = 0; i < 40; i++) {
        order all = {.save = options(last + 1)};
        if (i % 2) all.save.snapshot_bytes = 1 << 20;
        ranks started = ranks_start(2, NULL, saving_body, &all);
        while (!atomic_load(&started.table->notes[0])) ranks_sleep_ms(1);
        tri_os.sleep_ns(rand_r(&seed) % 60 * 1000000);
        for (int r = 0; r < 2; r++) kill(started.pids[(i + r) % 2], SIGKILL);
        assert_int_equal(ranks_join(&started, i % 2, RANKS_LIMIT_S), 128 + SIGKILL);
        // The rank that is killed second may notice that the other is gone, and end with code 1
        // before it is killed itself.
        int code = ranks_join(&started, (i + 1) % 2, RANKS_LIMIT_S);
        assert_true(code == 128 + SIGKILL || code == 1);
        int reported = atomic_load(&started.table->notes[0]);
        munmap(started.table, sizeof *started.table);
        int found = (int)fixture_auto(run_dir, WIDTH);
        assert_true(found == reported || found == reported + 1);
        last = found;
    }
}

// The clock of this thread, which only its sleeps advance.
static _Thread_local int64_t now_ns;

static int64_t own_monotonic_ns(void) { return now_ns; }

static void own_sleep_ns(int64_t duration_ns) {
    now_ns += duration_ns;
    sched_yield();
}

static ssize_t slow_pwrite(int fd, const void *data, size_t size, off_t offset) {
    static bool has_slept;
    if (!has_slept) tri_os.sleep_ns(300000000);
    has_slept = true;
    return pwrite(fd, data, size, offset);
}

static void measured_body(tri_comm *comm, ranks_table *table, void *argument) {
    fixture_save save = ((order *)argument)->save;
    double worked_s = 0;
    if (comm->rank == 1) tri_os.pwrite = slow_pwrite;
    tri_os.monotonic_ns = own_monotonic_ns;
    tri_os.sleep_ns = own_sleep_ns;
    save.comm = comm;
    save.worked_s = &worked_s;
    CHECK_OK(fixture_do_save(run_dir, save));
    tri_os = tri_os_system;
    CHECK(comm->rank != 0 || fabs(worked_s - 0.3) < 1e-6);
}

// Rank 0 learns how long the slowest rank worked for a save. The training steps that passed while
// the save ran in the background do not count.
static void test_work_is_measured(void **state) {
    order all = {.save = options(1)};
    assert_int_equal(ranks_run(2, NULL, measured_body, &all), 0);
    all.save = options(2);
    all.save.snapshot_bytes = 1 << 20;
    all.save.step_ns = 1000000000;
    assert_int_equal(ranks_run(2, NULL, measured_body, &all), 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(same_bytes),       TEST(damage_is_found_together),
        TEST(one_rank_fails),   TEST(no_room_for_a_snapshot),
        TEST(one_rank_dies),    TEST(killed_while_saving),
        TEST(work_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
