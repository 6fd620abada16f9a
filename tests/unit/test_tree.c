// Checks document trees: parsing and writing YAML and JSON, overrides, and which texts are refused.
#include "base/tree.h"
#include "support/arena_fixture.h"

#include "base/limits.h"
#include "support/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static tri_tree *yaml(const char *text) {
    tri_tree *tree = NULL;
    tri_status status = tri_yaml_parse(arena, text, strlen(text), "r.yaml", &tree);
    if (status != TRI_OK) print_error("%s\n", tri_error_message());
    assert_int_equal(status, TRI_OK);
    return tree;
}

static void refused(const char *text, const char *parts) {
    tri_tree *tree = NULL;
    assert_int_equal(tri_yaml_parse(arena, text, strlen(text), "r.yaml", &tree), TRI_BAD_INPUT);
    assert_null(tree);
    message_check(tri_error_message(), parts);
}

static void reads_yaml(void **state) {
    tri_tree *t = yaml("name: net\nseed: 7\n\ndata:\n  transform: [{normalize: {mean: [0.5]}}]\n"
                       "  note: '12'\nempty:\nbase: &b {x: 1}\nagain: *b\n");
    assert_int_equal(t->kind, TRI_TREE_MAP);
    assert_int_equal(t->count, 6);
    assert_int_equal(tri_tree_get(t, "seed")->line, 2);
    assert_string_equal(tri_tree_get(t, "seed")->file, "r.yaml");
    assert_int_equal(tri_tree_find(t, "data.transform")->line, 5);
    assert_string_equal(tri_tree_find(t, "data.transform.0.normalize.mean.0")->text, "0.5");
    assert_true(tri_tree_find(t, "data.note")->quoted);
    assert_true(tri_tree_is_null(tri_tree_get(t, "empty")));
    assert_true(tri_tree_equal(tri_tree_get(t, "base"), tri_tree_get(t, "again")));
    assert_string_equal(tri_tree_get(t, "again")->key, "again");
    assert_null(tri_tree_find(t, "data.transform.1"));
    assert_null(tri_tree_find(t, "seed.more"));
    assert_true(tri_tree_is_null(yaml("")));
    assert_true(tri_tree_is_null(yaml("# nothing\n")));
}

static void reads_scalars(void **state) {
    int64_t i;
    double d;
    bool b;
    tri_tree *t =
        yaml("[5e8, 2.0, 9223372036854775807, 9223372036854775808, true, False, '1', 0x10, "
             "inf, .5, -3, 1e999, yes, 1.5e0, 1e-400, 0e-400]");
    assert_true(tri_tree_to_int(t->items[0], &i) && i == 500000000);
    assert_false(tri_tree_to_int(t->items[1], &i));
    assert_true(tri_tree_to_int(t->items[2], &i) && i == INT64_MAX);
    assert_false(tri_tree_to_int(t->items[3], &i));
    assert_true(tri_tree_to_bool(t->items[4], &b) && b);
    assert_true(tri_tree_to_bool(t->items[5], &b) && !b);
    assert_false(tri_tree_to_int(t->items[6], &i));
    assert_false(tri_tree_to_double(t->items[7], &d));
    assert_false(tri_tree_to_double(t->items[8], &d));
    assert_true(tri_tree_to_double(t->items[9], &d) && d == 0.5);
    assert_true(tri_tree_to_int(t->items[10], &i) && i == -3);
    assert_false(tri_tree_to_double(t->items[11], &d));
    assert_false(tri_tree_to_bool(t->items[12], &b));
    assert_false(tri_tree_to_int(t->items[13], &i));
    assert_false(tri_tree_to_double(t->items[14], &d)); // too small for a double, and not 0
    assert_true(tri_tree_to_double(t->items[15], &d) && d == 0);
}

static void refuses_bad_yaml(void **state) {
    refused("a: 1\nb: 2\na: 3\n", "r.yaml:3|key|a|twice");
    refused("a: [1, 2\n", "r.yaml:2|YAML");
    refused("a: &x [*x]\n", "r.yaml:1|alias");
    refused("a: *none\n", "r.yaml:1|alias|without|anchor");
    refused("a: 1\n---\nb: 2\n", "r.yaml:2|document");
    refused("a: !!python/object 1\n", "r.yaml:1|tags");
    refused("a: !!map {}\n", "r.yaml:1|tags");
    refused("[a]: 1\n", "r.yaml:1|key|text");
    refused("a: \"x\\0y\"\n", "r.yaml:1|NUL|value");
    tri_tree *tree;
    assert_int_equal(tri_yaml_parse(arena, "a: \0", 4, "r.yaml", &tree), TRI_BAD_INPUT);
    assert_int_equal(tri_yaml_read_file(arena, "/nonexistent/r.yaml", &tree), TRI_NOT_FOUND);
}

// Nine levels, each with nine aliases of the level before, would be more than 9^9 nodes.
static void refuses_alias_bombs(void **state) {
    char text[2048] = "l0: &l0 [x,x,x,x,x,x,x,x,x]\n";
    for (int level = 1; level < 10; level++) {
        char line[160];
        int used = snprintf(line, sizeof line, "l%d: &l%d [", level, level);
        for (int i = 0; i < 9; i++)
            used += snprintf(line + used, sizeof line - (size_t)used, "%s*l%d", i ? "," : "",
                             level - 1);
        snprintf(line + used, sizeof line - (size_t)used, "]\n");
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s", line);
    }
    size_t before = tri_arena_used(arena);
    tri_tree *tree;
    assert_int_equal(tri_yaml_parse(arena, text, strlen(text), "r.yaml", &tree), TRI_BAD_INPUT);
    message_check(tri_error_message(), "65536|aliases");
    assert_true(tri_arena_used(arena) - before < 64u << 20);
}

static void refuses_crowds(void **state) {
    enum { ROOM = 1 << 17 };
    char *text = calloc(1, ROOM);
    size_t used = 0;
    for (int i = 0; i <= TRI_MAX_TREE_KEYS; i++)
        used += (size_t)snprintf(text + used, ROOM - used, "k%d: 1\n", i);
    refused(text, "r.yaml:4097|keys|mapping");
    *strstr(text, "k4096") = 0;
    assert_int_equal(yaml(text)->count, TRI_MAX_TREE_KEYS);
    used = 0;
    for (int i = 0; i <= TRI_MAX_TREE_ANCHORS; i++)
        used += (size_t)snprintf(text + used, ROOM - used, "- &a 1\n");
    refused(text, "r.yaml:1025|anchors");
    free(text);
}

static void refuses_deep_nesting(void **state) {
    char text[2 * TRI_MAX_TREE_DEPTH + 3] = "";
    for (int depth = TRI_MAX_TREE_DEPTH; depth <= TRI_MAX_TREE_DEPTH + 1; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        text[2 * depth] = 0;
        if (depth == TRI_MAX_TREE_DEPTH) yaml(text);
    }
    refused(text, "r.yaml:1|nested");
}

static void reads_json(void **state) {
    const char *text = "{\"a\": [1, 2.5, \"3\", true, null], \"b\": {\"c\": 9007199254740993}}";
    tri_tree *t;
    assert_int_equal(tri_json_parse(arena, text, strlen(text), "j.json", &t), TRI_OK);
    assert_string_equal(tri_json_emit(arena, t),
                        "{\"a\":[1,2.5,\"3\",true,null],\"b\":{\"c\":9007199254740993}}");
    assert_int_equal(tri_json_parse(arena, "{\"a\":1,\n\"a\":2}", 14, "j.json", &t), TRI_BAD_INPUT);
    message_check(tri_error_message(), "j.json:2|duplicate|a");
    assert_int_equal(tri_json_parse(arena, "{\"a\":1,}", 8, "j.json", &t), TRI_BAD_INPUT);
    char deep[2 * TRI_MAX_TREE_DEPTH + 3];
    memset(deep, '[', TRI_MAX_TREE_DEPTH + 1);
    memset(deep + TRI_MAX_TREE_DEPTH + 1, ']', TRI_MAX_TREE_DEPTH + 1);
    deep[sizeof deep - 1] = 0;
    assert_int_equal(tri_json_parse(arena, deep, strlen(deep), "j.json", &t), TRI_BAD_INPUT);
    message_check(tri_error_message(), "j.json|nested");
    assert_int_equal(tri_json_parse(arena, deep + 1, strlen(deep) - 2, "j.json", &t), TRI_OK);
    assert_int_equal(tri_json_read_file(arena, "/nonexistent.json", &t), TRI_NOT_FOUND);
}

static void emits_what_it_reads(void **state) {
    static const char *const texts[] = {
        "a: 1\nb: [x, '1', \"true\", null, 1.50, {k: v, 'a b': '#x'}]\nc:\n  d: {}\n  e: []\n  f:\n"
        "    g: \"line\\nfeed \\\" \\\\ \\t ü\"\n",
        "- 1\n- {a: [b, [c]]}\n",
        "'': ''\n'null': '~'\n'- x': '---'\n'-': '...'\nx: -1\n'true': 'off'\n'?': ':'\n",
        "plain",
        "'12'",
        "{a: !!str 12, b: '1e5', c: 'Null', d: '.5', e: '-'}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        tri_tree *first = yaml(texts[i]);
        const char *text = tri_yaml_emit(arena, first);
        tri_tree *second = yaml(text);
        assert_true(tri_tree_equal(first, second));
        assert_string_equal(tri_yaml_emit(arena, second), text);
        const char *json = tri_json_emit(arena, first);
        tri_tree *third;
        assert_int_equal(tri_json_parse(arena, json, strlen(json), "j", &third), TRI_OK);
        assert_true(tri_tree_equal(first, third));
        assert_true(tri_tree_equal(first, yaml(json))); // JSON is YAML
    }
    assert_string_equal(tri_yaml_emit(arena, yaml("{a: {b: [1, {c: 'x y'}]}, d: ~}")),
                        "a:\n  b: [1, {c: \"x y\"}]\nd: null\n");
    assert_string_equal(tri_json_emit(arena, yaml("[+1, .5, 007, -0.5, 1e-8, 1., 5e8, 1.0E+5]")),
                        "[1,0.5,7,-0.5,1e-8,1.0,5e8,1.0E+5]");
}

// What other programs read is JSON, whatever a text contains, and a number that JSON lacks is null.
static void emits_only_json(void **state) {
    static const struct {
        const char *text, *json;
    } cases[] = {
        {"a\"b\\c\x01\x7f", "\"a\\\"b\\\\c\\u0001\\u007f\""},
        {"\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80", "\"\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80\""},
        {"\xff", "\"\uFFFD\""},
        {"a\xc3", "\"a\uFFFD\""},
        {"\xc0\x80", "\"\uFFFD\uFFFD\""},
        {"\xed\xa0\x80", "\"\uFFFD\uFFFD\uFFFD\""},
        {"\xf4\x90\x80\x80", "\"\uFFFD\uFFFD\uFFFD\uFFFD\""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_tree *read;
        const char *json = tri_json_emit(arena, tri_tree_string(arena, cases[i].text));
        assert_string_equal(json, cases[i].json);
        assert_int_equal(tri_json_parse(arena, json, strlen(json), "j", &read), TRI_OK);
    }
    tri_tree *map = tri_tree_map(arena);
    tri_tree_put_digits(arena, map, "rounded", 123.456789, 6);
    tri_tree_put_digits(arena, map, "large", 1234567.0, 3);
    tri_tree_put_digits(arena, map, "none", 0.0 / 0.0, 6);
    assert_string_equal(tri_json_emit(arena, map),
                        "{\"rounded\":123.457,\"large\":1230000.0,\"none\":null}");
}

static void compares(void **state) {
    assert_true(tri_tree_equal(yaml("{a: 1, b: 2.0}"), yaml("{b: 2, a: 1}")));
    assert_false(tri_tree_equal(yaml("a: 1"), yaml("a: '1'")));
    assert_false(tri_tree_equal(yaml("a: true"), yaml("a: 'true'")));
    assert_true(tri_tree_equal(yaml("a: x"), yaml("a: 'x'")));
    assert_false(tri_tree_equal(yaml("[1, 2]"), yaml("[2, 1]")));
    assert_false(tri_tree_equal(yaml("{a: 1}"), yaml("{a: 1, b: 1}")));
    assert_true(tri_tree_equal(NULL, yaml("~")));
}

static void writes_doubles(void **state) {
    static const struct {
        double value;
        const char *text;
    } cases[] = {{1, "1.0"},         {100, "100.0"}, {0.1, "0.1"},    {1e-8, "1e-08"},
                 {0.3081, "0.3081"}, {0, "0.0"},     {1e20, "1e+20"}, {-2.5, "-2.5"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_tree *node = tri_tree_double(arena, cases[i].value);
        assert_string_equal(node->text, cases[i].text);
        double back;
        assert_true(tri_tree_to_double(node, &back) && back == cases[i].value);
    }
}

static void overrides(void **state) {
    tri_tree *t = yaml("trainer: {max_epochs: 3}\nseed: 1\ndata: {transform: [a, b]}\n");
    assert_int_equal(tri_tree_override(arena, t, "trainer.max_epochs=5"), TRI_OK);
    assert_int_equal(tri_tree_override(arena, t, "optimizer.betas=[0.8, 0.9]"), TRI_OK);
    assert_int_equal(tri_tree_override(arena, t, "data.transform.1=c"), TRI_OK);
    assert_int_equal(tri_tree_override(arena, t, "init=null"), TRI_OK);
    assert_int_equal(tri_tree_override(arena, t, "seed="), TRI_BAD_INPUT);
    assert_int_equal(tri_tree_override(arena, t, "name=a=b"), TRI_OK);
    assert_string_equal(tri_yaml_emit(arena, t),
                        "trainer:\n  max_epochs: 5\nseed: 1\ndata:\n  transform: "
                        "[a, c]\noptimizer:\n  betas: [0.8, 0.9]\ninit: null\n"
                        "name: \"a=b\"\n");
    assert_string_equal(tri_tree_find(t, "optimizer.betas.1")->file,
                        "override 'optimizer.betas=[0.8, 0.9]'");
    assert_int_equal(tri_tree_find(t, "trainer.max_epochs")->line, 0);
    static const struct {
        const char *text, *parts;
    } bad[] = {
        {"seed", "override|seed|key.path=value"},
        {"=1", "override|=1|key.path=value"},
        {"a..b=1", "override|a..b=1|key|a..b|empty"},
        {"seed.x=1", "override|seed.x=1|seed|1|keys"},
        {"data.transform.7=1", "override|data.transform.7=1|7|position|list|2"},
        {"a=[1", "override|a=[1|YAML"},
        {"a=1\nb: 2", "override|a=1 b: 2"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(tri_tree_override(arena, t, bad[i].text), TRI_BAD_INPUT);
        message_check(tri_error_message(), bad[i].parts);
    }
}

static void relaxes_json(void **state) {
    static const struct {
        const char *text, *relaxed;
    } rows[] = {
        {"{\"a\": [1, 2,], }", "{\"a\": [1, 2 ]  }"},
        {"{\"a,}\": \"x,]\\\",}\"\n,}", "{\"a,}\": \"x,]\\\",}\"\n }"},
        {"[1, # one,]\n2 /* , */ , // ]\n]", "[1,        \n2               \n]"},
        {"[\"#\", \"//\", \"/*\"]", NULL},
        {"[,]", NULL},
        {"[1,,]", NULL},
        {"{\"a\":,}", NULL},
        {"[1 /* open", NULL},
        {"[\"open,]", NULL},
        {"[\"\\", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", rows[i].text);
        bool any = tri_json_relax(text, strlen(text));
        assert_int_equal(any, rows[i].relaxed && strcmp(rows[i].text, rows[i].relaxed) != 0);
        assert_string_equal(text, rows[i].relaxed ? rows[i].relaxed : rows[i].text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_yaml),
        cmocka_unit_test(reads_scalars),
        cmocka_unit_test(refuses_bad_yaml),
        cmocka_unit_test(refuses_alias_bombs),
        cmocka_unit_test(refuses_deep_nesting),
        cmocka_unit_test(refuses_crowds),
        cmocka_unit_test(reads_json),
        cmocka_unit_test(relaxes_json),
        cmocka_unit_test(emits_what_it_reads),
        cmocka_unit_test(emits_only_json),
        cmocka_unit_test(compares),
        cmocka_unit_test(writes_doubles),
        cmocka_unit_test(overrides),
    };
    return cmocka_run_group_tests(tests, make_arena, drop_arena);
}
