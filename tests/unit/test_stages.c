// Checks how blocks are cut into the stages of a pipeline: by cost, as evenly as possible, or by
// the names of blocks, exactly as asked for.
#include "base/philox.h"
#include "plan/stages.h"
#include "support/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 9 };

static uint32_t draw(uint64_t stream, uint32_t *at, uint32_t below) {
    return tri_philox_at(7, stream, 0, (*at)++) % below;
}

// Tries all ways to cut the blocks into stages. In `cut`, a bit is set for each block that begins a
// stage. Returns the smallest possible cost of the most expensive stage.
static double best_cut(const double *costs, int blocks, int stages) {
    double best = -1;
    for (unsigned cut = 0; cut < 1u << (blocks - 1); cut++) {
        double sum = 0, most = 0;
        int count = 1;
        for (int b = 0; b < blocks; b++) {
            if (b > 0 && cut >> (b - 1) & 1) {
                sum = 0;
                count++;
            }
            sum += costs[b];
            most = sum > most ? sum : most;
        }
        if (count == stages && (best < 0 || most < best)) best = most;
    }
    return best;
}

static void test_cut(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 2000; i++) {
        uint32_t at = 0;
        double costs[MOST], sums[MOST] = {0}, most = 0;
        int stage_of[MOST], blocks = 1 + (int)draw(i, &at, MOST);
        int stages = 1 + (int)draw(i, &at, (uint32_t)blocks);
        for (int b = 0; b < blocks; b++) costs[b] = draw(i, &at, 3) ? draw(i, &at, 20) : 0;
        assert_int_equal(tri_stages_cut(costs, blocks, stages, stage_of), TRI_OK);
        assert_int_equal(stage_of[0], 0);
        assert_int_equal(stage_of[blocks - 1], stages - 1);
        for (int b = 0; b < blocks; b++) {
            int step = b ? stage_of[b] - stage_of[b - 1] : 0;
            assert_true(step == 0 || step == 1);
            sums[stage_of[b]] += costs[b];
        }
        for (int s = 0; s < stages; s++) most = sums[s] > most ? sums[s] : most;
        assert_true(most == best_cut(costs, blocks, stages));
    }
    double one = 1;
    int stage;
    assert_int_equal(tri_stages_cut(&one, 1, 2, &stage), TRI_BAD_INPUT);
    message_check(tri_error_message(), "strategy.mesh.pipeline|2|1");
}

static void test_named(void **state) {
    (void)state;
    static const char *blocks[] = {"stem", "a", "b", "head"};
    tri_graph graph = {.block_count = 4, .blocks = blocks};
    static const struct {
        const char *names[3];
        int count, stages;
        int stage_of[4];
        const char *error;
    } rows[] = {
        {{NULL}, 0, 1, {0, 0, 0, 0}, NULL},
        {{"b"}, 1, 2, {0, 0, 1, 1}, NULL},
        {{"a", "b", "head"}, 3, 4, {0, 1, 2, 3}, NULL},
        {{"head"}, 1, 2, {0, 0, 0, 1}, NULL},
        {{"stem"}, 1, 2, {0}, "'stem' is not behind"},
        {{"b", "a"}, 2, 3, {0}, "'a' is not behind"},
        {{"a", "a"}, 2, 3, {0}, "'a' is not behind"},
        {{"c"}, 1, 2, {0}, "'c' is no block"},
        {{"a", "b"}, 2, 2, {0}, "names 2 blocks, but 2 stages need 1"},
        {{"a"}, 1, 5, {0}, "at most 4"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int stage_of[4];
        tri_status status =
            tri_stages_named(&graph, rows[i].names, rows[i].count, rows[i].stages, stage_of);
        assert_int_equal(status, rows[i].error ? TRI_BAD_INPUT : TRI_OK);
        if (rows[i].error)
            assert_non_null(strstr(tri_error_message(), rows[i].error));
        else
            assert_memory_equal(stage_of, rows[i].stage_of, sizeof stage_of);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cut), cmocka_unit_test(test_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
