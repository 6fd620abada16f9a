// `trireme checkpoint export --huggingface DIR`: writes a checkpoint as a folder that Hugging
// Face's transformers load, or torchvision: config.json, the weights, and the tokenizer's files
// where the run had them. Read next: checkpoint/export_folder.c.
#include "cli/checkpoint_folder.h"

#include "base/log.h"
#include "base/quantity.h"
#include "checkpoint/checkpoint.h"
#include "cli/generate_model.h"
#include "nn/exported/exported.h"
#include "nn/models/config_json.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char TOKENIZER_JSON[] = "tokenizer.json", TOKENIZER_MODEL[] = "tokenizer.model";
// Files that belong to a tokenizer.
static const char *const companions[] = {"tokenizer_config.json",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "vocab.json",
                                         "merges.txt",
                                         "chat_template.jinja",
                                         "chat_template.json"};

typedef struct folder_files {
    tri_export_file *items;
    int count, capacity;
} folder_files;

static bool is_there(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

static void add_copy(tri_arena *arena, folder_files *files, const char *name, const char *from) {
    if (is_there(from))
        TRI_PUSH(arena, files->items, files->count, files->capacity) =
            (tri_export_file){.name = name, .from = from};
}

static void add_text(tri_arena *arena, folder_files *files, const char *name,
                     const tri_tree *content) {
    TRI_PUSH(arena, files->items, files->count, files->capacity) = (tri_export_file){
        .name = name, .text = tri_arena_printf(arena, "%s\n", tri_json_emit(arena, content))};
}

// The name that transformers expect of a tokenizer's file.
static const char *kind_of(const char *path) {
    FILE *file = fopen(path, "rb");
    int first = file ? getc(file) : EOF;
    while (file && first != EOF && strchr(" \t\r\n", first)) first = getc(file);
    if (file) fclose(file);
    return first == '{' ? TOKENIZER_JSON : TOKENIZER_MODEL;
}

static void add_tokenizer(tri_arena *arena, const char *tokenizer, folder_files *files) {
    const char *own = kind_of(tokenizer), *base = strrchr(tokenizer, '/');
    add_copy(arena, files, own, tokenizer);
    // A folder with the usual name may have the tokenizer in both forms.
    if (base && !strcmp(base + 1, own)) {
        const char *other = own == TOKENIZER_JSON ? TOKENIZER_MODEL : TOKENIZER_JSON;
        add_copy(arena, files, other, cli_beside(arena, tokenizer, other));
    }
    for (int i = 0; i < TRI_OPTION_COUNT(companions); i++)
        add_copy(arena, files, companions[i], cli_beside(arena, tokenizer, companions[i]));
}

// What is known of the tokens that begin and end a text. transformers give other numbers to a model
// whose config.json has none.
static tri_status add_ids(tri_arena *arena, cli_text_model *model, tri_tree *config,
                          folder_files *files) {
    const tri_tree *first, *pad = tri_tree_get(config, "pad_token_id");
    tri_tree *ends = tri_tree_list(arena), *generation = tri_tree_map(arena);
    TRI_TRY(cli_find_id(arena, model, "bos_token_id", &first));
    TRI_TRY(cli_find_ends(arena, model));
    for (int i = 0; i < model->end_count; i++)
        tri_tree_append(arena, ends, tri_tree_int(arena, model->ends[i]));
    tri_tree *end = model->end_count == 0   ? tri_tree_null(arena)
                    : model->end_count == 1 ? ends->items[0]
                                            : ends;
    tri_tree *begin = tri_tree_is_null(first) ? tri_tree_null(arena) : tri_tree_copy(arena, first);
    tri_tree *const both[] = {config, generation};
    for (int i = 0; i < 2; i++) {
        tri_tree_put(arena, both[i], "bos_token_id", tri_tree_copy(arena, begin));
        tri_tree_put(arena, both[i], "eos_token_id", tri_tree_copy(arena, end));
    }
    if (model->end_count == 0) return TRI_OK;
    if (!tri_tree_is_null(pad))
        tri_tree_put(arena, generation, "pad_token_id", tri_tree_copy(arena, pad));
    add_text(arena, files, "generation_config.json", generation);
    return TRI_OK;
}

static const char *type_of(const char *dtype) {
    if (dtype && !strcmp(dtype, "BF16")) return "bfloat16";
    if (dtype && !strcmp(dtype, "F16")) return "float16";
    return dtype && !strcmp(dtype, "F64") ? "float64" : "float32";
}

// Adds config.json and what belongs to it. A model that has none, such as resnet, gets only
// weights, which torchvision's load_state_dict takes.
static tri_status add_config(tri_arena *arena, tri_recipe *recipe, const char *dtype,
                             folder_files *files) {
    const tri_task *task = tri_model_find(recipe->model.name);
    cli_text_model model = {.recipe = *recipe, .tokenizer = recipe->data.tokenizer};
    tri_tree *config;
    if (!task || !model_has_config(task)) return TRI_OK;
    TRI_TRY(model_config_write(arena, task, recipe->model.options, &config));
    tri_tree_put_string(arena, config, "torch_dtype", type_of(dtype));
    if (recipe->init.path && is_there(recipe->init.path)) model.checkpoint = recipe->init.path;
    if (model.tokenizer && !is_there(model.tokenizer)) {
        tri_log_line(TRI_LOG_WARNING, "%s is not there any more: the folder has no tokenizer",
                     model.tokenizer);
        model.tokenizer = NULL;
    } else if (!model.tokenizer) {
        model.tokenizer = cli_find_tokenizer(arena, model.checkpoint);
    }
    TRI_TRY(add_ids(arena, &model, config, files));
    add_text(arena, files, "config.json", config);
    if (model.tokenizer) add_tokenizer(arena, model.tokenizer, files);
    return TRI_OK;
}

// The file of the exported network that the recipe names; NULL: its model is another one.
static tri_status program_of(const cli_context *context, tri_arena *arena, const char *text,
                             const char *path, const char **out) {
    tri_tree *root;
    tri_recipe recipe;
    *out = NULL;
    TRI_TRY(tri_yaml_parse(arena, text, strlen(text), path, &root));
    const tri_tree *name = tri_tree_find(root, "model.name");
    if (tri_tree_is_null(name) || name->kind != TRI_TREE_SCALAR ||
        strcmp(name->text, NN_EXPORTED_NAME) != 0)
        return TRI_OK;
    TRI_TRY(tri_recipe_parse(arena, text, strlen(text), path, NULL, 0,
                             context->task ? context->task->name : NULL, &recipe));
    const tri_tree *program = tri_tree_get(recipe.model.options, NN_EXPORTED_FILE_KEY);
    *out = tri_tree_is_null(program) ? NULL : program->text;
    return TRI_OK;
}

tri_status cli_find_program(const cli_context *context, tri_arena *arena, const cli_arguments *a,
                            const char **out) {
    tri_checkpoint_info info;
    const char *path = a->words[1], *given = cli_value(a, "program");
    *out = tri_pt2_probe(path) ? path : NULL;
    if (!*out && tri_checkpoint_read_info(arena, path, &info) == TRI_OK && info.recipe)
        TRI_TRY(program_of(context, arena, info.recipe, path, out));
    if (!*out && given)
        return TRI_FAIL(TRI_BAD_INPUT, "--program: %s is no checkpoint of an exported network",
                        path);
    if (given) *out = given;
    if (!*out || is_there(*out)) return TRI_OK;
    return TRI_FAIL(TRI_NOT_FOUND,
                    "%s: the exported network, which has what the run did not train, is not there: "
                    "name its file with --program",
                    *out);
}

tri_status cli_export_folder(const cli_context *context, tri_arena *arena, const cli_arguments *a) {
    tri_checkpoint_info info;
    tri_recipe recipe;
    folder_files files = {0};
    const char *path = a->words[1], *program, *size = cli_value(a, "max-shard-size");
    double bytes = 5e9; // as save_pretrained has it
    if (size && (!tri_quantity_read(size, &bytes) || bytes < 1 || bytes > 9e18))
        return TRI_FAIL(TRI_BAD_INPUT, "--max-shard-size: must be a size such as 5GB, not '%s'",
                        size);
    TRI_TRY(tri_checkpoint_read_info(arena, path, &info));
    if (!info.recipe)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: holds no recipe, so its model is not known", path);
    TRI_TRY(tri_recipe_parse(arena, info.recipe, strlen(info.recipe), path, NULL, 0,
                             context->task ? context->task->name : NULL, &recipe));
    TRI_TRY(add_config(arena, &recipe, cli_value(a, "dtype"), &files));
    TRI_TRY(cli_find_program(context, arena, a, &program));
    tri_export_kind kind = cli_has(a, "merged") ? TRI_EXPORT_MERGED : TRI_EXPORT_ALL;
    return tri_checkpoint_export_folder(path,
                                        &(tri_export_folder){.path = cli_value(a, "huggingface"),
                                                             .kind = kind,
                                                             .dtype = cli_value(a, "dtype"),
                                                             .program = program,
                                                             .shard_bytes = (int64_t)bytes,
                                                             .files = files.items,
                                                             .file_count = files.count},
                                        stdout);
}
