// The loss scale, step by step, against DeepSpeed's DynamicLossScaler: its rule written with its
// own variables, and cases calculated by hand.
#include "engine/loss_scale.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define DEEPSPEED                                                                                  \
    { .initial = 65536, .window = 1000, .hysteresis = 2, .minimum = 1 }

typedef struct span {
    int steps;
    bool overflow;
    double scale; // after them
    int64_t hysteresis_left;
    tri_loss_scale_verdict verdict; // of the last one
} span;

typedef struct course {
    tri_loss_scale_options options;
    span spans[10];
} course;

static const course courses[] = {
    // The first overflow only uses up the hysteresis; each further one halves the scale.
    {DEEPSPEED,
     {{1, true, 65536, 1, TRI_LOSS_SCALE_SKIP},
      {1, true, 32768, 1, TRI_LOSS_SCALE_SKIP},
      {2, true, 8192, 1, TRI_LOSS_SCALE_SKIP}}},
    // Good steps restore the hysteresis only when they double the scale, in the step after the
    // window.
    {DEEPSPEED,
     {{1, true, 65536, 1, TRI_LOSS_SCALE_SKIP},
      {1000, false, 65536, 1, TRI_LOSS_SCALE_APPLY},
      {1, false, 131072, 2, TRI_LOSS_SCALE_APPLY},
      {999, false, 131072, 2, TRI_LOSS_SCALE_APPLY},
      {1, false, 262144, 2, TRI_LOSS_SCALE_APPLY}}},
    // An overflow starts the window again.
    {DEEPSPEED,
     {{900, false, 65536, 2, TRI_LOSS_SCALE_APPLY},
      {1, true, 65536, 1, TRI_LOSS_SCALE_SKIP},
      {1000, false, 65536, 1, TRI_LOSS_SCALE_APPLY},
      {1, false, 131072, 2, TRI_LOSS_SCALE_APPLY}}},
    {{.initial = 256, .window = 4, .hysteresis = 3, .consecutive_hysteresis = true, .minimum = 1},
     {{2, true, 256, 1, TRI_LOSS_SCALE_SKIP},
      {1, false, 256, 3, TRI_LOSS_SCALE_APPLY},
      {2, true, 256, 1, TRI_LOSS_SCALE_SKIP},
      {1, true, 128, 1, TRI_LOSS_SCALE_SKIP}}},
    // The scale falls to the minimum and no further.
    {{.initial = 8, .window = 10, .hysteresis = 1, .minimum = 3},
     {{1, true, 4, 1, TRI_LOSS_SCALE_SKIP},
      {1, true, 3, 1, TRI_LOSS_SCALE_SKIP},
      {1, true, 3, 1, TRI_LOSS_SCALE_EXHAUSTED}}},
    {{.initial = 8, .window = 2, .hysteresis = 1, .minimum = 1, .fixed = 128},
     {{9, false, 128, 1, TRI_LOSS_SCALE_APPLY}, {9, true, 128, 1, TRI_LOSS_SCALE_SKIP}}},
};

static void test_follows_the_table(void **state) {
    for (size_t c = 0; c < sizeof courses / sizeof *courses; c++) {
        tri_loss_scale s = tri_loss_scale_start(&courses[c].options);
        for (const span *row = courses[c].spans; row->steps; row++) {
            tri_loss_scale_verdict verdict = TRI_LOSS_SCALE_APPLY;
            for (int i = 0; i < row->steps; i++)
                verdict = tri_loss_scale_update(&courses[c].options, &s, row->overflow);
            if (s.scale != row->scale || s.hysteresis_left != row->hysteresis_left ||
                verdict != row->verdict)
                fail_msg("course %zu, row %td: scale %g, hysteresis %d, verdict %d", c,
                         row - courses[c].spans, s.scale, (int)s.hysteresis_left, verdict);
        }
    }
}

// DynamicLossScaler.update_scale with its own names; false where it raises an exception.
typedef struct reference {
    double scale;
    int64_t iteration, last_overflow, hysteresis;
} reference;

static bool reference_update(const tri_loss_scale_options *o, reference *r, bool overflow) {
    if (overflow) {
        if (o->hysteresis == 1 || r->hysteresis == 1) {
            if (r->scale == o->minimum) return false;
            r->scale = r->scale / 2 > o->minimum ? r->scale / 2 : o->minimum;
        } else {
            r->hysteresis--;
        }
        r->last_overflow = r->iteration;
    } else {
        if (o->consecutive_hysteresis) r->hysteresis = o->hysteresis;
        int64_t stable = r->iteration - r->last_overflow - 1;
        if (stable > 0 && stable % o->window == 0) {
            if (!o->consecutive_hysteresis) r->hysteresis = o->hysteresis;
            r->scale *= 2;
        }
    }
    r->iteration++;
    return true;
}

static void test_is_deepspeeds(void **state) {
    uint32_t random = 1;
    for (int run = 0; run < 400; run++) {
        tri_loss_scale_options o = {.initial = 65536,
                                    .window = 1 + run % 7,
                                    .hysteresis = 1 + run % 3,
                                    .consecutive_hysteresis = run % 5 == 0,
                                    .minimum = run % 2 ? 1 : 1000};
        tri_loss_scale s = tri_loss_scale_start(&o);
        reference r = {o.initial, 0, -1, o.hysteresis};
        for (int i = 0; i < 300; i++) {
            random = random * 1664525 + 1013904223;
            bool overflow = (random >> 16) % 100 < (uint32_t)(run % 60);
            bool going_on = reference_update(&o, &r, overflow);
            tri_loss_scale_verdict verdict = tri_loss_scale_update(&o, &s, overflow);
            assert_int_equal(verdict == TRI_LOSS_SCALE_EXHAUSTED, !going_on);
            if (!going_on) break;
            assert_int_equal(verdict == TRI_LOSS_SCALE_APPLY, !overflow);
            assert_true(s.scale == r.scale && s.hysteresis_left == r.hysteresis);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_follows_the_table),
                                       cmocka_unit_test(test_is_deepspeeds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
