// Tests that ranks which take initial weights from a checkpoint divide its verification: each reads
// a part of the chunks, together all of them, and damage that one rank sees stops all.
#include "support/checkpoint_fixture.h"
#include "support/comm_ranks.h"

#include <fcntl.h>

enum { WIDTH = 300, CHUNK = 1024, RANKS = 3 };

static char run_dir[64];

static int setup(void **state) {
    (void)state;
    snprintf(run_dir, sizeof run_dir, "/tmp/trireme-checkpoint-XXXXXX");
    return mkdtemp(run_dir) == NULL ||
           fixture_do_save(
               run_dir,
               (fixture_save){.step = 1, .width = WIDTH, .chunk_bytes = CHUNK, .save_top_k = -1}) !=
               TRI_OK;
}

static int teardown(void **state) {
    (void)state;
    return tri_os_remove_tree(run_dir) != TRI_OK;
}

static int64_t bytes_read;

static ssize_t count_pread(int fd, void *data, size_t size, off_t offset) {
    ssize_t done = tri_os_system.pread(fd, data, size, offset);
    if (done > 0) bytes_read += done;
    return done;
}

static int64_t nothing(void *context, int tensor, int64_t at, int64_t *count) {
    (void)context, (void)tensor;
    *count = 0;
    return at;
}

static tri_status load(tri_comm *comm, fixture_state *model, bool wants_all) {
    tri_state_sink sink = fixture_sink(model);
    if (!wants_all) sink.next_wanted = nothing;
    return tri_checkpoint_load_weights(comm, run_dir, NULL, &sink);
}

// A rank that wants nothing of the file reads it for the verification alone.
static void share_body(tri_comm *comm, ranks_table *table, void *argument) {
    (void)table;
    int64_t file_bytes = *(int64_t *)argument;
    fixture_state model = fixture_model(1, WIDTH);
    tri_os.pread = count_pread;
    CHECK_OK(load(comm, &model, false));
    // The header is read by all, to find the chunks.
    CHECK(bytes_read > file_bytes / RANKS - 2 * CHUNK &&
          bytes_read < file_bytes / RANKS + 6 * CHUNK);
    CHECK_OK(load(comm, &model, true));
    CHECK(model.wrong == 0 && model.seen[0] == WIDTH * 33);
}

static void damaged_body(tri_comm *comm, ranks_table *table, void *argument) {
    (void)table, (void)argument;
    fixture_state model = fixture_model(1, WIDTH);
    CHECK(load(comm, &model, true) == TRI_CORRUPT);
    ranks_says("model.safetensors");
    CHECK(model.seen[0] == 0);
}

static int64_t file_size(const char *path) {
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info.st_size;
}

static void flip(const char *path, int64_t at) {
    char byte;
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void test_ranks_divide_verification(void **state) {
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/checkpoints/step-00000001/model.safetensors", run_dir);
    int64_t bytes = file_size(path);
    assert_int_equal(ranks_run(RANKS, NULL, share_body, &bytes), 0);
    // One byte of each of several chunks in a row: each rank has one of them.
    for (int i = 1; i <= RANKS + 1; i++) {
        flip(path, bytes - i * CHUNK);
        assert_int_equal(ranks_run(RANKS, NULL, damaged_body, NULL), 0);
        flip(path, bytes - i * CHUNK);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ranks_divide_verification, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
