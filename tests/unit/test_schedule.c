// Checks schedules and their verification. A schedule is the list of a rank's actions in a step,
// such as FORWARD of a block (a layer or a group of layers) for a micro-batch, whose number is
// `round`. The tests drop, double or swap actions of a correct schedule, or remove or redirect a
// dependency. The verification must refuse the changed schedule, unless the change is harmless.
#include "plan/dependencies.h"
#include "support/schedule_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const schedule_case small[] = {
    {"single", "1f1b", .micro_batches = 3, .blocks_per_stage = 6},
    {"single", "gpipe", .micro_batches = 4, .blocks_per_stage = 5, .recompute = true},
    {"single", "1f1b", .micro_batches = 3, .blocks_per_stage = 6, .deterministic = true},
    {"single", "1f1b", .micro_batches = 4, .blocks_per_stage = 6, .evaluates = true},
    {"single", "zero-bubble", .micro_batches = 3, .blocks_per_stage = 6, .offloads = true},
    {"ddp", "1f1b", .replicate = 2, .micro_batches = 3, .blocks_per_stage = 6},
    {"ddp", "1f1b", .replicate = 3, .micro_batches = 1, .blocks_per_stage = 6, .offloads = true},
    {"ddp", "1f1b", .shard = 2, .micro_batches = 5, .blocks_per_stage = 6, .deterministic = true},
    {"zero1", "1f1b", .shard = 2, .micro_batches = 4, .blocks_per_stage = 6},
    {"zero1", "1f1b", .shard = 2, .replicate = 2, .micro_batches = 5, .blocks_per_stage = 4},
    {"zero2", "1f1b", .shard = 2, .micro_batches = 5, .blocks_per_stage = 6, .offloads = true},
    {"fsdp", "1f1b", .shard = 2, .micro_batches = 4, .blocks_per_stage = 6, .reshards = true},
    {"fsdp", "1f1b", .shard = 2, .micro_batches = 3, .blocks_per_stage = 6, .reshards = true,
     .recompute = true, .prefetch = 1},
    {"fsdp", "gpipe", .shard = 2, .micro_batches = 5, .blocks_per_stage = 4, .prefetch = 2},
    {"fsdp", "1f1b", .shard = 2, .micro_batches = 3, .blocks_per_stage = 7, .reshards = true,
     .prefetch = 1, .offloads = true, .offloads_masters = true},
    {"fsdp", "1f1b", .shard = 2, .micro_batches = 3, .blocks_per_stage = 6, .reshards = true,
     .offloads = true, .offloads_masters = true, .evaluates = true},
    {"single", "1f1b", .micro_batches = 3, .blocks_per_stage = 6, .steps_on_host = true},
    {"ddp", "1f1b", .replicate = 2, .micro_batches = 3, .blocks_per_stage = 6,
     .steps_on_host = true, .takes_ahead = true},
    {"zero2", "1f1b", .shard = 2, .replicate = 2, .micro_batches = 5, .blocks_per_stage = 4,
     .steps_on_host = true},
    {"fsdp", "1f1b", .shard = 2, .micro_batches = 3, .blocks_per_stage = 7, .reshards = true,
     .prefetch = 1, .steps_on_host = true, .offloads_masters = true},
    {"pipeline", "zero-bubble", .pipeline = 3, .micro_batches = 5, .blocks_per_stage = 2,
     .steps_on_host = true},
    {"fsdp", "1f1b", .shard = 2, .micro_batches = 3, .blocks_per_stage = 6, .reshards = true,
     .evaluates = true},
    {"pipeline", "gpipe", .pipeline = 2, .micro_batches = 4, .blocks_per_stage = 3},
    {"pipeline", "1f1b", .pipeline = 3, .micro_batches = 5, .skips = true, .blocks_per_stage = 2},
    {"pipeline", "1f1b", .pipeline = 4, .micro_batches = 6, .recompute = true},
    {"pipeline", "zero-bubble", .pipeline = 3, .micro_batches = 5, .blocks_per_stage = 2},
    {"pipeline", "interleaved", .pipeline = 2, .stages_per_rank = 3, .micro_batches = 3},
    {"pipeline", "looped", .pipeline = 2, .stages_per_rank = 3, .micro_batches = 4, .skips = true},
    {"pipeline", "1f1b", .pipeline = 3, .micro_batches = 5, .evaluates = true, .skips = true},
    {"zero2", "1f1b", .pipeline = 2, .shard = 2, .micro_batches = 5, .blocks_per_stage = 2},
    {"fsdp", "zero-bubble", .pipeline = 2, .shard = 2, .micro_batches = 6, .blocks_per_stage = 2},
    {"zero2", "looped", .pipeline = 1, .stages_per_rank = 3, .shard = 2, .micro_batches = 5},
    {"ddp", "1f1b", .pipeline = 2, .shard = 2, .micro_batches = 5, .deterministic = true},
    {"single", "1f1b", .micro_batches = 4, .blocks_per_stage = 5, .takes_ahead = true},
    {"fsdp", "1f1b", .shard = 2, .micro_batches = 5, .blocks_per_stage = 4, .reshards = true,
     .takes_ahead = true},
    {"pipeline", "interleaved", .pipeline = 2, .stages_per_rank = 2, .micro_batches = 4,
     .takes_ahead = true},
};

enum { SMALL = sizeof small / sizeof *small };

// Which resources (what actions share, such as gradients) an action reads or writes, by the table
// of dependencies.c.
typedef struct touched {
    int resources[128];
    bool writes[128];
    int count;
} touched;

static void touch(void *context, int resource, bool writes) {
    touched *t = context;
    assert_true(t->count < 128);
    t->resources[t->count] = resource;
    t->writes[t->count++] = writes;
}

static bool is_compute(const tri_action *a) {
    return tri_action_subject(a->kind) == TRI_SUBJECT_BLOCK;
}

static bool is_edge_action(const tri_action *a) {
    return tri_action_subject(a->kind) == TRI_SUBJECT_EDGE;
}

// Whether two compute actions that write the same gradients may still be swapped: they write
// different elements, or both add terms to a sum, which may be added in any order. (The first term
// of a sum is stored and not added, so its action may not be swapped.)
static bool both_add(const tri_schedule_request *r, const tri_action *a, const tri_action *b) {
    if (!is_compute(a) || !is_compute(b)) return false;
    bool sources_differ =
        tri_action_gradient_source(a->kind) != tri_action_gradient_source(b->kind);
    if (sources_differ && a->round != b->round) return true;
    if (a->subject == b->subject) return false;
    const tri_schedule_block *of_a = &r->blocks[a->subject], *of_b = &r->blocks[b->subject];
    for (int i = 0; i < of_a->unit_count; i++)
        for (int k = 0; k < of_b->unit_count; k++)
            if (of_a->units[i] == of_b->units[k])
                return ((a->adds >> i) & 1) && ((b->adds >> k) & 1);
    return false;
}

// Whether two actions of one rank may not be swapped, for one of three reasons. One action writes
// what the other touches. Other ranks expect this order of collectives or messages. Or the rules of
// micro-batches demand it: each block computes them in order, TAKE brings them to the device in
// order, and NORM comes after all of them, because it counts their losses.
static bool conflicts(const tri_schedule_request *r, const tri_action *a, const touched *of_a,
                      const tri_action *b, const touched *of_b) {
    for (int i = 0; i < of_a->count; i++)
        for (int k = 0; k < of_b->count; k++)
            if (of_a->resources[i] == of_b->resources[k] && (of_a->writes[i] || of_b->writes[k]) &&
                !(of_a->writes[i] && of_b->writes[k] && both_add(r, a, b)))
                return true;
    tri_lane lane = tri_action_lane(a->kind);
    if (lane == tri_action_lane(b->kind)) {
        if (lane == TRI_LANE_SHARD && r->shard > 1) return true;
        if (lane == TRI_LANE_REPLICATE) return true;
        if (a->kind == TRI_ACTION_TIE && b->kind == TRI_ACTION_TIE) return true;
        bool same_way = a->kind == b->kind &&
                        a->from_stage % r->pipeline == b->from_stage % r->pipeline &&
                        a->to_stage % r->pipeline == b->to_stage % r->pipeline;
        if (is_edge_action(a) && same_way) return true;
    }
    if ((a->kind == TRI_ACTION_NORM && is_compute(b)) ||
        (b->kind == TRI_ACTION_NORM && is_compute(a)))
        return true;
    if (a->kind == TRI_ACTION_TAKE && b->kind == TRI_ACTION_TAKE) return true;
    if (!is_compute(a) || !is_compute(b)) return false;
    if (a->kind == b->kind && a->subject == b->subject &&
        (a->kind == TRI_ACTION_FORWARD || a->kind == TRI_ACTION_BACKWARD ||
         a->kind == TRI_ACTION_BACKWARD_WEIGHT))
        return true;
    bool both = a->kind == TRI_ACTION_FORWARD && b->kind == TRI_ACTION_FORWARD;
    if (both && a->begins_round && b->begins_round) return true;
    return both && a->round == b->round && (a->begins_round || b->begins_round);
}

typedef struct mutation {
    const schedule_case *described;
    schedule_set *set;
    int rank;
    const tri_schedule *good;
    touched *touched; // by action: the resources that it reads and writes
} mutation;

static bool is_caught(const mutation *m, tri_action *actions, int count, bool *by_rank) {
    tri_schedule kept = m->set->schedules[m->rank];
    m->set->schedules[m->rank] =
        (tri_schedule){.arena = m->set->arena, .actions = actions, .count = count};
    tri_status status =
        tri_schedule_verify(&m->set->schedules[m->rank], &m->set->requests[m->rank]);
    *by_rank = status != TRI_OK;
    if (status == TRI_OK)
        status = tri_schedule_verify_ranks(&m->set->mesh, m->set->schedules, m->set->requests);
    m->set->schedules[m->rank] = kept;
    return status != TRI_OK;
}

static void report(const mutation *m, const char *what, int i, int k) {
    const tri_action *a = &m->good->actions[i], *b = &m->good->actions[k];
    fail_msg("%s: rank %d, %s of action %d (%s %d,%d) and %d (%s %d,%d)",
             schedule_case_text(m->described), m->rank, what, i, tri_action_name(a->kind),
             a->subject, a->round, k, tri_action_name(b->kind), b->subject, b->round);
}

static void drop_and_double(const mutation *m, tri_action *actions) {
    int n = m->good->count;
    const tri_action *good = m->good->actions;
    bool by_rank;
    for (int i = 0; i < n; i++) {
        memcpy(actions, good, (size_t)n * sizeof *actions);
        memmove(actions + i, actions + i + 1, (size_t)(n - 1 - i) * sizeof *actions);
        if (!is_caught(m, actions, n - 1, &by_rank)) report(m, "dropping", i, i);
        // Inserts a copy of action i once directly behind it, and once at the end.
        for (int at = i + 1; at <= n; at += n - i > 1 ? n - i - 1 : 1) {
            memcpy(actions, good, (size_t)n * sizeof *actions);
            memmove(actions + at + 1, actions + at, (size_t)(n - at) * sizeof *actions);
            actions[at] = good[i];
            if (!is_caught(m, actions, n + 1, &by_rank)) report(m, "doubling", i, at - 1);
        }
    }
}

// Whether swapping actions i and k would change the order of two actions that conflict. The swap
// moves each of the two past the other and past all actions in between.
static bool swap_conflicts(const mutation *m, int i, int k) {
    const tri_action *a = m->good->actions;
    const tri_schedule_request *r = &m->set->requests[m->rank];
    for (int j = i + 1; j <= k; j++)
        if (conflicts(r, &a[i], &m->touched[i], &a[j], &m->touched[j])) return true;
    for (int j = i + 1; j < k; j++)
        if (conflicts(r, &a[j], &m->touched[j], &a[k], &m->touched[k])) return true;
    return false;
}

static bool is_same(const tri_action *a, const tri_action *b) {
    return a->kind == b->kind && a->subject == b->subject && a->round == b->round &&
           a->accumulate == b->accumulate && a->adds == b->adds;
}

static void swap_all(const mutation *m, tri_action *actions, int *harmless) {
    int n = m->good->count;
    const tri_action *good = m->good->actions;
    bool by_rank;
    for (int i = 0; i < n; i++)
        for (int k = i + 1; k < n; k++) {
            // Swapping two equal actions, such as two GATHERs of the same parameters, changes
            // nothing.
            if (is_same(&good[i], &good[k])) continue;
            memcpy(actions, good, (size_t)n * sizeof *actions);
            actions[i] = good[k];
            actions[k] = good[i];
            bool caught = is_caught(m, actions, n, &by_rank), wrong = swap_conflicts(m, i, k);
            if (wrong && !caught) report(m, "not caught: swapping", i, k);
            if (!wrong && by_rank) {
                print_message("%s\n", tri_error_message());
                report(m, "caught: harmless swapping", i, k);
            }
            *harmless += !wrong;
        }
}

static void mutate(const schedule_case *c, int *harmless) {
    schedule_set set;
    schedule_set_make(c, &set);
    assert_int_equal(tri_schedule_verify_ranks(&set.mesh, set.schedules, set.requests), TRI_OK);
    for (int rank = 0; rank < set.mesh.ranks; rank++) {
        tri_schedule good = set.schedules[rank];
        mutation m = {.described = c, .set = &set, .rank = rank, .good = &good};
        m.touched = TRI_NEW_ARRAY(set.arena, touched, good.count);
        tri_resources *resources = tri_resources_make(set.arena, &set.requests[rank]);
        for (int i = 0; i < good.count; i++)
            tri_resources_visit(resources, &good.actions[i], touch, &m.touched[i]);
        tri_action *actions = TRI_NEW_ARRAY(set.arena, tri_action, good.count + 1);
        drop_and_double(&m, actions);
        swap_all(&m, actions, harmless);
    }
    schedule_set_destroy(&set);
}

static void test_mutations(void **state) {
    (void)state;
    int harmless = 0;
    for (int s = 0; s < SMALL; s++) mutate(&small[s], &harmless);
    for (int o = 0; tri_orders[o]; o++) {
        schedule_case c = {"zero2",    tri_orders[o]->name, .pipeline = 2,
                           .shard = 2, .micro_batches = 7,  .skips = true};
        c.stages_per_rank = tri_orders[o]->loops_over_stages ? 2 : 1;
        mutate(&c, &harmless);
    }
    // Many swaps are harmless. If swap_conflicts never found one harmless, the test would not
    // notice a verification that refuses good schedules.
    assert_true(harmless > 1000);
}

static void test_dependencies(void **state) {
    (void)state;
    for (int s = 0; s < SMALL; s++) {
        schedule_set set;
        schedule_set_make(&small[s], &set);
        tri_schedule *good = &set.schedules[0];
        const tri_schedule_request *r = &set.requests[0];
        tri_schedule_find_dependencies(good, r, NULL, 0);
        assert_int_equal(tri_schedule_verify(good, r), TRI_OK);
        // Redirects each dependency: its action then waits for another action than it should.
        for (int d = 0; d < good->dependency_count; d++) {
            int kept = good->dependencies[d];
            good->dependencies[d] = kept ? kept - 1 : 1;
            assert_int_not_equal(tri_schedule_verify(good, r), TRI_OK);
            good->dependencies[d] = kept;
        }
        // Removes the last dependency of each action.
        for (int i = 0; i < good->count; i++) {
            if (good->actions[i].dependency_count == 0) continue;
            good->actions[i].dependency_count--;
            assert_int_not_equal(tri_schedule_verify(good, r), TRI_OK);
            good->actions[i].dependency_count++;
        }
        // Two equal waits make one dependency. They make none if both actions are in one lane (a
        // queue of actions) that keeps their order anyway.
        for (int i = 1; i < good->count; i++) {
            tri_wait waits[] = {{i, i - 1}, {i, i - 1}};
            tri_schedule_find_dependencies(good, r, waits, 2);
            const tri_action *a = &good->actions[i];
            int found = 0;
            for (int d = 0; d < a->dependency_count; d++)
                found += good->dependencies[a->first_dependency + d] == i - 1;
            tri_lane lane = tri_action_lane(a->kind);
            bool overtakes = lane == TRI_LANE_ALONG || lane == TRI_LANE_BACK;
            bool same = lane == tri_action_lane(good->actions[i - 1].kind);
            assert_int_equal(found, overtakes || !same);
            assert_int_equal(tri_schedule_verify(good, r), TRI_OK);
        }
        schedule_set_destroy(&set);
    }
}

static bool waits_for(const tri_schedule *s, int action, int other) {
    const tri_action *a = &s->actions[action];
    for (int d = 0; d < a->dependency_count; d++)
        if (s->dependencies[a->first_dependency + d] == other) return true;
    return false;
}

// RECOMPUTE of a block writes the block's outputs again, so it waits until SEND has read those that
// another stage needs. Otherwise the receiver could get half a sum from a kernel that accumulates
// in its output.
static void test_recompute_waits_for_send(void **state) {
    (void)state;
    schedule_set set;
    schedule_case c = {.strategy = "pipeline",
                       .order = "1f1b",
                       .pipeline = 4,
                       .micro_batches = 6,
                       .recompute = true};
    int found = 0;
    schedule_set_make(&c, &set);
    for (int rank = 0; rank < set.mesh.ranks; rank++) {
        tri_schedule *s = &set.schedules[rank];
        const tri_schedule_request *r = &set.requests[rank];
        tri_schedule_find_dependencies(s, r, NULL, 0);
        for (int i = 0; i < s->count; i++)
            for (int k = 0; k < i && s->actions[i].kind == TRI_ACTION_RECOMPUTE; k++) {
                const tri_action *send = &s->actions[k];
                if (send->kind != TRI_ACTION_SEND_ALONG || send->round != s->actions[i].round ||
                    r->edges[send->subject].from_block != s->actions[i].subject)
                    continue;
                assert_true(waits_for(s, i, k));
                found++;
            }
    }
    schedule_set_destroy(&set);
    assert_true(found > 0);
}

static void test_orders(void **state) {
    (void)state;
    for (int i = 0; tri_orders[i]; i++)
        assert_ptr_equal(tri_order_find(tri_orders[i]->name), tri_orders[i]);
    assert_string_equal(tri_orders[TRI_ORDER_zero_bubble]->name, "zero-bubble");
    assert_true(tri_orders[TRI_ORDER_zero_bubble]->splits_backward);
    assert_true(tri_orders[TRI_ORDER_looped]->loops_over_stages);
    assert_null(tri_order_find("breadth-last"));
    assert_null(tri_strategy_find("zero4"));
}

// TAKE, which brings a micro-batch to the device, stands before the first action that needs this
// micro-batch; on an asynchronous device, behind the first action of the previous micro-batch.
static void test_take(void **state) {
    (void)state;
    for (int ahead = 0; ahead < 2; ahead++) {
        schedule_case c = {"single", "1f1b", .micro_batches = 4, .blocks_per_stage = 3};
        schedule_set set;
        c.takes_ahead = ahead;
        schedule_set_make(&c, &set);
        const tri_schedule *s = &set.schedules[0];
        int began = -1, taken = -1;
        for (int i = 0; i < s->count; i++) {
            const tri_action *a = &s->actions[i];
            if (a->kind == TRI_ACTION_FORWARD && a->begins_round) {
                began++;
                if (!ahead) assert_int_equal(s->actions[i - 1].kind, TRI_ACTION_TAKE);
            }
            if (a->kind != TRI_ACTION_TAKE) continue;
            taken++;
            assert_int_equal(a->round, taken);
            // The previous micro-batch has begun, and this one has not.
            assert_int_equal(began, taken - 1);
            if (ahead && taken > 0) assert_true(s->actions[i - 1].begins_round);
        }
        assert_int_equal(taken, 3);
        assert_int_equal(began, 3);
        schedule_set_destroy(&set);
    }
}

static void test_print(void **state) {
    (void)state;
    static const int64_t sizes[] = {8, 4};
    static const tri_unit units[] = {
        {.bytes = 4, .has_gradients = true, .holder_count = 1, .here = true},
        {.bytes = 4, .has_gradients = true, .has_half = true, .holder_count = 1}};
    static const tri_schedule_block blocks[] = {{.stage = 0, .units = {0}, .unit_count = 1},
                                                {.stage = 1, .units = {1}, .unit_count = 1}};
    static const tri_edge edges[] = {{0, 1, 0, 1, false, 4}, {1, 0, 1, 0, true, 4}};
    static const char *const names[] = {"stem", "head"};
    tri_schedule_request request = {.strategy = tri_strategy_find("ddp"),
                                    .order = tri_order_find("1f1b"),
                                    .block_count = 2,
                                    .unit_count = 2,
                                    .edge_count = 2,
                                    .stage_count = 2,
                                    .blocks = blocks,
                                    .units = units,
                                    .edges = edges,
                                    .pipeline = 2,
                                    .replicate = 2,
                                    .shard = 1,
                                    .rounds = 2,
                                    .round_sizes = sizes,
                                    .training = true};
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_schedule schedule;
    assert_int_equal(tri_schedule_make(arena, &request, &schedule), TRI_OK);
    tri_schedule_find_dependencies(&schedule, &request, NULL, 0);
    char *text;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    tri_schedule_print(&schedule, names, to);
    fclose(to);
    static const char wanted[] =
        "   0  take       TAKE,0                      \n"
        "   1  compute    FORWARD stem,0               after TAKE,0\n"
        "   2  along      SEND 0>1,0                   after FORWARD stem,0\n"
        "   3  back       RECV 1>0,0                  \n"
        "   4  take       TAKE,1                      \n"
        "   5  compute    FORWARD stem,1               after TAKE,1\n"
        "   6  along      SEND 0>1,1                   after FORWARD stem,1\n"
        "   7  back       RECV 1>0,1                  \n"
        "   8  compute    BACKWARD stem,0              after RECV 1>0,0\n"
        "   9  compute    BACKWARD stem,1              after RECV 1>0,1\n"
        "  10  replicate  REDUCE stem                  after BACKWARD stem,1\n"
        "  11  compute    NORM                         after REDUCE stem\n"
        "  12  compute    STEP stem                    after REDUCE stem\n";
    assert_string_equal(text, wanted);
    free(text);
    tri_arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mutations),
                                       cmocka_unit_test(test_dependencies),
                                       cmocka_unit_test(test_recompute_waits_for_send),
                                       cmocka_unit_test(test_orders),
                                       cmocka_unit_test(test_take),
                                       cmocka_unit_test(test_print)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
