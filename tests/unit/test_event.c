// Checks that event files have byte for byte the records that TensorBoard's own writer makes.
#include "base/os.h"
#include "format/event.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];
static int64_t clock_now;
static int64_t fixed_clock(void) { return clock_now; }

static int setup(void **state) {
    snprintf(folder, sizeof folder, "/tmp/trireme-event-XXXXXX");
    tri_os.realtime_ns = fixed_clock;
    clock_now = 1000000000;
    return mkdtemp(folder) ? 0 : 1;
}

static int teardown(void **state) {
    tri_os = tri_os_system;
    return tri_os_remove_tree(folder) == TRI_OK ? 0 : 1;
}

static char *contents(const tri_event_writer *writer, size_t *size) {
    char *data;
    assert_int_equal(tri_os_read_file(tri_event_writer_path(writer), 1 << 20, &data, size), TRI_OK);
    return data;
}

static void expect_hex(const char *data, size_t size, const char *hex) {
    assert_int_equal(size, strlen(hex) / 2);
    for (size_t i = 0; i < size; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        assert_int_equal((uint8_t)data[i], byte);
    }
}

static void test_crc32c(void **state) {
    assert_int_equal(tri_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(tri_crc32c("", 0), 0);
    static const uint8_t zeros[32]; // an example of RFC 3720, B.4
    assert_int_equal(tri_crc32c(zeros, sizeof zeros), 0x8a9136aa);
}

static void test_golden(void **state) {
    tri_event_writer *writer;
    assert_int_equal(tri_event_writer_create(folder, &writer), TRI_OK);
    clock_now = 2000000000;
    const tri_event_scalar loss = {"loss", 0.5f};
    assert_int_equal(tri_event_scalars(writer, 5, &loss, 1), TRI_OK);
    size_t size;
    char *data = contents(writer, &size);
    expect_hex(
        data, size,
        "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a"
        "1a00000000000000129bd82d09000000000000004010052a0d0a0b0a046c6f7373150000003fdb81a714");
    free(data);
    const char *name = strrchr(tri_event_writer_path(writer), '/') + 1;
    assert_memory_equal(name, "events.out.tfevents.0000000001.", 31);
    tri_event_writer *second;
    assert_int_equal(tri_event_writer_create(folder, &second), TRI_OK);
    assert_string_not_equal(tri_event_writer_path(second), tri_event_writer_path(writer));
    tri_event_writer_destroy(second);
    tri_event_writer_destroy(writer);
}

// Checks that all records are complete and their checksums right; returns their number.
static int count_records(const char *data, size_t size) {
    int records = 0;
    for (size_t at = 0; at < size; records++) {
        uint64_t length;
        uint32_t length_crc, data_crc, crc;
        assert_true(size - at >= 16);
        memcpy(&length, data + at, 8);
        memcpy(&length_crc, data + at + 8, 4);
        crc = tri_crc32c(data + at, 8);
        assert_int_equal(length_crc, (crc >> 15 | crc << 17) + 0xa282ead8u);
        assert_true(length <= size - at - 16);
        memcpy(&data_crc, data + at + 12 + length, 4);
        crc = tri_crc32c(data + at + 12, length);
        assert_int_equal(data_crc, (crc >> 15 | crc << 17) + 0xa282ead8u);
        at += length + 16;
    }
    return records;
}

static void test_hparams(void **state) {
    tri_event_writer *writer;
    assert_int_equal(tri_event_writer_create(folder, &writer), TRI_OK);
    const tri_event_hparam hparams[] = {
        {"optimizer.name", TRI_HPARAM_STRING, "adam", 0},
        {"optimizer.lr", TRI_HPARAM_NUMBER, NULL, 0.001},
        {"data.shuffle", TRI_HPARAM_BOOL, NULL, 1},
    };
    const char *const metrics[] = {"val/loss"};
    assert_int_equal(tri_event_begin(writer, 5), TRI_OK);
    assert_int_equal(tri_event_session_start(writer, hparams, 3, metrics, 1), TRI_OK);
    assert_int_equal(tri_event_session_end(writer, true), TRI_OK);
    size_t size;
    char *data = contents(writer, &size);
    assert_int_equal(count_records(data, size), 5);
    // Event{step 5, session_log{status START}}
    assert_non_null(memmem(data, size, "\x10\x05\x3a\x02\x08\x01", 6));
    // The bytes of this message of protobuf: HParamsPluginData{session_end_info{status success,
    // end_time_secs 1.0}}.
    static const char end[] = "\x22\x0b\x08\x01\x11\0\0\0\0\0\0\xf0\x3f";
    assert_non_null(memmem(data, size, end, sizeof end - 1));
    assert_non_null(memmem(data, size, "_hparams_/experiment", 20));
    assert_non_null(memmem(data, size, "_hparams_/session_start_info", 28));
    assert_non_null(memmem(data, size, "_hparams_/session_end_info", 26));
    // Nothing lies between the last hyperparameter and start_time_secs (field 5, 1.0): a group_name
    // (field 4) would make one row of all runs that have the same.
    static const char last[] = "data.shuffle\x12\x02\x20\x01\x29\0\0\0\0\0\0\xf0\x3f";
    assert_non_null(memmem(data, size, last, sizeof last - 1));
    // Entries of protobuf's map: "optimizer.name" with string_value "adam", "data.shuffle" with
    // bool_value true.
    assert_non_null(memmem(data, size,
                           "\x0a\x18\x0a\x0eoptimizer.name\x12\x06\x1a\x04"
                           "adam",
                           26));
    assert_non_null(memmem(data, size,
                           "\x0a\x12\x0a\x0c"
                           "data.shuffle\x12\x02\x20\x01",
                           20));
    free(data);
    tri_event_writer_destroy(writer);
}

static int writes_left;
static ssize_t failing_write(int fd, const void *data, size_t size) {
    if (writes_left-- > 0) return write(fd, data, size / 2 + 1);
    errno = ENOSPC;
    return -1;
}

static void test_disk_full(void **state) {
    tri_event_writer *writer;
    assert_int_equal(tri_event_writer_create(folder, &writer), TRI_OK);
    const tri_event_scalar loss = {"loss", 0.5f};
    tri_os.write = failing_write;
    writes_left = 1; // half of a record is written
    assert_int_equal(tri_event_scalars(writer, 1, &loss, 1), TRI_NO_SPACE);
    tri_os.write = write;
    assert_int_equal(tri_event_scalars(writer, 2, &loss, 1), TRI_OK);
    size_t size;
    char *data = contents(writer, &size);
    assert_int_equal(count_records(data, size), 2);
    free(data);
    tri_event_writer_destroy(writer);
    assert_int_equal(tri_event_writer_create("/nowhere/at/all", &writer), TRI_NOT_FOUND);
    assert_null(writer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc32c),
        cmocka_unit_test_setup_teardown(test_golden, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hparams, setup, teardown),
        cmocka_unit_test_setup_teardown(test_disk_full, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
