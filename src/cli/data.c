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
    if (json) printf("]}\n");
}

static tri_status check(const tri_recipe *recipe, bool json) {
    tri_data_report report;
    TRI_TRY(tri_data_check(&recipe->data, TRI_DATA_TRAIN, (uint64_t)recipe->seed, &report));
    print_report("train", &report, json);
    if (!tri_data_has_test(&recipe->data)) return TRI_OK;
    TRI_TRY(tri_data_check(&recipe->data, TRI_DATA_TEST, (uint64_t)recipe->seed, &report));
    print_report("test", &report, json);
    return TRI_OK;
}

int cli_data(const cli_context *context, int argc, char **argv) {
    const cli_command *self = cli_find("data");
    bool json = false;
    const cli_flag flags[] = {{"json", NULL, "one JSON object a line", NULL, &json}, {0}};
    int count, code = cli_parse(self, flags, argc, argv, &count, NULL);
    if (code >= 0) return code;
    if (count == 1 && !strcmp(argv[1], "list")) {
        for (int i = 0; i < tri_data_table.variant_count; i++)
            printf("%-12s %s\n", tri_data_table.variants[i].name, tri_data_table.variants[i].help);
        return 0;
    }
    if (count < 2 || strcmp(argv[1], "check") != 0)
        return cli_usage(self, "data: list, or check RECIPE");
    tri_arena *arena = tri_arena_create(NULL, "command");
    tri_recipe recipe;
    tri_status status = tri_recipe_load(arena, argv[2], (const char *const *)argv + 3, count - 2,
                                        context->task ? context->task->name : NULL, &recipe);
    if (status == TRI_OK) status = check(&recipe, json);
    tri_arena_destroy(arena);
    return status == TRI_OK ? 0 : cli_fail(status);
}
