// Tests the storage of strategy.offload, a file or memory of the host in which a rank keeps
// training state between its uses: what was written is read back, in any order and of any size, and
// no file is left behind. In some tests system calls fail once, fail always, or read or write only
// half of the bytes.
#include "base/os.h"
#include "device/far/far.h"
#include "device/queue.h"
#include "engine/storage.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SIZE = 100000, RANK = 3 };

static char folder[64];
// fail_with: errno of the call that fails; fail_after: how many calls succeed before that.
static int fail_with, fail_after;
static int grown; // how often ftruncate was called

static int setup(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/trireme-storage-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int teardown(void **state) {
    (void)state;
    tri_os = tri_os_system;
    return tri_os_remove_tree(folder) != TRI_OK;
}

static int entries(void) {
    DIR *open = opendir(folder);
    int count = 0;
    for (struct dirent *entry; open && (entry = readdir(open));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    if (open) closedir(open);
    return count;
}

static tri_status open_storage(tri_storage **out) {
    return tri_storage_open(
        &(tri_storage_config){.folder = folder, .size_bytes = SIZE, .rank = RANK}, out);
}

static tri_storage *opened(void) {
    tri_storage *s = NULL;
    if (open_storage(&s) != TRI_OK) fail_msg("%s", tri_error_message());
    return s;
}

static tri_status transfer(tri_storage *s, bool writes, void *memory, int64_t offset,
                           int64_t size) {
    tri_storage_op op = {.writes = writes, .memory = memory, .offset = offset, .size_bytes = size};
    return tri_storage_run(s, &op, "some unit");
}

static bool has_failed(void) {
    if (fail_after-- > 0) return false;
    errno = fail_with;
    return true;
}

static ssize_t failing_pread(int fd, void *data, size_t size, off_t offset) {
    return has_failed() ? -1 : tri_os_system.pread(fd, data, size, offset);
}

static ssize_t failing_pwrite(int fd, const void *data, size_t size, off_t offset) {
    return has_failed() ? -1 : tri_os_system.pwrite(fd, data, size, offset);
}

static size_t half(size_t size) { return size > 1 ? size / 2 : size; }

static ssize_t short_pread(int fd, void *data, size_t size, off_t offset) {
    return tri_os_system.pread(fd, data, half(size), offset);
}

static ssize_t short_pwrite(int fd, const void *data, size_t size, off_t offset) {
    return tri_os_system.pwrite(fd, data, half(size), offset);
}

static ssize_t interrupted_pread(int fd, void *data, size_t size, off_t offset) {
    static int calls;
    if (calls++ % 2 == 0) {
        errno = EINTR;
        return -1;
    }
    return tri_os_system.pread(fd, data, size, offset);
}

static ssize_t ending_pread(int fd, void *data, size_t size, off_t offset) { return 0; }

static int failing_fallocate(int fd, int mode, off_t offset, off_t size) {
    errno = fail_with;
    return -1;
}

static int counted_ftruncate(int fd, off_t size) {
    grown++;
    return tri_os_system.ftruncate(fd, size);
}

static int failing_open(const char *path, int flags, mode_t mode) {
    errno = fail_with;
    return -1;
}

// Writes device memory, which the host cannot touch, to the storage and reads it back. The write
// has to wait until a queue has filled that memory. The memory is larger than the host's buffer
// through which it passes on its way to a file.
static void check_device_memory(bool in_host_memory) {
    enum { BYTES = 9 << 20 };
    tri_device *device;
    tri_queue *queue;
    tri_storage *s;
    tri_ticket filled;
    void *memory, *back;
    char *pattern = malloc(BYTES), *got = malloc(BYTES);
    assert_true(pattern && got);
    for (int i = 0; i < BYTES; i++) pattern[i] = (char)(i % 251);
    setenv("TRIREME_FAR_DELAY_US", "20000", 1);
    assert_int_equal(tri_device_far.open(&(tri_device_config){.threads = 1}, &device), TRI_OK);
    unsetenv("TRIREME_FAR_DELAY_US");
    assert_int_equal(tri_queue_open(device, &queue), TRI_OK);
    assert_int_equal(tri_device_far.alloc(device, BYTES, &memory), TRI_OK);
    assert_int_equal(tri_device_far.alloc(device, BYTES, &back), TRI_OK);
    tri_storage_config config = {
        .in_host_memory = in_host_memory, .folder = folder, .size_bytes = BYTES, .device = device};
    assert_int_equal(tri_storage_open(&config, &s), TRI_OK);
    assert_int_equal(tri_device_far.copy_in(queue, memory, pattern, BYTES), TRI_OK);
    assert_int_equal(tri_device_far.record(queue, &filled), TRI_OK);
    assert_int_equal(tri_storage_after(s, &filled), TRI_OK);
    tri_storage_op ops[] = {
        {.writes = true, .on_device = true, .memory = memory, .size_bytes = BYTES},
        {.on_device = true, .memory = back, .size_bytes = BYTES}};
    uint64_t ticket;
    assert_int_equal(tri_storage_start(s, ops, 2, "both", &ticket), TRI_OK);
    assert_int_equal(tri_storage_wait(s, ticket), TRI_OK);
    assert_int_equal(tri_queue_read(queue, got, back, BYTES), TRI_OK);
    assert_memory_equal(got, pattern, BYTES);
    // From here on, operations whose memory belongs to the host use the same storage.
    memset(got, 0, BYTES);
    tri_storage_op part = {.memory = got, .offset = 5, .size_bytes = BYTES - 5};
    assert_int_equal(tri_storage_run(s, &part, "some unit"), TRI_OK);
    assert_memory_equal(got, pattern + 5, BYTES - 5);
    part = (tri_storage_op){.writes = true, .memory = got, .size_bytes = BYTES - 5};
    assert_int_equal(tri_storage_run(s, &part, "some unit"), TRI_OK);
    assert_int_equal(tri_storage_run(s, &ops[1], "some unit"), TRI_OK);
    assert_int_equal(tri_queue_read(queue, got, back, BYTES - 5), TRI_OK);
    assert_memory_equal(got, pattern + 5, BYTES - 5);
    tri_storage_close(s);
    tri_device_far.free(device, memory);
    tri_device_far.free(device, back);
    tri_queue_close(queue);
    tri_device_far.close(device);
    free(pattern);
    free(got);
}

static void test_device_memory(void **state) {
    (void)state;
    check_device_memory(false);
    check_device_memory(true);
}

static tri_status no_memory(tri_device *device, size_t size_bytes, void **out) {
    return TRI_FAIL(TRI_NO_MEMORY, "device small: no pinned memory");
}

// If the host has not enough memory for the offloaded state, the message names the rank and advises
// strategy.offload_path, which puts the state into a file.
static void test_no_host_memory(void **state) {
    (void)state;
    tri_device_backend small = tri_device_far;
    small.alloc_host = no_memory;
    tri_device device = {.backend = &small};
    tri_storage_config config = {
        .in_host_memory = true, .size_bytes = SIZE, .rank = RANK, .device = &device};
    tri_storage *s = NULL;
    assert_int_equal(tri_storage_open(&config, &s), TRI_NO_MEMORY);
    assert_null(s);
    assert_non_null(strstr(tri_error_message(), "rank 3: strategy.offload"));
    assert_non_null(strstr(tri_error_message(), "strategy.offload_path"));
}

// Ranges of many sizes are written and read at the same time, by many more operations than the
// storage's queue holds.
static void write_and_read(void) {
    enum { OPS = 400 };
    tri_storage *s = opened();
    assert_int_equal(entries(), 0);
    static unsigned char wanted[SIZE], written[OPS][1000], got[OPS][1000], seen[OPS][1000];
    memset(wanted, 0, sizeof wanted);
    uint64_t tickets[OPS], seed = 1;
    int64_t sizes[OPS];
    for (int i = 0; i < OPS; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        int64_t at = (int64_t)(seed >> 33) % (SIZE - 1000);
        sizes[i] = (int64_t)(seed >> 20) % 1001;
        memset(written[i], 1 + i % 255, sizeof written[i]);
        tri_storage_op ops[] = {
            {.writes = true, .memory = written[i], .offset = at, .size_bytes = sizes[i]},
            {.memory = got[i], .offset = at / 2, .size_bytes = sizes[i]}};
        assert_int_equal(tri_storage_start(s, ops, 2, "both", &tickets[i]), TRI_OK);
        memset(wanted + at, 1 + i % 255, (size_t)sizes[i]);
        memcpy(seen[i], wanted + at / 2, (size_t)sizes[i]);
    }
    for (int i = OPS - 1; i >= 0; i--) {
        assert_int_equal(tri_storage_wait(s, tickets[i]), TRI_OK);
        assert_memory_equal(got[i], seen[i], (size_t)sizes[i]);
    }
    static unsigned char all[SIZE];
    assert_int_equal(transfer(s, false, all, 0, SIZE), TRI_OK);
    assert_memory_equal(all, wanted, SIZE);
    tri_storage_close(s);
    tri_storage_close(NULL);
}

static void test_contents(void **state) {
    (void)state;
    write_and_read();
}

static void test_short_transfers(void **state) {
    (void)state;
    tri_os.pread = short_pread;
    tri_os.pwrite = short_pwrite;
    write_and_read();
    tri_os.pread = interrupted_pread;
    write_and_read();
}

// If the file system cannot reserve space (fallocate fails), ftruncate makes the file sparse, and
// everything works as well.
static void test_hole(void **state) {
    (void)state;
    fail_with = EOPNOTSUPP;
    grown = 0;
    tri_os.fallocate = failing_fallocate;
    tri_os.ftruncate = counted_ftruncate;
    write_and_read();
    assert_int_equal(grown, 1);
}

static void refused(tri_status wanted, const char *part) {
    tri_storage *s = NULL;
    tri_status status = open_storage(&s);
    if (status != wanted || !strstr(tri_error_message(), part) ||
        !strstr(tri_error_message(), "rank 3: strategy.offload"))
        fail_msg("status %s: %s", tri_status_name(status), tri_error_message());
    assert_null(s);
    assert_int_equal(entries(), 0);
}

static void test_opening(void **state) {
    (void)state;
    char kept[sizeof folder];
    fail_with = ENOSPC;
    tri_os.fallocate = failing_fallocate;
    refused(TRI_NO_SPACE, "0.1 MiB");
    tri_os = tri_os_system;
    fail_with = EACCES;
    tri_os.open = failing_open;
    refused(TRI_BAD_INPUT, folder);
    tri_os = tri_os_system;
    memcpy(kept, folder, sizeof folder);
    snprintf(folder, sizeof folder, "/proc/self/nowhere");
    refused(TRI_NOT_FOUND, "/proc/self/nowhere");
    snprintf(folder, sizeof folder, "%.40s/a/b", kept);
    tri_storage_close(opened()); // makes the missing folders a and a/b
    memcpy(folder, kept, sizeof folder);
    assert_int_equal(entries(), 1);
}

// Checks that every call after a failure returns this first failure, and that closing the storage
// still returns.
static void check_failure(bool writes, int with, tri_status wanted, const char *part) {
    char memory[512] = "";
    tri_storage *s = opened();
    fail_with = with;
    fail_after = 3;
    tri_os.pread = failing_pread;
    tri_os.pwrite = failing_pwrite;
    for (int i = 0; i < 3; i++)
        assert_int_equal(transfer(s, writes, memory, 0, sizeof memory), TRI_OK);
    for (int i = 0; i < 3; i++) {
        tri_status status = transfer(s, writes != (i == 1), memory, 0, sizeof memory);
        const char *message = tri_error_message();
        if (status != wanted || !strstr(message, part) || !strstr(message, folder) ||
            strncmp(message, "rank 3: ", 8) != 0)
            fail_msg("status %s: %s", tri_status_name(status), message);
        if (i == 0) tri_os = tri_os_system; // from here on the system calls would succeed again
    }
    uint64_t ticket;
    tri_storage_op op = {.memory = memory, .size_bytes = sizeof memory};
    assert_int_equal(tri_storage_start(s, &op, 1, "later", &ticket), wanted);
    tri_storage_close(s);
}

static void test_failures(void **state) {
    (void)state;
    check_failure(false, EIO, TRI_IO, "cannot read");
    check_failure(true, EIO, TRI_IO, "cannot write");
    check_failure(true, ENOSPC, TRI_NO_SPACE, "cannot write");
    char memory[512];
    tri_storage *s = opened();
    tri_os.pread = ending_pread;
    assert_int_equal(transfer(s, false, memory, 0, sizeof memory), TRI_IO);
    tri_storage_close(s);
}

typedef struct called {
    pthread_t thread;
    char *memory;      // the storage's memory, which the function changes
    int count;         // how often the function was called
    tri_status status; // what the function returns
} called;

static tri_status change(void *context, int subject) {
    called *c = context;
    c->thread = pthread_self();
    c->memory[0] = (char)(c->memory[0] + subject);
    c->count++;
    return c->status == TRI_OK ? TRI_OK : TRI_FAIL(c->status, "some kernel failed");
}

// tri_storage_call runs a function on the storage's thread: after the operations that were started
// before the call, and before those that are started after it. If the function fails, the storage
// fails.
static void test_call(void **state) {
    (void)state;
    enum { BYTES = 64 };
    tri_device *device;
    tri_storage *s;
    uint64_t ticket;
    char from = 5, to = 0;
    assert_int_equal(tri_device_far.open(&(tri_device_config){.threads = 1}, &device), TRI_OK);
    tri_storage_config config = {
        .in_host_memory = true, .size_bytes = BYTES, .rank = RANK, .device = device};
    assert_int_equal(tri_storage_open(&config, &s), TRI_OK);
    called c = {.memory = tri_storage_memory(s)};
    assert_non_null(c.memory);
    tri_storage_work work = {
        .run = change, .context = &c, .subject = 7, .kind = "HOST_STEP", .label = "some unit"};
    tri_storage_op op = {.writes = true, .memory = &from, .size_bytes = 1};
    assert_int_equal(tri_storage_start(s, &op, 1, "some unit", &ticket), TRI_OK);
    assert_int_equal(tri_storage_call(s, &work, &ticket), TRI_OK);
    assert_int_equal(transfer(s, false, &to, 0, 1), TRI_OK);
    assert_int_equal(to, from + 7);
    assert_false(pthread_equal(c.thread, pthread_self()));
    assert_true(tri_storage_is_done(s, ticket));
    c.status = TRI_INTERNAL;
    assert_int_equal(tri_storage_call(s, &work, &ticket), TRI_OK);
    assert_int_equal(tri_storage_wait(s, ticket), TRI_INTERNAL);
    assert_string_equal(tri_error_message(), "rank 3: strategy.offload: some kernel failed");
    assert_int_equal(tri_storage_call(s, &work, &ticket), TRI_INTERNAL);
    tri_storage_close(s);
    assert_int_equal(c.count, 2); // nothing runs after a failure
    device->backend->close(device);
    s = opened();
    assert_null(tri_storage_memory(s)); // NULL, because this storage is a file
    tri_storage_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_contents, setup, teardown),
        cmocka_unit_test_setup_teardown(test_device_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_host_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_short_transfers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hole, setup, teardown),
        cmocka_unit_test_setup_teardown(test_opening, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_call, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
