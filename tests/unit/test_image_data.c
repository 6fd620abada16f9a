// Tests the data sets of image files, and what happens to damaged samples.
#include "base/os.h"
#include "data/check.h"
#include "data/dataset.h"
#include "data/sheet.h"
#include "format/image/image.h"
#include "format/safetensors.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/dataset_cases.h"

// Writes a grey image of width x height pixels, all of them `value`, into a folder.
static void put_grey(const char *name, int width, int height, int value) {
    char bytes[512];
    int header = snprintf(bytes, sizeof bytes, "P5 %d %d 255\n", width, height);
    assert_true(header + width * height <= (int)sizeof bytes);
    memset(bytes + header, value, (size_t)(width * height));
    fixture_put(name, bytes, (size_t)(header + width * height));
}

static void make_folder(const char *name) { assert_int_equal(mkdir(fixture_path(name), 0777), 0); }

static int setup(void **state) {
    static const char *const folders[] = {"train", "train/a-b", "train/a", "train/a/z", "train/c",
                                          "test",  "test/c",    "test/a",  "empty",     "empty/a"};
    if (fixture_setup(state)) return 1;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) make_folder(folders[i]);
    put_grey("train/a/2.pgm", 4, 3, 2);
    put_grey("train/a/10.PGM", 5, 9, 1);
    put_grey("train/a/z/0.pgm", 6, 6, 3);
    put_grey("train/a-b/x.pgm", 3, 3, 4);
    put_grey("train/c/x.pgm", 3, 4, 5);
    put_grey("test/c/x.pgm", 3, 4, 6);
    put_grey("test/a/x.pgm", 8, 4, 7);
    fixture_put("train/a/notes.txt", "no image", 8);
    fixture_put("train/list.txt", "no class", 8);
    return 0;
}

static const char RESIZED[] = "name: imagefolder, train: train, test: test, "
                              "transform: [resize: [2, 2]]";

// Samples in torchvision's order: by class (also where folders in one sort behind another one),
// folder, name.
static void test_folder(void **state) {
    static const struct { int value, label; } wanted[] = {{1, 0}, {2, 0}, {3, 0}, {4, 1}, {5, 2}};
    tri_data_options options = fixture_options(RESIZED);
    tri_dataset *train = opened(&options, TRI_DATA_TRAIN), *test = opened(&options, TRI_DATA_TEST);
    assert_int_equal(tri_dataset_samples(train), 5);
    assert_int_equal(tri_dataset_classes(train, "labels"), 3);
    for (int i = 0; i < 5; i++) {
        float pixels[12];
        int64_t label;
        assert_int_equal(fixture_read(train, 0, i, 0, pixels), TRI_OK);
        assert_int_equal(fixture_read(train, 1, i, 0, &label), TRI_OK);
        assert_int_equal(label, wanted[i].label);
        for (int k = 0; k < 12; k++) assert_true(pixels[k] == (float)wanted[i].value / 255.0f);
    }
    // The test data lack class a-b, but c keeps the number that it has in training.
    int64_t label;
    assert_int_equal(tri_dataset_samples(test), 2);
    assert_int_equal(tri_dataset_classes(test, "labels"), 3);
    assert_int_equal(fixture_read(test, 1, 1, 0, &label), TRI_OK);
    assert_int_equal(label, 2);
    tri_dataset_close(train);
    tri_dataset_close(test);
}

// Runs that lie among the classes, in a folder of their own or not, are no classes. A class that
// has a run in it beside images is one.
static void test_runs_among_classes(void **state) {
    static const char *const runs[] = {"train/runs/one", "train/runs/more/two", "train/a/runs/one",
                                       "train/fresh"};
    make_folder("train/runs");
    make_folder("train/runs/more");
    make_folder("train/a/runs");
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        make_folder(runs[i]);
        make_folder(tri_arena_printf(fixture_arena, "%s/checkpoints", runs[i]));
        fixture_put(tri_arena_printf(fixture_arena, "%s/recipe.yaml", runs[i]), "name: x", 7);
    }
    test_folder(state);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        assert_int_equal(tri_os_remove_tree(fixture_path(runs[i])), TRI_OK);
    assert_int_equal(tri_os_remove_tree(fixture_path("train/runs")), TRI_OK);
    assert_int_equal(tri_os_remove_tree(fixture_path("train/a/runs")), TRI_OK);
}

static void test_folder_refuses(void **state) {
    refuse("name: imagefolder, train: nowhere", TRI_DATA_TRAIN, TRI_NOT_FOUND, "nowhere");
    refuse("name: imagefolder, train: empty", TRI_DATA_TRAIN, TRI_BAD_INPUT,
           "empty/a: has no images");
    refuse("name: imagefolder, train: train/a/z", TRI_DATA_TRAIN, TRI_BAD_INPUT, "has no folders");
    refuse("name: imagefolder, train: train", TRI_DATA_TRAIN, TRI_BAD_INPUT, "may differ in size");
    refuse("name: imagefolder, train: train", TRI_DATA_TRAIN, TRI_BAD_INPUT, "resize: [H, W]");
    refuse("name: imagefolder, train: train, transform: [resize: 2]", TRI_DATA_TRAIN, TRI_BAD_INPUT,
           "differ in size");
    refuse("name: imagefolder, train: train, transform: [center_crop: [1, 2, 3]]", TRI_DATA_TRAIN,
           TRI_BAD_INPUT, "center_crop: size has 3 numbers");
    refuse("name: imagefolder, train: train", TRI_DATA_TEST, TRI_NOT_FOUND, "data.test");
    refuse("name: imagefolder, train: nowhere, test: test, transform: [resize: [2, 2]]",
           TRI_DATA_TEST, TRI_NOT_FOUND, "nowhere");
    make_folder("test/d");
    put_grey("test/d/x.pgm", 3, 3, 0);
    refuse(RESIZED, TRI_DATA_TEST, TRI_BAD_INPUT, "test/d");
    assert_int_equal(tri_os_remove_tree(fixture_path("test/d")), TRI_OK);
}

// A truncated file ends a run; with on_error: skip its sample has no label, and is counted.
static void test_damaged(void **state) {
    float pixels[12];
    int64_t label;
    assert_int_equal(truncate(fixture_path("train/a-b/x.pgm"), 15), 0);
    tri_data_options options = fixture_options(RESIZED);
    tri_dataset *dataset = opened(&options, TRI_DATA_TRAIN);
    assert_false(tri_dataset_has_ignored(dataset, "labels"));
    assert_int_equal(fixture_read(dataset, 0, 3, 0, pixels), TRI_CORRUPT);
    assert_non_null(strstr(tri_error_message(), "train/a-b/x.pgm"));
    assert_int_equal(fixture_read(dataset, 0, 4, 0, pixels), TRI_OK);
    tri_dataset_close(dataset);
    options = fixture_options(tri_arena_printf(fixture_arena, "%s, on_error: skip", RESIZED));
    dataset = opened(&options, TRI_DATA_TRAIN);
    assert_true(tri_dataset_has_ignored(dataset, "labels"));
    assert_int_equal(fixture_read(dataset, 1, 3, 0, &label), TRI_OK);
    assert_int_equal(label, TRI_IGNORED_LABEL);
    assert_int_equal(tri_dataset_left_out(dataset), 1);
    assert_int_equal(fixture_read(dataset, 0, 3, 0, pixels), TRI_OK);
    for (int k = 0; k < 12; k++) assert_true(pixels[k] == 0);
    assert_int_equal(fixture_read(dataset, 1, 4, 0, &label), TRI_OK);
    assert_int_equal(label, 2);
    assert_int_equal(tri_dataset_left_out(dataset), 1); // once, however often it is read
    tri_dataset_close(dataset);
    put_grey("train/a-b/x.pgm", 3, 3, 4);
}

enum { RECORD = 3073, RECORD_100 = 3074 };

// Records of CIFAR-10: pixel p of record i is (i + p) mod 251, its class is i mod 10.
static void put_cifar(const char *name, int first, int count) {
    uint8_t *bytes = malloc((size_t)count * RECORD);
    for (int i = 0; i < count; i++)
        for (int p = 0; p < RECORD; p++)
            bytes[i * RECORD + p] = (uint8_t)(p ? (first + i + p - 1) % 251 : (first + i) % 10);
    fixture_put(name, bytes, (size_t)count * RECORD);
    free(bytes);
}

static void test_cifar(void **state) {
    static float pixels[3072];
    int64_t label;
    put_cifar("data_batch_1.bin", 0, 7);
    put_cifar("data_batch_2.bin", 7, 4);
    put_cifar("test_batch.bin", 50, 3);
    tri_data_options options = fixture_options("name: cifar10");
    tri_dataset *train = opened(&options, TRI_DATA_TRAIN), *test = opened(&options, TRI_DATA_TEST);
    assert_int_equal(tri_dataset_samples(train), 11);
    assert_int_equal(tri_dataset_samples(test), 3);
    assert_int_equal(tri_dataset_classes(test, "labels"), 10);
    for (int i = 0; i < 11; i++) {
        assert_int_equal(fixture_read(train, 0, i, 0, pixels), TRI_OK);
        assert_int_equal(fixture_read(train, 1, i, 0, &label), TRI_OK);
        assert_int_equal(label, i % 10);
        for (int p = 0; p < 3072; p++) assert_true(pixels[p] == (float)((i + p) % 251) / 255.0f);
    }
    tri_dataset_close(train);
    tri_dataset_close(test);
    put_cifar("data_batch_4.bin", 0, 1);
    refuse("name: cifar10", TRI_DATA_TRAIN, TRI_NOT_FOUND, "data_batch_3.bin");
    refuse("name: cifar10, train: nowhere.bin", TRI_DATA_TRAIN, TRI_NOT_FOUND, "nowhere.bin");
    assert_int_equal(truncate(fixture_path("data_batch_1.bin"), 2 * RECORD - 1), 0);
    refuse("name: cifar10, train: data_batch_1.bin", TRI_DATA_TRAIN, TRI_CORRUPT,
           "data_batch_1.bin");
    refuse("name: cifar100", TRI_DATA_TRAIN, TRI_NOT_FOUND, "train.bin");
    uint8_t record[2 * RECORD_100] = {19, 99, 5, [RECORD_100] = 3, 100};
    fixture_put("train.bin", record, sizeof record);
    options = fixture_options("name: cifar100");
    train = opened(&options, TRI_DATA_TRAIN);
    assert_int_equal(fixture_read(train, 1, 0, 0, &label), TRI_OK);
    assert_int_equal(label, 99);
    assert_int_equal(fixture_read(train, 1, 1, 0, &label), TRI_CORRUPT); // there is no class 100
    tri_dataset_close(train);
}

static int64_t bytes_read;
static ssize_t (*os_pread)(int, void *, size_t, off_t);
static ssize_t (*os_read)(int, void *, size_t);

static ssize_t count_pread(int fd, void *out, size_t size, off_t at) {
    bytes_read += (int64_t)size;
    return os_pread(fd, out, size, at);
}

static ssize_t count_read(int fd, void *out, size_t size) {
    bytes_read += (int64_t)size;
    return os_read(fd, out, size);
}

// Of large images that are not compressed, each is read when it is needed.
static void test_large_idx(void **state) {
    enum { SIDE = 1000, COUNT = 70 };
    static const uint8_t head[] = {0, 0, 8, 3, 0, 0, 0, COUNT, 0, 0, 3, 232, 0, 0, 3, 232};
    static const uint8_t labels[8 + COUNT] = {0, 0, 8, 1, 0, 0, 0, COUNT, [77] = 3};
    fixture_put("train-images-idx3-ubyte", head, sizeof head);
    fixture_put("train-labels-idx1-ubyte", labels, sizeof labels);
    int fd = open(fixture_path("train-images-idx3-ubyte"), O_WRONLY);
    off_t end = sizeof head + (off_t)COUNT * SIDE * SIDE;
    assert_int_equal(pwrite(fd, "\377", 1, end - 1), 1);
    assert_int_equal(close(fd), 0);
    os_pread = tri_os.pread;
    os_read = tri_os.read;
    tri_os.pread = count_pread;
    tri_os.read = count_read;
    bytes_read = 0;
    tri_data_options options = fixture_options("name: idx");
    tri_dataset *train = opened(&options, TRI_DATA_TRAIN);
    float *pixels = malloc(sizeof(float) * SIDE * SIDE);
    int64_t label;
    assert_int_equal(fixture_read(train, 0, COUNT - 1, 0, pixels), TRI_OK);
    assert_int_equal(fixture_read(train, 1, COUNT - 1, 0, &label), TRI_OK);
    assert_true(pixels[SIDE * SIDE - 1] == 1 && pixels[0] == 0 && label == 3);
    tri_os.pread = os_pread;
    tri_os.read = os_read;
    assert_true(bytes_read < 4 * SIDE * SIDE);
    free(pixels);
    tri_dataset_close(train);
}

// Parts drawn at random have the right shape, differ between epochs and repeat; in evaluation the
// centre is cut out.
static void test_random_parts(void **state) {
    float a[12], b[12], c[12];
    tri_data_options options = fixture_options("name: cifar10, train: data_batch_2.bin, transform: "
                                               "[random_resized_crop: 2, random_vertical_flip]");
    put_cifar("data_batch_2.bin", 7, 4);
    put_cifar("test_batch.bin", 7, 4);
    tri_dataset *train = opened(&options, TRI_DATA_TRAIN), *test = opened(&options, TRI_DATA_TEST);
    tri_shape shape = tri_shape_of(3, 2, 2);
    assert_true(tri_shape_equal(&tri_dataset_field(train, 0)->shape, &shape));
    assert_true(tri_shape_equal(&tri_dataset_field(test, 0)->shape, &shape));
    int changed = 0;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(fixture_read(train, 0, i, 3, a), TRI_OK);
        assert_int_equal(fixture_read(train, 0, i, 4, b), TRI_OK);
        assert_int_equal(fixture_read(train, 0, i, 3, c), TRI_OK);
        assert_memory_equal(a, c, sizeof a);
        changed += memcmp(a, b, sizeof a) != 0;
        assert_int_equal(fixture_read(test, 0, i, 3, a), TRI_OK);
        assert_int_equal(fixture_read(test, 0, i, 4, b), TRI_OK);
        assert_memory_equal(a, b, sizeof a);
    }
    assert_true(changed >= 3);
    tri_dataset_close(train);
    tri_dataset_close(test);
}

// A sheet has the images as bytes, without the last normalisation, in rows of three. Of images that
// have no bytes it has the smallest value as black and the largest as white.
static void test_sheet(void **state) {
    static const char OPTIONS[] = "name: imagefolder, train: train, transform: [resize: [2, 2], "
                                  "normalize: {mean: [0.5, 0.5, 0.5], std: [0.1, 0.1, 0.1]}]";
    enum { SIDE = 64, GAP = 2, PLACES = 6, IMAGES = 5 };
    const uint8_t wanted[PLACES] = {1, 2, 3, 4, 5, 255};
    tri_data_options options = fixture_options(OPTIONS);
    const char *path = fixture_path("sheet.png");
    tri_data_sheet sheet;
    tri_image_decoder *decoder;
    tri_image image;
    char *bytes;
    size_t size;
    assert_int_equal(tri_data_sheet_write(&options, TRI_DATA_TRAIN, 1, 0, IMAGES, path, &sheet),
                     TRI_OK);
    assert_int_equal(sheet.columns, 3);
    assert_false(sheet.has_range);
    assert_int_equal(tri_os_read_file(path, 1 << 20, &bytes, &size), TRI_OK);
    assert_int_equal(tri_image_decoder_create(&decoder), TRI_OK);
    assert_int_equal(tri_image_decode(decoder, bytes, size, path, &image), TRI_OK);
    assert_int_equal(image.height, 2 * SIDE + 3 * GAP);
    assert_int_equal(image.width, 3 * SIDE + 4 * GAP);
    for (int64_t y = 0; y < image.height; y++)
        for (int64_t x = 0; x < image.width; x++) {
            bool is_gap = y % (SIDE + GAP) < GAP || x % (SIDE + GAP) < GAP;
            int64_t place = y / (SIDE + GAP) * 3 + x / (SIDE + GAP);
            uint8_t value = image.pixels[y * image.row_stride + x * image.column_stride];
            assert_int_equal(value, is_gap ? 255 : wanted[place]);
        }
    tri_image_decoder_destroy(decoder);
    free(bytes);
    assert_int_equal(tri_data_sheet_write(&options, TRI_DATA_TRAIN, 1, 1, IMAGES, path, &sheet),
                     TRI_BAD_INPUT);
    tri_data_options random = fixture_options("name: synthetic, shape: [1, 3, 5], classes: 2");
    assert_int_equal(tri_data_sheet_write(&random, TRI_DATA_TRAIN, 1, 0, 4, path, &sheet), TRI_OK);
    assert_true(sheet.has_range && sheet.black < sheet.white);
    assert_int_equal(
        tri_data_sheet_write(&random, TRI_DATA_TRAIN, 1, 0, TRI_MAX_SHEET_IMAGES + 1, path, &sheet),
        TRI_BAD_INPUT);
}

// Fields with a number for each pixel are cut and turned as the images are: an image, a mask and a
// field of the recipe that have the same numbers still have them after the transforms.
static void test_masks(void **state) {
    enum { SAMPLES = 6, HEIGHT = 6, WIDTH = 8, SIDE = 5 };
    uint8_t images[SAMPLES * HEIGHT * WIDTH];
    for (int i = 0; i < SAMPLES * HEIGHT * WIDTH; i++) images[i] = (uint8_t)(i % 251);
    tri_safetensors_spec specs[] = {{"images", TRI_U8, {4, {SAMPLES, 1, HEIGHT, WIDTH}}},
                                    {"masks", TRI_U8, {3, {SAMPLES, HEIGHT, WIDTH}}},
                                    {"depth", TRI_U8, {4, {SAMPLES, 1, HEIGHT, WIDTH}}}};
    assert_int_equal(tri_safetensors_write(fixture_path("masks.safetensors"), specs,
                                           (const void *const[]){images, images, images}, 3, NULL,
                                           0),
                     TRI_OK);
    tri_data_options options =
        fixture_options("name: tensors, train: masks.safetensors, extra_fields: {depth: {type: "
                        "f32, per: pixel}}, transform: [{random_crop: {size: 5, padding: 2}}, "
                        "random_horizontal_flip, {normalize: {mean: [0.5], std: [0.5]}}]");
    tri_dataset *dataset = opened(&options, TRI_DATA_TRAIN);
    const int at[] = {tri_dataset_find(dataset, "images"), tri_dataset_find(dataset, "masks"),
                      tri_dataset_find(dataset, "depth")};
    tri_shape shape = tri_shape_of(SIDE, SIDE);
    assert_true(tri_shape_equal(&tri_dataset_field(dataset, at[1])->shape, &shape));
    for (int i = 0; i < SAMPLES; i++) {
        float pixels[SIDE * SIDE], depth[SIDE * SIDE];
        int64_t masks[SIDE * SIDE];
        assert_int_equal(fixture_read(dataset, at[0], i, 2, pixels), TRI_OK);
        assert_int_equal(fixture_read(dataset, at[1], i, 2, masks), TRI_OK);
        assert_int_equal(fixture_read(dataset, at[2], i, 2, depth), TRI_OK);
        for (int k = 0; k < SIDE * SIDE; k++) {
            assert_true(pixels[k] == ((float)masks[k] / 255.0f - 0.5f) / 0.5f);
            assert_true(depth[k] == (float)masks[k]);
        }
    }
    tri_dataset_close(dataset);
    refuse("name: tensors, train: masks.safetensors, extra_fields: {depth: {type: f32, per: pixel}}"
           ", transform: [trivial_augment_wide]",
           TRI_DATA_TRAIN, TRI_BAD_INPUT, "'trivial_augment_wide'|'depth'");
}

// Transforms see whole images of random data, also where they make them smaller or larger.
static void test_synthetic(void **state) {
    float whole[64], part[16], wide[144];
    const char *const data = "name: synthetic, shape: [1, 8, 8], samples: 3, classes: 2";
    tri_data_options options = fixture_options(data);
    tri_dataset *dataset = opened(&options, TRI_DATA_TRAIN);
    assert_int_equal(fixture_read(dataset, 0, 2, 0, whole), TRI_OK);
    tri_dataset_close(dataset);
    options =
        fixture_options(tri_arena_printf(fixture_arena, "%s, transform: [center_crop: 4]", data));
    dataset = opened(&options, TRI_DATA_TRAIN);
    assert_int_equal(fixture_read(dataset, 0, 2, 0, part), TRI_OK);
    for (int i = 0; i < 16; i++) assert_true(part[i] == whole[(i / 4 + 2) * 8 + i % 4 + 2]);
    tri_dataset_close(dataset);
    options =
        fixture_options(tri_arena_printf(fixture_arena, "%s, transform: [center_crop: 12]", data));
    dataset = opened(&options, TRI_DATA_TRAIN);
    assert_int_equal(fixture_read(dataset, 0, 2, 0, wide), TRI_OK);
    for (int i = 0; i < 64; i++) assert_true(whole[i] == wide[(i / 8 + 2) * 12 + i % 8 + 2]);
    tri_dataset_close(dataset);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folder),         cmocka_unit_test(test_runs_among_classes),
        cmocka_unit_test(test_folder_refuses), cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_cifar),          cmocka_unit_test(test_large_idx),
        cmocka_unit_test(test_random_parts),   cmocka_unit_test(test_masks),
        cmocka_unit_test(test_synthetic),      cmocka_unit_test(test_sheet),
    };
    return cmocka_run_group_tests(tests, setup, fixture_teardown);
}
