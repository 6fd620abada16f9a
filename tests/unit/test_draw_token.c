// Which token follows a text, by its scores: the likeliest, or drawn with the probabilities that
// temperature, top-k, top-p and the penalty of repetitions leave.
#include "train/draw_token.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { COUNT = 4, DRAWS = 20000 };

static const train_draw_options greedy = {.top_p = 1, .repetition_penalty = 1};
static train_candidate room[COUNT];

static int64_t draw(const train_draw_options *o, const float *scores, int64_t number,
                    const int64_t *text, int64_t length) {
    return train_draw_token(o, scores, COUNT, number, text, length, room);
}

static void test_greedy(void **state) {
    const float scores[COUNT] = {-1, 2, 2, 0.5F}, negative[COUNT] = {-1, -2, -2.5F, -3},
                broken[COUNT] = {0, NAN, 0, 0},
                none[COUNT] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    const int64_t text[] = {1, 2, 1, 99};
    train_draw_options o = greedy;
    assert_int_equal(draw(&o, scores, 0, text, 4), 1);
    o.repetition_penalty = 3; // 2 becomes 2 / 3, also where the token stands twice
    assert_int_equal(draw(&o, scores, 0, text, 1), 2);
    assert_int_equal(draw(&o, scores, 0, text, 3), 1);
    o.repetition_penalty = 5; // 2 / 5 < 0.5
    assert_int_equal(draw(&o, scores, 0, text, 4), 3);
    assert_int_equal(draw(&o, negative, 0, (const int64_t[]){0}, 1), 1); // -1 becomes -5
    assert_int_equal(draw(&o, broken, 0, text, 0), -1);
    assert_int_equal(draw(&o, none, 0, text, 0), -1);
}

static void check(const train_draw_options *o, const double wanted[COUNT]) {
    const float scores[COUNT] = {0, 1, 2, 1.5F};
    int found[COUNT] = {0};
    for (int i = 0; i < DRAWS; i++) found[draw(o, scores, i % 7, NULL, i)]++;
    for (int i = 0; i < COUNT; i++)
        assert_true(fabs((double)found[i] / DRAWS - wanted[i]) <= (wanted[i] > 0 ? 0.02 : 0));
    for (int i = 0; i < 100; i++)
        assert_int_equal(draw(o, scores, 3, NULL, i), draw(o, scores, 3, NULL, i));
}

static void test_draws(void **state) {
    train_draw_options o = greedy;
    double e[COUNT] = {1, exp(0.5), exp(1), exp(0.75)}, all = e[0] + e[1] + e[2] + e[3];
    o.temperature = 2;
    o.seed = 5;
    check(&o, (double[]){e[0] / all, e[1] / all, e[2] / all, e[3] / all});
    o.top_k = 2;
    check(&o, (double[]){0, 0, e[2] / (e[2] + e[3]), e[3] / (e[2] + e[3])});
    o.top_k = 0;
    o.top_p = 0.6; // 0.37 + 0.28 of the likeliest
    check(&o, (double[]){0, 0, e[2] / (e[2] + e[3]), e[3] / (e[2] + e[3])});
    o.top_p = 1e-9;
    check(&o, (double[]){0, 0, 1, 0});
    // Of equal tokens at the border of the K likeliest all may be drawn.
    const float alike[COUNT] = {0, 1, 1, 1};
    int found[COUNT] = {0};
    o.top_p = 1;
    o.top_k = 2;
    for (int i = 0; i < DRAWS; i++) found[draw(&o, alike, 0, NULL, i)]++;
    assert_true(found[0] == 0 && found[1] > 6000 && found[2] > 6000 && found[3] > 6000);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_greedy), cmocka_unit_test(test_draws)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
