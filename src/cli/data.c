// `trireme data`: the table of its verbs, and the list of the kinds of data sets.
#include "cli/cli.h"

#include "cli/data_verbs.h"

#include <stdio.h>
#include <string.h>

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
// follow it; `on_words` gets the words alone, of which there are `words`.
static const struct data_verb {
    const char *name;
    int words;
    tri_status (*on_words)(const cli_arguments *arguments);
    tri_status (*on_recipe)(const cli_arguments *arguments, const char *path,
                            const tri_recipe *recipe);
} data_verbs[] = {
    {"list", 0, list, NULL},
    {"check", 0, NULL, cli_data_check},
    {"stats", 0, NULL, cli_data_stats},
    {"dump", 0, NULL, cli_data_dump},
    {"get", 1, cli_data_get, NULL},
    {"convert", 0, NULL, cli_data_convert},
    {"tokenize", 0, cli_data_tokenize, NULL},
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
        return cli_usage(
            &cli_data,
            "data: list, check RECIPE, stats RECIPE, dump RECIPE, convert RECIPE, get URL, "
            "or tokenize");
    if (verb->on_recipe && a.count < 2)
        return cli_usage(&cli_data, "data %s: which recipe?", verb->name);
    if (verb->on_words && a.count - 1 > verb->words)
        return cli_usage(&cli_data, "data %s: '%s' has no meaning here", verb->name,
                         a.words[verb->words + 1]);
    tri_status status = verb->on_recipe ? run_on_recipe(context, verb, &a) : verb->on_words(&a);
    return status == TRI_OK ? 0 : cli_fail(status);
}

static const cli_flag flags[] = {
    {"json", NULL, "one JSON object a line; tokenize: text as JSON strings", 0},
    {"split", "train|val|test", "dump: whose samples (train); stats: only these (all)", 0},
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
                                            {"stats", "split json"},
                                            {"dump", "split first count out png"},
                                            {"get", "sha256 out"},
                                            {"convert", "to out"},
                                            {"tokenize", "tokenizer decode json"},
                                            {0}};
static const cli_verb verbs[] = {
    {"list", "", "list the kinds of data sets (data.name)"},
    {"check", "RECIPE [key.path=value ...]", "read every sample and report what the model gets"},
    {"stats", "RECIPE [key.path=value ...]", "mean and standard deviation for normalize, classes"},
    {"dump", "RECIPE [key.path=value ...]", "write samples as the model gets them"},
    {"convert", "RECIPE [key.path=value ...]", "write the samples as another kind of data"},
    {"get", "URL", "get a file over HTTPS and check its hash"},
    {"tokenize", "--tokenizer FILE", "from lines of text to lists of token numbers, or back"},
    {0}};

const cli_command cli_data = {
    .name = "data",
    .arguments = "list | check|stats|dump|convert RECIPE [key.path=value ...] | get URL | tokenize",
    .help = "List the kinds of data sets, look into one, convert it, get a file, or tokenize text.",
    .flags = flags,
    .verbs = verbs,
    .verb_flags = verb_flags,
    .examples = "trireme data check recipes/mnist-cnn.yaml\n"
                "trireme data check recipes/mnist-cnn.yaml data.path=data/my-images --json\n"
                "trireme data stats recipes/mnist-cnn.yaml --split train\n"
                "trireme data dump recipes/mnist-cnn.yaml --count 8 --out samples.safetensors\n"
                "trireme data dump recipes/mnist-cnn.yaml --count 100 --png samples.png\n"
                "trireme data convert recipes/mnist-cnn.yaml --to webdataset --out data/shards\n"
                "trireme data get https://example.org/train.tar --out train.tar --sha256 HASH\n"
                "trireme data tokenize --tokenizer tokenizer.json < text.txt\n",
    .run = run};
