// Finds settings that have no effect because of the recipe's other settings, or a bad one. A table
// has one row for each key or section that can be without effect.
#include "recipe/idle.h"

#include "base/log.h"
#include "data/dataset.h"
#include "plan/schedule.h"

#include <string.h>

typedef struct situation {
    const tri_recipe *recipe;
    const tri_mesh *mesh;
} situation;

static bool has_pipeline(const situation *s) { return s->mesh->size[TRI_AXIS_PIPELINE] > 1; }
static bool has_several_stages(const situation *s) {
    return has_pipeline(s) && tri_orders[s->recipe->strategy.schedule]->loops_over_stages;
}
static bool slices_layers(const situation *s) {
    return s->mesh->size[TRI_AXIS_TENSOR_PARALLEL] > 1;
}
static bool has_several_replicas(const situation *s) { return tri_mesh_replicas(s->mesh) > 1; }

static bool recomputes_blocks(const situation *s) {
    return s->recipe->strategy.recompute == TRI_RECOMPUTE_BLOCK;
}

static bool offloads(const situation *s) { return s->recipe->strategy.offload != TRI_OFFLOAD_NONE; }

static const tri_strategy *strategy_of(const situation *s) {
    return tri_strategy_of(s->recipe->strategy.name);
}

static bool shards_parameters(const situation *s) { return strategy_of(s)->shards_parameters; }

static bool gathers(const situation *s) { return strategy_of(s)->shards_optimizer; }

static bool scales_losses(const situation *s) {
    return s->recipe->trainer.precision == TRI_PRECISION_16_MIXED;
}

static bool stops_early(const situation *s) {
    return s->recipe->trainer.early_stopping.monitor != NULL;
}

static bool evaluates(const situation *s) { return s->recipe->trainer.limit_val_batches.value > 0; }

static bool uses_all_batches(const situation *s) {
    return s->recipe->trainer.overfit_batches.value == 0;
}

static bool saves_best(const situation *s) { return s->recipe->checkpoint.save_top_k != 0; }
static bool has_momentum(const situation *s) { return s->recipe->optimizer.momentum > 0; }
static bool decays(const situation *s) { return s->recipe->schedule.decay_steps > 0; }

static bool is_synthetic(const situation *s) { return !strcmp(s->recipe->data.name, "synthetic"); }
static bool has_files(const situation *s) { return !is_synthetic(s); }
static bool makes_images(const situation *s) { return s->recipe->data.vocabulary == 0; }

static bool is_text(const situation *s) { return tri_data_is_text(&s->recipe->data); }

static const struct {
    const char *key; // a key; or a section, which stands for all its keys
    bool (*has_effect)(const situation *s);
    const char *why; // why the key has no effect
} rows[] = {
    {"strategy.schedule", has_pipeline, "there is no pipeline"},
    {"strategy.stages_per_rank", has_several_stages,
     "there is no pipeline with a schedule that has several stages on each rank"},
    {"strategy.recompute_every", recomputes_blocks, "strategy.recompute is not block"},
    {"strategy.prefetch", gathers, "the strategy shards nothing, so that nothing is gathered"},
    {"strategy.reshard_after_forward", shards_parameters, "the strategy does not shard parameters"},
    {"strategy.persistent_bytes", shards_parameters, "the strategy does not shard parameters"},
    {"strategy.reduce_dtype", has_several_replicas,
     "there is only one replica, which sends no gradients"},
    {"strategy.offload_path", offloads, "strategy.offload is none"},
    {"strategy.offload_step", offloads, "strategy.offload is none"},
    {"strategy.tensor", slices_layers, "strategy.mesh.tensor is 1"},
    {"strategy.sequence_parallel", slices_layers, "strategy.mesh.tensor is 1"},
    {"trainer.loss_scale", scales_losses, "trainer.precision is not 16-mixed"},
    {"trainer.early_stopping", stops_early, "trainer.early_stopping.monitor is not set"},
    {"trainer.val_check_interval", evaluates, "trainer.limit_val_batches is 0"},
    {"trainer.check_val_every_n_epoch", evaluates, "trainer.limit_val_batches is 0"},
    {"trainer.num_sanity_val_steps", evaluates, "trainer.limit_val_batches is 0"},
    {"trainer.limit_train_batches", uses_all_batches, "trainer.overfit_batches replaces it"},
    {"checkpoint.monitor", saves_best, "checkpoint.save_top_k is 0"},
    {"checkpoint.mode", saves_best, "checkpoint.save_top_k is 0"},
    {"optimizer.dampening", has_momentum, "optimizer.momentum is 0"},
    {"schedule.decay_rate", decays, "schedule.decay_steps is 0"},
    {"data.path", has_files, "synthetic data has no files"},
    {"data.train", has_files, "synthetic data has no files"},
    {"data.test", has_files, "synthetic data has no files"},
    {"data.shape", makes_images, "with data.vocabulary, the samples are text"},
    {"data.classes", makes_images, "with data.vocabulary, the samples are text"},
    {"data.sequence", is_text, "the data is not text"},
};

// Makes a recipe with all keys at their defaults, to find which keys of the user's recipe differ.
// The names of data, optimizer and schedule stay, because they decide which other keys exist.
static tri_tree *defaults_of(tri_arena *arena, const tri_recipe *recipe) {
    const struct {
        const char *section, *name;
    } named[] = {{"data", recipe->data.name},
                 {"optimizer", recipe->optimizer.name},
                 {"schedule", recipe->schedule.name}};
    tri_tree *map = tri_tree_map(arena);
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        if (!named[i].name) continue;
        tri_tree *section = tri_tree_map(arena);
        tri_tree_put(arena, section, "name", tri_tree_string(arena, named[i].name));
        tri_tree_put(arena, map, named[i].section, section);
    }
    tri_recipe *plain = TRI_NEW(arena, tri_recipe);
    if (tri_option_decode(arena, &tri_recipe_table, map, plain) != TRI_OK) return NULL;
    plain->left_open = recipe->left_open;
    return tri_recipe_tree(arena, plain);
}

tri_strings tri_recipe_idle_keys(tri_arena *arena, const tri_recipe *recipe, const tri_mesh *mesh) {
    situation s = {recipe, mesh};
    const char **lines = TRI_NEW_ARRAY(arena, const char *, sizeof rows / sizeof *rows);
    int count = 0;
    const tri_tree *own = tri_recipe_tree(arena, recipe), *plain = defaults_of(arena, recipe);
    for (size_t i = 0; plain && i < sizeof rows / sizeof *rows; i++) {
        const tri_tree *value = tri_tree_find(own, rows[i].key);
        if (!value || tri_tree_equal(value, tri_tree_find(plain, rows[i].key))) continue;
        if (!rows[i].has_effect(&s))
            lines[count++] =
                tri_arena_printf(arena, "%s has no effect: %s", rows[i].key, rows[i].why);
    }
    return (tri_strings){.items = lines, .count = count};
}

void tri_recipe_warn_idle(const tri_recipe *recipe, const tri_mesh *mesh) {
    tri_arena *arena = tri_arena_create(NULL, "idle keys");
    tri_strings lines = tri_recipe_idle_keys(arena, recipe, mesh);
    for (int i = 0; i < lines.count; i++) tri_log_line(TRI_LOG_WARNING, "%s", lines.items[i]);
    tri_arena_destroy(arena);
    const situation s = {recipe, mesh};
    bool is_f16 = tri_strategy_reduce_dtype(&recipe->strategy) == TRI_F16;
    if (is_f16 && has_several_replicas(&s) && !scales_losses(&s))
        tri_log_line(TRI_LOG_WARNING,
                     "strategy.reduce_dtype: float16 sends gradients below 3e-8 as 0, because "
                     "without trainer.precision: 16-mixed there is no loss scale; bfloat16 does "
                     "not");
}
