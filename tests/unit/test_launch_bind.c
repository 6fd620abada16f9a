// Checks to which CPUs the launcher binds workers (the ranks' processes), on nodes of the
// supercomputers LUMI, JUWELS Booster and Alps. Files that tests/support/make_topologies.py wrote
// describe these nodes. The CPUs have to be those that the computing sites publish, and to follow
// some rules for any number of workers.
#include "launch/bind.h"

#include "support/arena_fixture.h"

#include <stdlib.h>
#include <string.h>

static launch_topology read_host(const char *name) {
    launch_topology host;
    const char *path =
        tri_arena_printf(arena, "%s/tests/support/topologies/%s.xml", TRIREME_SOURCE_DIR, name);
    assert_int_equal(launch_topology_read(arena, path, true, &host), TRI_OK);
    return host;
}

static const char *cpus_of(const launch_assignment *assignment) {
    return launch_cpus_text(arena, &assignment->cpus);
}

static const char *masks_of(const launch_topology *host, const launch_assignment *assignments,
                            int count) {
    const char *text = "";
    for (int i = 0; i < count; i++)
        text = tri_arena_printf(arena, "%s%s%s", text, i ? "," : "",
                                launch_cpus_mask(arena, &assignments[i].cpus, host->cpu_width));
    return text;
}

static void plan(const launch_topology *host, int workers, const char *visible,
                 launch_assignment *assignments) {
    assert_int_equal(launch_bind_plan(arena, host, LAUNCH_BIND_AUTO, workers, visible, assignments),
                     TRI_OK);
}

// The workers get the CPUs that LUMI's documentation gives, as --cpu-bind=mask_cpu, for the GPUs
// (there called GCDs) 0 to 7.
static void lumi_gets_the_published_masks(void **state) {
    (void)state;
    launch_topology host = read_host("lumi-g");
    launch_assignment assignments[8];
    assert_int_equal(host.core_count, 56);
    assert_int_equal(host.gpu_count, 8);
    plan(&host, 8, NULL, assignments);
    assert_string_equal(masks_of(&host, assignments, 8),
                        "0x00fe000000000000,0xfe00000000000000,0x0000000000fe0000,"
                        "0x00000000fe000000,0x00000000000000fe,0x000000000000fe00,"
                        "0x000000fe00000000,0x0000fe0000000000");
    // Two ranks, for which the job chose GPUs 4 and 6, divide the CPUs near the other GPUs too.
    plan(&host, 2, "4,6", assignments);
    assert_string_equal(cpus_of(&assignments[0]), "1-7,9-15,17-23,25-31");
    assert_string_equal(cpus_of(&assignments[1]), "33-39,41-47,49-55,57-63");
}

// GPUs 0 to 3 are at NUMA nodes 3, 1, 7 and 5. Each rank gets the CPUs of its GPU's node, and of a
// node beside it that has no GPU.
static void juwels_follows_its_gpus(void **state) {
    (void)state;
    launch_topology host = read_host("juwels-booster");
    launch_assignment assignments[4];
    assert_int_equal(host.nodes, 8);
    static const int published[] = {3, 1, 7, 5};
    for (int i = 0; i < 4; i++)
        assert_int_equal(host.cores[host.gpus[i].first_core].node_number, published[i]);
    plan(&host, 4, "0,1,2,3", assignments);
    static const char *const cpus[] = {"12-23,60-71", "0-11,48-59", "36-47,84-95", "24-35,72-83"};
    for (int i = 0; i < 4; i++) assert_string_equal(cpus_of(&assignments[i]), cpus[i]);
}

static void alps_has_blocks_of_72_cores(void **state) {
    (void)state;
    launch_topology host = read_host("alps");
    launch_assignment assignments[4];
    plan(&host, 4, NULL, assignments);
    for (int i = 0; i < 4; i++)
        assert_string_equal(cpus_of(&assignments[i]),
                            tri_arena_printf(arena, "%d-%d", 72 * i, 72 * i + 71));
    plan(&host, 4, "3,2,1,0", assignments); // as on Perlmutter, which numbers GPUs in reverse order
    assert_string_equal(cpus_of(&assignments[0]), "216-287");
    assert_string_equal(cpus_of(&assignments[3]), "0-71");
}

// The CPUs of different workers are disjoint, and each worker has some. If there are more workers
// than GPUs, all usable CPUs are divided, about equally.
static void any_number_of_workers(void **state) {
    (void)state;
    static const char *const names[] = {"lumi-g", "juwels-booster", "alps"};
    launch_assignment *assignments = TRI_NEW_ARRAY(arena, launch_assignment, 512);
    for (int n = 0; n < 3; n++) {
        launch_topology host = read_host(names[n]);
        for (int workers = 1; workers <= host.cpu_count; workers += workers < 20 ? 1 : 13) {
            launch_cpus all = {0};
            int most = 0, least = host.cpu_count;
            plan(&host, workers, NULL, assignments);
            for (int i = 0; i < workers; i++) {
                int count = launch_cpus_count(&assignments[i].cpus);
                assert_true(count > 0 && assignments[i].cpus.bound);
                for (int cpu = 0; cpu < host.cpu_width; cpu++) {
                    if (!launch_cpus_has(&assignments[i].cpus, cpu)) continue;
                    assert_false(launch_cpus_has(&all, cpu));
                    launch_cpus_add(&all, cpu);
                }
                most = count > most ? count : most;
                least = count < least ? count : least;
            }
            assert_true(launch_cpus_count(&all) <= host.cpu_count);
            if (workers <= host.gpu_count) continue;
            assert_int_equal(launch_cpus_count(&all), host.cpu_count);
            assert_true(most - least <= 2);
        }
    }
}

static void impossible_requests_say_what_is_free(void **state) {
    (void)state;
    launch_topology host = read_host("lumi-g");
    launch_assignment *assignments = TRI_NEW_ARRAY(arena, launch_assignment, 64);
    assert_int_equal(launch_bind_plan(arena, &host, LAUNCH_BIND_AUTO, 57, NULL, assignments),
                     TRI_UNSUPPORTED);
    assert_non_null(strstr(tri_error_message(), "57 workers"));
    assert_non_null(strstr(tri_error_message(), "56 are free here: 1-7,9-15,17-23"));
}

static void domains_are_distributed_in_order(void **state) {
    (void)state;
    launch_topology host = read_host("juwels-booster");
    launch_assignment assignments[4];
    static const struct {
        launch_binding binding;
        int workers;
        const char *first, *last;
    } cases[] = {
        {LAUNCH_BIND_SOCKET, 2, "0-23,48-71", "24-47,72-95"},
        {LAUNCH_BIND_NODE, 4, "0-5,48-53", "36-41,84-89"},
        {LAUNCH_BIND_CORE_COMPLEX, 2, "0-2,48-50", "24-26,72-74"},
        {LAUNCH_BIND_EXCLUSIVE, 4, "0-5,48-53", "36-41,84-89"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int workers = cases[i].workers;
        assert_int_equal(
            launch_bind_plan(arena, &host, cases[i].binding, workers, NULL, assignments), TRI_OK);
        assert_string_equal(cpus_of(&assignments[0]), cases[i].first);
        assert_string_equal(cpus_of(&assignments[workers - 1]), cases[i].last);
    }
}

static void the_map_is_a_table_and_masks(void **state) {
    (void)state;
    launch_topology host = read_host("lumi-g");
    launch_assignment assignments[8];
    char *text = NULL;
    size_t size;
    plan(&host, 8, NULL, assignments);
    FILE *out = open_memstream(&text, &size);
    launch_bind_print(arena, &host, assignments, 8, out);
    fclose(out);
    const char *row = strstr(text, "\n0 ");
    assert_non_null(row);
    static const char *const words[] = {"0000:c1:00.0", "3", "hsn0", "7", "49-55"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        assert_non_null(row = strstr(row, words[i]));
    assert_non_null(strstr(text, "masks: 0x00fe000000000000,0xfe00000000000000,"));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lumi_gets_the_published_masks),
        cmocka_unit_test(juwels_follows_its_gpus),
        cmocka_unit_test(alps_has_blocks_of_72_cores),
        cmocka_unit_test(any_number_of_workers),
        cmocka_unit_test(impossible_requests_say_what_is_free),
        cmocka_unit_test(domains_are_distributed_in_order),
        cmocka_unit_test(the_map_is_a_table_and_masks),
    };
    return cmocka_run_group_tests(tests, make_arena, drop_arena);
}
