// Tests taking the lock of a run folder, the file .lock: if another process holds it, on this host
// or on another one, if a dead process has left it, and on file systems without locks. The file
// names the process that holds the lock, which touches the file regularly ("beats") as a sign of
// life. The clock is a fake one, which moves only when the tested code sleeps.
#include "base/limits.h"
#include "base/process.h"
#include "support/run_folder.h"
#include "train/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int64_t now_ns;
static bool other_host_beats; // another host touches the file while time passes

static int64_t own_clock(void) { return now_ns; }

static void touch_file(void) {
    int fd = open(in_run(".lock"), O_WRONLY);
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = now_ns / 1000000000 + 12345}};
    if (fd < 0) return;
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
}

static void own_sleep(int64_t duration_ns) {
    now_ns += duration_ns;
    if (other_host_beats) touch_file();
    usleep(1000);
}

static int no_locks(int fd) {
    errno = ENOSYS;
    return -1;
}

// Replaces tri_os.lock by that of a file system on which hosts do not see each other's locks: it
// succeeds although another host holds the lock.
static int always_locked(int fd) { return 0; }

static int begin(void **state) {
    tri_os.monotonic_ns = own_clock;
    tri_os.sleep_ns = own_sleep;
    other_host_beats = false;
    return 0;
}

static int end(void **state) {
    tri_os = tri_os_system;
    unlink(in_run(".lock"));
    return 0;
}

static void write_lock(const tri_process *holder) {
    char text[TRI_PROCESS_TEXT_BYTES];
    tri_process_write(holder, text);
    int fd = open(in_run(".lock"), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void write_foreign_lock(void) {
    write_lock(&(tri_process){
        .host = "far-away", .boot = "another-boot", .pid = 4711, .started = 1, .pid_namespace = 1});
}

static void check_taken(void) {
    train_lock *lock;
    bool held;
    assert_int_equal(train_lock_take(run_dir, &lock, &held), TRI_OK);
    assert_false(held);
    assert_int_equal(train_lock_check(lock), TRI_OK);
    train_lock_release(lock);
    assert_int_equal(access(in_run(".lock"), F_OK), -1);
}

static void check_refused(int64_t pid, const char *host) {
    train_lock *lock;
    bool held;
    char words[300];
    assert_int_equal(train_lock_take(run_dir, &lock, &held), TRI_BAD_INPUT);
    assert_true(held);
    assert_null(lock);
    snprintf(words, sizeof words, "in use by pid %lld on %s;", (long long)pid, host);
    assert_non_null(strstr(tri_error_message(), words));
}

static void check_second_is_refused(void) {
    train_lock *first;
    bool held;
    tri_process self;
    tri_process_self(&self);
    assert_int_equal(train_lock_take(run_dir, &first, &held), TRI_OK);
    check_refused(getpid(), self.host);
    assert_int_equal(train_lock_check(first), TRI_OK);
    train_lock_release(first);
    check_taken();
}

static void test_second_is_refused(void **state) { check_second_is_refused(); }

static void test_second_is_refused_without_locks(void **state) {
    tri_os.lock = no_locks;
    check_second_is_refused();
}

// A child process takes the run folder's lock and is killed. Only the lock's file remains.
static void kill_a_holder(void) {
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        train_lock *lock;
        bool held;
        char byte = train_lock_take(run_dir, &lock, &held) == TRI_OK;
        if (write(ready[1], &byte, 1) == 1) pause();
        _exit(1);
    }
    char taken = 0;
    assert_int_equal(read(ready[0], &taken, 1), 1);
    assert_true(taken);
    tri_process self;
    tri_process_self(&self);
    check_refused(child, self.host);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(access(in_run(".lock"), F_OK), 0);
}

static void check_dead_is_nobody(void) {
    kill_a_holder();
    int64_t before = now_ns;
    check_taken();
    assert_int_equal(now_ns, before); // without waiting
}

static void test_dead_is_nobody(void **state) { check_dead_is_nobody(); }

static void test_dead_is_nobody_without_locks(void **state) {
    tri_os.lock = no_locks;
    kill_a_holder();
    check_taken();
}

static void test_number_of_the_dead_is_anothers(void **state) {
    // The lock's file names a process that has this process's number but was started at another
    // time. So that process is dead, and the system has given its number to this one.
    tri_process holder;
    tri_process_self(&holder);
    holder.started++;
    tri_os.lock = no_locks;
    write_lock(&holder);
    check_taken();
}

static void check_foreign(bool beats) {
    write_foreign_lock();
    int64_t before = now_ns;
    other_host_beats = beats;
    if (beats)
        check_refused(4711, "far-away");
    else
        check_taken();
    bool waited = now_ns - before >= TRI_LOCK_WATCH_MS * INT64_C(1000000);
    assert_int_equal(waited, !beats);
}

static void test_other_host_that_is_silent(void **state) { check_foreign(false); }

static void test_other_host_that_beats(void **state) {
    tri_os.lock = always_locked;
    check_foreign(true);
}

static void test_other_host_without_locks(void **state) {
    tri_os.lock = no_locks;
    check_foreign(true);
    check_foreign(false);
}

static void test_unfinished_file(void **state) {
    int fd = open(in_run(".lock"), O_WRONLY | O_CREAT, 0666);
    assert_int_equal(write(fd, "{\"host\":", 8), 8);
    close(fd);
    check_taken();
    tri_os.lock = no_locks;
    fd = open(in_run(".lock"), O_WRONLY | O_CREAT, 0666);
    close(fd);
    check_taken();
}

static void test_holder_notices_that_it_is_not_any_more(void **state) {
    tri_os = tri_os_system;
    train_lock *lock;
    bool held;
    assert_int_equal(train_lock_take(run_dir, &lock, &held), TRI_OK);
    unlink(in_run(".lock"));
    write_foreign_lock();
    tri_status status = TRI_OK;
    for (int i = 0; i < 600 && status == TRI_OK; i++) {
        usleep(50000);
        status = train_lock_check(lock);
    }
    assert_int_equal(status, TRI_IO);
    assert_non_null(strstr(tri_error_message(), "taken over by pid 4711 on far-away"));
    train_lock_release(lock);
    assert_int_equal(access(in_run(".lock"), F_OK), 0); // host far-away holds the lock
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(test_second_is_refused),
        TEST(test_second_is_refused_without_locks),
        TEST(test_dead_is_nobody),
        TEST(test_dead_is_nobody_without_locks),
        TEST(test_number_of_the_dead_is_anothers),
        TEST(test_other_host_that_is_silent),
        TEST(test_other_host_that_beats),
        TEST(test_other_host_without_locks),
        TEST(test_unfinished_file),
        TEST(test_holder_notices_that_it_is_not_any_more),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
