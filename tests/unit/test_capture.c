// Tests which parts of a step a device may capture and repeat as one (a CUDA graph). A step is a
// schedule: a list of actions, such as FORWARD of a block (a layer, or a few layers). A lane
// starts actions in the order of the list, beside other lanes; only actions of the compute lane can
// be captured. A part is a sequence of them between which no lane waits for another.
#include "base/philox.h"
#include "device/null/null.h"
#include "ops/ops.h"
#include "plan/capture.h"
#include "support/schedule_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <trireme/trireme.h>

#include <cmocka.h>

static void ok(tri_status status) {
    if (status != TRI_OK) fail_msg("%s", tri_error_message());
}

static bool is_awaited(const tri_schedule *s, int action) {
    for (int i = 0; i < s->dependency_count; i++)
        if (s->dependencies[i] == action) return true;
    return false;
}

// Checks the parts that tri_capture_find finds, where may[i] tells whether action i may be
// captured: every action that may be captured is in exactly one part, no lane waits for another
// between two actions of a part, and no two neighbouring parts could be one.
static void check(const tri_schedule *s, const bool *may) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_capture *parts;
    int count = tri_capture_find(arena, s, may, &parts), at = 0, inside = 0, before = -1;
    for (int i = 0; i < s->count; i++) {
        const tri_action *a = &s->actions[i];
        if (tri_action_lane(a->kind) != TRI_LANE_COMPUTE) continue;
        bool covered = at < count && parts[at].first <= i && i <= parts[at].last;
        assert_int_equal(covered, may[i]);
        if (covered && i > parts[at].first)
            assert_true(a->dependency_count == 0 && !is_awaited(s, before));
        if (covered && i == parts[at].first && at > 0 && before == parts[at - 1].last)
            assert_true(a->dependency_count > 0 || is_awaited(s, before));
        inside += covered;
        before = i;
        if (!covered || i < parts[at].last) continue;
        assert_int_equal(parts[at++].actions, inside);
        inside = 0;
    }
    assert_int_equal(at, count);
    tri_arena_destroy(arena);
}

static void test_parts(void **state) {
    (void)state;
    static const schedule_case cases[] = {
        {.strategy = "ddp",
         .order = "1f1b",
         .replicate = 2,
         .blocks_per_stage = 4,
         .micro_batches = 4},
        {.strategy = "zero2",
         .order = "1f1b",
         .shard = 2,
         .blocks_per_stage = 3,
         .micro_batches = 2,
         .recompute = true},
        {.strategy = "fsdp",
         .order = "1f1b",
         .shard = 4,
         .blocks_per_stage = 5,
         .micro_batches = 8,
         .reshards = true,
         .prefetch = 1},
        {.strategy = "single",
         .order = "zero-bubble",
         .pipeline = 3,
         .blocks_per_stage = 2,
         .micro_batches = 6},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        schedule_set set;
        schedule_set_make(&cases[c], &set);
        for (int rank = 0; rank < set.mesh.ranks; rank++) {
            tri_schedule *s = &set.schedules[rank];
            bool *may = TRI_NEW_ARRAY(set.arena, bool, s->count);
            uint32_t at = 0;
            tri_schedule_find_dependencies(s, &set.requests[rank], NULL, 0);
            // Forbids each action with probability 1 / one_of; with one_of 1, all actions.
            for (uint32_t one_of = 1; one_of < 6; one_of++) {
                for (int i = 0; i < s->count; i++)
                    may[i] = tri_action_lane(s->actions[i].kind) == TRI_LANE_COMPUTE &&
                             tri_philox_at(5, c, (uint32_t)rank, at++) % one_of > 0;
                check(s, may);
            }
        }
        schedule_set_destroy(&set);
    }
}

static void model(tri_graph *g, const tri_batch *batch) {
    tri_value hidden = tri_relu(g, tri_linear(g, "hidden", batch->inputs, 16));
    tri_block(g, "middle");
    hidden = tri_relu(g, tri_linear(g, "middle", hidden, 16));
    tri_block(g, "head");
    tri_loss(g, tri_cross_entropy(g, tri_linear(g, "fc", hidden, 3), batch->labels));
}

// A device that can capture: the device `null`, which computes nothing, with two kernels of the
// test. `losses` computes the cross-entropy and counts as a kernel that uses the host; `others`
// computes all other ops.
static tri_kernel_def losses, others;
static const tri_kernel_def *kernels[] = {&losses, &others, NULL};
static tri_device_backend capturing;

static void plan_step(tri_arena *arena, bool captures, bool is_asynchronous, tri_plan **out) {
    static const tri_task task = {.name = "test", .build = model};
    static const tri_field fields[] = {{"inputs", TRI_F32, {1, {5}}},
                                       {"labels", TRI_I64, {0, {0}}}};
    static const tri_model_request of_model = {.task = &task, .fields = fields, .field_count = 2};
    static const tri_strategy_options alone = {.name = TRI_STRATEGY_SINGLE, .recompute_every = 1};
    tri_plan_request request = {.model = &of_model,
                                .options = &alone,
                                .mesh = {.size = {1, 1, 1, 1}, .ranks = 1},
                                .step_samples = {[TRI_STEP_FULL] = 8}};
    int any = 0; // index of the kernel that runs any op
    while (tri_device_null.kernels[any]->op) any++;
    losses = others = *tri_device_null.kernels[any];
    losses.op = &tri_op_cross_entropy;
    losses.uses_host = true;
    capturing = tri_device_null;
    capturing.kernels = kernels;
    capturing.captures = captures;
    capturing.is_asynchronous = is_asynchronous;
    tri_device_description device = {.backend = &capturing, .threads = 1, .alignment = 64};
    ok(tri_plan_create(arena, &device, &request, out));
}

// Whether the plan's action of this kind may be captured. `subject`: number of the action's block,
// or of its unit (parameters that are updated together); -1: it has neither.
static bool allows(const tri_plan *plan, tri_action_kind kind, int subject) {
    const tri_step_plan *step = &plan->steps[TRI_STEP_FULL];
    for (int i = 0; i < step->schedule.count; i++) {
        const tri_action *a = &step->schedule.actions[i];
        if (a->kind == kind && a->subject == subject) return tri_capture_allows(plan, step, a);
    }
    fail_msg("there is no %s %d", tri_action_name(kind), subject);
    return false;
}

static void test_what_may(void **state) {
    (void)state;
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_plan *plan;
    // ahead 1: the device works while the host prepares the next step, whose inputs then lie in
    // other memory. So actions that read inputs (of block 0) cannot be repeated as they are.
    for (int ahead = 0; ahead < 2; ahead++) {
        plan_step(arena, true, ahead, &plan);
        assert_int_equal(allows(plan, TRI_ACTION_FORWARD, 0), !ahead);
        assert_int_equal(allows(plan, TRI_ACTION_BACKWARD, 0), !ahead);
        assert_true(allows(plan, TRI_ACTION_FORWARD, 1));
        // Block 2 has the loss, whose kernel uses the host.
        assert_false(allows(plan, TRI_ACTION_FORWARD, 2));
        assert_true(allows(plan, TRI_ACTION_BACKWARD, 1));
        for (int b = 0; b < 3; b++) assert_true(allows(plan, TRI_ACTION_STEP, b));
        assert_false(allows(plan, TRI_ACTION_TAKE, -1));
        assert_true(allows(plan, TRI_ACTION_NORM, -1));
        plan->mesh.ranks = 2; // a communicator adds up the sums in the middle of NORM
        assert_false(allows(plan, TRI_ACTION_NORM, -1));
        plan->mesh.ranks = 1;
        tri_plan_destroy(plan);
    }
    plan_step(arena, false, false, &plan);
    assert_false(allows(plan, TRI_ACTION_BACKWARD, 1));
    tri_plan_destroy(plan);
    tri_arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts),
                                       cmocka_unit_test(test_what_may)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
