// Tests saving and loading while system calls fail. Each call fails in turn, in a save or load of
// its own, with ENOSPC or EIO: either alone or together with all later calls. Earlier checkpoints
// stay intact, a failed save leaves nothing behind, and the next save succeeds.
#include "support/checkpoint_fixture.h"

#include <dirent.h>
#include <errno.h>

enum { WIDTH = 20, CHUNK = 1024 };

static char run_dir[64];
// calls: how many system calls were made. Call number fail_at (0: none) fails with errno fail_with.
static int calls, fail_at, fail_with;
static bool is_lasting;    // all calls after number fail_at fail too
static const char *failed; // name of the first call that failed

static int setup(void **state) {
    snprintf(run_dir, sizeof run_dir, "/tmp/trireme-checkpoint-XXXXXX");
    return mkdtemp(run_dir) == NULL;
}

static int teardown(void **state) {
    tri_os = tri_os_system;
    return tri_os_remove_tree(run_dir) != TRI_OK;
}

static bool fails(const char *slot) {
    calls++;
    if (!fail_at || calls < fail_at || (!is_lasting && calls > fail_at)) return false;
    if (calls == fail_at) failed = slot;
    errno = fail_with;
    return true;
}

#define HOOK(type, slot, parameters, arguments)                                                    \
    static type slot##_hook parameters { return fails(#slot) ? -1 : tri_os_system.slot arguments; }
HOOK(int, open, (const char *path, int flags, mode_t mode), (path, flags, mode))
HOOK(ssize_t, read, (int fd, void *data, size_t size), (fd, data, size))
HOOK(ssize_t, pread, (int fd, void *data, size_t size, off_t offset), (fd, data, size, offset))
HOOK(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
HOOK(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t offset),
     (fd, data, size, offset))
HOOK(int, ftruncate, (int fd, off_t size), (fd, size))
HOOK(int, rename, (const char *from, const char *to), (from, to))
HOOK(int, symlink, (const char *target, const char *path), (target, path))
HOOK(int, mkdir, (const char *path, mode_t mode), (path, mode))
HOOK(int, unlink, (const char *path), (path))
HOOK(int, rmdir, (const char *path), (path))

static int fsync_hook(int fd) { return fails("fsync") ? -1 : 0; } // no need to wait for a disk

static int close_hook(int fd) { // a close that fails has still closed the file
    int result = tri_os_system.close(fd);
    return fails("close") ? -1 : result;
}

// Writes only half of what it is asked to, as a nearly full disk does.
static ssize_t short_pwrite(int fd, const void *data, size_t size, off_t offset) {
    return tri_os_system.pwrite(fd, data, size > 1 ? size / 2 : size, offset);
}

static void inject(int at, int with, bool lasting) {
    tri_os.open = open_hook, tri_os.close = close_hook, tri_os.read = read_hook;
    tri_os.pread = pread_hook, tri_os.write = write_hook, tri_os.pwrite = pwrite_hook;
    tri_os.fsync = fsync_hook, tri_os.ftruncate = ftruncate_hook, tri_os.rename = rename_hook;
    tri_os.symlink = symlink_hook, tri_os.mkdir = mkdir_hook, tri_os.unlink = unlink_hook;
    tri_os.rmdir = rmdir_hook;
    calls = 0, fail_at = at, fail_with = with, is_lasting = lasting, failed = "none";
}

static int hidden_entries(void) {
    char home[96];
    snprintf(home, sizeof home, "%s/checkpoints", run_dir);
    DIR *folder = opendir(home);
    int count = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += entry->d_name[0] == '.' && entry->d_name[1] && entry->d_name[1] != '.';
    if (folder) closedir(folder);
    return count;
}

static fixture_save options(int64_t step) {
    tri_checkpoint_monitor monitor = {
        .name = "val_loss", .is_known = true, .value = 1.0 / (double)(step + 1)};
    return (fixture_save){
        .step = step, .width = WIDTH, .chunk_bytes = CHUNK, .monitor = monitor, .save_top_k = 1};
}

// Saves a step while call number `at` fails; *ended: the save made fewer calls than that.
static void save_failing(int at, int with, bool lasting, int64_t *newest, int64_t step,
                         bool *ended) {
    inject(at, with, lasting);
    tri_status status = fixture_do_save(run_dir, options(step));
    *ended = calls < at;
    char message[TRI_MESSAGE_MAX_BYTES];
    snprintf(message, sizeof message, "%s", tri_error_message());
    const char *slot = failed;
    tri_os = tri_os_system;
    if (*ended || status == TRI_OK) assert_int_equal(status, TRI_OK);
    // The save may succeed although a call failed, if the call sets a symbolic link, removes a
    // file, or closes a file that was read.
    bool is_saved = status == TRI_OK;
    if (is_saved) *newest = step;
    int64_t found = fixture_auto(run_dir, WIDTH);
    if (found != *newest)
        fail_msg("call %d (%s): %lld instead of %lld; '%s'", at, slot, (long long)found,
                 (long long)*newest, message);
    if (with == ENOSPC && status != TRI_OK) assert_int_equal(status, TRI_NO_SPACE);
    bool may_leave = lasting || !strcmp(slot, "unlink") || !strcmp(slot, "rmdir");
    if (!may_leave && !is_saved) assert_int_equal(hidden_entries(), 0);
    assert_int_equal(tri_checkpoint_clean(run_dir), TRI_OK);
    assert_int_equal(hidden_entries(), 0);
}

static void every_call(int with, bool lasting) {
    int64_t newest = 0, step = 1;
    int failures = 0;
    bool ended = false;
    assert_int_equal(fixture_do_save(run_dir, options(0)), TRI_OK);
    for (int at = 1; !ended; at++, step++) {
        int64_t before = newest;
        save_failing(at, with, lasting, &newest, step, &ended);
        failures += newest == before;
        newest = ++step;
        inject(0, 0, false);
        assert_int_equal(fixture_do_save(run_dir, options(step)), TRI_OK);
        tri_os = tri_os_system;
        assert_true(at < 1000);
    }
    assert_true(failures > 20); // many calls of a save went through the hooks
}

static void test_no_space(void **state) { every_call(ENOSPC, false); }
static void test_no_space_for_long(void **state) { every_call(ENOSPC, true); }
static void test_io_error(void **state) { every_call(EIO, false); }
static void test_io_error_for_long(void **state) { every_call(EIO, true); }

static void test_first_save(void **state) {
    bool ended = false;
    for (int at = 1; !ended; at++) {
        assert_int_equal(tri_os_remove_tree(run_dir), TRI_OK);
        inject(at, ENOSPC, false);
        tri_status status = fixture_do_save(run_dir, options(3));
        ended = calls < at;
        bool is_saved = status == TRI_OK;
        tri_os = tri_os_system;
        assert_int_equal(fixture_auto(run_dir, WIDTH), is_saved ? 3 : -1);
    }
}

static void test_short_writes(void **state) {
    tri_os.pwrite = short_pwrite;
    assert_int_equal(fixture_do_save(run_dir, options(5)), TRI_OK);
    assert_int_equal(fixture_auto(run_dir, WIDTH), 5);
}

// A system call that fails while a checkpoint is loaded never leads to wrong values.
static void test_loading(void **state) {
    assert_int_equal(fixture_do_save(run_dir, options(1)), TRI_OK);
    int failures = 0;
    for (int at = 1;; at++) {
        inject(at, EIO, false);
        tri_status status = fixture_do_load(run_dir, WIDTH, 0, NULL);
        tri_os = tri_os_system;
        if (calls < at) {
            assert_int_equal(status, TRI_OK);
            break;
        }
        // TRI_OK: all elements were checked, so the failed call did not matter.
        if (status != TRI_OK) assert_true(status == TRI_IO || status == TRI_CORRUPT);
        failures += status != TRI_OK;
    }
    assert_true(failures > 5);
}

// Stands for a tri_state_source.read that fails.
static tri_status bad_read(void *context, int tensor, int64_t first, int64_t count, void *to) {
    return TRI_FAIL(TRI_NOT_FINITE, "tensor %d has a NaN", tensor);
}

static void test_source(void **state) {
    fixture_state model = fixture_model(1, WIDTH);
    tri_state_source source = {.tensors = model.tensors, .count = model.count, .read = bad_read};
    assert_int_equal(fixture_do_save(run_dir, options(1)), TRI_OK);
    tri_checkpoint_save_request request = {.run_dir = run_dir, .step = 2, .model = &source};
    assert_int_equal(tri_checkpoint_save(&request), TRI_NOT_FINITE);
    assert_non_null(strstr(tri_error_message(), "has a NaN"));
    assert_int_equal(hidden_entries(), 0);
    assert_int_equal(fixture_auto(run_dir, WIDTH), 1);
}

static tri_status refuse(void *context) {
    (void)context;
    return TRI_FAIL(TRI_MISMATCH, "a newer generation has taken its place");
}

// After a run was started again, its earlier processes may not commit a checkpoint. Their save
// fails, whether it runs at once or in the background, and leaves no files behind.
static void test_refused_commit(void **state) {
    (void)state;
    fixture_save first = options(1);
    assert_int_equal(fixture_do_save(run_dir, first), TRI_OK);
    for (int is_async = 0; is_async < 2; is_async++) {
        fixture_save next = options(2 + is_async);
        next.admit = refuse;
        next.snapshot_bytes = is_async ? 1 << 20 : 0;
        assert_int_equal(fixture_do_save(run_dir, next), TRI_MISMATCH);
        assert_non_null(strstr(tri_error_message(), "a newer generation"));
        assert_int_equal(hidden_entries(), 0);
        assert_int_equal(fixture_auto(run_dir, WIDTH), 1);
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(no_space),       TEST(no_space_for_long), TEST(io_error), TEST(io_error_for_long),
        TEST(first_save),     TEST(short_writes),      TEST(loading),  TEST(source),
        TEST(refused_commit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
