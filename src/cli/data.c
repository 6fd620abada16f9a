// `trireme data`: lists the kinds of data sets, or reads one and reports what a model gets from it.
#include "cli/cli.h"

#include "base/quantity.h"

#include "cli/data_verbs.h"
#include "data/check.h"

#include <stdio.h>
#include <string.h>

static tri_tree *range_tree(tri_arena *arena, const tri_data_range *r) {
    tri_tree *map = tri_tree_map(arena);
    tri_tree_put_digits(arena, map, "min", r->min, 6);
    tri_tree_put_digits(arena, map, "max", r->max, 6);
    tri_tree_put_digits(arena, map, "mean", r->mean, 6);
    return map;
}

static tri_tree *range_tree_with_std(tri_arena *arena, const tri_data_range *r) {
    tri_tree *map = range_tree(arena, r);
    tri_tree_put_digits(arena, map, "std", r->std, 6);
    return map;
}

static tri_tree *field_tree(tri_arena *arena, const tri_data_summary *s) {
    tri_tree *map = tri_tree_map(arena), *shape = tri_tree_list(arena);
    tri_tree_put_string(arena, map, "name", s->field.name);
    tri_tree_put_string(arena, map, "dtype", tri_dtype_name(s->field.dtype));
    for (int i = 0; i < s->field.shape.rank; i++)
        tri_tree_append(arena, shape, tri_tree_int(arena, s->field.shape.dims[i]));
    tri_tree_put(arena, map, "shape", shape);
    const tri_tree *all = range_tree_with_std(arena, &s->all);
    for (int i = 0; i < all->count; i++)
        tri_tree_put(arena, map, all->items[i]->key, all->items[i]);
    tri_tree_put_int(arena, map, "not_finite", s->not_finite);
    tri_tree_put_string(arena, map, "stored", tri_dtype_name(s->stored_dtype));
    tri_tree_put(arena, map, "by_255", tri_tree_bool(arena, s->is_divided_by_255));
    tri_tree_put(arena, map, "first", range_tree(arena, &s->first));
    tri_tree *channels = tri_tree_list(arena);
    for (int i = 0; i < s->channels; i++)
        tri_tree_append(arena, channels, range_tree_with_std(arena, &s->channel[i]));
    tri_tree_put(arena, map, "channels", channels);
    return map;
}

static tri_tree *damage_tree(tri_arena *arena, const tri_data_damage *d) {
    tri_tree *map = tri_tree_map(arena);
    if (d->sample != TRI_CHECK_NO_SAMPLE) tri_tree_put_int(arena, map, "sample", d->sample);
    tri_tree_put_string(arena, map, "reason", d->reason);
    return map;
}

static void print_json(const char *split, const tri_data_report *r) {
    tri_arena *arena = tri_arena_create(NULL, "report");
    tri_tree *map = tri_tree_map(arena);
    tri_tree *fields = tri_tree_list(arena), *warnings = tri_tree_list(arena);
    tri_tree_put_string(arena, map, "split", split);
    tri_tree_put_int(arena, map, "samples", r->samples);
    if (r->classes) {
        tri_tree_put_int(arena, map, "classes", r->classes);
        tri_tree_put_int(arena, map, "least", r->min_class_samples);
        tri_tree_put_int(arena, map, "most", r->max_class_samples);
    }
    for (int i = 0; i < r->field_count; i++)
        tri_tree_append(arena, fields, field_tree(arena, &r->fields[i]));
    for (int i = 0; i < r->warning_count; i++)
        tri_tree_append(arena, warnings, tri_tree_string(arena, r->warnings[i]));
    tri_tree_put(arena, map, "fields", fields);
    tri_tree_put_string(arena, map, "shapes", r->shapes);
    tri_tree_put(arena, map, "warnings", warnings);
    if (r->not_used) tri_tree_put_string(arena, map, "not_used", r->not_used);
    tri_tree *damages = tri_tree_list(arena);
    for (const tri_data_damage *d = r->damages; d; d = d->next)
        tri_tree_append(arena, damages, damage_tree(arena, d));
    tri_tree_put_int(arena, map, "damaged", r->damaged);
    tri_tree_put_int(arena, map, "left_out", r->left_out);
    tri_tree_put(arena, map, "damages", damages);
    printf("%s\n", tri_json_emit(arena, map));
    tri_arena_destroy(arena);
}

static void print_field(const tri_data_summary *s) {
    char shape[128];
    printf("  %-10s %s %s, %.4g to %.4g, mean %.4g, std %.4g, %lld not finite\n", s->field.name,
           tri_dtype_name(s->field.dtype), tri_shape_text(&s->field.shape, shape, sizeof shape),
           s->all.min, s->all.max, s->all.mean, s->all.std, (long long)s->not_finite);
    printf("             %s in the files%s\n", tri_dtype_name(s->stored_dtype),
           s->is_divided_by_255 ? ": bytes are divided by 255, then data.transform" : "");
    for (int i = 0; i < s->channels; i++)
        printf("             channel %d: %.4g to %.4g, mean %.4g, std %.4g\n", i, s->channel[i].min,
               s->channel[i].max, s->channel[i].mean, s->channel[i].std);
    if (s->field.shape.rank == 0)
        printf("             first sample: %.4g\n", s->first.mean);
    else
        printf("             first sample: %.4g to %.4g, mean %.4g\n", s->first.min, s->first.max,
               s->first.mean);
}

static void print_damages(const tri_data_report *r) {
    enum { MOST_NAMED = 20 };
    if (!r->damaged) return;
    printf("  damaged: %s", tri_counted(r->damaged, "sample"));
    if (r->left_out)
        printf(", of which training leaves out %lld (data.on_error)", (long long)r->left_out);
    printf("\n");
    int named = 0;
    for (const tri_data_damage *d = r->damages; d && named < MOST_NAMED; d = d->next, named++)
        if (d->sample == TRI_CHECK_NO_SAMPLE)
            printf("    %s\n", d->reason);
        else
            printf("    sample %lld: %s\n", (long long)d->sample, d->reason);
    if (r->damaged > named)
        printf("    %lld more; --json lists them\n", (long long)(r->damaged - named));
}

// Prints what the model gets, after the transforms.
static void print_text(const char *split, const tri_data_report *r) {
    printf("%s: %s", split, tri_counted(r->samples, "sample"));
    if (r->classes)
        printf(", %lld classes of %lld to %lld samples", (long long)r->classes,
               (long long)r->min_class_samples, (long long)r->max_class_samples);
    printf("\n");
    for (int i = 0; i < r->field_count; i++) print_field(&r->fields[i]);
    if (r->classes) {
        printf("  samples of each class:");
        for (int i = 0; i < r->classes && i < TRI_CHECK_CLASSES; i++)
            printf(" %lld", (long long)r->histogram[i]);
        printf("%s\n", r->classes > TRI_CHECK_CLASSES ? " ..." : "");
    }
    if (r->shapes[0]) printf("  data.shapes: %s\n", r->shapes);
    for (int i = 0; i < r->warning_count; i++) printf("  warning: %s\n", r->warnings[i]);
    if (r->not_used) printf("  not used: %s\n", r->not_used);
    print_damages(r);
}

// Fails if a run would end at a damaged sample. Both functions run after all splits are printed,
// so that the report is complete.
static tri_status judge_damage(const char *split, const tri_data_report *r) {
    if (!r->refused) return TRI_OK;
    if (r->refused->sample == TRI_CHECK_NO_SAMPLE)
        return TRI_FAIL(TRI_CORRUPT, "%s data: %s", split, r->refused->reason);
    char others[64] = "";
    if (r->damaged - r->left_out > 1)
        snprintf(others, sizeof others, ", and %s more",
                 tri_counted(r->damaged - r->left_out - 1, "sample"));
    return TRI_FAIL(TRI_CORRUPT, "%s data: sample %lld%s: %s", split, (long long)r->refused->sample,
                    others, r->refused->reason);
}

// Fails if there are values from which no model can learn.
static tri_status judge_values(const char *split, const tri_data_report *r) {
    for (int i = 0; i < r->field_count; i++)
        if (r->fields[i].not_finite > 0)
            return TRI_FAIL(TRI_NOT_FINITE,
                            "%s data: '%s' has %lld values that are NaN or infinite, the first in "
                            "sample %lld",
                            split, r->fields[i].field.name, (long long)r->fields[i].not_finite,
                            (long long)r->fields[i].first_not_finite);
    return TRI_OK;
}

static tri_status check(tri_arena *arena, const tri_recipe *recipe, bool json) {
    enum { SPLITS = 3 };
    static const char *const names[SPLITS] = {
        [TRI_DATA_TRAIN] = "train", [TRI_DATA_VAL] = "val", [TRI_DATA_TEST] = "test"};
    tri_data_report *reports = TRI_NEW_ARRAY(arena, tri_data_report, SPLITS);
    for (int i = 0; i < SPLITS; i++) {
        if (!tri_data_has(&recipe->data, (tri_data_split)i)) continue;
        TRI_TRY(tri_data_check(arena, &recipe->data, (tri_data_split)i, (uint64_t)recipe->seed,
                               &reports[i]));
        (json ? print_json : print_text)(names[i], &reports[i]);
    }
    for (int i = 0; i < SPLITS; i++) TRI_TRY(judge_damage(names[i], &reports[i]));
    for (int i = 0; i < SPLITS; i++) TRI_TRY(judge_values(names[i], &reports[i]));
    return TRI_OK;
}

static tri_status run_check(const cli_arguments *a, const char *path, const tri_recipe *recipe) {
    (void)path;
    tri_arena *arena = tri_arena_create(NULL, "check");
    tri_status status = check(arena, recipe, cli_has(a, "json"));
    tri_arena_destroy(arena);
    return status;
}

static tri_status list(const cli_arguments *a) {
    bool json = cli_has(a, "json");
    tri_arena *arena = tri_arena_create(NULL, "list");
    for (int i = 0; i < tri_data_table.variant_count; i++) {
        const tri_option_variant *kind = &tri_data_table.variants[i];
        tri_tree *map = tri_tree_map(arena);
        tri_tree_put_string(arena, map, "name", kind->name);
        tri_tree_put_string(arena, map, "help", kind->help);
        if (json)
            printf("%s\n", tri_json_emit(arena, map));
        else
            printf("%-12s %s\n", kind->name, kind->help);
    }
    tri_arena_destroy(arena);
    return TRI_OK;
}

// What runs a verb: `on_recipe` gets the recipe that the first word names, with the settings that
// follow it; `on_words` gets the words alone.
static const struct data_verb {
    const char *name;
    tri_status (*on_words)(const cli_arguments *arguments);
    tri_status (*on_recipe)(const cli_arguments *arguments, const char *path,
                            const tri_recipe *recipe);
} data_verbs[] = {
    {"list", list, NULL},
    {"check", NULL, run_check},
    {"dump", NULL, cli_data_dump},
    {"get", cli_data_get, NULL},
    {"convert", NULL, cli_data_convert},
    {"tokenize", cli_data_tokenize, NULL},
};

static tri_status run_on_recipe(const cli_context *context, const struct data_verb *verb,
                                const cli_arguments *a) {
    tri_arena *arena = tri_arena_create(NULL, "command");
    tri_recipe recipe;
    tri_status status =
        tri_recipe_load(arena, a->words[1], (const char *const *)a->words + 2, a->count - 2,
                        // The model is not built, so its name does not matter.
                        context->task ? context->task->name : "data", &recipe);
    if (status == TRI_OK) status = verb->on_recipe(a, a->words[1], &recipe);
    tri_arena_destroy(arena);
    return status;
}

static int run(const cli_context *context, int argc, char **argv) {
    cli_arguments a;
    int code = cli_parse(&cli_data, argc, argv, &a);
    if (code >= 0) return code;
    const struct data_verb *verb = NULL;
    for (size_t i = 0; a.count > 0 && i < sizeof data_verbs / sizeof *data_verbs; i++)
        if (!strcmp(a.words[0], data_verbs[i].name)) verb = &data_verbs[i];
    if (!verb)
        return cli_usage(&cli_data,
                         "data: list, check RECIPE, dump RECIPE, convert RECIPE, get URL, "
                         "or tokenize");
    if (verb->on_recipe && a.count < 2)
        return cli_usage(&cli_data, "data %s: which recipe?", verb->name);
    tri_status status = verb->on_recipe ? run_on_recipe(context, verb, &a) : verb->on_words(&a);
    return status == TRI_OK ? 0 : cli_fail(status);
}

static const cli_flag flags[] = {
    {"json", NULL, "one JSON object a line; tokenize: text as JSON strings", 0},
    {"split", "train|val|test", "dump: whose samples (train)", 0},
    {"first", "I", "dump: the first sample, from 0 (0)", 0},
    {"count", "N", "dump: how many samples (1)", 0},
    {"out", "FILE", "dump: the safetensors file to write; get: the file; convert: the folder", 0},
    {"to", "KIND", "convert: the kind of data to write", 0},
    {"png", "FILE", "dump: write a sheet of the images", 0},
    {"sha256", "HASH", "get: the SHA-256 that the file has to have", 0},
    {"tokenizer", "FILE", "tokenize: a tokenizer.json or tokenizer.model", 0},
    {"decode", NULL, "tokenize: from token numbers to text", 0},
    {0}};
static const cli_verb_flags verb_flags[] = {{"list", "json"},
                                            {"check", "json"},
                                            {"dump", "split first count out png"},
                                            {"get", "sha256 out"},
                                            {"convert", "to out"},
                                            {"tokenize", "tokenizer decode json"},
                                            {0}};
static const cli_verb verbs[] = {
    {"list", "", "list the kinds of data sets (data.name)"},
    {"check", "RECIPE [key.path=value ...]", "read every sample and report what the model gets"},
    {"dump", "RECIPE [key.path=value ...]", "write samples as the model gets them"},
    {"convert", "RECIPE [key.path=value ...]", "write the samples as another kind of data"},
    {"get", "URL", "get a file over HTTPS and check its hash"},
    {"tokenize", "--tokenizer FILE", "from lines of text to lists of token numbers, or back"},
    {0}};

const cli_command cli_data = {
    .name = "data",
    .arguments = "list | check|dump|convert RECIPE [key.path=value ...] | get URL | tokenize",
    .help = "List the kinds of data sets, look into one, convert it, get a file, or tokenize text.",
    .flags = flags,
    .verbs = verbs,
    .verb_flags = verb_flags,
    .examples = "trireme data check recipes/mnist-cnn.yaml\n"
                "trireme data check recipes/mnist-cnn.yaml data.path=data/my-images --json\n"
                "trireme data dump recipes/mnist-cnn.yaml --count 8 --out samples.safetensors\n"
                "trireme data dump recipes/mnist-cnn.yaml --count 100 --png samples.png\n"
                "trireme data convert recipes/mnist-cnn.yaml --to webdataset --out data/shards\n"
                "trireme data get https://example.org/train.tar --out train.tar --sha256 HASH\n"
                "trireme data tokenize --tokenizer tokenizer.json < text.txt\n",
    .run = run};
