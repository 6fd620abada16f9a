// Takes the options of a model from a config.json that the recipe names, and settles the file of an
// exported network.
#include "recipe/config.h"

#include "data/fields.h"
#include "nn/exported/exported.h"
#include "nn/models/config_json.h"
#include "recipe/paths.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

// False: the model's own option of this name is meant, or there is none.
static bool names_config(const tri_tree *model, bool has_own) {
    const tri_tree *name = tri_tree_get(model, "name"), *config = tri_tree_get(model, "config");
    if (tri_tree_is_null(config) || config->kind != TRI_TREE_SCALAR) return false;
    const tri_task *task = !tri_tree_is_null(name) && name->kind == TRI_TREE_SCALAR
                               ? tri_model_find(name->text)
                               : NULL;
    return (tri_tree_is_null(name) && !has_own) || (task && model_has_config(task));
}

// Adds the entry where the map has none; of maps that both have, the entries within.
static void add_missing(tri_arena *arena, tri_tree *map, const char *key, tri_tree *value) {
    tri_tree *own = tri_tree_get(map, key);
    if (!own) tri_tree_put(arena, map, key, value);
    if (!own || own->kind != TRI_TREE_MAP || value->kind != TRI_TREE_MAP) return;
    for (int i = 0; i < value->count; i++)
        add_missing(arena, own, value->items[i]->key, value->items[i]);
}

tri_status tri_recipe_settle_config(tri_arena *arena, tri_tree *root, const char *file,
                                    bool has_own) {
    tri_tree *model = tri_tree_get(root, "model"), *config;
    model_config found;
    if (!names_config(model, has_own)) return TRI_OK;
    tri_tree *path = tri_tree_get(model, MODEL_CONFIG_KEY);
    const tri_tree *name = tri_tree_get(model, "name");
    TRI_TRY(tri_recipe_settle_path(arena, path, file));
    TRI_TRY(tri_status_context(tri_json_read_file(arena, path->text, &config), "model.config"));
    tri_status status = model_config_read(arena, config, model, &found);
    if (status == TRI_NOT_FOUND)
        return tri_tree_fail(path, "model.config: %s has no model_type: it describes no model",
                             path->text);
    TRI_TRY(tri_status_context(status, "model.config"));
    if (!tri_tree_is_null(name) && strcmp(name->text, found.task->name) != 0)
        return tri_tree_fail(name, "model.name is %s, but %s describes a model that is %s here",
                             name->text, path->text, found.task->name);
    tri_tree_remove(model, MODEL_CONFIG_KEY);
    tri_tree_put_string(arena, model, "name", found.task->name);
    for (int i = 0; i < found.options->count; i++) {
        tri_tree *option = found.options->items[i];
        add_missing(arena, model, option->key, option);
    }
    return TRI_OK;
}

// Declares the fields that an exported network takes and no other model has, so that a recipe need
// not. A file that cannot be read is refused when the model is opened.
static void declare_arguments(tri_arena *arena, tri_tree *root, const char *path) {
    tri_pt2 network;
    tri_tree *data = tri_tree_get(root, "data"), *extra = tri_tree_get(data, "extra_fields"),
             *inputs = tri_tree_find(root, "model.inputs");
    if (!data || data->kind != TRI_TREE_MAP || tri_pt2_open(arena, path, &network) != TRI_OK)
        return;
    if (!extra) extra = tri_tree_map(arena);
    for (int i = 0; i < network.input_count; i++) {
        const tri_pt2_port *port = &network.inputs[i];
        if (port->role != TRI_PT2_INPUT || port->argument.kind != TRI_PT2_VALUE) continue;
        const tri_tree *given = tri_tree_get(inputs, port->name);
        const char *name = given && given->kind == TRI_TREE_SCALAR ? given->text : port->name;
        tri_field_row row;
        if (tri_field_find(extra, name, &row)) continue;
        int type = network.values[port->argument.number].dtype;
        bool is_float = type != TRI_PT2_BOOLEAN && (type < TRI_PT2_BYTE || type > TRI_PT2_LONG);
        tri_tree_put_string(arena, extra, name, is_float ? "f32" : "i64");
    }
    if (extra->count > 0) tri_tree_put(arena, data, "extra_fields", extra);
}

tri_status tri_recipe_settle_program(tri_arena *arena, tri_tree *root, const char *file) {
    tri_tree *model = tri_tree_get(root, "model"), *name = tri_tree_get(model, "name"),
             *program = tri_tree_get(model, NN_EXPORTED_FILE_KEY),
             *weights = tri_tree_get(model, "weights");
    char real[PATH_MAX];
    bool is_one = !tri_tree_is_null(name) && name->kind == TRI_TREE_SCALAR &&
                  !strcmp(name->text, NN_EXPORTED_NAME);
    if (!is_one || tri_tree_is_null(program) || program->kind != TRI_TREE_SCALAR) return TRI_OK;
    tri_tree *const files[] = {program, tri_tree_get(model, NN_EXPORTED_EVALUATION_KEY)};
    for (int i = 0; i < 2; i++) {
        if (tri_tree_is_null(files[i]) || files[i]->kind != TRI_TREE_SCALAR) continue;
        TRI_TRY(tri_recipe_settle_path(arena, files[i], file));
        if (realpath(files[i]->text, real)) files[i]->text = tri_arena_strdup(arena, real);
    }
    declare_arguments(arena, root, program->text);
    bool wants = tri_tree_is_null(weights) || weights->kind != TRI_TREE_SCALAR ||
                 strcmp(weights->text, "none") != 0;
    if (!wants || !tri_tree_is_null(tri_tree_find(root, "init.path"))) return TRI_OK;
    tri_tree *init = tri_tree_map(arena);
    tri_tree_put_string(arena, init, "path", program->text);
    tri_tree_put(arena, root, "init", init);
    return TRI_OK;
}
