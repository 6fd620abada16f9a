// Tests mixup and cutmix: what is drawn for a step, that samples are mixed with their partners by
// it, and that neither ranks, micro-batches nor threads change the result.
#include "data/loader.h"
#include "data/mix.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/dataset_cases.h"

enum { SAMPLES = 23, GLOBAL = 9, CLASSES = 5, PIXELS = 3 * 8 * 6 };

#define MIXUP "transform: [mixup: {alpha: 1, classes: 5}]"

static const char DATA[] = "name: synthetic, shape: [3, 8, 6], samples: 23, classes: 5";

// Own weights follow Beta(alpha, alpha): mean 1/2, variance 1 / (8 alpha + 4).
static void test_weights(void **state) {
    static const double alphas[] = {0.2, 1, 8};
    enum { DRAWS = 20000 };
    tri_shape shape = tri_shape_of(3, 8, 6);
    for (int a = 0; a < 3; a++) {
        tri_mix_options options = {.mixup = alphas[a], .probability = 1};
        double sum = 0, squares = 0, wanted = 1 / (8 * alphas[a] + 4);
        for (int i = 0; i < DRAWS; i++) {
            tri_mix_draw draw;
            assert_true(tri_mix_of_step(&options, 7, i / 100, i % 100, &shape, &draw));
            assert_true(draw.own >= 0 && draw.own <= 1 && !draw.is_cut);
            sum += draw.own;
            squares += (draw.own - 0.5) * (draw.own - 0.5);
        }
        assert_true(fabs(sum / DRAWS - 0.5) < 0.01);
        assert_true(fabs(squares / DRAWS / wanted - 1) < 0.03);
    }
}

// A rectangle has the area that the weight says, and lies evenly over the image, whose edges cut
// off a part of it.
static void test_rectangles(void **state) {
    enum { DRAWS = 4000, HEIGHT = 40, WIDTH = 60 };
    tri_shape shape = tri_shape_of(3, HEIGHT, WIDTH);
    tri_mix_options options = {.mixup = 0.3, .cutmix = 1, .probability = 0.6};
    int mixed = 0, cut = 0;
    double x = 0, y = 0, n = 0;
    for (int i = 0; i < DRAWS; i++) {
        tri_mix_draw draw;
        if (!tri_mix_of_step(&options, 3, 0, i, &shape, &draw)) continue;
        mixed++;
        if (!draw.is_cut) continue;
        int64_t height = draw.bottom - draw.top, width = draw.right - draw.left;
        assert_true(draw.top >= 0 && height >= 0 && draw.bottom <= HEIGHT);
        assert_true(draw.left >= 0 && width >= 0 && draw.right <= WIDTH);
        assert_true(fabs(draw.own - 1 + (double)(height * width) / (HEIGHT * WIDTH)) < 1e-12);
        cut++;
        if (height * width == 0) continue;
        y += (double)(draw.top + draw.bottom) / 2 / HEIGHT;
        x += (double)(draw.left + draw.right) / 2 / WIDTH;
        n++;
    }
    assert_true(fabs((double)mixed / DRAWS - 0.6) < 0.03);
    assert_true(fabs((double)cut / mixed - 0.5) < 0.04);
    assert_true(fabs(x / n - 0.5) < 0.02 && fabs(y / n - 0.5) < 0.02);
}

// What one step gives: images and labels by position.
typedef struct step_data {
    int64_t size;
    float images[GLOBAL][PIXELS], labels[GLOBAL][CLASSES];
} step_data;

static tri_sampler sampler_of(int64_t micro, int64_t replicas) {
    tri_sampler sampler;
    tri_sampler_options options = {
        .samples = SAMPLES, .global = GLOBAL, .micro = micro, .replicas = replicas, .seed = 1};
    assert_int_equal(tri_sampler_make(&options, &sampler), TRI_OK);
    return sampler;
}

// Loads all steps of epoch 2 as so many replicas do.
static void load(const tri_dataset *dataset, int64_t micro, int64_t replicas, int64_t workers,
                 bool as_stored, step_data *steps) {
    tri_sampler sampler = sampler_of(micro, replicas);
    for (int64_t replica = 0; replica < replicas; replica++) {
        tri_loader *loader;
        tri_loader_options options = {.replica = replica,
                                      .workers = workers,
                                      .epoch = 2,
                                      .end_epoch = 3,
                                      .as_stored = as_stored};
        assert_int_equal(tri_loader_create(dataset, &sampler, &options, &loader), TRI_OK);
        for (;;) {
            const tri_data_batch *batch;
            assert_int_equal(tri_loader_next(loader, &batch), TRI_OK);
            if (!batch) break;
            step_data *step = &steps[batch->step];
            const float *images = batch->fields[0], *labels = batch->fields[1];
            for (int64_t i = 0; i < batch->micro.size; i++) {
                memcpy(step->images[batch->micro.first + i], images + i * PIXELS,
                       sizeof *step->images);
                memcpy(step->labels[batch->micro.first + i], labels + i * CLASSES,
                       sizeof *step->labels);
                step->size++;
            }
            tri_loader_release(loader, batch);
        }
        tri_loader_destroy(loader);
    }
}

// Reads sample `position` of a step as it is without being mixed.
static void read_plain(const tri_dataset *dataset, int64_t step, int64_t position, float *image,
                       float *label) {
    tri_sampler sampler = sampler_of(0, 1);
    tri_permutation order = tri_sampler_order(&sampler, 2);
    tri_reader *reader;
    assert_int_equal(tri_reader_create(dataset, &reader), TRI_OK);
    assert_int_equal(tri_reader_read(reader, tri_sampler_at(&sampler, &order, step, position), 2,
                                     (void *[]){image, label}),
                     TRI_OK);
    tri_reader_destroy(reader);
}

static bool is_cut_out(const tri_mix_draw *draw, int64_t pixel) {
    int64_t row = pixel / 6 % 8, column = pixel % 6;
    return row >= draw->top && row < draw->bottom && column >= draw->left && column < draw->right;
}

// Each sample is mixed with the one before it in the step, the first with the last.
static void check_mixed(const tri_dataset *dataset, const tri_mix_options *options,
                        const step_data *steps) {
    tri_shape shape = tri_shape_of(3, 8, 6);
    for (int64_t s = 0; s < 3; s++) {
        tri_mix_draw draw;
        int64_t size = s == 2 ? SAMPLES - 2 * GLOBAL : GLOBAL;
        assert_int_equal(steps[s].size, size);
        assert_true(tri_mix_of_step(options, 1, 2, s, &shape, &draw));
        float own = (float)draw.own, rest = (float)(1 - draw.own);
        for (int64_t p = 0; p < size; p++) {
            float image[PIXELS], label[CLASSES], image2[PIXELS], label2[CLASSES], sum = 0;
            read_plain(dataset, s, p, image, label);
            read_plain(dataset, s, (p + size - 1) % size, image2, label2);
            for (int i = 0; i < PIXELS; i++) {
                float mixed = image2[i] * rest + image[i] * own;
                if (draw.is_cut) mixed = is_cut_out(&draw, i) ? image2[i] : image[i];
                assert_true(steps[s].images[p][i] == mixed);
            }
            for (int k = 0; k < CLASSES; k++) {
                assert_true(steps[s].labels[p][k] == label2[k] * rest + label[k] * own);
                sum += steps[s].labels[p][k];
            }
            assert_true(fabsf(sum - 1) < 1e-6f);
        }
    }
}

static void test_divisions(void **state) {
    static const struct {
        int64_t micro, replicas, workers;
    } rows[] = {{0, 2, 0}, {0, 4, 2}, {1, 3, 1}, {2, 2, 3}, {4, 1, 0}, {9, 1, 2}};
    static const char *const mixes[] = {"{mixup: {alpha: 0.4, classes: 5}}",
                                        "{cutmix: {alpha: 1, classes: 5}}",
                                        "{mixup: {alpha: 0.4, classes: 5}}, cutmix"};
    step_data *alone = malloc(3 * sizeof *alone), *others = malloc(3 * sizeof *others);
    for (size_t m = 0; m < sizeof mixes / sizeof *mixes; m++) {
        tri_data_options options =
            fixture_options(tri_arena_printf(fixture_arena, "%s, transform: [%s]", DATA, mixes[m]));
        tri_dataset *dataset = opened(&options, TRI_DATA_TRAIN);
        assert_string_equal(tri_dataset_field(dataset, 1)->name, "soft_labels");
        memset(alone, 0, 3 * sizeof *alone);
        load(dataset, 0, 1, 0, false, alone);
        check_mixed(dataset, tri_dataset_mix(dataset), alone);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            memset(others, 0, 3 * sizeof *others);
            load(dataset, rows[i].micro, rows[i].replicas, rows[i].workers, false, others);
            assert_memory_equal(alone, others, 3 * sizeof *alone);
        }
        tri_dataset_close(dataset);
    }
    free(alone);
    free(others);
}

// An evaluation on the training samples, as with trainer.overfit_batches, does not mix them.
static void test_as_stored(void **state) {
    tri_data_options options = fixture_options(tri_arena_printf(fixture_arena, "%s, " MIXUP, DATA));
    tri_dataset *dataset = opened(&options, TRI_DATA_TRAIN);
    step_data *steps = calloc(3, sizeof *steps);
    float image[PIXELS], label[CLASSES];
    load(dataset, 2, 2, 1, true, steps);
    for (int64_t p = 0; p < GLOBAL; p++) {
        read_plain(dataset, 1, p, image, label);
        assert_memory_equal(steps[1].images[p], image, sizeof image);
        assert_memory_equal(steps[1].labels[p], label, sizeof label);
    }
    free(steps);
    tri_dataset_close(dataset);
}

// Labels of -100 become rows of zeros, which mix with nothing.
static void test_left_out(void **state) {
    tri_data_options options = fixture_options(tri_arena_printf(fixture_arena, "%s, " MIXUP, DATA));
    tri_dataset *dataset = opened(&options, TRI_DATA_TRAIN);
    tri_mix_draw draw = {.own = 0.25};
    float image[PIXELS] = {1}, other[PIXELS] = {3}, labels[CLASSES] = {0, 1}, none[CLASSES] = {0};
    tri_mix_sample(dataset, &draw, (void *[]){image, labels}, (void *[]){other, none});
    assert_true(image[0] == 1 && labels[1] == 1);
    tri_mix_sample(dataset, &draw, (void *[]){other, none}, (void *[]){image, labels});
    assert_true(other[0] == 3 && none[1] == 0);
    none[3] = 1;
    tri_mix_sample(dataset, &draw, (void *[]){image, labels}, (void *[]){other, none});
    assert_true(image[0] == 2.5f && labels[1] == 0.25f && labels[3] == 0.75f);
    tri_dataset_close(dataset);
}

static void test_refuses(void **state) {
    static const struct {
        const char *yaml, *parts;
    } rows[] = {
        {"name: synthetic, shape: [3, 8, 6], samples: 9, classes: 5, transform: [mixup]",
         "data.transform|classes"},
        {"name: synthetic, shape: [3, 8, 6], samples: 99, classes: 5, transform: [mixup: {classes: "
         "4}]",
         "data.transform|classes: 4|4"},
        {"name: synthetic, shape: [3, 8, 6], samples: 9, transform: [cutmix: {classes: 4}]",
         "data.transform|cutmix"},
        {"name: synthetic, vocabulary: 9, samples: 9, transform: [cutmix: {classes: 4}]",
         "data.transform|cutmix"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refuse(rows[i].yaml, TRI_DATA_TRAIN, TRI_BAD_INPUT, rows[i].parts);
    tri_data_options options;
    static const struct {
        const char *list, *parts;
    } lists[] = {
        {"{mixup: -1}", "mixup|alpha|-1"},
        {"mixup, mixup", "mixup"},
        {"mixup, {cutmix: {probability: 0.5}}", "probability"},
        {"{mixup: {classes: 4}}, {cutmix: {classes: 5}}", "classes"},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const char *yaml =
            tri_arena_printf(fixture_arena, "{name: synthetic, transform: [%s]}", lists[i].list);
        assert_int_equal(fixture_try_options(yaml, &options), TRI_BAD_INPUT);
        message_check(tri_error_message(), lists[i].parts);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights),   cmocka_unit_test(test_rectangles),
        cmocka_unit_test(test_divisions), cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_as_stored), cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
