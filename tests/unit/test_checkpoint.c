// Tests checkpoints: that they are saved and loaded, which of them are kept, the symbolic links
// "last" and "best", and that damaged ones are rejected. A file is hashed in chunks. A sink
// receives the tensors that are loaded.
#include "base/limits.h"
#include "checkpoint/chunk.h"
#include "support/checkpoint_fixture.h"
#include "support/run_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>

static bool exists(const char *name) {
    struct stat info;
    return lstat(in_run(name), &info) == 0;
}

static void save(fixture_save options) {
    if (fixture_do_save(run_dir, options) != TRI_OK) fail_msg("%s", tri_error_message());
}

static void link_is(const char *link, const char *target) {
    char text[64] = "";
    ssize_t size = readlink(in_run(link), text, sizeof text - 1);
    assert_true(size > 0);
    assert_string_equal(text, target);
}

// Counts the entries of RUN/checkpoints, hidden ones and symbolic links too.
static int entries(void) {
    DIR *folder = opendir(in_run("checkpoints"));
    assert_non_null(folder);
    int count = -2; // . and ..
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

static void expect(tri_status got, tri_status wanted, const char *words) {
    if (got != wanted)
        fail_msg("%s instead of %s: %s", tri_status_name(got), tri_status_name(wanted),
                 tri_error_message());
    if (!strstr(tri_error_message(), words))
        fail_msg("'%s' lacks '%s'", tri_error_message(), words);
}

static void test_round_trip(void **state) {
    static const int64_t chunks[] = {0, 8, 64, 1000, 4096};
    for (int i = 0; i < 5; i++) {
        fixture_save options = {.step = 7 + i, .width = 17, .chunk_bytes = chunks[i]};
        save(options);
        assert_int_equal(fixture_auto(run_dir, 17), 7 + i);
        assert_int_equal(fixture_do_load(in_run("checkpoints/last"), 17, 0, NULL), TRI_OK);
    }
    // Save the same step once more, with other contents.
    save((fixture_save){.step = 11, .width = 17, .seed = 99});
    assert_int_equal(fixture_do_load(in_run("checkpoints/step-00000011"), 17, 99, NULL), TRI_OK);
    assert_int_equal(fixture_do_load(run_dir, 17, 99, NULL), TRI_OK);
    assert_int_equal(fixture_do_load(in_run("checkpoints"), 17, 99, NULL), TRI_OK);
}

static void test_same_bytes_whatever_the_order(void **state) {
    fixture_state model = fixture_model(3, 17), turned = model;
    for (int i = 0; i < model.count; i++) turned.tensors[i] = model.tensors[model.count - 1 - i];
    tri_state_source source = fixture_source(&model);
    assert_int_equal(tri_checkpoint_write_weights(in_run("a"), &source), TRI_OK);
    tri_state_sink sink = fixture_sink(&model);
    assert_int_equal(tri_checkpoint_load_weights(in_run("a"), NULL, &sink), TRI_OK);
    assert_int_equal(model.wrong, 0);
    // The fixture computes a tensor's values from its index, and in `turned` the tensors have other
    // indices. So all elements are read, but their values differ from the expected ones.
    sink = fixture_sink(&turned);
    assert_int_equal(tri_checkpoint_load_weights(in_run("a"), NULL, &sink), TRI_OK);
    for (int i = 0; i < turned.count; i++)
        assert_int_equal(turned.seen[i], tri_shape_count(&turned.tensors[i].shape));
    assert_true(turned.wrong > 0);
}

static void test_retention(void **state) {
    static const double loss[] = {5, 3, 4, 6, 7, 2, 8};
    for (int i = 0; i < 7; i++) {
        tri_checkpoint_monitor monitor = {.name = "val_loss", .is_known = true, .value = loss[i]};
        save((fixture_save){.step = i, .width = 2, .monitor = monitor, .save_top_k = 2});
        char last[32];
        snprintf(last, sizeof last, "step-%08d", i);
        link_is("checkpoints/last", last);
        link_is("checkpoints/best", i == 0  ? "step-00000000"
                                    : i < 5 ? "step-00000001"
                                            : "step-00000005");
    }
    // Five entries are left: the links "last" and "best", and the folders of steps 1, 5 and 6.
    // Steps 5 and 1 are the two best, 6 is the newest, and 5 is also the one before it.
    assert_true(exists("checkpoints/step-00000001") && exists("checkpoints/step-00000005"));
    assert_true(exists("checkpoints/step-00000006"));
    assert_int_equal(entries(), 5);
}

static void test_retention_of_the_largest(void **state) {
    static const double accuracy[] = {0.5, 0.9, 0.9, NAN, 0.1};
    for (int i = 0; i < 5; i++) {
        tri_checkpoint_monitor monitor = {
            .name = "accuracy", .larger_is_better = true, .is_known = true, .value = accuracy[i]};
        save((fixture_save){.step = i, .width = 2, .monitor = monitor, .save_top_k = 1});
    }
    link_is("checkpoints/best", "step-00000001"); // of two equal values the earlier one is the best
    assert_true(exists("checkpoints/step-00000001") && !exists("checkpoints/step-00000002"));
    assert_int_equal(entries(), 5);
    save((fixture_save){.step = 5, .width = 2, .save_top_k = -1}); // keep all
    assert_int_equal(entries(), 6);
}

static void test_the_newest_is_the_last_commit(void **state) {
    save((fixture_save){.step = 10, .width = 2, .save_top_k = -1});
    save((fixture_save){.step = 20, .width = 2, .save_top_k = -1});
    save((fixture_save){.step = 15, .width = 2, .save_top_k = -1}); // by a run resumed from step 10
    assert_int_equal(fixture_auto(run_dir, 2), 15);
    link_is("checkpoints/last", "step-00000015");
}

// Puts what comes after `resumed` aside, and returns how many checkpoints that were.
static int put_aside(const char *resumed) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    const char *where;
    int count;
    if (tri_checkpoint_put_aside(arena, run_dir, resumed, &where, &count) != TRI_OK)
        fail_msg("%s", tri_error_message());
    assert_int_equal(where != NULL, count > 0);
    tri_arena_destroy(arena);
    return count;
}

static void test_another_history_is_left(void **state) {
    for (int i = 1; i <= 4; i++) {
        tri_checkpoint_monitor monitor = {.name = "val_loss", .is_known = true, .value = 1.0 / i};
        save((fixture_save){.step = 10 * i, .width = 2, .monitor = monitor, .save_top_k = -1});
    }
    assert_int_equal(put_aside(in_run("checkpoints/last")), 0);
    assert_int_equal(put_aside(in_run("checkpoints/step-00000020")), 2);
    assert_true(exists("checkpoints/abandoned-1/step-00000030"));
    link_is("checkpoints/last", "step-00000020");
    link_is("checkpoints/best", "step-00000020");
    assert_int_equal(fixture_auto(run_dir, 2), 20);
    // A checkpoint that cannot be read comes after the earlier ones too.
    save((fixture_save){.step = 25, .width = 2, .save_top_k = -1});
    assert_int_equal(unlink(in_run("checkpoints/step-00000020/state.json")), 0);
    assert_int_equal(put_aside(in_run("checkpoints/step-00000010")), 2);
    assert_true(exists("checkpoints/abandoned-2/step-00000020"));
    link_is("checkpoints/best", "step-00000010");
    // From a checkpoint that is put aside: nothing of this history stays.
    assert_int_equal(put_aside(in_run("checkpoints/abandoned-1/step-00000040")), 1);
    assert_true(!exists("checkpoints/best") && !exists("checkpoints/last"));
    assert_int_equal(fixture_do_load(in_run("checkpoints/abandoned-1/step-00000040"), 2, 0, NULL),
                     TRI_OK);
    assert_int_equal(entries(), 3);
}

static void flip(const char *path, off_t offset, int bit) {
    int fd = open(path, O_RDWR);
    unsigned char byte;
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= (unsigned char)(1 << bit);
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    close(fd);
}

// Flips single bits of every file of a checkpoint. Loading then fails with a message that names the
// file, and resuming with `auto` skips this checkpoint.
// Only the second half of fc1.weight is wanted, and nothing else.
static int64_t half_of_fc1(void *context, int tensor, int64_t at, int64_t *count) {
    const fixture_state *state = context;
    int64_t total = tri_shape_count(&state->tensors[tensor].shape);
    bool is_fc1 = !strcmp(state->tensors[tensor].name, "fc1.weight");
    int64_t first = at > total / 2 ? at : total / 2;
    *count = is_fc1 ? total - first : 0;
    return is_fc1 ? first : at;
}

// Initial weights of a checkpoint: what is read is verified before, and the rest is not.
static void test_parts_that_are_read_are_verified(void **state) {
    enum { WIDTH = 300, CHUNK = 1024 };
    static const char *const file = "checkpoints/step-00000001/model.safetensors";
    save((fixture_save){.step = 1, .width = WIDTH, .chunk_bytes = CHUNK});
    struct stat info;
    assert_int_equal(stat(in_run(file), &info), 0);
    int64_t half = 2 * WIDTH * 33; // bytes; fc1.weight is nearly all of the file
    for (int64_t back = CHUNK; back < info.st_size - CHUNK; back += 7 * CHUNK) {
        fixture_state model = fixture_model(1, WIDTH);
        tri_state_sink sink = fixture_sink(&model);
        int64_t at = info.st_size - back;
        flip(in_run(file), at, 0);
        expect(tri_checkpoint_load_weights(run_dir, NULL, &sink), TRI_CORRUPT, "fc1.weight");
        assert_int_equal(model.seen[0], 0);
        sink.next_wanted = half_of_fc1;
        tri_status status = tri_checkpoint_load_weights(run_dir, NULL, &sink);
        if (back < half - 2 * CHUNK)
            expect(status, TRI_CORRUPT, "fc1.weight");
        else if (back > half + 2 * CHUNK)
            assert_true(status == TRI_OK && model.seen[0] == WIDTH * 33 / 2 && model.wrong == 0);
        flip(in_run(file), at, 0);
    }
}

// Saves a model with averages that are made from `seed`, and hashes them as weights.
static uint64_t hash_of_average(const char *name, uint64_t seed) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    fixture_state model = fixture_model(1, 2), average = fixture_model(seed, 2);
    tri_state_source of_model = fixture_source(&model), of_average = fixture_source(&average);
    tri_checkpoint_save_request request = {.run_dir = in_run(name),
                                           .step = 1,
                                           .model = &of_model,
                                           .average = &of_average,
                                           .training = tri_tree_map(arena)};
    uint64_t hash = 0;
    expect(tri_checkpoint_save(&request), TRI_OK, "");
    expect(tri_checkpoint_hash_weights(in_run(name), &hash), TRI_OK, "");
    tri_arena_destroy(arena);
    return hash;
}

// Hosts whose copies have the same model and other averages have other weights.
static void test_averages_are_hashed(void **state) {
    uint64_t one = hash_of_average("a", 7);
    assert_true(one == hash_of_average("b", 7));
    assert_true(one != hash_of_average("c", 8));
}

static void test_flipped_bits(void **state) {
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
    save((fixture_save){.step = 1, .width = 4, .chunk_bytes = 256});
    save((fixture_save){.step = 2, .width = 4, .chunk_bytes = 256});
    tri_arena *arena = tri_arena_create(NULL, "test");
    for (int f = 0; f < 3; f++) {
        char path[160];
        struct stat info;
        snprintf(path, sizeof path, "%s/checkpoints/step-00000002/%s", run_dir, files[f]);
        assert_int_equal(stat(path, &info), 0);
        for (off_t offset = 0; offset < info.st_size; offset++) {
            const char *found;
            int bit = (int)(offset * 5 % 8);
            flip(path, offset, bit);
            tri_status status =
                tri_checkpoint_find(arena, NULL, run_dir, in_run("checkpoints/last"), &found);
            if (status != TRI_CORRUPT || !strstr(tri_error_message(), files[f]))
                fail_msg("%s, byte %ld, bit %d: %s, '%s'", files[f], (long)offset, bit,
                         tri_status_name(status), tri_error_message());
            assert_null(found);
            if (offset % 97 == 0) assert_int_equal(fixture_auto(run_dir, 4), 1);
            flip(path, offset, bit);
            tri_arena_reset(arena);
        }
    }
    assert_int_equal(fixture_auto(run_dir, 4), 2);
    tri_arena_destroy(arena);
}

static int64_t bytes_read;

static ssize_t counting_pread(int fd, void *data, size_t size, off_t offset) {
    ssize_t done = tri_os_system.pread(fd, data, size, offset);
    if (done > 0) bytes_read += done;
    return done;
}

// tri_checkpoint_load_whole verifies and loads with one reading of the files.
static void test_whole_is_read_once(void **state) {
    enum { WIDTH = 4000 };
    save((fixture_save){.step = 3, .width = WIDTH});
    tri_arena *arena = tri_arena_create(NULL, "test");
    const char *path;
    int64_t all = 0;
    for (int f = 0; f < 2; f++) {
        struct stat info;
        const char *file = f ? "optimizer.safetensors" : "model.safetensors";
        assert_int_equal(stat(in_run(tri_arena_printf(arena, "checkpoints/last/%s", file)), &info),
                         0);
        all += info.st_size;
    }
    bytes_read = 0;
    tri_os.pread = counting_pread;
    assert_int_equal(tri_checkpoint_find_first(arena, run_dir, "auto", &path), TRI_OK);
    assert_int_equal(bytes_read, 0);
    tri_status status = fixture_load_by(tri_checkpoint_load_whole, path, WIDTH, 0, NULL);
    tri_os = tri_os_system;
    assert_int_equal(status, TRI_OK);
    // Only the headers, which are less than a tenth of the files, may be read more than once.
    assert_true(bytes_read >= all && bytes_read < all + all / 10);
    tri_arena_destroy(arena);
}

static int64_t none_wanted(void *context, int tensor, int64_t at, int64_t *count) {
    *count = 0;
    return at;
}

// tri_checkpoint_load_whole finds damage anywhere in a checkpoint, even if the sinks want no
// tensor. It also finds that a step's folder has the name of another step.
static void test_whole_is_verified(void **state) {
    save((fixture_save){.step = 3, .width = 4});
    tri_arena *arena = tri_arena_create(NULL, "test");
    fixture_state model = fixture_model(3, 4), optimizer = fixture_optimizer(3, 4);
    tri_state_sink sink = fixture_sink(&model), rest = fixture_sink(&optimizer);
    tri_checkpoint_sinks both = {.model = &sink, .optimizer = &rest}, one = {.model = &sink};
    tri_checkpoint_info info;
    sink.next_wanted = rest.next_wanted = none_wanted;
    const char *const files[] = {"checkpoints/step-00000003/model.safetensors",
                                 "checkpoints/step-00000003/optimizer.safetensors"};
    for (int f = 0; f < 2; f++) {
        struct stat file;
        assert_int_equal(stat(in_run(files[f]), &file), 0);
        flip(in_run(files[f]), file.st_size - 1, 3);
        assert_int_equal(tri_checkpoint_load(arena, run_dir, &both, &info), TRI_OK);
        expect(tri_checkpoint_load_whole(arena, run_dir, &both, &info), TRI_CORRUPT, "is damaged");
        expect(tri_checkpoint_load_whole(arena, run_dir, &one, &info), TRI_CORRUPT, "is damaged");
        flip(in_run(files[f]), file.st_size - 1, 3);
    }
    assert_int_equal(tri_checkpoint_load_whole(arena, run_dir, &one, &info), TRI_OK);
    char other[160];
    snprintf(other, sizeof other, "%s", in_run("checkpoints/step-00000004"));
    assert_int_equal(rename(in_run("checkpoints/step-00000003"), other), 0);
    expect(tri_checkpoint_load_whole(arena, other, &both, &info), TRI_CORRUPT, "holds step 3");
    tri_arena_destroy(arena);
}

static void test_damage_names_the_tensor(void **state) {
    save((fixture_save){.step = 2, .width = 4});
    char path[160];
    struct stat info;
    snprintf(path, sizeof path, "%s/checkpoints/step-00000002/model.safetensors", run_dir);
    assert_int_equal(stat(path, &info), 0);
    flip(path, info.st_size - 1, 3); // a byte of 'fc1.weight', which lies last in the file
    expect(fixture_do_load(run_dir, 4, 0, NULL), TRI_CORRUPT,
           "model.safetensors: tensor "
           "'fc1.weight' is damaged");
    const char *found;
    tri_arena *arena = tri_arena_create(NULL, "test");
    expect(tri_checkpoint_find(arena, NULL, run_dir, "auto", &found), TRI_CORRUPT,
           "no earlier checkpoint");
    tri_arena_destroy(arena);
}

static void copy(const char *from, const char *to) {
    char *data;
    size_t size;
    assert_int_equal(tri_os_read_file(from, 1 << 24, &data, &size), TRI_OK);
    assert_int_equal(tri_os_replace_file(to, data, size), TRI_OK);
    free(data);
}

static void test_refused(void **state) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    const char *found;
    expect(tri_checkpoint_find(arena, NULL, run_dir, in_run("nothing"), &found), TRI_NOT_FOUND,
           "nothing");
    expect(tri_checkpoint_find(arena, NULL, run_dir, run_dir, &found), TRI_NOT_FOUND,
           "no checkpoint in it");
    assert_int_equal(tri_checkpoint_find(arena, NULL, run_dir, "auto", &found), TRI_OK);
    assert_null(found);
    assert_int_equal(tri_checkpoint_find(arena, NULL, run_dir, "never", &found), TRI_OK);
    save((fixture_save){.step = 1, .width = 4});
    expect(tri_checkpoint_find(arena, NULL, run_dir, "never", &found), TRI_BAD_INPUT,
           "is not empty");
    save((fixture_save){.step = 2, .width = 4});
    const char *one = "checkpoints/step-00000001/model.safetensors";
    const char *two = "checkpoints/step-00000002/model.safetensors";
    copy(in_run(two), in_run("kept"));

    copy(in_run(one), in_run(two)); // the folder of step 2 now has the model's file of step 1
    expect(fixture_do_load(run_dir, 4, 0, NULL), TRI_CORRUPT,
           "is of step 1, but state.json is of step 2");
    assert_int_equal(truncate(in_run(two), 100), 0);
    expect(fixture_do_load(run_dir, 4, 0, NULL), TRI_CORRUPT, "has 100 bytes");
    assert_int_equal(unlink(in_run(two)), 0);
    expect(fixture_do_load(run_dir, 4, 0, NULL), TRI_CORRUPT, "is missing");
    copy(in_run("kept"), in_run(two));
    // The highest byte of the header's length becomes 255, so the length is at least 255 · 2^56.
    for (int bit = 0; bit < 8; bit++) flip(in_run(two), 7, bit);
    expect(fixture_do_load(run_dir, 4, 0, NULL), TRI_CORRUPT, "header");
    assert_int_equal(fixture_auto(run_dir, 4), 1);
    copy(in_run("kept"), in_run(two));
    assert_int_equal(fixture_auto(run_dir, 4), 2);

    assert_int_equal(unlink(in_run("checkpoints/step-00000002/state.json")), 0);
    expect(fixture_do_load(run_dir, 4, 0, NULL), TRI_CORRUPT, "state.json: is missing");
    assert_int_equal(fixture_auto(run_dir, 4), 1);
    expect(tri_checkpoint_find(arena, NULL, run_dir, in_run("kept"), &found), TRI_BAD_INPUT,
           "is a file");
    tri_arena_destroy(arena);
}

static void test_another_model(void **state) {
    save((fixture_save){.step = 1, .width = 4});
    fixture_state model = fixture_model(1, 5);
    tri_state_sink sink = fixture_sink(&model);
    tri_checkpoint_sinks one = {.model = &sink};
    expect(tri_checkpoint_load(NULL, run_dir, &one, NULL), TRI_BAD_INPUT,
           "'fc1.weight' is [4, 33] there, but [5, 33] in the model");
    model = fixture_model(1, 4);
    model.tensors[1].name = "conv2.weight";
    expect(tri_checkpoint_load(NULL, run_dir, &one, NULL), TRI_BAD_INPUT,
           "has no tensor 'conv2.weight'; the nearest is 'conv1.weight'");
    model = fixture_model(1, 4);
    model.count--;
    sink = fixture_sink(&model);
    expect(tri_checkpoint_load(NULL, run_dir, &one, NULL), TRI_BAD_INPUT, "no tensor 'empty'");
    model = fixture_model(1, 4);
    model.tensors[2].dtype = TRI_F16;
    sink = fixture_sink(&model);
    expect(tri_checkpoint_load(NULL, run_dir, &one, NULL), TRI_BAD_INPUT,
           "'conv1.bias' is F32 there, but F16 in the model");
}

// A file can have more tensors than TRI_MAX_CHECKPOINT_CHUNKS: every tensor gets at least one
// chunk, and the limit holds only for the chunks into which a large tensor is cut. Otherwise a
// model of thousands of layers would train for an epoch and could then not be saved.
static void test_many_tensors(void **state) {
    enum { MANY = TRI_MAX_CHECKPOINT_CHUNKS + 1000 };
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_safetensors_entry *entries = TRI_NEW_ARRAY(arena, tri_safetensors_entry, MANY);
    checkpoint_chunks chunks;
    for (int i = 0; i < MANY; i++)
        entries[i] = (tri_safetensors_entry){.offset = 8 + 4 * i, .size_bytes = 4};
    assert_int_equal(checkpoint_cut(arena, 8, entries, NULL, MANY, 8, &chunks), TRI_OK);
    assert_int_equal(chunks.count, MANY + 1);
    assert_int_equal(chunks.items[MANY].tensor, MANY - 1);
    entries[0].size_bytes = 4 * MANY;
    assert_int_equal(checkpoint_cut(arena, 8, entries, NULL, 1, 4, &chunks), TRI_UNSUPPORTED);
    tri_arena_destroy(arena);
}

static void test_clean(void **state) {
    save((fixture_save){.step = 1, .width = 4});
    save((fixture_save){.step = 2, .width = 4});
    int before = entries();
    assert_int_equal(mkdir(in_run("checkpoints/.tmp-step-00000003-12-ab"), 0777), 0);
    assert_int_equal(mkdir(in_run("checkpoints/.del-step-00000000-12-ab"), 0777), 0);
    copy(in_run("checkpoints/step-00000001/state.json"),
         in_run("checkpoints/.del-step-00000000-12-ab/state.json"));
    assert_int_equal(symlink("step-00000001", in_run("checkpoints/.link-last-12-ab")), 0);
    // If a save that replaced a step was killed, the old step is restored, unless a folder already
    // has the step's name.
    assert_int_equal(
        rename(in_run("checkpoints/step-00000002"), in_run("checkpoints/.old-step-00000002-12-ab")),
        0);
    assert_int_equal(mkdir(in_run("checkpoints/.old-step-00000001-12-ab"), 0777), 0);
    assert_int_equal(tri_checkpoint_clean(run_dir), TRI_OK);
    assert_int_equal(entries(), before);
    assert_int_equal(fixture_auto(run_dir, 4), 2);
    assert_int_equal(tri_checkpoint_clean(in_run("no such run")), TRI_OK);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(round_trip),
        TEST(same_bytes_whatever_the_order),
        TEST(parts_that_are_read_are_verified),
        TEST(averages_are_hashed),
        TEST(retention),
        TEST(retention_of_the_largest),
        TEST(the_newest_is_the_last_commit),
        TEST(another_history_is_left),
        TEST(flipped_bits),
        TEST(whole_is_read_once),
        TEST(whole_is_verified),
        TEST(damage_names_the_tensor),
        TEST(refused),
        TEST(another_model),
        TEST(many_tensors),
        TEST(clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
