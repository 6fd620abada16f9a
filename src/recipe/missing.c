// One row per thing that recipes name and this version lacks, so that it is refused before anything
// starts. Whoever builds it deletes the row.
#include "recipe/missing.h"

#include <string.h>

typedef struct missing {
    const char *key;
    const char *value;   // the value that is refused; NULL: any
    const char *instead; // what to do, or NULL
} missing;

static const missing rows[] = {
    {"trainer.profiler", NULL, NULL},
    {"schedule.cycle_momentum", "true", NULL},
    {"data.name", "cifar10", NULL},
    {"data.name", "imagefolder", NULL},
    {"data.name", "webdataset", NULL},
    {"data.name", "hdf5", NULL},
    {"data.name", "jsonl", NULL},
    {"log.mlflow", NULL, "use log.tensorboard"},
};

static bool holds(const missing *row, const tri_tree *node) {
    bool truth;
    if (tri_tree_is_null(node)) return false;
    if (!row->value) return true;
    if (!strcmp(row->value, "true")) return tri_tree_to_bool(node, &truth) && truth;
    return node->kind == TRI_TREE_SCALAR && !strcmp(node->text, row->value);
}

tri_status tri_recipe_refuse_missing(tri_arena *arena, const tri_tree *root) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const missing *row = &rows[i];
        const tri_tree *node = tri_tree_find(root, row->key);
        if (!holds(row, node)) continue;
        const char *value = "";
        if (node->kind == TRI_TREE_SCALAR && row->value)
            value = tri_arena_printf(arena, ": %s", tri_yaml_flow(arena, node));
        return tri_tree_fail_as(TRI_UNSUPPORTED, node,
                                "'%s%s' is not in this version of Trireme%s%s", row->key, value,
                                row->instead ? "; " : "", row->instead ? row->instead : "");
    }
    return TRI_OK;
}
