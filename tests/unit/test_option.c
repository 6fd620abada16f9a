// Checks option tables, by which recipes are read into structs: defaults, every type, bounds,
// unknown keys, variants (kinds of a section with rows of their own), and writing a struct as YAML.
#include "base/option_manual.h"
#include "support/arena_fixture.h"
#include "support/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef enum mode { MODE_MIN, MODE_MAX } mode;

typedef struct mesh {
    int64_t replicate, tensor;
} mesh;

typedef struct sample {
    const char *name;
    bool flag;
    int64_t count;
    double rate;
    tri_amount limit;
    double every;
    const char *label;
    mode mode;
    tri_ints sizes;
    tri_doubles betas;
    tri_strings words;
    const tri_tree *extra;
    mesh mesh;
    double momentum, rho;
} sample;

typedef struct open_model {
    const char *name;
    const tri_tree *options;
} open_model;

static const char *const modes[] = {"min", "max", NULL};
static const tri_option mesh_rows[] = {
    TRI_OPTION_INT_OR_AUTO(mesh, replicate, "auto", 1, 64, "copies"),
    TRI_OPTION_INT_OR_AUTO(mesh, tensor, "1", 1, 64, "parts of a layer"),
};
static const tri_option_table mesh_table = TRI_OPTION_TABLE("mesh", mesh, mesh_rows, "ranks");
static const tri_option sgd_rows[] = {
    TRI_OPTION_FLOAT(sample, momentum, "0", 0, 1, "kept part of the last update"),
};
static const tri_option adadelta_rows[] = {
    TRI_OPTION_FLOAT(sample, rho, "0.9", 0, 1, "decay of the averages"),
};
static const tri_option_variant kinds[] = {
    TRI_OPTION_VARIANT("sgd", sgd_rows, "stochastic gradient descent"),
    TRI_OPTION_VARIANT("adadelta", adadelta_rows, "Adadelta"),
};
static const tri_option rows[] = {
    TRI_OPTION_NAME(sample, name, "sgd", "which"),
    TRI_OPTION_BOOL(sample, flag, "true", "a switch"),
    TRI_OPTION_INT(sample, count, "64", 1, 1000, "a count"),
    TRI_OPTION_FLOAT(sample, rate, "1e-3", 0, 10, "a rate"),
    TRI_OPTION_AMOUNT(sample, limit, "1.0", "how many"),
    TRI_OPTION_DURATION(sample, every, NULL, "how often"),
    TRI_OPTION_STRING(sample, label, NULL, "a label"),
    TRI_OPTION_CHOICE(sample, mode, "max", modes, "which way is better"),
    TRI_OPTION_INTS(sample, sizes, "[1, 2]", 0, 9, 0, "sizes"),
    TRI_OPTION_FLOATS(sample, betas, "[0.9, 0.999]", 0, 1, 2, "decays"),
    TRI_OPTION_STRINGS(sample, words, NULL, "words"),
    TRI_OPTION_TREE(sample, extra, NULL, "anything"),
    TRI_OPTION_NESTED(sample, mesh, mesh, &mesh_table, "how ranks lie"),
};
static const tri_option_table table =
    TRI_OPTION_TABLE("part", sample, rows, "a part", .variants = kinds, .variant_count = 2);

static const tri_option_variant nets[] = {{.name = "net", .help = "a net"}};
static const tri_option open_rows[] = {
    TRI_OPTION_NAME(open_model, name, NULL, "which"),
    TRI_OPTION_REST(open_model, options, "the model's own"),
};
static const tri_option_table open_table = TRI_OPTION_TABLE(
    "model", open_model, open_rows, "a model", .variants = nets, .variant_count = 1);

static tri_tree *yaml(const char *text) {
    tri_tree *tree = NULL;
    assert_int_equal(tri_yaml_parse(arena, text, strlen(text), "r.yaml", &tree), TRI_OK);
    return tree;
}

static sample decoded(const char *text) {
    sample s;
    tri_status status = tri_option_decode(arena, &table, yaml(text), &s);
    if (status != TRI_OK) print_error("%s\n", tri_error_message());
    assert_int_equal(status, TRI_OK);
    return s;
}

static void refused(const char *text, const char *parts) {
    sample s;
    assert_int_equal(tri_option_decode(arena, &table, yaml(text), &s), TRI_BAD_INPUT);
    message_check(tri_error_message(), parts);
}

static void applies_defaults(void **state) {
    sample s;
    assert_int_equal(tri_option_decode(arena, &table, NULL, &s), TRI_OK);
    assert_string_equal(s.name, "sgd");
    assert_true(s.flag);
    assert_int_equal(s.count, 64);
    assert_true(s.rate == 1e-3 && s.limit.is_fraction && s.limit.value == 1 && s.every == 0);
    assert_null(s.label);
    assert_int_equal(s.mode, MODE_MAX);
    assert_int_equal(s.sizes.count, 2);
    assert_true(s.betas.items[1] == 0.999);
    assert_int_equal(s.words.count, 0);
    assert_null(s.extra);
    assert_int_equal(s.mesh.replicate, TRI_AUTO);
    assert_int_equal(s.mesh.tensor, 1);
    assert_true(s.momentum == 0 && s.rho == 0);
}

static void reads_every_type(void **state) {
    sample s = decoded(
        "{name: adadelta, flag: false, count: 1e2, rate: 2, limit: 10, every: 2h, label: 12,"
        " mode: min, sizes: [3], betas: [0, 1], words: [a, b], extra: {x: 1},"
        " mesh: {replicate: 4, tensor: auto}, rho: 0.5}");
    assert_string_equal(s.name, "adadelta");
    assert_false(s.flag);
    assert_int_equal(s.count, 100);
    assert_true(s.rate == 2 && !s.limit.is_fraction && s.limit.value == 10 && s.every == 7200);
    assert_string_equal(s.label, "12");
    assert_int_equal(s.mode, MODE_MIN);
    assert_int_equal(s.sizes.items[0], 3);
    assert_string_equal(s.words.items[1], "b");
    assert_string_equal(tri_tree_get(s.extra, "x")->text, "1");
    assert_int_equal(s.mesh.replicate, 4);
    assert_int_equal(s.mesh.tensor, TRI_AUTO);
    assert_true(s.rho == 0.5);
    assert_true(decoded("every: 00:12:30:05").every == 45005);
    assert_true(decoded("every: '01:00:00:00'").every == 86400);
    assert_true(decoded("every: 90").every == 90);
    assert_true(decoded("count: null").count == 64);
}

static void refuses(void **state) {
    refused("cuont: 1", "r.yaml:1|key|part.cuont|count");
    refused("flag: true\nmesh:\n  replicat: 2\n", "r.yaml:3|key|part.mesh.replicat|replicate");
    refused("name: adadelta\nmomentum: 1",
            "r.yaml:2|key|part.momentum|adadelta|known|name|flag|count|rate|limit|every|label|mode|"
            "sizes|betas|words|extra|mesh|rho");
    refused("name: adadelt", "r.yaml:1|part.name|sgd|adadelta|adadelt|adadelta");
    refused("flag: 'true'", "r.yaml:1|part.flag|true|false|true");
    refused("count: many", "r.yaml:1|part.count|1|1000|many");
    refused("count: 0", "r.yaml:1|part.count|1|1000|0");
    refused("count: 1.5", "r.yaml:1|part.count|1|1000|1.5");
    refused("count: 99999999999999999999", "r.yaml:1|part.count|1|1000|99999999999999999999");
    refused("rate: -1", "r.yaml:1|part.rate|0|10|-1");
    refused("rate: nan", "r.yaml:1|part.rate|0|10|nan");
    refused("limit: 1.5", "r.yaml:1|part.limit|count|10|fraction|0.0|1.0|0.5|1.5");
    refused("mode: most", "r.yaml:1|part.mode|min|max|most");
    refused("betas: [0.9]", "r.yaml:1|part.betas|list|2|0|1|[0.9]");
    refused("betas: 0.9", "r.yaml:1|part.betas|list|2|0|1|0.9");
    refused("sizes: [1, 12]", "r.yaml:1|part.sizes|list|0|9|[1, 12]");
    refused("words: [[a]]", "r.yaml:1|part.words|list|texts|[[a]]");
    refused("label: [a]", "r.yaml:1|part.label|text|[a]");
    refused("every: soon", "r.yaml:1|part.every|seconds|soon");
    refused("mesh: 4", "r.yaml:1|part.mesh|mapping|keys|4");
    refused("mesh: {tensor: all}", "r.yaml:1|part.mesh.tensor|auto|1|64|all");
    refused("[1]", "r.yaml:1|part|mapping|keys|[1]");
}

static void names_the_override(void **state) {
    tri_tree *tree = yaml("count: 2");
    assert_int_equal(tri_tree_override(arena, tree, "coutn=3"), TRI_OK);
    sample s;
    assert_int_equal(tri_option_decode(arena, &table, tree, &s), TRI_BAD_INPUT);
    message_check(tri_error_message(), "override|coutn=3|key|part.coutn|count");
}

static void encodes(void **state) {
    sample s = decoded("{name: adadelta, rate: 0.25, extra: {x: [1]}, words: [a, '1'], limit: 5}");
    const char *text = tri_yaml_emit(arena, tri_option_encode(arena, &table, &s));
    assert_string_equal(
        text, "name: adadelta\nflag: true\ncount: 64\nrate: 0.25\nlimit: 5\nevery: 0.0\n"
              "label: null\nmode: max\nsizes: [1, 2]\nbetas: [0.9, 0.999]\nwords: [a, "
              "\"1\"]\nextra:\n  x: [1]\nmesh:\n  replicate: auto\n  tensor: 1\nrho: 0.9\n");
    s = decoded(text);
    assert_string_equal(tri_yaml_emit(arena, tri_option_encode(arena, &table, &s)), text);
}

static void gathers_the_rest(void **state) {
    open_model m;
    tri_tree *tree = yaml("{name: net, width: 3, deep: {a: 1}}");
    assert_int_equal(tri_option_decode(arena, &open_table, tree, &m), TRI_OK);
    assert_int_equal(m.options->count, 2);
    assert_string_equal(tri_tree_get(m.options, "width")->file, "r.yaml");
    assert_true(tri_tree_equal(tri_option_encode(arena, &open_table, &m), tree));
    assert_int_equal(tri_option_decode(arena, &open_table, yaml("{width: 3}"), &m), TRI_BAD_INPUT);
    message_check(tri_error_message(), "r.yaml:1|model.name|net");
}

static void finds_the_nearest(void **state) {
    static const char *const known[] = {"max_epochs", "max_steps", NULL, "lr", "deterministic"};
    assert_string_equal(tri_option_nearest("max_epoch", known, 5), "max_epochs");
    assert_string_equal(tri_option_nearest("maxsteps", known, 5), "max_steps");
    assert_string_equal(tri_option_nearest("rl", known, 5), "lr");
    assert_string_equal(tri_option_nearest("determinstic", known, 5), "deterministic");
    assert_null(tri_option_nearest("zz", known, 5));
    assert_null(tri_option_nearest("something_else", known, 5));
    char longest[300];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = 0;
    assert_null(tri_option_nearest(longest, known, 5));
}

static void prints_help(void **state) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_true(tri_option_print(&table, "", out));
    fclose(out);
    assert_non_null(strstr(text, "part.count = 64\n      a count (a whole number from 1 to 1000)"));
    assert_non_null(strstr(text, "part.mesh.replicate = auto"));
    assert_non_null(strstr(text, "part.name: adadelta"));
    assert_non_null(strstr(text, "part.rho = 0.9"));
    free(text);
    out = open_memstream(&text, &size);
    assert_true(tri_option_print(&open_table, "", out));
    fclose(out);
    assert_non_null(strstr(text, "model.*\n      the model's own"));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(applies_defaults),  cmocka_unit_test(reads_every_type),
        cmocka_unit_test(refuses),           cmocka_unit_test(names_the_override),
        cmocka_unit_test(encodes),           cmocka_unit_test(gathers_the_rest),
        cmocka_unit_test(finds_the_nearest), cmocka_unit_test(prints_help),
    };
    return cmocka_run_group_tests(tests, make_arena, drop_arena);
}
