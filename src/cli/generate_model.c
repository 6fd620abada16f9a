// Finds the model of `trireme generate`. Of a folder of Hugging Face's, config.json has the options
// of the model, under the names that they have here.
#include "cli/generate_model.h"

#include "base/os.h"
#include "format/tokenizer/tokenizer.h"
#include "nn/exported/exported.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

const char *cli_beside(tri_arena *arena, const char *path, const char *name) {
    const char *slash = strrchr(path, '/');
    int length = slash ? (int)(slash + 1 - path) : 0;
    const char *file = is_folder(path) ? tri_arena_printf(arena, "%s/%s", path, name)
                                       : tri_arena_printf(arena, "%.*s%s", length, path, name);
    struct stat info;
    return stat(file, &info) == 0 ? file : NULL;
}

// Writes a recipe whose model is that of config.json. Whether the weights are its is checked when
// they are loaded (train/origin.h).
static tri_status load_folder(tri_arena *arena, const cli_arguments *a, const char *config_file,
                              tri_recipe *out) {
    // A recipe has to name data and optimizer, although no data are opened and nothing is trained.
    static const char text[] = "{data: {name: synthetic}, optimizer: {name: sgd}, model: {}}";
    tri_tree *root;
    TRI_TRY(tri_yaml_parse(arena, text, strlen(text), config_file, &root));
    tri_tree_put_string(arena, tri_tree_get(root, "model"), "config", config_file);
    const char *recipe = tri_yaml_emit(arena, root);
    return tri_recipe_parse(arena, recipe, strlen(recipe), config_file,
                            (const char *const *)a->words + 1, a->count - 1, NULL, out);
}

static tri_status add_end(cli_text_model *m, const tri_tree *id) {
    int64_t number;
    if (!tri_tree_to_int(id, &number) || m->end_count == CLI_MAX_ENDS)
        return tri_tree_fail(id, "its eos_token_id must be a token, or a list of at most %d",
                             CLI_MAX_ENDS);
    m->ends[m->end_count++] = number;
    return TRI_OK;
}

tri_status cli_find_id(tri_arena *arena, const cli_text_model *m, const char *key,
                       const tri_tree **out) {
    static const char *const names[] = {"generation_config.json", "config.json"};
    *out = NULL;
    for (int i = 0; i < 2 && tri_tree_is_null(*out); i++) {
        const char *file = m->checkpoint ? cli_beside(arena, m->checkpoint, names[i]) : NULL;
        tri_tree *config = NULL;
        if (!file && m->tokenizer) file = cli_beside(arena, m->tokenizer, names[i]);
        if (file) TRI_TRY(tri_json_read_file(arena, file, &config));
        *out = tri_tree_get(config, key);
    }
    return TRI_OK;
}

// The end marks are one number or a list, and null in config.json says that there are none. If that
// has no such key, the tokenizer may know one.
tri_status cli_find_ends(tri_arena *arena, cli_text_model *m) {
    const tri_tree *ids;
    TRI_TRY(cli_find_id(arena, m, "eos_token_id", &ids));
    if (!tri_tree_is_null(ids) && ids->kind == TRI_TREE_LIST) {
        for (int i = 0; i < ids->count; i++) TRI_TRY(add_end(m, ids->items[i]));
        return TRI_OK;
    }
    if (!tri_tree_is_null(ids)) return add_end(m, ids);
    if (ids || !m->tokenizer) return TRI_OK;
    tri_tokenizer *tokenizer;
    uint32_t id;
    TRI_TRY(tri_tokenizer_open(m->tokenizer, &tokenizer));
    tri_status status = tri_tokenizer_end(tokenizer, &id);
    tri_tokenizer_close(tokenizer);
    if (status == TRI_OK) m->ends[m->end_count++] = id;
    return status == TRI_NOT_FOUND ? TRI_OK : status;
}

// Whether the model was trained on the bytes of a text (data.name=tokens), of which it knows 256.
static bool reads_bytes(tri_arena *arena, const tri_recipe *recipe) {
    int64_t tokens = 0;
    nn_exported *network;
    const tri_tree *size = tri_tree_get(recipe->model.options, "vocab_size");
    if (strcmp(recipe->data.name, "tokens") != 0) return false;
    if (size) return tri_tree_to_int(size, &tokens) && tokens == UINT8_MAX + 1;
    return recipe->model.name && !strcmp(recipe->model.name, NN_EXPORTED_NAME) &&
           nn_exported_open(arena, recipe->model.options, &network) == TRI_OK &&
           nn_exported_text_classes(network) == UINT8_MAX + 1;
}

const char *cli_find_tokenizer(tri_arena *arena, const char *path) {
    static const char *const names[] = {"tokenizer.json", "tokenizer.model"};
    const char *found = NULL;
    for (int i = 0; i < 2 && path && !found; i++) found = cli_beside(arena, path, names[i]);
    return found;
}

// Looks beside the weights, in the folder that is named (NULL: none is), and beside the weights
// with which the run began.
static tri_status find_tokenizer(tri_arena *arena, const char *folder, cli_text_model *m) {
    const char *const places[] = {m->checkpoint, folder, m->recipe.init.path};
    m->tokenizer = m->recipe.data.tokenizer;
    for (int i = 0; i < 3 && !m->tokenizer; i++)
        m->tokenizer = cli_find_tokenizer(arena, places[i]);
    if (m->tokenizer || reads_bytes(arena, &m->recipe)) return TRI_OK;
    const char *data = m->recipe.data.name;
    bool has_option = !strcmp(data, "jsonl") || !strcmp(data, "parquet");
    return TRI_FAIL(
        TRI_BAD_INPUT, "%s: there is no tokenizer.json and no tokenizer.model: put it there%s",
        m->checkpoint, has_option ? ", or let the recipe name it (data.tokenizer)" : "");
}

// *folder is the folder that the command line names; NULL: it names a recipe.
static tri_status find_weights(tri_arena *arena, const cli_context *context, const cli_arguments *a,
                               const char **named, cli_text_model *out) {
    const char *folder = a->count > 0 && is_folder(a->words[0]) ? a->words[0] : NULL;
    *named = folder;
    const char *config = folder ? cli_beside(arena, folder, "config.json") : NULL;
    const char *run = folder && !config ? cli_beside(arena, folder, "recipe.yaml") : NULL;
    *out = (cli_text_model){.checkpoint = cli_value(a, "checkpoint")};
    if (folder && !config && !run)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: has no config.json and no recipe.yaml: name a recipe, a run's folder, "
                        "or a folder of a model as Hugging Face has it",
                        folder);
    if (a->count > 0 && !folder && !strchr(a->words[0], '=') && access(a->words[0], F_OK) != 0)
        return TRI_FAIL(TRI_NOT_FOUND, "%s: there is no such recipe or folder", a->words[0]);
    if (!out->checkpoint) out->checkpoint = folder;
    if (!out->checkpoint)
        return TRI_FAIL(TRI_BAD_INPUT, "--checkpoint is missing: the model's weights");
    if (config) return load_folder(arena, a, config, &out->recipe);
    if (run)
        return tri_recipe_load(arena, run, (const char *const *)a->words + 1, a->count - 1,
                               context->task ? context->task->name : NULL, &out->recipe);
    return cli_load_evaluated(arena, context, a, &out->recipe);
}

tri_status cli_find_text_weights(tri_arena *arena, const cli_context *context,
                                 const cli_arguments *a, cli_text_model *out) {
    const char *folder;
    return find_weights(arena, context, a, &folder, out);
}

tri_status cli_find_text_model(tri_arena *arena, const cli_context *context, const cli_arguments *a,
                               cli_text_model *out) {
    const char *folder;
    TRI_TRY(find_weights(arena, context, a, &folder, out));
    TRI_TRY(find_tokenizer(arena, folder, out));
    return cli_find_ends(arena, out);
}
