// Checks the plans of many random runs (support/random_run.h): networks that branch and skip blocks
// on random meshes. No action finds another value in memory than the one that it reads, which
// tri_plan_create checks, and no rank waits for ever, on devices of both kinds.
#include "device/far/far.h"
#include "device/ref/ref.h"
#include "support/random_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

enum { RUNS = 900 };

static void check(const random_run *run, tri_plan *const *plans) {
    tri_schedule schedules[RANDOM_RUN_RANKS];
    tri_schedule_request requests[RANDOM_RUN_RANKS];
    // A deterministic run without shards is planned as if its replicas were shards.
    tri_mesh mesh = run->mesh;
    mesh.size[TRI_AXIS_REPLICATE] = plans[0]->sharing.replicate_size;
    mesh.size[TRI_AXIS_SHARD] = plans[0]->sharing.shards;
    for (int shape = 0; shape < TRI_STEP_SHAPE_COUNT; shape++) {
        if (plans[0]->steps[shape].samples == 0) continue;
        for (int rank = 0; rank < run->mesh.ranks; rank++) {
            schedules[rank] = plans[rank]->steps[shape].schedule;
            requests[rank] = plans[rank]->steps[shape].request;
        }
        if (tri_schedule_verify_ranks(&mesh, schedules, requests) != TRI_OK)
            fail_msg("%s: %s", random_run_text(run), tri_error_message());
    }
}

static void test_plans(void **state) {
    (void)state;
    tri_device_description near, far;
    assert_int_equal(tri_device_ref.describe(&(tri_device_config){.threads = 1}, &near), TRI_OK);
    assert_int_equal(tri_device_far.describe(&(tri_device_config){.threads = 1}, &far), TRI_OK);
    for (uint64_t seed = 0; seed < RUNS; seed++) {
        random_run run;
        random_run_make(seed, &near, &far, &run);
        check(&run, run.sync_plans);
        check(&run, run.async_plans);
        random_run_destroy(&run);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plans)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
