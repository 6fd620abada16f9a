// Opens the runs that a command shows.
#include "cli/shown_runs.h"

#include "base/log.h"
#include "recipe/recipe.h"

#include <string.h>

// Makes the recipe that has nothing but the names of `recipe` (of its model, data set, optimizer
// …), and otherwise defaults. NULL: there is no such recipe, for example because the model is one
// of a program.
static const tri_tree *defaults_of(tri_arena *arena, const tri_tree *recipe) {
    tri_recipe named;
    tri_tree *names = tri_tree_map(arena);
    for (int i = 0; recipe && i < recipe->count; i++) {
        const tri_tree *section = recipe->items[i], *name = tri_tree_get(section, "name");
        if (tri_tree_is_null(name) || name->kind != TRI_TREE_SCALAR) continue;
        tri_tree *map = tri_tree_map(arena);
        tri_tree_put(arena, map, "name", tri_tree_copy(arena, name));
        tri_tree_put(arena, names, section->key, map);
    }
    const tri_tree *model = tri_tree_find(recipe, "model.name");
    if (!model || !model->text) return NULL;
    const char *text = tri_yaml_emit(arena, names);
    if (tri_recipe_parse(arena, text, strlen(text), "defaults", NULL, 0, model->text, &named) !=
        TRI_OK)
        return NULL;
    tri_tree *defaults = tri_recipe_tree(arena, &named);
    const tri_tree *name = tri_tree_get(recipe, "name"); // nobody asks how a run would be named
    if (name) tri_tree_put(arena, defaults, "name", tri_tree_copy(arena, name));
    return defaults;
}

tri_status cli_open_runs(tri_arena *arena, char **paths, int count, views_report_run **out) {
    *out = TRI_NEW_ARRAY(arena, views_report_run, count);
    for (int i = 0; i < count; i++) {
        views_run *run;
        TRI_TRY(views_run_open(arena, paths[i], &run));
        (*out)[i] = (views_report_run){.run = run, .defaults = defaults_of(arena, run->recipe)};
        if (run->damaged_lines > 0)
            tri_log_line(TRI_LOG_WARNING,
                         "%s/metrics.jsonl: %lld damaged lines are left out, the first is line "
                         "%lld",
                         run->folder, (long long)run->damaged_lines, (long long)run->first_damaged);
    }
    return TRI_OK;
}
