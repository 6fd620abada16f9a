// Tests what `trireme scale` shows for invented points (a point is the training with one number of
// ranks): its numbers, table, JSON object and picture; and how its simulation is calibrated.
#include "cli/scale_view.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FIRST_RANKS = 2, BATCH = 64 };

static scale_view *make_view(bool weak) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    scale_view *v = TRI_NEW(arena, scale_view);
    *v = (scale_view){.arena = arena,
                      .name = "a <net> & \"more\"",
                      .strategy = "ddp",
                      .is_weak = weak,
                      .count = 3,
                      .rates = tri_rates_assumed,
                      .is_calibrated = true,
                      .link_ranks = 4,
                      .link_hosts = 2,
                      .link_bytes = 1000000};
    for (int i = 0; i < v->count; i++) {
        scale_point *p = &v->points[i];
        p->ranks = FIRST_RANKS << i;
        p->hosts = 1 << i;
        p->recipe.batch.global = weak ? BATCH << i : BATCH;
        p->is_measured = i < 2;
        p->simulated_step_s = (double)p->recipe.batch.global / (1000 << i);
        p->simulated_waiting = 0.01 * i;
    }
    v->points[0].measured = (tri_bench_result){.samples_per_s = 1000,
                                               .samples_per_s_low = 900,
                                               .samples_per_s_high = 1100,
                                               .waiting_fraction = 0.125};
    v->points[1].measured = (tri_bench_result){.samples_per_s = 1600,
                                               .samples_per_s_low = 1500,
                                               .samples_per_s_high = 1700,
                                               .waiting_fraction = NAN};
    return v;
}

static void near(double value, double wanted) { assert_true(fabs(value / wanted - 1) < 1e-9); }

static void test_numbers(void **state) {
    (void)state;
    for (int weak = 0; weak < 2; weak++) {
        scale_view *v = make_view(weak);
        near(scale_speedup(v, 0), 1);
        near(scale_efficiency(v, 0), 1);
        near(scale_speedup(v, 1), 1.6);
        near(scale_efficiency(v, 1), 0.8);
        near(scale_error(&v->points[1]), 2000.0 / 1600 - 1);
        near(scale_step_s(&v->points[1]), (weak ? 2 * BATCH : BATCH) / 1600.0);
        // The third point is simulated: 4000 samples/s, four times as many as the first point, on
        // four times as many ranks.
        near(scale_speedup(v, 2), 4);
        near(scale_efficiency(v, 2), 1);
        near(scale_waiting(&v->points[2]), 0.02);
        assert_non_null(strstr(scale_method(v), "by up to 25.0%"));
        assert_non_null(strstr(scale_method(v), "an all-reduce of 1.0 MB among 4 on 2 hosts"));
        assert_non_null(strstr(scale_title(v), weak ? "weak scaling, 64 to 256 samples"
                                                    : "strong scaling, 64 samples"));
        tri_arena_destroy(v->arena);
    }
}

static char *written(void (*write)(const scale_view *v, FILE *out), const scale_view *v) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    write(v, out);
    fclose(out);
    return text;
}

static void test_table(void **state) {
    (void)state;
    scale_view *v = make_view(false);
    char *text = written(scale_print, v);
    assert_non_null(strstr(text, "\nmeasured       2      1       64         1,000          64"));
    assert_non_null(strstr(text, "\nmeasured       4      2       64         1,600          40"));
    assert_non_null(strstr(text, "\nsimulated      8      4       64         4,000          16"));
    assert_non_null(strstr(text, "37.65 .. 42.67"));
    assert_non_null(strstr(text, " 80.0%"));
    assert_non_null(strstr(text, "12.5%"));
    assert_non_null(strstr(text, "2,000   +25.0%"));
    assert_null(strstr(text, "nan"));
    free(text);
    tri_arena_destroy(v->arena);
}

static void test_json(void **state) {
    (void)state;
    scale_view *v = make_view(true);
    char *text = written(scale_print_json, v);
    tri_tree *tree;
    double value;
    assert_int_equal(tri_json_parse(v->arena, text, strlen(text), "test", &tree), TRI_OK);
    assert_string_equal(tri_tree_find(tree, "name")->text, v->name);
    const tri_tree *points = tri_tree_get(tree, "points");
    assert_int_equal(points->count, 3);
    assert_true(tri_tree_to_double(tri_tree_find(points->items[1], "efficiency"), &value));
    near(value, 0.8);
    assert_true(tri_tree_is_null(tri_tree_find(points->items[1], "measured.waiting")));
    assert_true(tri_tree_is_null(tri_tree_get(points->items[2], "measured")));
    assert_true(tri_tree_is_null(tri_tree_get(points->items[2], "simulation_error")));
    assert_string_equal(tri_tree_get(points->items[2], "from")->text, "simulated");
    free(text);
    tri_arena_destroy(v->arena);
}

// Checks a few rules of XML: elements are closed in order, attributes are quoted, and there is no
// bare special character. (tests/cli/test_scale.py reads a picture with a complete parser.)
static void check_xml(const char *text) {
    char open[32][16];
    int depth = 0;
    while (*text) {
        if (*text != '<') {
            assert_true(*text != '>');
            assert_true(*text != '&' || strchr(text, ';') - text < 6);
            text++;
            continue;
        }
        const char *end = strchr(text, '>');
        assert_non_null(end);
        size_t length = strcspn(text + 1 + (text[1] == '/'), " />");
        char name[16];
        assert_in_range(length, 1, sizeof name - 1);
        snprintf(name, sizeof name, "%.*s", (int)length, text + 1 + (text[1] == '/'));
        int quotes = 0;
        for (const char *at = text; at < end; at++) quotes += *at == '"';
        assert_int_equal(quotes % 2, 0);
        if (text[1] == '/')
            assert_string_equal(open[--depth], name);
        else if (end[-1] != '/')
            snprintf(open[depth++], sizeof open[0], "%s", name);
        text = end + 1;
    }
    assert_int_equal(depth, 0);
}

static int count_of(const char *text, const char *word) {
    int count = 0;
    while ((text = strstr(text, word))) count++, text++;
    return count;
}

static void test_picture(void **state) {
    (void)state;
    scale_view *v = make_view(false);
    char *text = written(scale_draw, v);
    check_xml(text);
    assert_non_null(strstr(text, "a &lt;net&gt; &amp; &quot;more&quot; (ddp): strong scaling"));
    // Each of the two plots has 2 measured points, 3 simulated points and 3 lines.
    assert_int_equal(count_of(text, "<title>measured"), 2 * 2);
    assert_int_equal(count_of(text, "<title>simulated"), 2 * 3);
    assert_int_equal(count_of(text, "<polyline"), 2 * 3);
    assert_non_null(strstr(text, "samples per second"));
    assert_non_null(strstr(text, ">efficiency<"));
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    free(text);
    v->count = 1; // one number of ranks only
    text = written(scale_draw, v);
    check_xml(text);
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    free(text);
    tri_arena_destroy(v->arena);
}

// Plans all points of the sweep `v` for a built-in model and the device `null`.
static void plan_points(scale_view *v, tri_recipe *recipe, const char *const *overrides,
                        int count) {
    const cli_context context = {.program = "test"};
    assert_int_equal(tri_recipe_load(v->arena, TRIREME_SOURCE_DIR "/recipes/mlp-jax.yaml",
                                     overrides, count, NULL, recipe),
                     TRI_OK);
    assert_int_equal(scale_plan(v, recipe, &context, "null"), TRI_OK);
}

static void test_calibration(void **state) {
    (void)state;
    const char *const overrides[] = {"data.name=synthetic", "data.shape=[1,28,28]",
                                     "data.classes=10", "batch.global=64"};
    for (int weak = 0; weak < 2; weak++) {
        scale_view *v = make_view(weak);
        tri_recipe recipe;
        plan_points(v, &recipe, overrides, 4);
        for (int i = 0; i < v->count; i++)
            assert_int_equal(scale_batch(&v->points[i]), weak ? BATCH << i : BATCH);
        v->is_calibrated = false;
        v->points[0].link_bytes_per_s = 2e9;
        v->points[1].link_bytes_per_s = 1e9;
        assert_true(scale_reduced_bytes(v) >= 784 * 512 * 4);
        scale_simulate(v);
        // With two ranks the simulation must be as fast as the measurement. Of the two measured
        // network rates, the lower one (four ranks) must also be used to simulate eight ranks.
        assert_true(v->is_calibrated);
        assert_true(fabs(scale_error(&v->points[0])) < 1e-6);
        assert_int_equal(v->link_ranks, 4);
        assert_true(v->rates.link_bytes_per_s == 1e9);
        double ideal = 4 * 1000, simulated = scale_samples_per_s(&v->points[2]);
        assert_true(simulated > 1000 && simulated < ideal);
        scale_end_plans(v);
        // If the link between ranks is so slow that communication alone takes longer than the
        // measured step, the simulation cannot be calibrated.
        scale_view *slow = make_view(weak);
        plan_points(slow, &recipe, overrides, 4);
        slow->is_calibrated = false;
        slow->points[0].link_bytes_per_s = 1;
        scale_simulate(slow);
        assert_false(slow->is_calibrated);
        assert_true(slow->rates.flops_per_s == tri_rates_assumed.flops_per_s);
        scale_end_plans(slow);
        tri_arena_destroy(slow->arena);
        tri_arena_destroy(v->arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),     cmocka_unit_test(test_table),
        cmocka_unit_test(test_json),        cmocka_unit_test(test_picture),
        cmocka_unit_test(test_calibration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
