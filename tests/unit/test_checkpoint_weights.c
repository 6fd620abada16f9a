// Tests initial weights that are read from files of other programs, the export of weights, and the
// commands `trireme checkpoint` list, verify and diff.
#include "checkpoint/convert.h"
#include "format/safetensors.h"
#include "support/checkpoint_fixture.h"
#include "support/run_folder.h"

#include <float.h>
#include <math.h>
#include <sys/stat.h>

static void expect(tri_status got, tri_status wanted, const char *words) {
    if (got != wanted || !strstr(tri_error_message(), words))
        fail_msg("%s instead of %s '%s': %s", tri_status_name(got), tri_status_name(wanted), words,
                 tri_error_message());
}

static void ok(tri_status status) {
    if (status != TRI_OK) fail_msg("%s", tri_error_message());
}

static void put_text(const char *path, const char *text) {
    ok(tri_os_replace_file(path, text, strlen(text)));
}

// Compares the conversions from and to F16 with those of GCC's _Float16.
static void test_halves(void **state) {
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        uint16_t half = (uint16_t)bits, back;
        _Float16 judge;
        float value;
        double wide;
        memcpy(&judge, &half, 2);
        checkpoint_convert(TRI_F16, &half, TRI_F32, &value, 1);
        checkpoint_to_f64(TRI_F16, &half, 1, &wide);
        if (isnan((float)judge)) {
            assert_true(isnan(value) && isnan(wide));
            continue;
        }
        assert_true(value == (float)judge && wide == (double)judge);
        assert_int_equal(signbit(value) != 0, half >> 15);
        checkpoint_convert(TRI_F32, &value, TRI_F16, &back, 1);
        assert_int_equal(back, half);
    }
    for (uint64_t i = 0; i < 2000000; i++) {
        uint32_t bits = (uint32_t)(i * 2147 + i / 3);
        float value;
        uint16_t half, expected;
        memcpy(&value, &bits, 4);
        if (isnan(value)) continue;
        _Float16 judge = (_Float16)value;
        memcpy(&expected, &judge, 2);
        checkpoint_convert(TRI_F32, &value, TRI_F16, &half, 1);
        if (half != expected) fail_msg("%a: %04x instead of %04x", value, half, expected);
    }
}

static void test_bf16_floats(void **state) {
    static const struct {
        float value;
        uint16_t bits;
    } rows[] = {{1.0f, 0x3f80},      {-2.0f, 0xc000},          {0x1.01p0f, 0x3f80},
                {0x1.03p0f, 0x3f82}, {0x1.010002p0f, 0x3f81},  {INFINITY, 0x7f80},
                {-0.0f, 0x8000},     {0x1.fffffep127f, 0x7f80}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint16_t got;
        checkpoint_convert(TRI_F32, &rows[i].value, TRI_BF16, &got, 1);
        assert_int_equal(got, rows[i].bits);
    }
    float nan = NAN, back;
    uint16_t bits;
    checkpoint_convert(TRI_F32, &nan, TRI_BF16, &bits, 1);
    checkpoint_convert(TRI_BF16, &bits, TRI_F32, &back, 1);
    assert_true(isnan(back));
}

static void test_counts_overflows(void **state) {
    static const float values[] = {65519, 65520, -1e6f, INFINITY, NAN, FLT_MAX, 1e-30f, 0};
    static const double wide[] = {FLT_MAX, -1e39, 1e300, NAN};
    uint16_t halves[8];
    float narrow[4];
    assert_int_equal(checkpoint_convert(TRI_F32, values, TRI_F16, halves, 8), 3);
    assert_int_equal(checkpoint_convert(TRI_F32, values, TRI_BF16, halves, 8), 1);
    assert_int_equal(checkpoint_convert(TRI_F64, wide, TRI_F32, narrow, 4), 2);
}

static void write_model(const char *path, uint64_t seed, int count) {
    fixture_state model = fixture_model(seed, 9);
    model.count = count;
    tri_state_source source = fixture_source(&model);
    ok(tri_checkpoint_write_weights(path, &source));
}

static tri_status load_model(const char *path, fixture_state *model) {
    *model = fixture_model(1, 9);
    tri_state_sink sink = fixture_sink(model);
    return tri_checkpoint_load_weights(path, NULL, &sink);
}

static void test_init(void **state) {
    fixture_state model;
    write_model(in_run("all"), 1, 6);
    ok(load_model(in_run("all"), &model));
    assert_int_equal(model.wrong, 0);
    write_model(in_run("few"), 1, 3); // without the buffers, and without `empty`
    expect(load_model(in_run("few"), &model), TRI_BAD_INPUT, "has no tensor 'empty'");
    fixture_state part = fixture_model(1, 9);
    // A file with all weights but no buffers (statistics and counters of batch norm): `empty` takes
    // the place of the first buffer. The file can be loaded, and no element is loaded into a
    // buffer.
    part.tensors[3] = part.tensors[5];
    part.count = 4;
    tri_state_source source = fixture_source(&part);
    ok(tri_checkpoint_write_weights(in_run("few"), &source));
    ok(load_model(in_run("few"), &model));
    assert_int_equal(model.seen[0], 9 * 33);
    assert_int_equal(model.seen[4], 0);
    expect(load_model(in_run("none"), &model), TRI_NOT_FOUND, "none");
    put_text(in_run("text"), "this is no tensor file, but long enough to look at");
    expect(load_model(in_run("text"), &model), TRI_CORRUPT, "text");
    expect(load_model(run_dir, &model), TRI_NOT_FOUND, "holds no checkpoint");
}

static void test_export(void **state) {
    static const char *const dtypes[] = {"F16", "BF16", "F64"};
    ok(fixture_do_save(run_dir, (fixture_save){.step = 1, .width = 9}));
    ok(tri_checkpoint_export(run_dir, TRI_EXPORT_ALL, in_run("same"), NULL, NULL, NULL));
    fixture_state model;
    ok(load_model(in_run("same"), &model));
    assert_int_equal(model.wrong, 0);
    for (int i = 0; i < 3; i++) {
        ok(tri_checkpoint_export(in_run("checkpoints/last"), TRI_EXPORT_ALL, in_run("other"),
                                 dtypes[i], NULL, NULL));
        tri_safetensors *file;
        ok(tri_safetensors_open(in_run("other"), &file));
        assert_string_equal(tri_dtype_name(tri_safetensors_find(file, "conv1.weight")->dtype),
                            dtypes[i]);
        assert_int_equal(tri_safetensors_find(file, "bn1.num_batches_tracked")->dtype, TRI_I64);
        tri_safetensors_close(file);
        ok(load_model(in_run("other"), &model)); // converts to F32
        assert_int_equal(model.seen[0], 9 * 33);
        assert_true(i == 2 ? model.wrong == 0 : model.wrong > 0); // half types round the values
    }
    expect(tri_checkpoint_export(run_dir, TRI_EXPORT_ALL, in_run("x"), "I8", NULL, NULL),
           TRI_BAD_INPUT, "'I8' is not a type");
    assert_int_not_equal(access(in_run("x"), F_OK), 0);
}

static void test_shards(void **state) {
    fixture_state one = fixture_model(1, 9), two = one, model;
    one.count = 2;
    memmove(two.tensors, two.tensors + 2, 4 * sizeof *two.tensors);
    two.count = 4;
    tri_state_source source = fixture_source(&one);
    ok(tri_checkpoint_write_weights(in_run("model-00001-of-00002.safetensors"), &source));
    source = fixture_source(&two);
    ok(tri_checkpoint_write_weights(in_run("model-00002-of-00002.safetensors"), &source));
#define INDEX(third, extra)                                                                        \
    "{\"metadata\":{\"total_size\":1},\"weight_map\":{"                                            \
    "\"fc1.weight\":\"model-00001-of-00002.safetensors\","                                         \
    "\"conv1.weight\":\"model-00001-of-00002.safetensors\","                                       \
    "\"conv1.bias\":\"" third "\"" extra "}}"
    const char *index = in_run("model.safetensors.index.json");
    put_text(index, INDEX("model-00002-of-00002.safetensors", ""));
    for (int i = 0; i < 2; i++) {
        ok(load_model(i ? run_dir : in_run("model.safetensors.index.json"), &model));
        assert_int_equal(model.seen[0] + model.seen[1] + model.seen[2], 9 * 33 + 45 + 5);
    }
    index = in_run("model.safetensors.index.json");
    ok(tri_checkpoint_write_weights(in_run("model.safetensors"), &source));
    expect(load_model(run_dir, &model), TRI_BAD_INPUT, "two sets of weights");
    assert_int_equal(unlink(in_run("model.safetensors")), 0);
    put_text(index, INDEX("model-00001-of-00002.safetensors", ""));
    expect(load_model(run_dir, &model), TRI_CORRUPT, "'conv1.bias' is not in model-00001");
    put_text(index, INDEX("../secret", ""));
    expect(load_model(run_dir, &model), TRI_CORRUPT, "'../secret'");
    put_text(index, INDEX("model-00003-of-00002.safetensors", ""));
    expect(load_model(run_dir, &model), TRI_NOT_FOUND, "model-00003");
    put_text(index, "{\"weight_map\":[]}");
    expect(load_model(run_dir, &model), TRI_CORRUPT, "no 'weight_map'");
    put_text(index, "{\"weight_map\":");
    expect(load_model(run_dir, &model), TRI_BAD_INPUT, "not valid JSON");
}

// The output of a command.
typedef struct printed {
    FILE *file;
    char *text;
    size_t size;
} printed;

static FILE *begin(printed *p) {
    *p = (printed){0};
    p->file = open_memstream(&p->text, &p->size);
    return p->file;
}

static void has(printed *p, int lines, const char *first, const char *second) {
    fclose(p->file);
    int count = 0;
    for (const char *at = p->text; (at = strchr(at, '\n')); at++) count++;
    if (count != lines || !strstr(p->text, first) || !strstr(p->text, second))
        fail_msg("%d lines, not %d with '%s' and '%s': %s", count, lines, first, second, p->text);
    free(p->text);
}

static void flip_last(const char *path) {
    char *data;
    size_t size;
    ok(tri_os_read_file(path, 1 << 24, &data, &size));
    data[size - 1] ^= 1;
    ok(tri_os_replace_file(path, data, size));
    free(data);
}

static void test_list_and_verify(void **state) {
    printed p;
    expect(tri_checkpoint_list(run_dir, false, begin(&p)), TRI_NOT_FOUND, "no checkpoint in it");
    has(&p, 0, "", "");
    for (int i = 1; i <= 2; i++) {
        tri_checkpoint_monitor monitor = {.name = "val_loss", .is_known = true, .value = 0.25 * i};
        ok(fixture_do_save(
            run_dir,
            (fixture_save){.step = 10 * i, .width = 9, .monitor = monitor, .save_top_k = 1}));
    }
    ok(tri_checkpoint_list(run_dir, false, begin(&p)));
    has(&p, 3, "val_loss 0.25", "last");
    ok(tri_checkpoint_list(in_run("checkpoints/"), true, begin(&p)));
    has(&p, 2, "\"step\":10,", "\"epoch\":2,\"val_loss\":0.5,");
    ok(tri_checkpoint_verify(run_dir, false, begin(&p)));
    has(&p, 2, "step-00000010: ok (every hash", "step-00000020: ok");

    flip_last(in_run("checkpoints/step-00000020/optimizer.safetensors"));
    expect(tri_checkpoint_verify(run_dir, true, begin(&p)), TRI_CORRUPT, "'fc1.weight.exp_avg_sq'");
    has(&p, 2, "step-00000010\",\"ok\":true", "step-00000020\",\"ok\":false,\"why\":");
    ok(tri_checkpoint_verify(in_run("checkpoints/best"), false, begin(&p)));
    has(&p, 1, "step-00000010: ok", "");
    ok(tri_checkpoint_verify(in_run("checkpoints/step-00000010/model.safetensors"), false,
                             begin(&p)));
    has(&p, 1, "there are no hashes", " kB)");
    assert_int_equal(truncate(in_run("checkpoints/step-00000010/model.safetensors"), 200), 0);
    ok(tri_checkpoint_list(run_dir, true, begin(&p)));
    has(&p, 2, "\"why\":\"model.safetensors has another length\"", "\"whole\":false");
}

// Stands for a run that removes a checkpoint, or saves it again, while it is verified.
static bool saves_again, has_met;

static int open_meanwhile(const char *path, int flags, mode_t mode) {
    if (!has_met && strstr(path, "step-00000010/optimizer.safetensors")) {
        has_met = true;
        if (saves_again)
            ok(fixture_do_save(run_dir, (fixture_save){.step = 10, .width = 9, .seed = 7}));
        else
            assert_int_equal(rename(in_run("checkpoints/step-00000010"), in_run("gone")), 0);
    }
    return tri_os_system.open(path, flags, mode);
}

static void test_meanwhile(void **state) {
    for (int again = 1; again >= 0; again--) {
        printed p;
        ok(fixture_do_save(run_dir, (fixture_save){.step = 10, .width = 9, .save_top_k = -1}));
        ok(fixture_do_save(run_dir, (fixture_save){.step = 20, .width = 9, .save_top_k = -1}));
        saves_again = again;
        has_met = false;
        tri_os.open = open_meanwhile;
        ok(tri_checkpoint_verify(run_dir, false, begin(&p)));
        tri_os.open = tri_os_system.open;
        assert_true(has_met);
        has(&p, 2,
            again ? "step-00000010: ok (every hash" : "step-00000010: ok (nothing: the run re",
            "step-00000020: ok (every hash");
    }
}

// Stands for a run that removes the checkpoint which was scanned first, while the next one is.
static char scanned[PATH_MAX];

static int open_while_scanned(const char *path, int flags, mode_t mode) {
    const char *file = strstr(path, "/state.json");
    if (file && !has_met) {
        has_met = scanned[0];
        if (has_met) assert_int_equal(rename(scanned, in_run("gone")), 0);
        snprintf(scanned, sizeof scanned, "%.*s", (int)(file - path), path);
    }
    return tri_os_system.open(path, flags, mode);
}

static void test_removed_after_scan(void **state) {
    for (int verifies = 0; verifies <= 1; verifies++) {
        printed p;
        for (int step = 10; step <= 20; step += 10)
            ok(fixture_do_save(run_dir,
                               (fixture_save){.step = step, .width = 9, .save_top_k = -1}));
        has_met = false;
        scanned[0] = 0;
        tri_os.open = open_while_scanned;
        ok(verifies ? tri_checkpoint_verify(run_dir, false, begin(&p))
                    : tri_checkpoint_list(run_dir, false, begin(&p)));
        tri_os.open = tri_os_system.open;
        assert_true(has_met);
        has(&p, 2, verifies ? ": ok (nothing: the run re" : "monitor", "");
        ok(tri_os_remove_tree(in_run("gone")));
    }
}

static tri_status read_tied(void *context, int tensor, int64_t first, int64_t count, void *to) {
    return fixture_read(context, tensor == 6 ? 0 : tensor, first, count, to);
}

// Loads a file that has the model's fc1.weight under its own name, as head.weight, or as both.
static void test_alias(void **state) {
    for (int names = 0; names < 3; names++) {
        fixture_state file = fixture_model(1, 9), model = fixture_model(1, 9);
        const char *path = in_run("tied.safetensors");
        if (names == 0) file.tensors[0].name = "head.weight";
        if (names > 0) fixture_add(&file, "head.weight", TRI_F32, tri_shape_of(9, 33), false);
        tri_state_source source = fixture_source(&file);
        if (names == 1) source.read = read_tied;
        ok(tri_checkpoint_write_weights(path, &source));
        model.tensors[0].alias = "head.weight";
        tri_state_sink sink = fixture_sink(&model);
        tri_status status = tri_checkpoint_load_weights(path, NULL, &sink);
        if (names == 2) {
            expect(status, TRI_BAD_INPUT, "'fc1.weight' and 'head.weight' differ");
            continue;
        }
        ok(status);
        assert_true(model.wrong == 0 && model.seen[0] == 9 * 33);
    }
}

// A file of a model without its head, whose names lack the first part, and with masks of GPT-2's
// attention. A bias that is none of these is refused.
static void test_without_base(void **state) {
    for (int way = 0; way < 3; way++) {
        fixture_state file = fixture_model(1, 9), model = fixture_model(1, 9);
        const char *path = in_run("base.safetensors");
        fixture_add(&file, "h.0.attn.bias", TRI_F32, tri_shape_of(1, 1, 4, 4), false);
        fixture_add(&file, "h.0.attn.masked_bias", TRI_F32, (tri_shape){0}, false);
        if (way == 1) fixture_add(&file, "head.weight", TRI_F32, tri_shape_of(9, 33), false);
        if (way == 2) fixture_add(&file, "h.1.attn.bias", TRI_F32, tri_shape_of(4), false);
        tri_state_source source = fixture_source(&file);
        ok(tri_checkpoint_write_weights(path, &source));
        model.tensors[0].name = "transformer.fc1.weight";
        model.tensors[0].alias = "head.weight";
        tri_state_sink sink = fixture_sink(&model);
        tri_status status = tri_checkpoint_load_weights(path, NULL, &sink);
        if (way > 0) {
            expect(status, TRI_BAD_INPUT,
                   way == 1 ? "'fc1.weight' and 'head.weight' differ"
                            : "no tensor 'h.1.attn.bias'");
            continue;
        }
        ok(status);
        assert_true(model.wrong == 0 && model.seen[0] == 9 * 33);
    }
}

// Copies a file of the checkpoint `best`, with some text behind it.
static void copy_to_last(const char *name, const char *end) {
    char *data, path[128];
    size_t size;
    snprintf(path, sizeof path, "checkpoints/best/%s", name);
    ok(tri_os_read_file(in_run(path), 1 << 20, &data, &size));
    data = realloc(data, size + strlen(end) + 1);
    assert_non_null(data);
    memcpy(data + size, end, strlen(end));
    snprintf(path, sizeof path, "checkpoints/last/%s", name);
    ok(tri_os_replace_file(in_run(path), data, size + strlen(end)));
    free(data);
}

// A folder in place of a link: a copy that a program made is replaced, another one stays.
static void test_copied_links(void **state) {
    tri_checkpoint_monitor monitor = {.name = "val_loss", .is_known = true, .value = 0.25};
    fixture_save save = {.step = 1, .width = 9, .monitor = monitor, .save_top_k = 1};
    for (int own = 0; own <= 1; own++) {
        ok(fixture_do_save(run_dir, save));
        assert_int_equal(unlink(in_run("checkpoints/last")), 0);
        assert_int_equal(mkdir(in_run("checkpoints/last"), 0700), 0);
        static const char *const files[] = {"model.safetensors", "optimizer.safetensors",
                                            "state.json"};
        for (int i = 0; i < 3; i++) copy_to_last(files[i], own && i == 2 ? "\n" : "");
        save.step++;
        ok(fixture_do_save(run_dir, save));
        struct stat info;
        assert_int_equal(lstat(in_run("checkpoints/last"), &info), 0);
        assert_int_equal(S_ISLNK(info.st_mode), !own);
    }
}

// Where a user's folder lies in place of a link, old checkpoints are still removed, and the best
// one is named by its own folder. A link that could not be set leads to a checkpoint that stays.
static void test_folder_for_link(void **state) {
    tri_checkpoint_monitor monitor = {.name = "val_loss", .is_known = true};
    tri_best_checkpoint best;
    struct stat info;
    ok(tri_os_make_folders(in_run("checkpoints/best")));
    for (int step = 1; step <= 5; step++) {
        monitor.value = step == 2 ? 0.25 : 0.5;
        ok(fixture_do_save(
            run_dir,
            (fixture_save){.step = step, .width = 9, .monitor = monitor, .save_top_k = 1}));
    }
    for (int step = 1; step <= 5; step++) {
        char name[64];
        snprintf(name, sizeof name, "checkpoints/step-%08d", step);
        assert_int_equal(lstat(in_run(name), &info) == 0, step != 1 && step != 3);
    }
    assert_true(tri_checkpoint_find_best(run_dir, &monitor, &best));
    assert_int_equal(best.step, 2);
    assert_string_equal(best.name, "step-00000002");
    assert_int_equal(rmdir(in_run("checkpoints/best")), 0);
    monitor.value = 0.125;
    ok(tri_checkpoint_amend(run_dir, 5, NULL, &monitor, 1));
    assert_true(tri_checkpoint_find_best(run_dir, &monitor, &best));
    assert_true(best.step == 5 && !strcmp(best.name, "best"));
    assert_int_equal(unlink(in_run("checkpoints/best")), 0);
    assert_int_equal(mkdir(in_run("checkpoints/best"), 0700), 0);
    ok(tri_checkpoint_amend(run_dir, 5, NULL, &monitor, 1)); // the evaluation is there
}

static void test_diff(void **state) {
    printed p;
    bool differ;
    ok(fixture_do_save(run_dir, (fixture_save){.step = 1, .width = 9, .save_top_k = -1}));
    ok(fixture_do_save(run_dir,
                       (fixture_save){.step = 2, .width = 9, .seed = 1, .save_top_k = -1}));
    ok(fixture_do_save(run_dir, (fixture_save){.step = 3, .width = 8, .save_top_k = -1}));
    const char *one = in_run("checkpoints/step-00000001"),
               *two = in_run("checkpoints/step-00000002");
    ok(tri_checkpoint_diff(one, two, false, begin(&p), &differ));
    assert_false(differ);
    has(&p, 1, "9 tensors equal, 0 differ", "");
    ok(tri_checkpoint_diff(one, in_run("checkpoints/step-00000003"), true, begin(&p), &differ));
    assert_true(differ);
    has(&p, 9, "\"a\":\"F32 [9, 33]\",\"b\":\"F32 [8, 33]\"", "\"optimizer: fc1.weight.exp_avg\"");

    float a[] = {3, 4, 0}, b[] = {3, 4, 0.5f};
    tri_safetensors_spec specs[] = {{"w", TRI_F32, tri_shape_of(3)},
                                    {"x", TRI_F32, tri_shape_of(3)}};
    const void *left[] = {a, a}, *right[] = {b};
    ok(tri_safetensors_write(in_run("a"), specs, left, 2, NULL, 0));
    ok(tri_safetensors_write(in_run("b"), specs, right, 1, NULL, 0));
    ok(tri_checkpoint_diff(in_run("a"), in_run("b"), true, begin(&p), &differ));
    assert_true(differ);
    has(&p, 2, "{\"name\":\"w\",\"equal\":false,\"max_abs\":0.5,\"relative_l2\":0.1}",
        "\"name\":\"x\",\"equal\":false,\"only_in\":");
    b[2] = NAN;
    ok(tri_safetensors_write(in_run("b"), specs, right, 1, NULL, 0));
    ok(tri_checkpoint_diff(in_run("b"), in_run("a"), false, begin(&p), &differ));
    has(&p, 3, "w: max abs nan", "0 tensors equal, 2 differ");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(halves),
        TEST(bf16_floats),
        TEST(counts_overflows),
        TEST(init),
        TEST(export),
        TEST(shards),
        TEST(list_and_verify),
        TEST(meanwhile),
        TEST(removed_after_scan),
        TEST(alias),
        TEST(without_base),
        TEST(copied_links),
        TEST(folder_for_link),
        TEST(diff),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
