// Checks recipes in which one number has an extreme value: each is either refused with an error
// message of one line, or accepted. A recipe that is accepted is then planned and run on the device
// `null`, which computes nothing.
#include "support/arena_fixture.h"
#include "support/null_train.h"

#include "base/log.h"
#include "base/option_manual.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char BASE[] = "model: {name: mlp-jax}\n"
                           "data: {name: synthetic, shape: [1, 2, 2], classes: 10, samples: 64, "
                           "test_samples: 64}\n"
                           "batch: {global: 8}\n";
static const char *const values[] = {
    "2147483648", "9223372036854775807", "-1",   "0",         "1e308",
    "nan",        "1000000000000000",    "1e-9", "1000000000"};

static int tried, taken;

static bool is_number(const tri_option *row) {
    return row && (row->type == TRI_OPTION_IS_INT || row->type == TRI_OPTION_IS_INT_OR_AUTO ||
                   row->type == TRI_OPTION_IS_BOOL_OR_INT || row->type == TRI_OPTION_IS_FLOAT ||
                   row->type == TRI_OPTION_IS_FLOAT_OR_NULL || row->type == TRI_OPTION_IS_AMOUNT ||
                   row->type == TRI_OPTION_IS_DURATION);
}

static void check_line(tri_status status, const char *override) {
    const char *line = tri_error_message();
    if (status == TRI_INTERNAL || !*line || strchr(line, '\n'))
        fail_msg("%s: %s '%s'", override, tri_status_name(status), line);
}

// Reads a recipe with `key` set to `value` and, if the recipe is valid, trains. `name` is an
// override that has to come first, because only the variant that it chooses (an optimizer, a
// schedule, …) has the key; NULL: no such override is needed.
static void try_value(const char *name, const char *key, const char *value) {
    const char *overrides[3];
    int count = 0;
    if (name) overrides[count++] = name;
    overrides[count++] = tri_arena_printf(arena, "%s=%s", key, value);
    // Gives every run an end: after one step, unless `key` is the number of steps.
    if (strcmp(key, "trainer.max_steps") != 0) overrides[count++] = "trainer.max_steps=1";
    tri_recipe recipe;
    tri_status status =
        tri_recipe_parse(arena, BASE, sizeof BASE - 1, "r.yaml", overrides, count, NULL, &recipe);
    tried++;
    if (status == TRI_OK && null_train_takes(&recipe)) {
        taken++;
        status = null_train(&recipe);
    }
    if (status != TRI_OK) check_line(status, overrides[name != NULL]);
}

static void visit(void *data, const tri_option_entry *entry) {
    if (!is_number(entry->row) || strchr(entry->key, '*')) return;
    const char *name = NULL, *dot = strchr(entry->key, '.');
    if (entry->variant && dot)
        name = tri_arena_printf(arena, "%.*s.name=%s", (int)(dot - entry->key), entry->key,
                                entry->variant->name);
    // The recipe already chooses the variant `synthetic` of `data`, so it needs no override.
    if (entry->variant && !strncmp(entry->key, "data.", 5)) name = NULL;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        try_value(name, entry->key, values[i]);
}

static void every_number_at_its_ends(void **state) {
    tri_option_walk(&tri_recipe_table, visit, NULL);
    print_message("%d values, %d of them trained with\n", tried, taken);
    assert_true(tried > 400 && taken > 100);
}

// A limit or interval that is larger than the number of batches or samples means all of them.
static void more_than_there_are_is_all(void **state) {
    static const char *const overrides[] = {"trainer.limit_val_batches=1000000000000000",
                                            "trainer.limit_train_batches=1000000000000000",
                                            "trainer.val_check_interval=1000000000000000",
                                            "trainer.max_epochs=1000000000",
                                            "data.samples=281474976710656"};
    for (size_t i = 0; i < sizeof overrides / sizeof *overrides; i++) {
        tri_recipe recipe;
        assert_int_equal(tri_recipe_parse(arena, BASE, sizeof BASE - 1, "r.yaml", overrides,
                                          (int)i + 1, NULL, &recipe),
                         TRI_OK);
        tri_status status = null_train(&recipe);
        if (status != TRI_OK) fail_msg("%s: %s", overrides[i], tri_error_message());
    }
}

// A model's options are not in the option tables of recipes. Values of them that make no sense must
// be refused all the same.
static void models_refuse_what_they_cannot_be(void **state) {
    static const char LLAMA[] = "model: {name: llama, hidden_size: 8, num_attention_heads: 2}\n"
                                "data: {name: synthetic, vocabulary: 16, sequence: 4}\n"
                                "batch: {global: 2}\n";
    static const char *const bad[] = {
        "model.num_hidden_layers=1000000", "model.num_hidden_layers=2147483647",
        "model.hidden_size=1073741824",    "model.rms_norm_eps=nan",
        "model.rms_norm_eps=inf",          "model.rope_theta=text",
        "model.vocab_size=1e300",          "model.vocab_size=9223372036854775807",
        "model.num_key_value_heads=-1",    "model.intermediate_size=1.5",
        "model.initializer_range=[1, 2]",  "model.max_position_embeddings=-9223372036854775808"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tri_recipe recipe;
        tri_status status =
            tri_recipe_parse(arena, LLAMA, sizeof LLAMA - 1, "r.yaml", &bad[i], 1, NULL, &recipe);
        if (status == TRI_OK) status = null_train(&recipe);
        check_line(status, bad[i]);
        if (tri_status_exit_code(status) != 2)
            fail_msg("%s: %s, %s", bad[i], tri_status_name(status), tri_error_message());
    }
}

static void amounts(void **state) {
    assert_int_equal(tri_amount_of((tri_amount){1e15, false}, 10), 10);
    assert_int_equal(tri_amount_of((tri_amount){3, false}, 10), 3);
    assert_int_equal(tri_amount_of((tri_amount){0, false}, 10), 0);
    assert_int_equal(tri_amount_of((tri_amount){0.25, true}, 10), 2);
    assert_int_equal(tri_amount_of((tri_amount){1, true}, INT64_MAX), INT64_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(amounts),
        cmocka_unit_test(models_refuse_what_they_cannot_be),
        cmocka_unit_test(more_than_there_are_is_all),
        cmocka_unit_test(every_number_at_its_ends),
    };
    return cmocka_run_group_tests(tests, make_arena, drop_arena);
}
