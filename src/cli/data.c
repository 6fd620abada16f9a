#include "cli/cli.h"

#include "data/check.h"

#include <stdio.h>
#include <string.h>

static void print_report(const char *split, const tri_data_report *r, bool json) {
    printf(json ? "{\"split\":\"%s\",\"samples\":%lld" : "%s: %lld samples", split,
           (long long)r->samples);
    if (r->classes)
        printf(json ? ",\"classes\":%lld,\"least\":%lld,\"most\":%lld"
                    : ", %lld classes of %lld to %lld samples",
               (long long)r->classes, (long long)r->least_class, (long long)r->most_class);
    printf(json ? ",\"fields\":[" : "\n");
    for (int i = 0; i < r->field_count; i++) {
        const tri_data_summary *s = &r->fields[i];
        char shape[128];
        printf(json ? "%s{\"name\":\"%s\",\"dtype\":\"%s\",\"shape\":%s,\"min\":%.6g,\"max\":%.6g,"
                      "\"mean\":%.6g,\"std\":%.6g,\"not_finite\":%lld}"
                    : "%s  %-10s %s %s, %.4g to %.4g, mean %.4g, std %.4g, %lld not finite\n",
               json && i ? "," : "", s->field.name, tri_dtype_name(s->field.dtype),
               tri_shape_text(&s->field.shape, shape, sizeof shape), s->min, s->max, s->mean,
               s->std, (long long)s->not_finite);
    }
    if (json)
        printf("],\"shapes\":\"%s\"}\n", r->shapes);
    else
        printf("  data.shapes: %s\n", r->shapes);
}

static tri_status check(const tri_recipe *recipe, bool json) {
    tri_data_report report;
    TRI_TRY(tri_data_check(&recipe->data, TRI_DATA_TRAIN, (uint64_t)recipe->seed, &report));
    print_report("train", &report, json);
    if (tri_data_has(&recipe->data, TRI_DATA_VAL)) {
        TRI_TRY(tri_data_check(&recipe->data, TRI_DATA_VAL, (uint64_t)recipe->seed, &report));
        print_report("val", &report, json);
    }
    if (!tri_data_has(&recipe->data, TRI_DATA_TEST)) return TRI_OK;
    TRI_TRY(tri_data_check(&recipe->data, TRI_DATA_TEST, (uint64_t)recipe->seed, &report));
    print_report("test", &report, json);
    return TRI_OK;
}

static int list(bool json) {
    for (int i = 0; i < tri_data_table.variant_count; i++) {
        const tri_option_variant *kind = &tri_data_table.variants[i];
        printf(json ? "{\"name\":\"%s\",\"help\":\"%s\"}\n" : "%-12s %s\n", kind->name, kind->help);
    }
    return 0;
}

static int run(const cli_context *context, int argc, char **argv) {
    cli_arguments a;
    int code = cli_parse(&cli_data, argc, argv, &a);
    if (code >= 0) return code;
    bool json = cli_has(&a, "json");
    if (a.count == 1 && !strcmp(a.words[0], "list")) return list(json);
    if (a.count < 1 || strcmp(a.words[0], "check") != 0)
        return cli_usage(&cli_data, "data: list, or check RECIPE");
    if (a.count < 2) return cli_usage(&cli_data, "data check: which recipe?");
    tri_arena *arena = tri_arena_create(NULL, "command");
    tri_recipe recipe;
    tri_status status =
        tri_recipe_load(arena, a.words[1], (const char *const *)a.words + 2, a.count - 2,
                        context->task ? context->task->name : NULL, &recipe);
    if (status == TRI_OK) status = check(&recipe, json);
    tri_arena_destroy(arena);
    return status == TRI_OK ? 0 : cli_fail(status);
}

static const cli_flag flags[] = {{"json", NULL, "one JSON object a line", 0}, {0}};
static const cli_verb verbs[] = {
    {"list", "", "the kinds of data sets that data.name takes"},
    {"check", "RECIPE [key.path=value ...]", "read every sample and say what is in it"},
    {0}};

const cli_command cli_data = {
    .name = "data",
    .arguments = "list | check RECIPE [key.path=value ...]",
    .help = "List the kinds of data sets; read one and say what is in it.",
    .flags = flags,
    .verbs = verbs,
    .examples = "trireme data check recipes/mnist-cnn.yaml\n"
                "trireme data check recipes/mnist-cnn.yaml data.path=data/my-images --json\n",
    .run = run};
