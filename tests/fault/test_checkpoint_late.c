// Tests checkpoints on a file system that shows files late: a rank that does not see a file which
// another rank sees waits for it, for a limited time, and logs one line. If no rank has seen the
// file, no rank waits.
#include "checkpoint/late.h"
#include "support/checkpoint_fixture.h"
#include "support/comm_ranks.h"

#include <errno.h>
#include <fcntl.h>

enum {
    WIDTH = 200,
    CHUNK = 1024,
    RANKS = 3,
    LOOKS = 4,       // how often a rank finds a late file missing before the file appears
    NEVER = INT_MAX, // the file never appears
    LATE_MS = 500,   // how long a rank sleeps before it sees a folder that is listed late
};

static char run_dir[64];

static int setup(void **state) {
    snprintf(run_dir, sizeof run_dir, "/tmp/trireme-checkpoint-XXXXXX");
    return mkdtemp(run_dir) == NULL;
}

static int teardown(void **state) { return tri_os_remove_tree(run_dir) != TRI_OK; }

static fixture_save options(int64_t step) {
    return (fixture_save){.step = step, .width = WIDTH, .chunk_bytes = CHUNK, .save_top_k = -1};
}

// The file or folder that this rank does not see until it has looked `hidden_looks` times.
static struct {
    const char *name; // a part of the path of the file or folder
    bool is_short;    // the file is there, but has no bytes yet
    int hidden_looks;
    int fd;    // of the short file, while it is open
    int looks; // how often this rank found the file missing or short
} late;

// How long this thread has slept, or would have slept.
static _Thread_local int64_t slept_ns;

// When the clock of this thread was stopped; 0: it runs. Since then only its sleeps advance it, so
// that how long a rank waits for a file does not depend on how busy the machine is. The clocks of
// other threads run on, of the one that sends signs of life, for instance.
static _Thread_local int64_t stopped_ns;

static void stop_clock(void) {
    if (!stopped_ns) stopped_ns = tri_os_system.monotonic_ns();
}

static int64_t late_monotonic_ns(void) {
    return stopped_ns ? stopped_ns + slept_ns : tri_os_system.monotonic_ns();
}

static void count_sleep(int64_t duration_ns) { slept_ns += duration_ns; }

// Sleeps, so that another rank which does not wait for this one has the time to go on.
static void late_sleep(int64_t duration_ns) {
    tri_os_system.sleep_ns(duration_ns);
    count_sleep(duration_ns);
}

static int late_open(const char *path, int flags, mode_t mode) {
    bool is_hidden = late.name && strstr(path, late.name) && late.looks < late.hidden_looks;
    if (is_hidden) stop_clock();
    late.looks += is_hidden && !(flags & O_DIRECTORY);
    if (is_hidden && !late.is_short) return errno = ENOENT, -1;
    int fd = tri_os_system.open(path, flags, mode);
    if (is_hidden) late.fd = fd;
    return fd;
}

static int late_close(int fd) {
    if (fd == late.fd) late.fd = -1;
    return tri_os_system.close(fd);
}

static ssize_t late_pread(int fd, void *data, size_t size, off_t offset) {
    return fd == late.fd ? 0 : tri_os_system.pread(fd, data, size, offset);
}

static void hide(const char *name, bool is_short, int looks) {
    late.name = name;
    late.is_short = is_short;
    late.hidden_looks = looks;
    late.fd = -1;
    late.looks = 0;
    tri_os.open = late_open;
    tri_os.close = late_close;
    tri_os.pread = late_pread;
    tri_os.monotonic_ns = late_monotonic_ns;
    tri_os.sleep_ns = late_sleep;
}

static void see_again(void) {
    late.name = NULL;
    stopped_ns = 0;
    tri_os = tri_os_system;
}

// From here on, this rank's standard error goes to a file. Lines with "waiting for" are counted
// there.
static void capture(tri_comm *comm, char path[96]) {
    snprintf(path, 96, "%s/said-%d", run_dir, comm->rank);
    CHECK(freopen(path, "w", stderr));
}

static int lines_said(const char *path, const char *words) {
    char *text;
    size_t size;
    int count = 0;
    CHECK_OK(tri_os_read_file(path, 1 << 20, &text, &size));
    for (const char *at = text; (at = strstr(at, words)); at++) count++;
    free(text);
    return count;
}

typedef struct order {
    const char *name;
    bool is_short;
    int rank; // the rank that sees the file `name` late
} order;

static void late_body(tri_comm *comm, ranks_table *table, void *argument) {
    const order *all = argument;
    tri_arena *arena = tri_arena_create(NULL, "test");
    const char *path;
    char said[96];
    int64_t step;
    capture(comm, said);
    if (comm->rank == all->rank) hide(all->name, all->is_short, LOOKS);
    CHECK_OK(tri_checkpoint_find(arena, comm, run_dir, "auto", &path));
    CHECK(late.looks == (comm->rank == all->rank ? LOOKS : 0));
    see_again();
    CHECK_OK(fixture_do_load(path, WIDTH, 0, &step));
    CHECK(step == 2); // and not the checkpoint before it: all ranks have waited for the late one
    CHECK(lines_said(said, "waiting for ") == (comm->rank == all->rank));
    CHECK(lines_said(said, "does not see yet") == (comm->rank == all->rank));
    tri_arena_destroy(arena);
}

static void test_late_file_is_read(void **state) {
    const order orders[] = {{"step-00000002/state.json", false, 0},
                            {"step-00000002/state.json", true, 0},
                            {"step-00000002/model.safetensors", false, 0},
                            {"step-00000002/optimizer.safetensors", true, 0},
                            {"step-00000002", false, 0}};
    assert_int_equal(fixture_do_save(run_dir, options(1)), TRI_OK);
    assert_int_equal(fixture_do_save(run_dir, options(2)), TRI_OK);
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        for (int rank = 0; rank < 2; rank++) {
            order one = {orders[i].name, orders[i].is_short, rank};
            // Short files are not tried on rank 0, which reads a file before it checks its size.
            if (rank == 0 && one.is_short) continue;
            assert_int_equal(ranks_run(RANKS, NULL, late_body, &one), 0);
        }
}

// Makes the host of rank 0 see the checkpoint of this step. In the tests below, rank 0 reads a
// folder of its own, `own`, which has a symbolic link to each checkpoint that its host sees. So a
// test can let it see the newest checkpoint late, or never.
static void list_step(int step) {
    char link[160], target[96];
    snprintf(link, sizeof link, "%s/own/checkpoints/step-%08d", run_dir, step);
    snprintf(target, sizeof target, "%s/checkpoints/step-%08d", run_dir, step);
    CHECK(symlink(target, link) == 0 || errno == EEXIST);
}

static void sleep_and_list(int64_t duration_ns) {
    slept_ns += duration_ns;
    if (slept_ns >= LATE_MS * INT64_C(1000000)) list_step(2);
}

static void listed_body(tri_comm *comm, ranks_table *table, void *argument) {
    bool is_never = argument != NULL;
    tri_arena *arena = tri_arena_create(NULL, "test");
    const char *path;
    char said[96], own[96];
    capture(comm, said);
    snprintf(own, sizeof own, "%s/own", run_dir);
    if (comm->rank == 0) {
        tri_os.sleep_ns = is_never ? count_sleep : sleep_and_list;
        tri_os.monotonic_ns = late_monotonic_ns;
        stop_clock();
    }
    CHECK_OK(tri_checkpoint_find(arena, comm, comm->rank ? run_dir : own, "auto", &path));
    see_again();
    CHECK(strstr(path, is_never ? "own/checkpoints/step-00000001" : "step-00000002"));
    CHECK(lines_said(said, "waiting for ") == (comm->rank == 0));
    CHECK(lines_said(said, "falling back to") == (is_never && comm->rank == 0));
    if (comm->rank == 0) CHECK(slept_ns <= CHECKPOINT_LATE_MS * INT64_C(1000000));
    tri_arena_destroy(arena);
}

static void test_newest_listed_late_by_rank_0(void **state) {
    char home[96];
    snprintf(home, sizeof home, "%s/own/checkpoints", run_dir);
    assert_int_equal(fixture_do_save(run_dir, options(1)), TRI_OK);
    assert_int_equal(fixture_do_save(run_dir, options(2)), TRI_OK);
    assert_int_equal(tri_os_make_folders(home), TRI_OK);
    list_step(1);
    assert_int_equal(ranks_run(RANKS, NULL, listed_body, (void *)""), 0);
    assert_int_equal(ranks_run(RANKS, NULL, listed_body, NULL), 0);
}

// A file never appears on rank 1. Rank 1 gives up after the time limit, with the same message as
// for a missing file (it only counts its sleeps). All ranks then fall back to an older
// checkpoint together, and do not wait for a second late file.
static void never_body(tri_comm *comm, ranks_table *table, void *argument) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    const char *path;
    char said[96], newest[96];
    capture(comm, said);
    snprintf(newest, sizeof newest, "%s/checkpoints/step-00000002", run_dir);
    if (comm->rank == 1) hide("step-00000002/model", false, NEVER), tri_os.sleep_ns = count_sleep;
    CHECK(tri_checkpoint_find(arena, comm, run_dir, newest, &path) == TRI_NOT_FOUND);
    ranks_says("rank 1: ");
    ranks_says("step-00000002/model.safetensors: cannot open");
    CHECK(slept_ns == (comm->rank == 1 ? CHECKPOINT_LATE_MS * INT64_C(1000000) : 0));
    CHECK(late.looks < 40);
    CHECK_OK(tri_checkpoint_find(arena, comm, run_dir, "auto", &path));
    CHECK(strstr(path, "step-00000001"));
    see_again();
    // Rank 1 had to wait in both calls of tri_checkpoint_find, and logged it each time.
    CHECK(lines_said(said, "waiting for ") == 2 * (comm->rank == 1));
    tri_arena_destroy(arena);
}

static void test_file_that_never_appears(void **state) {
    assert_int_equal(fixture_do_save(run_dir, options(1)), TRI_OK);
    assert_int_equal(fixture_do_save(run_dir, options(2)), TRI_OK);
    assert_int_equal(ranks_run(RANKS, NULL, never_body, NULL), 0);
}

static void no_sleep(int64_t duration_ns) {
    slept_ns += duration_ns >= CHECKPOINT_LATE_FIRST_PAUSE_MS * INT64_C(1000000);
}

// If no rank sees the file, or the file is damaged, no rank waits.
static void missing_body(tri_comm *comm, ranks_table *table, void *argument) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    const char *path;
    char said[96], newest[96];
    capture(comm, said);
    snprintf(newest, sizeof newest, "%s/checkpoints/step-00000002", run_dir);
    tri_os.sleep_ns = no_sleep;
    CHECK(tri_checkpoint_find(arena, comm, run_dir, newest, &path) == TRI_CORRUPT);
    ranks_says(argument);
    CHECK_OK(tri_checkpoint_find(arena, comm, run_dir, "auto", &path));
    CHECK(strstr(path, "step-00000001"));
    see_again();
    CHECK(lines_said(said, "waiting for ") == 0 && slept_ns == 0);
    tri_arena_destroy(arena);
}

static void test_missing_everywhere(void **state) {
    char path[128];
    assert_int_equal(fixture_do_save(run_dir, options(1)), TRI_OK);
    assert_int_equal(fixture_do_save(run_dir, options(2)), TRI_OK);
    snprintf(path, sizeof path, "%s/checkpoints/step-00000002/optimizer.safetensors", run_dir);
    assert_int_equal(truncate(path, 5000), 0);
    assert_int_equal(ranks_run(RANKS, NULL, missing_body, "it has 5000 bytes"), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ranks_run(RANKS, NULL, missing_body, "is missing"), 0);
}

// Ranks that all see the same files do not wait. A single rank never waits, because no other rank
// could tell it that there are files that it does not see yet.
static void ordinary_body(tri_comm *comm, ranks_table *table, void *argument) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    const char *path;
    tri_os.sleep_ns = no_sleep;
    fixture_save save = options(3);
    save.comm = comm;
    CHECK_OK(fixture_do_save(run_dir, save));
    CHECK_OK(tri_checkpoint_find(arena, comm, run_dir, "auto", &path));
    CHECK(slept_ns == 0);
    see_again();
    tri_arena_destroy(arena);
}

static void test_nobody_waits_without_need(void **state) {
    assert_int_equal(ranks_run(RANKS, NULL, ordinary_body, NULL), 0);
    tri_arena *arena = tri_arena_create(NULL, "test");
    const char *path;
    char missing[96];
    snprintf(missing, sizeof missing, "%s/checkpoints/step-00000009", run_dir);
    tri_os.sleep_ns = no_sleep;
    slept_ns = 0;
    assert_int_equal(tri_checkpoint_find(arena, NULL, run_dir, missing, &path), TRI_NOT_FOUND);
    assert_int_equal(slept_ns, 0);
    see_again();
    tri_arena_destroy(arena);
}

// Rank 0 has created the files of a save, and another rank, which does not see them yet, waits for
// them.
static void saving_body(tri_comm *comm, ranks_table *table, void *argument) {
    char said[96];
    capture(comm, said);
    for (int i = 0; i < 2; i++) { // first in the foreground, then in the background
        fixture_save save = options(5 + i);
        save.comm = comm;
        if (i == 1) save.snapshot_bytes = 1 << 20;
        if (comm->rank == 2) hide("model.safetensors", false, LOOKS);
        CHECK_OK(fixture_do_save(run_dir, save));
        CHECK(late.looks == (comm->rank == 2 ? LOOKS : 0));
        see_again();
    }
    CHECK(lines_said(said, "waiting for ") == 2 * (comm->rank == 2));
}

static void test_late_while_saving(void **state) {
    assert_int_equal(ranks_run(RANKS, NULL, saving_body, NULL), 0);
    assert_int_equal(fixture_auto(run_dir, WIDTH), 6);
}

// A rank that is lost ends a save. A rank that waits in the background for the files, which rank 0
// removes then, waits no longer. Here rank 1 ends as soon as rank 2 waits.
enum { LOST_NS = 123456 };

static ranks_table *meeting;

static int noted_open(const char *path, int flags, mode_t mode) {
    int fd = late_open(path, flags, mode);
    if (late.looks > 0) atomic_store(&meeting->notes[0], 1);
    return fd;
}

static void end_rank(int64_t duration_ns) {
    while (duration_ns == LOST_NS && atomic_load(&meeting->notes[0]) == 0) ranks_sleep_ms(1);
    if (duration_ns == LOST_NS) kill(getpid(), SIGKILL);
    tri_os_system.sleep_ns(duration_ns);
}

static void abandoned_body(tri_comm *comm, ranks_table *table, void *argument) {
    fixture_save save = options(7);
    save.comm = comm;
    save.snapshot_bytes = 1 << 20;
    meeting = table;
    if (comm->rank == 1) save.step_ns = LOST_NS, tri_os.sleep_ns = end_rank;
    if (comm->rank == 2) {
        hide("model.safetensors", false, NEVER);
        tri_os.open = noted_open;
        // No sleep is counted, so that this rank's time to wait never runs out.
        tri_os.sleep_ns = tri_os_system.sleep_ns;
    }
    CHECK(fixture_do_save(run_dir, save) == TRI_PEER_LOST);
    see_again();
}

static void test_abandoned_while_waiting(void **state) {
    ranks started = ranks_start(RANKS, NULL, abandoned_body, NULL);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(ranks_join(&started, r, RANKS_LIMIT_S), r == 1 ? 128 + SIGKILL : 0);
    munmap(started.table, sizeof *started.table);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(late_file_is_read),         TEST(file_that_never_appears),
        TEST(missing_everywhere),        TEST(newest_listed_late_by_rank_0),
        TEST(nobody_waits_without_need), TEST(late_while_saving),
        TEST(abandoned_while_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
