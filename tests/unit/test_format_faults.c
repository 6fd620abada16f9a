// Reads and writes files while each system call fails once, and while calls transfer only a byte.
#include "base/os.h"
#include "format/csv.h"
#include "format/event.h"
#include "format/idx.h"
#include "format/npy.h"
#include "format/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "support/data_fixture.h"

static int calls_left; // how many calls still succeed before one fails; negative: none fails
// Not 0: calls transfer one byte, and each second call is interrupted; counts the calls.
static int short_calls;

static bool fails(void) {
    if (calls_left < 0 || calls_left-- > 0) return false;
    errno = EIO;
    return true;
}

static size_t some(size_t size) { return short_calls && size > 1 ? 1 : size; }

static bool interrupted(void) {
    if (!short_calls || short_calls++ % 2) return false;
    errno = EINTR;
    return true;
}

static int fault_open(const char *path, int flags, mode_t mode) {
    return fails() ? -1 : tri_os_system.open(path, flags, mode);
}
static ssize_t fault_read(int fd, void *data, size_t size) {
    return fails() || interrupted() ? -1 : tri_os_system.read(fd, data, some(size));
}
static ssize_t fault_pread(int fd, void *data, size_t size, off_t offset) {
    return fails() || interrupted() ? -1 : tri_os_system.pread(fd, data, some(size), offset);
}
static ssize_t fault_write(int fd, const void *data, size_t size) {
    return fails() || interrupted() ? -1 : tri_os_system.write(fd, data, some(size));
}
static int fault_close(int fd) {
    int code = tri_os_system.close(fd); // a close that fails has still closed the file
    return fails() ? -1 : code;
}
static int fault_fsync(int fd) { return fails() ? -1 : tri_os_system.fsync(fd); }
static int fault_rename(const char *from, const char *to) {
    return fails() ? -1 : tri_os_system.rename(from, to);
}

static int setup(void **state) {
    if (fixture_setup(state)) return 1;
    calls_left = -1;
    short_calls = 0;
    tri_os.open = fault_open;
    tri_os.read = fault_read;
    tri_os.pread = fault_pread;
    tri_os.write = fault_write;
    tri_os.close = fault_close;
    tri_os.fsync = fault_fsync;
    tri_os.rename = fault_rename;
    return 0;
}

static int teardown(void **state) {
    tri_os = tri_os_system;
    return fixture_teardown(state);
}

static const float numbers[] = {1, 2, 3};
static const void *const data[] = {numbers};
static const tri_safetensors_spec spec = {"numbers", TRI_F32, {1, {3}}};

static tri_status write_tensors(void) {
    return tri_safetensors_write(fixture_path("tensors"), &spec, data, 1, NULL, 0);
}

static tri_status read_tensors(void) {
    tri_safetensors *file;
    float values[3] = {0};
    TRI_TRY(tri_safetensors_open(fixture_path("tensors"), &file));
    tri_status status = tri_safetensors_read(file, tri_safetensors_at(file, 0), 0, 12, values);
    if (status == TRI_OK) assert_memory_equal(values, numbers, 12);
    tri_safetensors_close(file);
    return status;
}

static tri_status read_labels(const char *name) {
    tri_idx idx;
    TRI_TRY(tri_idx_read(fixture_path(name), TRI_IDX_LABELS, INT64_MAX, &idx));
    for (int i = 0; i < 300; i++) assert_int_equal(((uint8_t *)idx.data)[i], i % 10);
    tri_idx_free(&idx);
    return TRI_OK;
}

static tri_status read_plain(void) { return read_labels("train-labels-idx1-ubyte"); }
static tri_status read_zipped(void) { return read_labels("zipped"); }

// Reads arrays from a file that is also a seed of the fuzzer: the images are the bytes 0 to 11, and
// the labels, where the file has them, are 0, 1, 2.
static tri_status read_arrays(const char *name, const char *images, const char *labels) {
    const char *path = fixture_path(name);
    tri_npy *array;
    uint8_t bytes[12];
    int64_t classes[3];
    TRI_TRY(tri_npy_open(path, images, &array));
    tri_status status = tri_npy_read(array, 0, 12, bytes);
    if (status == TRI_OK) status = tri_npy_verify(array);
    for (int i = 0; status == TRI_OK && i < 12; i++) assert_int_equal(bytes[i], i);
    tri_npy_close(array);
    if (status != TRI_OK || !labels) return status;
    TRI_TRY(tri_npy_open(path, labels, &array));
    status = tri_npy_read(array, 0, 3, classes);
    for (int i = 0; status == TRI_OK && i < 3; i++) assert_int_equal(classes[i], i);
    tri_npy_close(array);
    return status;
}

static tri_status read_array(void) { return read_arrays("images.npy", NULL, NULL); }
static tri_status read_stored(void) { return read_arrays("stored.npz", "images", "labels"); }
static tri_status read_deflated(void) { return read_arrays("deflated.npz", "images", "labels"); }

static tri_status see_record(void *context, const tri_csv_record *record) {
    const char **next = context;
    assert_int_equal(record->size, strlen(*next));
    assert_memory_equal(record->text, *next, strlen(*next));
    *next += strlen(*next) + 1;
    return TRI_OK;
}

// Reads a table with a byte order mark.
static tri_status read_table(void) {
    const char *next = "a,b\n\0001,2\n";
    int fd = tri_os.open(fixture_path("table.csv"), O_RDONLY, 0);
    if (fd < 0) return tri_os_fail("open", fixture_path("table.csv"));
    tri_status status = tri_csv_list(fd, fixture_path("table.csv"), ',', 10, see_record, &next);
    tri_os.close(fd);
    return status;
}

static tri_status write_events(void) {
    tri_event_writer *writer;
    const tri_event_scalar loss = {"loss", 1};
    TRI_TRY(tri_event_writer_create(fixture_folder, &writer));
    tri_status status = tri_event_scalars(writer, 1, &loss, 1);
    unlink(tri_event_writer_path(writer)); // so that the next writer can create this file again
    tri_event_writer_destroy(writer);
    return status;
}

static void put_files(void) {
    fixture_put_idx("train", 300);
    char *labels;
    size_t size;
    assert_int_equal(
        tri_os_read_file(fixture_path("train-labels-idx1-ubyte"), 1 << 20, &labels, &size), TRI_OK);
    gzFile file = gzopen(fixture_path("zipped"), "wb");
    assert_int_equal(gzwrite(file, labels, (unsigned)size), size);
    assert_int_equal(gzclose(file), Z_OK);
    free(labels);
    assert_int_equal(write_tensors(), TRI_OK);
    fixture_put("table.csv",
                "\xef\xbb\xbf"
                "a,b\n1,2\n",
                11);
    static const char *const arrays[] = {"images.npy", "stored.npz", "deflated.npz"};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        const char *seed = tri_arena_printf(
            fixture_arena, TRIREME_SOURCE_DIR "/tests/fuzz/corpus/npy/%s", arrays[i]);
        char *bytes;
        assert_int_equal(tri_os_read_file(seed, 1 << 20, &bytes, &size), TRI_OK);
        fixture_put(arrays[i], bytes, size);
        free(bytes);
    }
}

static const struct {
    const char *name;
    tri_status (*run)(void);
    int least_calls;
} jobs[] = {
    {"read safetensors", read_tensors, 4}, {"write safetensors", write_tensors, 6},
    {"read IDX", read_plain, 3},           {"read gzip", read_zipped, 3},
    {"write events", write_events, 3},     {"read .npy", read_array, 4},
    {"read .npz", read_stored, 10},        {"read compressed .npz", read_deflated, 10},
    {"read CSV", read_table, 3},
};

enum { JOBS = sizeof jobs / sizeof *jobs };

// Lets each system call of a reader or writer fail once. The failure is reported with a path, leaks
// nothing (under the address sanitizer), leaves the old file in place, and the next attempt
// succeeds.
static void test_each_call_fails_once(void **state) {
    put_files();
    for (int job = 0; job < JOBS; job++) {
        int failures = 0;
        for (int call = 0;; call++) {
            if (call == 100) fail_msg("%s: no end", jobs[job].name);
            calls_left = call;
            tri_status status = jobs[job].run();
            bool reached = calls_left < 0;
            calls_left = -1;
            if (!reached) {
                assert_int_equal(status, TRI_OK);
                break;
            }
            failures++;
            // If the call that failed was the close of a file that was only read, that is no error.
            if (status == TRI_OK) continue;
            assert_int_equal(status, TRI_IO);
            assert_non_null(strstr(tri_error_message(), fixture_folder));
            assert_int_equal(read_tensors(), TRI_OK);
        }
        if (failures < jobs[job].least_calls)
            fail_msg("%s: only %d calls", jobs[job].name, failures);
        assert_int_equal(jobs[job].run(), TRI_OK);
    }
}

static void test_little_at_a_time(void **state) {
    put_files();
    short_calls = 1;
    for (int job = 0; job < JOBS; job++) {
        if (jobs[job].run() != TRI_OK) fail_msg("%s: %s", jobs[job].name, tri_error_message());
    }
    assert_true(short_calls > 100);
    assert_true(tri_safetensors_probe(fixture_path("tensors")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_call_fails_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_little_at_a_time, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
