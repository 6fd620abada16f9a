// Tests files that are replaced as a whole: the name of the temporary file, how it is opened, and
// that none is left behind. Also the hash of a file.
#include "support/run_folder.h"

#include "base/hash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 16 };
static char made[MOST][PATH_MAX]; // paths opened with O_CREAT
static int made_flags[MOST], made_count;

// watching_open records which files are created. Before it opens the first `taken` of them, it
// makes a symbolic link of the file's name to `victim`, as another user could.
static int taken;
static const char *victim;

static int watching_open(const char *path, int flags, mode_t mode) {
    if (flags & O_CREAT && made_count < MOST) {
        snprintf(made[made_count], sizeof made[0], "%s", path);
        made_flags[made_count++] = flags;
        if (taken > 0 && taken--) assert_int_equal(symlink(victim, path), 0);
    }
    return tri_os_system.open(path, flags, mode);
}

static int refusing_rename(const char *from, const char *to) {
    errno = EIO;
    return -1;
}

static void watch(int links) {
    made_count = 0;
    taken = links;
    tri_os.open = watching_open;
}

static int back_to_the_system(void **state) {
    tri_os = tri_os_system;
    return 0;
}

static void check_content(const char *path, const char *text) {
    char *data;
    size_t size;
    assert_int_equal(tri_os_read_file(path, 1 << 16, &data, &size), TRI_OK);
    assert_string_equal(data, text);
    free(data);
}

static uint64_t hash_with(int64_t size, int64_t changed) {
    uint64_t hash = TRI_HASH_OF_NOTHING;
    const char *path = in_run("hashed");
    int fd = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, size), 0);
    if (changed >= 0) assert_int_equal(pwrite(fd, "x", 1, changed), 1);
    close(fd);
    assert_int_equal(tri_hash_file(path, 4, &hash), TRI_OK);
    unlink(path);
    return hash;
}

// All of a file of up to four blocks, and the first, the last and two other blocks of a larger one.
static void test_hash_of_a_file(void **state) {
    const int64_t block = TRI_HASH_BLOCK_BYTES, sizes[] = {1, block, 4 * block, 4000 * block + 1};
    assert_int_not_equal(hash_with(0, -1), hash_with(1, -1));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t plain = hash_with(sizes[i], -1);
        assert_int_equal(hash_with(sizes[i], -1), plain);
        assert_int_not_equal(hash_with(sizes[i] + 1, -1), plain);
        assert_int_not_equal(hash_with(sizes[i], 0), plain);
        assert_int_not_equal(hash_with(sizes[i], sizes[i] - 1), plain);
    }
    assert_int_not_equal(hash_with(4 * block, 2 * block), hash_with(4 * block, -1));
    assert_int_equal(hash_with(4000 * block + 1, 2 * block), hash_with(4000 * block + 1, -1));
}

static int entries_of_run(void) {
    int count = 0;
    DIR *folder = opendir(run_dir);
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder));) count += e->d_name[0] != '.';
    closedir(folder);
    return count;
}

static void test_temporary_is_new_and_unknown(void **state) {
    watch(0);
    const char *path = in_run("whole");
    assert_int_equal(tri_os_replace_file(path, "one", 3), TRI_OK);
    assert_int_equal(tri_os_replace_file(path, "two", 3), TRI_OK);
    check_content(path, "two");
    assert_int_equal(made_count, 2);
    assert_string_not_equal(made[0], made[1]);
    for (int i = 0; i < made_count; i++) {
        assert_true(made_flags[i] & O_EXCL);
        assert_true(made_flags[i] & O_NOFOLLOW);
        assert_true(tri_os_is_temporary_of(strrchr(made[i], '/') + 1, "whole"));
    }
    assert_false(tri_os_is_temporary_of("whole", "whole"));
    assert_false(tri_os_is_temporary_of("whole.tmp", "whole"));
    assert_int_equal(entries_of_run(), 1);
    tri_os.unlink(path);
}

static int synced;

static int counting_fsync(int fd) {
    synced++;
    return tri_os_system.fsync(fd);
}

// tri_os_replace_fleeting, for files that are of no use after a crash of the system, does not call
// fsync.
static void test_fleeting_file_is_not_synced(void **state) {
    watch(0);
    tri_os.fsync = counting_fsync;
    const char *path = in_run("fleeting");
    synced = 0;
    assert_int_equal(tri_os_replace_fleeting(path, "one", 3), TRI_OK);
    check_content(path, "one");
    assert_int_equal(synced, 0);
    assert_int_equal(tri_os_replace_file(path, "two", 3), TRI_OK);
    check_content(path, "two");
    assert_int_equal(synced, 2); // both the file and its folder were synced
    assert_int_equal(entries_of_run(), 1);
    tri_os.unlink(path);
}

static void test_link_in_its_place_is_not_followed(void **state) {
    victim = in_run("victim");
    assert_int_equal(tri_os_replace_file(victim, "precious", 8), TRI_OK);
    watch(1); // the first name is taken: another is tried
    const char *path = in_run("target");
    assert_int_equal(tri_os_replace_file(path, "new", 3), TRI_OK);
    assert_int_equal(made_count, 2);
    check_content(victim, "precious");
    check_content(path, "new");
    tri_os.unlink(made[0]);
    watch(MOST); // every name is taken
    assert_int_equal(tri_os_replace_file(path, "newer", 5), TRI_IO);
    check_content(victim, "precious");
    check_content(path, "new");
    for (int i = 0; i < made_count; i++) tri_os.unlink(made[i]);
    tri_os.unlink(path);
    tri_os.unlink(victim);
}

static void test_nothing_is_left_of_a_failure(void **state) {
    const char *path = in_run("kept");
    assert_int_equal(tri_os_replace_file(path, "old", 3), TRI_OK);
    tri_os.rename = refusing_rename;
    assert_int_equal(tri_os_replace_file(path, "new", 3), TRI_IO);
    check_content(path, "old");
    assert_int_equal(entries_of_run(), 1);
    tri_os.unlink(path);
}

static void test_dangling_link_is_no_new_file(void **state) {
    const char *path = in_run("log"), *other = in_run("elsewhere");
    assert_int_equal(symlink(other, path), 0);
    assert_int_equal(tri_os_open_or_create(path, O_WRONLY | O_CLOEXEC, 0666), -1);
    assert_int_equal(errno, EEXIST);
    assert_int_equal(access(other, F_OK), -1);
    tri_os.unlink(path);
    for (int i = 0; i < 2; i++) { // a new file, then an existing one
        int fd = tri_os_open_or_create(path, O_WRONLY | O_APPEND | O_CLOEXEC, 0666);
        assert_true(fd >= 0);
        assert_int_equal(tri_os_write_all(fd, "x", 1, path), TRI_OK);
        tri_os.close(fd);
    }
    check_content(path, "xx");
    tri_os.unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash_of_a_file),
        cmocka_unit_test_teardown(test_temporary_is_new_and_unknown, back_to_the_system),
        cmocka_unit_test_teardown(test_fleeting_file_is_not_synced, back_to_the_system),
        cmocka_unit_test_teardown(test_link_in_its_place_is_not_followed, back_to_the_system),
        cmocka_unit_test_teardown(test_nothing_is_left_of_a_failure, back_to_the_system),
        cmocka_unit_test_teardown(test_dangling_link_is_no_new_file, back_to_the_system),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
