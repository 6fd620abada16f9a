// The names of other systems' strategies, and the strategy of this program for each of them, so
// that a recipe can keep the name that its author knows.
#include "recipe/alias.h"

#include <string.h>
#include <strings.h>

// The names are from https://lightning.ai/docs/pytorch/stable/extensions/strategy.html, from the
// sharding strategies of https://pytorch.org/docs/stable/fsdp.html, and from DeepSpeed's stages.
// Upper and lower case are treated alike.
static const struct {
    const char *alias, *name;
    const char *offload; // NULL: the alias does not change strategy.offload
    // The strategy shards within a host and replicates across hosts, so the recipe has to set the
    // size of the mesh's axis `shard` or `replicate`.
    bool is_hybrid;
} rows[] = {
    {"auto", "ddp", NULL, false},
    {"ddp", "ddp", NULL, false},
    {"no_shard", "ddp", NULL, false},
    {"ddp_spawn", "ddp", NULL, false},
    {"ddp_fork", "ddp", NULL, false},
    {"ddp_notebook", "ddp", NULL, false},
    {"ddp_find_unused_parameters_true", "ddp", NULL, false},
    {"ddp_find_unused_parameters_false", "ddp", NULL, false},
    {"deepspeed", "zero2", NULL, false},
    {"deepspeed_stage_1", "zero1", NULL, false},
    {"deepspeed_stage_1_offload", "zero1", "optimizer", false},
    {"deepspeed_stage_2", "zero2", NULL, false},
    {"deepspeed_stage_2_offload", "zero2", "optimizer", false},
    {"deepspeed_stage_3", "fsdp", NULL, false},
    {"deepspeed_stage_3_offload", "fsdp", "parameters", false},
    {"deepspeed_stage_3_offload_nvme", "fsdp", "parameters", false},
    {"zero3", "fsdp", NULL, false},
    {"fsdp", "fsdp", NULL, false},
    {"fsdp2", "fsdp", NULL, false},
    {"fsdp_native", "fsdp", NULL, false},
    {"fsdp_cpu_offload", "fsdp", "parameters", false},
    {"full_shard", "fsdp", NULL, false},
    {"shard_grad_op", "zero2", NULL, false},
    {"hybrid_shard", "fsdp", NULL, true},
    {"hybrid_shard_zero2", "zero2", NULL, true},
    {"_hybrid_shard_zero2", "zero2", NULL, true},
};

static bool is_unset(const tri_tree *node) {
    return tri_tree_is_null(node) || (node->kind == TRI_TREE_SCALAR && !strcmp(node->text, "auto"));
}

tri_status tri_recipe_settle_strategy(tri_arena *arena, tri_tree *root) {
    tri_tree *strategy = tri_tree_get(root, "strategy"), *name = tri_tree_get(strategy, "name");
    if (!name || name->kind != TRI_TREE_SCALAR) return TRI_OK;
    size_t row = 0, count = sizeof rows / sizeof *rows;
    while (row < count && strcasecmp(rows[row].alias, name->text) != 0) row++;
    if (row == count) return TRI_OK;
    const char *alias = name->text;
    name->text = rows[row].name;
    if (rows[row].is_hybrid && is_unset(tri_tree_find(strategy, "mesh.shard")) &&
        is_unset(tri_tree_find(strategy, "mesh.replicate")))
        return tri_tree_fail(
            name,
            "'strategy.name: %s' shards within a host and replicates across hosts: set "
            "strategy.mesh.shard to the ranks of a host, or strategy.mesh."
            "replicate to the number of hosts",
            alias);
    const tri_tree *offload = tri_tree_get(strategy, "offload");
    if (!rows[row].offload) return TRI_OK;
    if (!tri_tree_is_null(offload) && offload->kind == TRI_TREE_SCALAR &&
        strcmp(offload->text, rows[row].offload) != 0)
        return tri_tree_fail(offload, "'strategy.offload: %s' contradicts 'strategy.name: %s'",
                             offload->text, alias);
    tri_tree *value = tri_tree_string(arena, rows[row].offload);
    value->file = name->file;
    value->line = name->line;
    tri_tree_put(arena, strategy, "offload", value);
    return TRI_OK;
}

// Replaces a section that is only the value of its `key` by a map that has it.
static tri_tree *lengthen(tri_arena *arena, tri_tree *root, const char *section, const char *key) {
    const tri_tree *value = tri_tree_get(root, section);
    tri_tree *map = tri_tree_map(arena);
    map->file = value->file;
    map->line = value->line;
    tri_tree_put(arena, map, key, tri_tree_copy(arena, value));
    tri_tree_put(arena, root, section, map);
    return map;
}

void tri_recipe_lengthen(tri_arena *arena, tri_tree *root) {
    const tri_tree *init = tri_tree_get(root, "init"), *loss = tri_tree_get(root, "loss");
    if (!tri_tree_is_null(init) && init->kind == TRI_TREE_SCALAR)
        lengthen(arena, root, "init", "path");
    if (loss && loss->kind == TRI_TREE_LIST)
        tri_tree_put(arena, lengthen(arena, root, "loss", "terms"), "name",
                     tri_tree_string(arena, "sum"));
}

void tri_recipe_shorten_init(tri_arena *arena, tri_tree *root) {
    const tri_tree *init = tri_tree_get(root, "init"), *ignore = tri_tree_get(init, "ignore"),
                   *path = tri_tree_get(init, "path");
    if (ignore && ignore->count > 0) return;
    tri_tree_put(arena, root, "init", path ? tri_tree_copy(arena, path) : tri_tree_null(arena));
}

tri_status tri_recipe_settle_tensor_plan(tri_tree *root) {
    static const char *const words[][2] = {{"colwise", "column"}, {"rowwise", "row"}};
    tri_tree *strategy = tri_tree_get(root, "strategy"),
             *plan = tri_tree_get(strategy, "tensor_plan");
    if (tri_tree_is_null(plan)) return TRI_OK;
    if (!tri_tree_is_null(tri_tree_get(strategy, "tensor")))
        return tri_tree_fail(plan, "strategy.tensor_plan is another name of strategy.tensor: give "
                                   "one of them");
    tri_tree_remove(strategy, "tensor");
    plan->key = "tensor";
    for (int i = 0; plan->kind == TRI_TREE_MAP && i < plan->count; i++)
        for (size_t k = 0; k < sizeof words / sizeof *words; k++)
            if (plan->items[i]->kind == TRI_TREE_SCALAR &&
                !strcmp(plan->items[i]->text, words[k][0]))
                plan->items[i]->text = words[k][1];
    return TRI_OK;
}
