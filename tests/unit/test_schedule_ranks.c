// Checks that the schedules of all ranks of many meshes fit together, that no rank waits for ever,
// and that pipelines keep the bounds known from the literature, on idle time and on micro-batches
// in flight. A schedule is the list of a rank's actions in a step.
#include "support/schedule_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const strategies[] = {"ddp", "zero1", "zero2", "fsdp"};

enum { STRATEGIES = 4 };

static void check(const schedule_case *c) {
    schedule_set set;
    schedule_set_make(c, &set);
    if (tri_schedule_verify_ranks(&set.mesh, set.schedules, set.requests) != TRI_OK)
        fail_msg("%s: %s", schedule_case_text(c), tri_error_message());
    for (int rank = 0; rank < set.mesh.ranks; rank += 1 + set.mesh.ranks / 4) {
        tri_schedule_find_dependencies(&set.schedules[rank], &set.requests[rank], NULL, 0);
        if (tri_schedule_verify(&set.schedules[rank], &set.requests[rank]) != TRI_OK)
            fail_msg("%s: %s", schedule_case_text(c), tri_error_message());
    }
    schedule_set_destroy(&set);
}

static void test_every_combination(void **state) {
    (void)state;
    // The numbers of ranks along the axes pipeline, replicate, shard and tensor.
    static const int meshes[][4] = {{1, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 3, 1}, {1, 2, 2, 1},
                                    {2, 1, 1, 1}, {3, 1, 2, 1}, {4, 2, 1, 1}, {2, 2, 2, 2}};
    static const int micro_batches[] = {1, 2, 5, 8, 19};
    for (int s = 0; s < STRATEGIES; s++)
        for (int o = 0; tri_orders[o]; o++)
            for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
                for (unsigned flags = 0; flags < 128; flags++) {
                    schedule_case c = {.strategy = strategies[s],
                                       .order = tri_orders[o]->name,
                                       .pipeline = meshes[m][0],
                                       .replicate = meshes[m][1],
                                       .shard = meshes[m][2],
                                       .tensor = meshes[m][3],
                                       .stages_per_rank =
                                           tri_orders[o]->loops_over_stages ? 1 + flags % 3 : 1,
                                       .blocks_per_stage = 1 + (int)(flags % 4),
                                       .micro_batches = micro_batches[flags % 5],
                                       .deterministic = flags & 1,
                                       .reshards = flags & 2,
                                       .offloads = flags & 4 && flags & 2,
                                       .steps_on_host = flags & 4 && !(flags & 2),
                                       .offloads_masters = flags & 4 && flags & 32,
                                       .evaluates = (flags & 24) == 24,
                                       .skips = flags & 32,
                                       .recompute = flags & 64,
                                       .prefetch = (int)(flags >> 2) % 4,
                                       .takes_ahead = flags % 3 == 0};
                    if (s == 0 && c.shard > 1 && !c.deterministic) {
                        c.replicate *= c.shard;
                        c.shard = 1;
                    }
                    check(&c);
                }
}

static void test_many_ranks(void **state) {
    (void)state;
    static const schedule_case cases[] = {
        {"ddp", "1f1b", .replicate = 1024, .micro_batches = 5000, .blocks_per_stage = 20},
        {"fsdp", "1f1b", .shard = 1024, .micro_batches = 1500, .blocks_per_stage = 20,
         .reshards = true, .prefetch = 1},
        {"fsdp", "1f1b", .replicate = 128, .shard = 8, .micro_batches = 4000,
         .blocks_per_stage = 30, .reshards = true, .prefetch = 2},
        {"zero1", "1f1b", .replicate = 2, .shard = 512, .micro_batches = 1, .blocks_per_stage = 40},
        {"zero2", "1f1b", .pipeline = 16, .shard = 8, .tensor = 8, .micro_batches = 500,
         .blocks_per_stage = 2, .skips = true},
        {"ddp", "interleaved", .pipeline = 16, .stages_per_rank = 4, .replicate = 8, .tensor = 8,
         .micro_batches = 510},
        {"fsdp", "looped", .pipeline = 8, .stages_per_rank = 5, .shard = 128, .micro_batches = 4100,
         .recompute = true},
        {"ddp", "zero-bubble", .pipeline = 32, .replicate = 32, .micro_batches = 2048},
        {"zero1", "gpipe", .pipeline = 32, .shard = 32, .micro_batches = 1024, .offloads = true},
        {"ddp", "1f1b", .pipeline = 256, .shard = 4, .micro_batches = 8, .deterministic = true},
        {"ddp", "1f1b", .pipeline = 16, .replicate = 64, .micro_batches = 640, .evaluates = true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&cases[i]);
    for (int o = 0; tri_orders[o]; o++) // every order, also one that no case above names
        check(&(schedule_case){"fsdp", tri_orders[o]->name, .pipeline = 8, .shard = 128,
                               .stages_per_rank = tri_orders[o]->loops_over_stages ? 2 : 1,
                               .micro_batches = 1100, .skips = true});
}

// Tensor-parallel ranks, each of which has a slice of every layer, communicate inside their compute
// actions. If one rank has two of these actions in another order than the others, the ranks wait
// for each other for ever. No rank's own schedule shows that.
static void test_shared_layers(void **state) {
    (void)state;
    schedule_case c = {.strategy = "ddp",
                       .order = "gpipe",
                       .pipeline = 1,
                       .replicate = 2,
                       .shard = 1,
                       .tensor = 2,
                       .blocks_per_stage = 2,
                       .micro_batches = 4,
                       .takes_ahead = true};
    schedule_set set;
    schedule_set_make(&c, &set);
    assert_int_equal(set.mesh.ranks, 4);
    assert_int_equal(tri_schedule_verify_ranks(&set.mesh, set.schedules, set.requests), TRI_OK);
    tri_schedule *s = &set.schedules[3];
    // The first compute actions are FORWARD of block 0, FORWARD of block 1, and then FORWARD of
    // block 0 for the next micro-batch, which TAKE brings to the device in advance, after the first
    // action. The test swaps the last two.
    int first = 0;
    while (s->actions[first].kind != TRI_ACTION_FORWARD) first++;
    assert_int_equal(s->actions[++first].kind, TRI_ACTION_TAKE);
    tri_action later = s->actions[first + 1];
    assert_int_equal(s->actions[first + 2].round, later.round + 1);
    s->actions[first + 1] = s->actions[first + 2];
    s->actions[first + 2] = later;
    assert_int_equal(tri_schedule_verify(s, &set.requests[3]), TRI_OK);
    assert_int_equal(tri_schedule_verify_ranks(&set.mesh, set.schedules, set.requests),
                     TRI_INTERNAL);
    assert_non_null(strstr(tri_error_message(), "ranks 2 and 3 differ in what lane compute does"));
    s->actions[first].round = 3;
    assert_int_equal(tri_schedule_verify(s, &set.requests[3]), TRI_INTERNAL);
    assert_non_null(strstr(tri_error_message(), "schedule: order gpipe: action "));
    schedule_set_destroy(&set);
}

// Simulates a pipeline in which FORWARD of each stage takes one unit of time and BACKWARD two.
// Returns the bubble, which the tests below compare with the literature. *end_s: the step's time.
static double bubble_of(const char *order, int ranks, int stages_per_rank, int micro_batches,
                        double *end_s) {
    schedule_case c = {.strategy = "pipeline",
                       .order = order,
                       .pipeline = ranks,
                       .stages_per_rank = stages_per_rank,
                       .micro_batches = micro_batches};
    schedule_set set;
    double bubble;
    schedule_set_make(&c, &set);
    *end_s = schedule_set_simulate(&set, &bubble) / stages_per_rank;
    schedule_set_destroy(&set);
    return bubble;
}

static void test_bubbles(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 16; ranks = ranks < 4 ? ranks + 1 : ranks * 2)
        for (int groups = 1; groups <= 4; groups++) {
            int rounds = ranks * groups, idle = ranks - 1;
            double gpipe_s, even_s, end_s;
            double gpipe = bubble_of("gpipe", ranks, 1, rounds, &gpipe_s);
            double even = bubble_of("1f1b", ranks, 1, rounds, &even_s);
            // With gpipe and 1f1b alike, on P ranks, a rank is idle for (P - 1) times as long as
            // one micro-batch takes forward and backward: arXiv:2104.04473, 2.2.1.
            assert_float_equal(gpipe_s, 3 * (rounds + idle), 1e-9);
            assert_float_equal(even_s, 3 * (rounds + idle), 1e-9);
            assert_float_equal(gpipe, even, 1e-9);
            assert_float_equal(even, (double)idle / (rounds + idle), 1e-9);
            // With zero-bubble the idle time is a third of that of 1f1b: (P - 1) (F + B - W), where
            // F is the time of FORWARD, and B and W are those of the two halves of BACKWARD (here
            // each of them is 1): arXiv:2401.10241, table 2.
            double zero = bubble_of("zero-bubble", ranks, 1, rounds, &end_s);
            assert_float_equal(end_s, 3 * rounds + idle, 1e-9);
            assert_true(ranks == 1 ? zero == 0 : zero < even);
            for (int stages = 2; stages <= 4; stages++) {
                // With v stages on each rank the idle time is 1/v of that of 1f1b: interleaved, see
                // arXiv:2104.04473, 2.2.2; looped (breadth-first), see arXiv:2211.05953.
                double looped = bubble_of("interleaved", ranks, stages, rounds, &end_s);
                assert_float_equal(end_s, 3 * (rounds + (double)idle / stages), 1e-9);
                assert_true(ranks == 1 ? looped == 0 : looped < even);
                looped = bubble_of("looped", ranks, stages, rounds, &end_s);
                assert_float_equal(end_s, 3 * (rounds + (double)idle / stages), 1e-9);
                assert_true(ranks == 1 ? looped == 0 : looped < even);
            }
        }
}

static void test_in_flight(void **state) {
    (void)state;
    for (int o = 0; tri_orders[o]; o++)
        for (int ranks = 1; ranks <= 9; ranks += 2)
            for (int rounds = 1; rounds <= 24; rounds += 1 + rounds / 2) {
                schedule_case c = {.strategy = "pipeline",
                                   .order = tri_orders[o]->name,
                                   .pipeline = ranks,
                                   .stages_per_rank = tri_orders[o]->loops_over_stages ? 2 : 1,
                                   .micro_batches = rounds};
                schedule_set set;
                schedule_set_make(&c, &set);
                for (int stage = 0; stage < set.requests[0].stage_count; stage++) {
                    int rank = stage % ranks, bound = rounds;
                    const char *order = tri_orders[o]->name;
                    if (!strcmp(order, "1f1b")) bound = ranks - stage;
                    if (!strcmp(order, "zero-bubble")) bound = ranks;
                    if (!strcmp(order, "interleaved")) bound = 2 * ranks;
                    bound = bound < rounds ? bound : rounds;
                    int most =
                        tri_schedule_in_flight(&set.schedules[rank], &set.requests[rank], stage);
                    if (most > bound || (!strcmp(order, "1f1b") && most != bound))
                        fail_msg("%s, stage %d: %d in flight, not %d", schedule_case_text(&c),
                                 stage, most, bound);
                }
                schedule_set_destroy(&set);
            }
}

// A rank waits for its sends before it reuses their memory. Checks that no rank would wait for ever
// even if the action right after each SEND reused the memory.
static void test_waits(void **state) {
    (void)state;
    // The numbers of pipeline ranks, of stages on each rank, of micro-batches, and of blocks in
    // each stage.
    static const int shapes[][4] = {{2, 1, 5, 1}, {3, 1, 7, 2},  {4, 2, 8, 1},
                                    {5, 3, 9, 1}, {8, 2, 20, 1}, {4, 3, 16, 3}};
    for (int o = 0; tri_orders[o]; o++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (int flags = 0; flags < 8; flags++) {
                schedule_case c = {.strategy = "pipeline",
                                   .order = tri_orders[o]->name,
                                   .pipeline = shapes[i][0],
                                   .stages_per_rank =
                                       tri_orders[o]->loops_over_stages ? shapes[i][1] : 1,
                                   .micro_batches = shapes[i][2],
                                   .blocks_per_stage = shapes[i][3],
                                   .skips = flags & 1,
                                   .recompute = flags & 2,
                                   .evaluates = flags & 4};
                schedule_set set;
                schedule_set_make(&c, &set);
                for (int rank = 0; rank < set.mesh.ranks; rank++) {
                    tri_schedule *s = &set.schedules[rank];
                    tri_wait *waits = TRI_NEW_ARRAY(set.arena, tri_wait, s->count);
                    int count = 0;
                    for (int k = 0; k + 1 < s->count; k++)
                        if (s->actions[k].kind == TRI_ACTION_SEND_ALONG ||
                            s->actions[k].kind == TRI_ACTION_SEND_BACK)
                            waits[count++] = (tri_wait){k + 1, k};
                    tri_schedule_find_dependencies(s, &set.requests[rank], waits, count);
                }
                if (tri_schedule_verify_ranks(&set.mesh, set.schedules, set.requests) != TRI_OK)
                    fail_msg("%s: %s", schedule_case_text(&c), tri_error_message());
                schedule_set_destroy(&set);
            }
}

// Checks that a deterministic pipeline adds the statistics of micro-batches one by one: a SCATTER
// that adds to earlier sums brings the statistics of one micro-batch at most.
static void check_statistics(const schedule_case *c, const tri_schedule_request *r,
                             const tri_schedule *s) {
    int *held = TRI_NEW_ARRAY(s->arena, int, r->unit_count);
    for (int i = 0; i < s->count; i++) {
        const tri_action *a = &s->actions[i];
        if (a->kind == TRI_ACTION_FORWARD)
            for (int k = 0; k < r->blocks[a->subject].unit_count; k++)
                held[r->blocks[a->subject].units[k]]++;
        if (a->kind != TRI_ACTION_SCATTER) continue;
        if (r->units[a->subject].has_statistics && a->accumulate && held[a->subject] > 1)
            fail_msg("%s: SCATTER of unit %d adds the sum of %d micro-batches",
                     schedule_case_text(c), a->subject, held[a->subject]);
        held[a->subject] = 0;
    }
}

static void test_statistics_one_by_one(void **state) {
    (void)state;
    for (int o = 0; tri_orders[o]; o++)
        for (int i = 0; i < 36; i++) {
            schedule_case c = {.strategy = "pipeline",
                               .order = tri_orders[o]->name,
                               .pipeline = 2 + i % 3,
                               .stages_per_rank = tri_orders[o]->loops_over_stages ? 1 + i % 4 : 1,
                               .blocks_per_stage = 1 + i % 3,
                               .micro_batches = 1 + i,
                               .deterministic = true};
            schedule_set set;
            schedule_set_make(&c, &set);
            for (int rank = 0; rank < set.mesh.ranks; rank++)
                check_statistics(&c, &set.requests[rank], &set.schedules[rank]);
            schedule_set_destroy(&set);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_combination),
                                       cmocka_unit_test(test_many_ranks),
                                       cmocka_unit_test(test_shared_layers),
                                       cmocka_unit_test(test_bubbles),
                                       cmocka_unit_test(test_in_flight),
                                       cmocka_unit_test(test_waits),
                                       cmocka_unit_test(test_statistics_one_by_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
