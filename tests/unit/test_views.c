// Runs as views read them: curves, repeated steps, resumes, lines that are cut or damaged; and in
// what recipes differ.
#include "support/arena_fixture.h"
#include "support/message.h"
#include "support/run_folder.h"
#include "views/differences.h"
#include "views/run.h"

#include <math.h>
#include <string.h>

static views_run *take(const char *text) {
    size_t taken;
    views_run *run = views_run_create(arena, "runs/a");
    assert_int_equal(views_run_take(run, text, strlen(text), &taken), TRI_OK);
    return run;
}

static void check_curve(const views_run *run, const char *name, const char *steps_and_values) {
    char text[512] = "";
    const views_curve *c = views_curve_find(run, name);
    assert_non_null(c);
    for (int i = 0; i < c->count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld:%g", i ? " " : "",
                 (long long)c->points[i].step, c->points[i].value);
    assert_string_equal(text, steps_and_values);
}

static void test_curves(void **state) {
    (void)state;
    const views_run *run =
        take("{\"kind\":\"train\",\"step\":1,\"epoch\":0,\"loss\":2.5,\"lr\":1,\"wall_s\":0.5}\n"
             "{\"kind\":\"train\",\"step\":2,\"epoch\":0,\"loss\":\"NaN\",\"lr\":1e-3}\n"
             "{\"kind\":\"val\",\"step\":2,\"loss\":\"-Infinity\",\"accuracy\":0.25,"
             "\"matrix\":[[1,2],[3,4]],\"classes\":[\"a\",\"b\"]}\n"
             "{\"kind\":\"end\",\"status\":\"completed\",\"steps\":2,\"wall_s\":3}\n");
    check_curve(run, "train/loss", "1:2.5 2:nan");
    check_curve(run, "train/lr", "1:1 2:0.001");
    check_curve(run, "val/loss", "2:-inf");
    check_curve(run, "val/accuracy", "2:0.25");
    assert_null(views_curve_find(run, "val/matrix"));
    assert_null(views_curve_find(run, "train/step"));
    assert_false(views_curve_is_shown(views_curve_find(run, "train/epoch")));
    assert_int_equal(run->list_count, 1);
    assert_string_equal(tri_json_emit(arena, tri_tree_get(run->lists[0].line, "matrix")),
                        "[[1,2],[3,4]]");
    assert_int_equal(run->step, 2);
    assert_int_equal(run->resume_count, 0);
    assert_true(run->wall_s == 3);
    assert_non_null(views_event_last(run, "end"));
}

// Of repeated steps the later value holds. Without a line of the start, the second process is seen
// by its time or its steps; higher steps before that are no longer of the run's history.
static void test_repeated_steps(void **state) {
    (void)state;
    const views_run *run = take("{\"kind\":\"train\",\"step\":10,\"loss\":1,\"wall_s\":5}\n"
                                "{\"kind\":\"train\",\"step\":20,\"loss\":2,\"wall_s\":9}\n"
                                "{\"kind\":\"val\",\"step\":20,\"loss\":7}\n"
                                "{\"kind\":\"train\",\"step\":30,\"loss\":3,\"wall_s\":11}\n"
                                "{\"kind\":\"train\",\"step\":20,\"loss\":4,\"wall_s\":2}\n"
                                "{\"kind\":\"val\",\"step\":20,\"loss\":8}\n"
                                "{\"kind\":\"val\",\"step\":20,\"loss\":9}\n");
    check_curve(run, "train/loss", "10:1 20:4");
    check_curve(run, "val/loss", "20:9");
    assert_int_equal(run->resume_count, 1);
    assert_int_equal(run->resumes[0].step, 19);
    assert_true(views_curve_find(run, "train/loss")->points[1].wall_s == 13);
}

// A line that tells of the start takes back what the process before had done after that step.
static void test_start(void **state) {
    (void)state;
    const views_run *run = take("{\"kind\":\"start\",\"step\":0}\n"
                                "{\"kind\":\"train\",\"step\":10,\"loss\":1,\"wall_s\":5}\n"
                                "{\"kind\":\"train\",\"step\":20,\"loss\":2,\"wall_s\":9}\n"
                                "{\"kind\":\"train\",\"step\":30,\"loss\":3,\"wall_s\":11}\n"
                                "{\"kind\":\"start\",\"step\":15}\n"
                                "{\"kind\":\"train\",\"step\":20,\"loss\":4,\"wall_s\":40}\n"
                                "{\"kind\":\"end\",\"status\":\"stopped\",\"steps\":20}\n"
                                "{\"kind\":\"message\",\"step\":20,\"text\":\"late\"}\n"
                                "{\"kind\":\"start\",\"step\":20}\n");
    check_curve(run, "train/loss", "10:1 20:4");
    assert_int_equal(run->resume_count, 2);
    assert_int_equal(run->resumes[0].step, 15);
    assert_true(run->resumes[0].wall_s == 11);
    assert_int_equal(run->resumes[1].step, 20);
    assert_int_equal(run->step, 20);
    assert_false(run->has_ended);
    assert_true(run->wall_s == 51);
}

static void test_best(void **state) {
    (void)state;
    const views_run *run =
        take("{\"kind\":\"val\",\"step\":1,\"loss\":\"NaN\",\"accuracy\":0.1,\"lr\":3}\n"
             "{\"kind\":\"val\",\"step\":2,\"loss\":2,\"accuracy\":0.5,\"lr\":2}\n"
             "{\"kind\":\"val\",\"step\":3,\"loss\":2,\"accuracy\":\"Infinity\",\"lr\":1}\n");
    assert_int_equal(views_curve_best(views_curve_find(run, "val/loss"))->step, 2);
    assert_int_equal(views_curve_best(views_curve_find(run, "val/accuracy"))->step, 2);
    assert_null(views_curve_best(views_curve_find(run, "val/lr")));
}

static void test_damaged(void **state) {
    (void)state;
    size_t taken;
    const char *text = "{\"kind\":\"train\",\"step\":1,\"loss\":1}\n"
                       "{\"kind\":\"tr\n"
                       "[1]\n"
                       "{\"kind\":\"train\",\"step\":2,\"loss\":2}\n"
                       "{\"kind\":\"train\",\"step\":3,\"lo";
    views_run *run = views_run_create(arena, "runs/a");
    assert_int_equal(views_run_take(run, text, strlen(text), &taken), TRI_OK);
    assert_int_equal(taken, strrchr(text, '\n') + 1 - text);
    check_curve(run, "train/loss", "1:1 2:2");
    assert_int_equal(run->damaged_lines, 2);
    assert_int_equal(run->first_damaged, 2);
    static const char *const foreign[] = {"{\"loss\":1}\n", "loss\n", "\n", "{\"kind\":3}\n"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        run = views_run_create(arena, "runs/a");
        assert_int_equal(views_run_take(run, foreign[i], strlen(foreign[i]), &taken),
                         TRI_BAD_INPUT);
        message_check(tri_error_message(), "runs/a/metrics.jsonl|kind");
    }
}

static void write_file(const char *name, const char *text) {
    FILE *file = fopen(in_run(name), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void test_folder(void **state) {
    (void)state;
    views_run *run;
    bool is_changed;
    assert_int_equal(views_run_open(arena, "/nowhere/at/all", &run), TRI_NOT_FOUND);
    assert_int_equal(views_run_open(arena, run_dir, &run), TRI_NOT_FOUND);
    message_check(tri_error_message(), "metrics.jsonl");
    write_file("metrics.jsonl", "{\"kind\":\"train\",\"step\":1,\"loss\":1}\n{\"kind\"");
    write_file("recipe.yaml", "name: small\nseed: 3\n");
    assert_int_equal(views_run_open(arena, in_run("metrics.jsonl"), &run), TRI_OK);
    assert_string_equal(run->name, "small");
    assert_int_equal(run->status, VIEWS_FAILED); // no process holds it, and it has no end
    assert_non_null(run->reason);
    assert_int_equal(tri_os.mkdir(in_run("checkpoints"), 0700), 0);
    assert_int_equal(tri_os.mkdir(in_run("checkpoints/step-00000020"), 0700), 0);
    assert_int_equal(tri_os.mkdir(in_run("checkpoints/step-00000003"), 0700), 0);
    assert_int_equal(tri_os.symlink("step-00000020", in_run("checkpoints/last")), 0);
    write_file("metrics.jsonl", "{\"kind\":\"train\",\"step\":1,\"loss\":1}\n"
                                "{\"kind\":\"end\",\"status\":\"stopped\",\"reason\":\"asked\"}\n");
    assert_int_equal(views_run_update(run, &is_changed), TRI_OK);
    assert_true(is_changed);
    assert_int_equal(run->status, VIEWS_STOPPED);
    assert_string_equal(run->reason, "asked");
    check_curve(run, "train/loss", "1:1");
    assert_int_equal(run->checkpoint_count, 2);
    assert_int_equal(run->checkpoints[0].step, 3);
    assert_true(run->checkpoints[1].is_last && !run->checkpoints[1].is_best);
    assert_int_equal(views_run_update(run, &is_changed), TRI_OK);
    assert_false(is_changed);
    write_file("metrics.jsonl", "{\"kind\":\"train\",\"step\":9,\"loss\":9}\n"); // a shorter file
    assert_int_equal(views_run_update(run, &is_changed), TRI_OK);
    check_curve(run, "train/loss", "9:9");
}

static void test_differences(void **state) {
    (void)state;
    static const char *const texts[] = {"a: 1\nb: {c: 1.0, d: [1, 2]}\nrecorded_in: x\n",
                                        "b: {c: 1, d: [1, 3]}\ne: null\nf: text\nrecorded_in: y\n"};
    const tri_tree *recipes[3] = {NULL};
    views_difference *found;
    for (int i = 0; i < 2; i++) {
        tri_tree *tree;
        assert_int_equal(tri_yaml_parse(arena, texts[i], strlen(texts[i]), "r.yaml", &tree),
                         TRI_OK);
        recipes[i] = tree;
    }
    assert_int_equal(views_differences_find(arena, recipes, 2, &found), 3);
    assert_string_equal(found[0].key, "a");
    assert_string_equal(found[1].key, "b.d");
    assert_string_equal(tri_yaml_flow(arena, found[1].values[1]), "[1, 3]");
    assert_string_equal(found[2].key, "f");
    assert_null(found[2].values[0]);
    assert_int_equal(views_differences_find(arena, recipes, 1, &found), 0);
    assert_int_equal(views_differences_find(arena, recipes, 3, &found), 4); // one has no key at all
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_curves),
        cmocka_unit_test(test_repeated_steps),
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_best),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test_setup_teardown(test_folder, setup, teardown),
        cmocka_unit_test(test_differences),
    };
    return cmocka_run_group_tests(tests, make_arena, drop_arena);
}
