// A conversion is killed at every call that changes its folder, one after the other, with a mark
// after each sample (the last one too) or with none, and repeated: the files are those of one that
// was not killed. Where a file is gone, its split begins again.
#include "support/data_fixture.h"

#include "data/target/target.h"
#include "format/safetensors.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { TRAIN = 5, TEST = 3, KILLED = 9, MOST_CALLS = 1000 };

static int64_t calls_left, now_ns; // before the kill
static bool marks_all;

static void call(void) {
    if (calls_left-- == 0) _exit(KILLED);
}

static int rename_hook(const char *from, const char *to) {
    call();
    return rename(from, to);
}

static int unlink_hook(const char *path) {
    call();
    return unlink(path);
}

static ssize_t pwrite_hook(int fd, const void *data, size_t size, off_t offset) {
    call();
    return pwrite(fd, data, size, offset);
}

static int ftruncate_hook(int fd, off_t size) {
    call();
    return ftruncate(fd, size);
}

static int no_fsync(int fd) { return 0; } // the system does not crash

static int fsync_hook(int fd) {
    call();
    return 0;
}

static int64_t clock_hook(void) { return now_ns += marks_all ? 1000000000 : 0; }

static int setup(void **state) {
    static const struct {
        const char *name;
        int count;
    } splits[] = {{"train.st", TRAIN}, {"test.st", TEST}};
    tri_os.fsync = no_fsync;
    if (fixture_setup(state)) return 1;
    float inputs[TRAIN * 2];
    int64_t labels[TRAIN];
    for (int i = 0; i < TRAIN * 2; i++) inputs[i] = (float)(i + 1);
    for (int i = 0; i < TRAIN; i++) labels[i] = 1 + i % 3;
    for (int i = 0; i < 2; i++) {
        const tri_safetensors_spec specs[] = {{"inputs", TRI_F32, tri_shape_of(splits[i].count, 2)},
                                              {"labels", TRI_I64, tri_shape_of(splits[i].count)}};
        const void *data[] = {inputs, labels};
        if (tri_safetensors_write(fixture_path(splits[i].name), specs, data, 2, NULL, 0) != TRI_OK)
            return 1;
    }
    return 0;
}

static tri_status convert(const char *kind, const char *folder) {
    tri_data_options options =
        fixture_options("name: tensors, train: train.st, test: test.st, workers: 0");
    return tri_data_convert(&options, kind, fixture_path(folder));
}

// Converts in a process that is killed before call number `calls`. False: it ended by itself.
static bool convert_killed(const char *kind, const char *folder, int calls) {
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        calls_left = calls;
        tri_os.rename = rename_hook, tri_os.unlink = unlink_hook, tri_os.fsync = fsync_hook;
        tri_os.pwrite = pwrite_hook, tri_os.ftruncate = ftruncate_hook;
        tri_os.monotonic_ns = clock_hook;
        _exit(convert(kind, folder) == TRI_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == KILLED));
    return WEXITSTATUS(status) == KILLED;
}

static bool is_there(const char *folder, const char *name) {
    bool found;
    const char *path = tri_arena_printf(fixture_arena, "%s/%s", fixture_path(folder), name);
    assert_int_equal(tri_os_exists(path, &found), TRI_OK);
    return found;
}

static int count_files(const char *folder) {
    int count = 0;
    DIR *list = opendir(fixture_path(folder));
    for (struct dirent *entry; list && (entry = readdir(list));) count += entry->d_name[0] != '.';
    if (list) closedir(list);
    return count;
}

static void check_same(const char *wanted, const char *folder, const char *name, int calls) {
    char *a, *b;
    size_t a_bytes, b_bytes;
    const char *path = tri_arena_printf(fixture_arena, "%s/%s", fixture_path(folder), name);
    const char *good = tri_arena_printf(fixture_arena, "%s/%s", fixture_path(wanted), name);
    assert_int_equal(tri_os_read_file(good, 1 << 20, &a, &a_bytes), TRI_OK);
    if (tri_os_read_file(path, 1 << 20, &b, &b_bytes) != TRI_OK)
        fail_msg("killed before call %d: %s", calls, tri_error_message());
    if (a_bytes != b_bytes || memcmp(a, b, a_bytes) != 0)
        fail_msg("%s: killed before call %d: has other bytes", name, calls);
    free(a);
    free(b);
}

static void check_all_same(const char *wanted, const char *folder, int calls) {
    DIR *list = opendir(fixture_path(wanted));
    assert_non_null(list);
    for (struct dirent *entry; (entry = readdir(list));)
        if (entry->d_name[0] != '.') check_same(wanted, folder, entry->d_name, calls);
    closedir(list);
    assert_int_equal(count_files(folder), count_files(wanted)); // and no others
    assert_false(is_there(folder, ".convert.json"));
}

static const char *const kinds[] = {"npy", "npz", "tensors", "csv"};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void kill_everywhere(const char *kind) {
    int calls = 0;
    for (bool is_killed = true; is_killed; calls++) {
        const char *out = tri_arena_printf(fixture_arena, "%s-%d-%d", kind, marks_all, calls);
        assert_true(calls < MOST_CALLS);
        is_killed = convert_killed(kind, out, calls);
        if (!is_killed) break;
        bool is_begun = is_there(out, ".convert.json");
        if (!is_begun && count_files(out) == 0) continue; // killed before the first state
        if (is_begun && convert(kind, out) != TRI_OK)
            fail_msg("killed before call %d: %s", calls, tri_error_message());
        check_all_same(kind, out, calls);
    }
    assert_true(calls > 8); // syncs, renames and states at the least
}

static void test_every_call(void **state) {
    for (int i = 0; i < KINDS; i++) {
        assert_int_equal(convert(kinds[i], kinds[i]), TRI_OK);
        marks_all = false;
        kill_everywhere(kinds[i]);
        marks_all = true;
        kill_everywhere(kinds[i]);
    }
}

// One of two files is removed between a kill after a mark and the repetition.
static void test_file_gone(void **state) {
    int gone = 0;
    marks_all = true;
    for (int calls = 0; calls < MOST_CALLS; calls++) {
        char *text;
        size_t bytes;
        const char *out = tri_arena_printf(fixture_arena, "gone-%d", calls);
        const char *progress = tri_arena_printf(fixture_arena, "%s/.convert.json", out);
        const char *labels = tri_arena_printf(fixture_arena, "%s/train-labels.npy.part", out);
        if (!convert_killed("npy", out, calls)) break;
        if (tri_os_read_file(fixture_path(progress), 1 << 16, &text, &bytes) != TRI_OK) continue;
        tri_tree *state_map, *mark;
        bool is_complete;
        assert_int_equal(tri_json_parse(fixture_arena, text, bytes, progress, &state_map), TRI_OK);
        mark = tri_tree_get(state_map, "train");
        assert_true(tri_tree_to_bool(mark->items[mark->count - 1], &is_complete));
        free(text);
        if (is_complete) break;
        gone += unlink(fixture_path(labels)) == 0;
        assert_int_equal(convert("npy", out), TRI_OK);
        check_all_same("npy", out, calls);
    }
    assert_true(gone > TRAIN);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_call),
                                       cmocka_unit_test(test_file_gone)};
    return cmocka_run_group_tests(tests, setup, fixture_teardown);
}
