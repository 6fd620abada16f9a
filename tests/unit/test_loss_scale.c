// Tests the rule of the loss scale: overflows halve it, and many good steps, without overflow,
// double it. The hysteresis is the number of overflows until the first that halves the scale: an
// overflow lowers it by 1, or halves the scale if it is 1 already. Compares the rule, step by step,
// with cases calculated by hand and with DeepSpeed's DynamicLossScaler (reference_update). Then
// compares with our rule what the op step_numbers computes on devices: the step scalars, which
// updates read (learning rate, whether the step is skipped), and the carried numbers, which one
// step hands to the next (loss scale, count of updates).
#include "base/arena.h"
#include "device/cpu/cpu.h"
#include "device/far/far.h"
#include "device/queue.h"
#include "device/ref/ref.h"
#include "ops/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define DEEPSPEED                                                                                  \
    { .initial = 65536, .window = 1000, .hysteresis = 2, .minimum = 1 }

// Some steps, and what the rule of the loss scale must make of them.
typedef struct span {
    int steps;
    bool overflow;                  // all of these steps overflow
    double scale;                   // the loss scale after these steps
    int64_t hysteresis_left;        // the hysteresis that is left after these steps
    tri_loss_scale_verdict verdict; // the verdict on the last of these steps
} span;

typedef struct course {
    tri_loss_scale_options options;
    span spans[10];
} course;

static const course courses[] = {
    // The first overflow only lowers the hysteresis to 1; each further one halves the scale.
    {DEEPSPEED,
     {{1, true, 65536, 1, TRI_LOSS_SCALE_SKIP},
      {1, true, 32768, 1, TRI_LOSS_SCALE_SKIP},
      {2, true, 8192, 1, TRI_LOSS_SCALE_SKIP}}},
    // Good steps restore the hysteresis only when they double the scale. That happens in the step
    // after loss_scale_window good ones.
    {DEEPSPEED,
     {{1, true, 65536, 1, TRI_LOSS_SCALE_SKIP},
      {1000, false, 65536, 1, TRI_LOSS_SCALE_APPLY},
      {1, false, 131072, 2, TRI_LOSS_SCALE_APPLY},
      {999, false, 131072, 2, TRI_LOSS_SCALE_APPLY},
      {1, false, 262144, 2, TRI_LOSS_SCALE_APPLY}}},
    // An overflow restarts the count of good steps: the scale doubles only in the step after
    // another 1000 good ones.
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

// DeepSpeed's DynamicLossScaler, with its own names. reference_update is its update_scale; it
// returns false where update_scale raises an exception.
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

// The kernel of the op step_numbers on a device, with its inputs and outputs in the device's
// memory. There is one loss; its sum and count are 1.
typedef struct rig {
    tri_arena *arena;
    tri_device *device;
    tri_queue *queue;
    tri_kernel kernel;
    void *carried, *control, *sums, *squares, *step;
} rig;

static void ok(tri_status status) {
    if (status != TRI_OK) fail_msg("%s", tri_error_message());
}

static void open_rig(rig *r, const tri_device_backend *backend, tri_loss_scale_options options) {
    *r = (rig){.arena = tri_arena_create(NULL, "test")};
    ok(backend->open(&(tri_device_config){.threads = 1}, &r->device));
    ok(tri_queue_open(r->device, &r->queue));
    tri_graph *g = tri_graph_create(r->arena, &(tri_graph_options){.training = true});
    const int64_t counts[] = {TRI_CARRIED_COUNT, TRI_STEP_CONTROL_COUNT, 2, 1,
                              TRI_STEP_SCALAR_COUNT};
    void **const memory[] = {&r->carried, &r->control, &r->sums, &r->squares, &r->step};
    const char *const names[] = {"carried", "control", "sums", "squares"};
    tri_value in[4];
    for (int i = 0; i < 4; i++) in[i] = tri_input(g, names[i], TRI_F64, tri_shape_of(counts[i]));
    for (int i = 0; i < 5; i++)
        ok(backend->alloc(r->device, (size_t)counts[i] * sizeof(double), memory[i]));
    tri_step_numbers_attr attr = {.losses = 1, .stride = 2, .count = 1, .loss_scale = options};
    tri_node_add(g, &tri_op_step_numbers, in, 4, &attr, "");
    ok(g->status);
    const tri_node *node = &g->nodes[g->node_count - 1];
    ok(tri_kernel_make(r->device, g, node, &r->kernel));
    double sums[] = {1, 1};
    ok(tri_queue_write(r->queue, r->sums, sums, sizeof sums));
}

static void close_rig(rig *r) {
    void *const memory[] = {r->carried, r->control, r->sums, r->squares, r->step};
    tri_queue_close(r->queue);
    tri_kernel_release(&r->kernel);
    for (int i = 0; i < 5; i++) r->device->backend->free(r->device, memory[i]);
    r->device->backend->close(r->device);
    tri_arena_destroy(r->arena);
}

static void carry(rig *r, const tri_loss_scale *s, double updates) {
    double carried[TRI_CARRIED_COUNT] = {
        [TRI_CARRIED_SCALE] = s->scale,
        [TRI_CARRIED_GOOD_STEPS] = (double)s->good_steps,
        [TRI_CARRIED_HYSTERESIS_LEFT] = (double)s->hysteresis_left,
        [TRI_CARRIED_UPDATES] = updates,
    };
    ok(tri_queue_write(r->queue, r->carried, carried, sizeof carried));
}

// Runs the kernel for one step. `known`: how many updates the host knows to be done; `squares`: the
// sum of squares of the gradients. The learning rate of update u is 1 / (u + 1).
static void step(rig *r, double known, double squares, double *carried, double *scalars) {
    double control[TRI_STEP_CONTROL_COUNT] = {[TRI_CONTROL_SAMPLES] = 1,
                                              [TRI_CONTROL_NOMINAL] = 1,
                                              [TRI_CONTROL_UPDATES] = known,
                                              [TRI_CONTROL_AVERAGE] = 0.5};
    for (int i = 0; i <= TRI_MAX_STEPS_AHEAD; i++)
        control[TRI_CONTROL_RATES + i] = 1 / (known + i + 1);
    ok(tri_queue_write(r->queue, r->control, control, sizeof control));
    ok(tri_queue_write(r->queue, r->squares, &squares, sizeof squares));
    void *in[] = {r->carried, r->control, r->sums, r->squares}, *out[] = {r->carried, r->step};
    ok(r->kernel.def->run(&r->kernel, &(tri_kernel_args){.queue = r->queue, .in = in, .out = out}));
    ok(tri_queue_read(r->queue, carried, r->carried, TRI_CARRIED_COUNT * sizeof *carried));
    ok(tri_queue_read(r->queue, scalars, r->step, TRI_STEP_SCALAR_COUNT * sizeof *scalars));
}

static const tri_device_backend *const backends[] = {&tri_device_ref, &tri_device_cpu,
                                                     &tri_device_far};

// Runs steps with random overflows on each device. As with a device that runs one step ahead of
// the host, the host does not know yet whether the previous step was an update.
static void test_on_devices(void **state) {
    uint32_t random = 1;
    for (int run = 0; run < 60; run++) {
        tri_loss_scale_options o = {.initial = 65536,
                                    .window = 1 + run % 7,
                                    .hysteresis = 1 + run % 3,
                                    .consecutive_hysteresis = run % 5 == 0,
                                    .minimum = run % 2 ? 1 : 1000,
                                    .fixed = run % 10 == 9 ? 128 : 0};
        tri_loss_scale s = tri_loss_scale_start(&o);
        double updates = run, known = run, carried[TRI_CARRIED_COUNT];
        double scalars[TRI_STEP_SCALAR_COUNT];
        rig r;
        open_rig(&r, backends[run % 3], o);
        carry(&r, &s, updates);
        for (int i = 0; i < 200; i++) {
            random = random * 1664525 + 1013904223;
            bool overflow = (random >> 16) % 100 < (uint32_t)(run % 60);
            step(&r, known, overflow ? (i % 2 ? INFINITY : NAN) : 4, carried, scalars);
            if (!overflow) assert_true(scalars[TRI_STEP_GRADIENT_SCALE] == 1 / s.scale);
            tri_loss_scale_verdict verdict = tri_loss_scale_update(&o, &s, overflow);
            assert_true(scalars[TRI_STEP_LR] == 1 / (updates + 1));
            assert_true(scalars[TRI_STEP_UPDATE] == updates + 1);
            known = updates; // the host learns the count of updates one step late
            updates += verdict == TRI_LOSS_SCALE_APPLY;
            assert_true(scalars[TRI_STEP_SKIP] == (verdict != TRI_LOSS_SCALE_APPLY));
            assert_true(scalars[TRI_STEP_HALTS] == (verdict == TRI_LOSS_SCALE_EXHAUSTED));
            // A step that changes no weight is averaged like others, unless the run ends with it.
            assert_true(scalars[TRI_STEP_AVERAGE] == (carried[TRI_CARRIED_HALTED] != 0 ? 0 : 0.5));
            assert_true(carried[TRI_CARRIED_SCALE] == s.scale);
            assert_true(carried[TRI_CARRIED_GOOD_STEPS] == (double)s.good_steps);
            assert_true(carried[TRI_CARRIED_HYSTERESIS_LEFT] == (double)s.hysteresis_left);
            assert_true(carried[TRI_CARRIED_UPDATES] == updates);
            if (verdict == TRI_LOSS_SCALE_EXHAUSTED) break;
        }
        close_rig(&r);
    }
}

// A step that is not finite halts a run without a loss scale: later steps are skipped and change
// nothing, until the host writes new carried numbers (what one step hands to the next).
static void test_halts(void **state) {
    for (int b = 0; b < 3; b++) {
        rig r;
        double carried[TRI_CARRIED_COUNT], halted[TRI_CARRIED_COUNT];
        double scalars[TRI_STEP_SCALAR_COUNT];
        open_rig(&r, backends[b], (tri_loss_scale_options){0});
        carry(&r, &(tri_loss_scale){0}, 7);
        step(&r, 7, 4, carried, scalars);
        assert_true(scalars[TRI_STEP_SKIP] == 0 && carried[TRI_CARRIED_UPDATES] == 8);
        step(&r, 7, NAN, halted, scalars);
        assert_true(scalars[TRI_STEP_SKIP] == 1 && scalars[TRI_STEP_HALTS] == 1);
        assert_true(halted[TRI_CARRIED_UPDATES] == 8 && halted[TRI_CARRIED_HALTED] == 1);
        for (int i = 0; i < 3; i++) {
            step(&r, 8, i == 1 ? NAN : 4, carried, scalars);
            assert_true(scalars[TRI_STEP_SKIP] == 1 && scalars[TRI_STEP_HALTS] == 0);
            assert_true(scalars[TRI_STEP_AVERAGE] == 0);
            assert_memory_equal(carried, halted, sizeof carried);
        }
        carry(&r, &(tri_loss_scale){0}, 8);
        step(&r, 8, 4, carried, scalars);
        assert_true(scalars[TRI_STEP_SKIP] == 0 && carried[TRI_CARRIED_UPDATES] == 9);
        close_rig(&r);
    }
}

// A loss that is not finite halts, because no loss scale helps. A step in which no label counts is
// skipped, and the loss scale learns nothing from it.
static void test_losses_and_counts(void **state) {
    (void)state;
    static const struct {
        double scale, fixed, sum, count, squares;
        bool skips, halts;
    } rows[] = {
        {0, 0, 1, 1, 4, false, false},      {0, 0, 0, 0, 0, true, false},
        {0, 0, 0, 0, NAN, true, true},      {0, 0, NAN, 1, 4, true, true},
        {1024, 0, 0, 0, 0, true, false},    {1024, 0, 1, 1, INFINITY, true, false},
        {1024, 0, NAN, 1, NAN, true, true}, {1024, 0, -INFINITY, 1, 4, true, true},
        {128, 128, 1, 1, NAN, true, false}, {128, 128, NAN, 1, NAN, true, true},
        {128, 128, 0, 0, 0, true, false},   {128, 128, 1, 1, 4, false, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int b = 0; b < 3; b++) {
            tri_loss_scale_options o = {.initial = 1024,
                                        .window = 2,
                                        .hysteresis = 2,
                                        .minimum = 1,
                                        .fixed = rows[i].fixed};
            double carried[TRI_CARRIED_COUNT], scalars[TRI_STEP_SCALAR_COUNT];
            double sums[] = {rows[i].sum, rows[i].count};
            bool is_empty = rows[i].count == 0;
            rig r;
            open_rig(&r, backends[b], o);
            carry(&r, &(tri_loss_scale){.scale = rows[i].scale, .good_steps = 1}, 7);
            ok(tri_queue_write(r.queue, r.sums, sums, sizeof sums));
            step(&r, 7, rows[i].squares, carried, scalars);
            assert_true(scalars[TRI_STEP_SKIP] == rows[i].skips);
            assert_true(scalars[TRI_STEP_HALTS] == rows[i].halts);
            assert_true(scalars[TRI_STEP_EMPTY] == is_empty);
            assert_true(carried[TRI_CARRIED_UPDATES] == 8 - rows[i].skips);
            if (is_empty || rows[i].halts)
                assert_true(carried[TRI_CARRIED_SCALE] == rows[i].scale &&
                            carried[TRI_CARRIED_GOOD_STEPS] == 1);
            close_rig(&r);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follows_the_table), cmocka_unit_test(test_is_deepspeeds),
        cmocka_unit_test(test_on_devices), cmocka_unit_test(test_halts),
        cmocka_unit_test(test_losses_and_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
