// Rejects settings of other systems, and settings that this version does not support, before
// anything starts. Each such setting is a row of a table. When a feature is added, its row is
// deleted.
#include "recipe/missing.h"

#include "base/option_manual.h"

#include <string.h>

#define HUGGING_FACE                                                                               \
    "a Hugging Face config.json is no recipe; name it in one: 'model: {config: PATH}'"

// Names of Lightning and PyTorch for settings that have another name in this program, or are flags
// of its commands. The rows after the empty line are mostly for what people write as flags, such as
// --batch-size 32.
static const struct {
    const char *key;
    const char *own;    // the key of this program to write instead; NULL: `remark` tells what to do
    const char *remark; // further advice; NULL: none
} foreign_keys[] = {
    {"trainer.profiler", NULL,
     "train --trace FILE records all actions; trireme trace FILE sums them up"},
    {"trainer.resume", NULL, "use the flag --resume auto|never|PATH"},
    {"trainer.resume_from_checkpoint", NULL, "use the flag --resume auto|never|PATH"},
    {"trainer.ckpt_path", NULL, "use the flag --resume auto|never|PATH"},
    {"trainer.default_root_dir", NULL, "use the flag --run-dir DIR"},
    {"trainer.enable_progress_bar", "log.progress", NULL},
    {"trainer.enable_model_summary", "log.summary", NULL},
    {"trainer.enable_checkpointing", NULL, "use checkpoint.save_last and checkpoint.save_top_k"},
    {"trainer.logger", NULL,
     "metrics.jsonl is always written; log.tensorboard and log.csv write curves"},
    {"trainer.track_grad_norm", NULL, "grad_norm is always logged"},
    {"trainer.gradient_clip_algorithm", NULL, "trainer.gradient_clip_val clips the norm"},
    {"trainer.accelerator", NULL, "use the flag --device"},
    {"trainer.devices", NULL, "trireme run --nproc-per-node N starts N ranks"},
    {"trainer.num_nodes", NULL, "start the ranks of several nodes with srun or mpirun"},
    {"trainer.strategy", "strategy.name", NULL},
    {"trainer.callbacks", NULL, "see trainer.early_stopping and the section checkpoint"},
    {"trainer.benchmark", NULL, "kernels are always chosen by shape"},
    {"trainer.limit_test_batches", "trainer.limit_val_batches", NULL},
    {"trainer.learning_rate_monitor", NULL, "lr is always logged"},
    {"trainer.use_distributed_sampler", NULL, "the samples are always divided among the ranks"},
    {"trainer.gradient_accumulation_steps", "trainer.accumulate_grad_batches", NULL},
    {"checkpoint.dirpath", NULL, "checkpoints are in the run folder; use the flag --run-dir DIR"},
    {"checkpoint.every_n_train_steps", "checkpoint.every_n_steps", NULL},
    {"optimizer.learning_rate", "optimizer.lr", NULL},
    {"data.batch_size", "batch.global", "the samples of a step over all ranks"},
    {"data.num_workers", "data.workers", NULL},
    {"trainer.gpus", NULL, "use trireme run --nproc-per-node N, which starts N ranks"},
    {"trainer.epochs", "trainer.max_epochs", NULL},

    {"lr", "optimizer.lr", NULL},
    {"learning_rate", "optimizer.lr", NULL},
    {"batch_size", "batch.global", "the samples of a step over all ranks"},
    {"batch.size", "batch.global", "the samples of a step over all ranks"},
    {"per_device_train_batch_size", "batch.micro", "the samples of a micro-batch"},
    {"gradient_accumulation_steps", "trainer.accumulate_grad_batches", NULL},
    {"epochs", "trainer.max_epochs", NULL},
    {"num_epochs", "trainer.max_epochs", NULL},
    {"num_train_epochs", "trainer.max_epochs", NULL},
    {"max_epochs", "trainer.max_epochs", NULL},
    {"steps", "trainer.max_steps", NULL},
    {"max_steps", "trainer.max_steps", NULL},
    {"precision", "trainer.precision", NULL},
    {"num_workers", "data.workers", NULL},
    {"data_dir", "data.path", NULL},
    {"dropout", "model.dropout", NULL},
    {"scheduler", NULL, "use the section schedule"},
    {"nproc", NULL, "use trireme run --nproc-per-node N, which starts N ranks"},
    {"nproc_per_node", NULL, "use trireme run --nproc-per-node N, which starts N ranks"},
    {"devices", NULL, "use trireme run --nproc-per-node N, which starts N ranks"},
    {"gpus", NULL, "use trireme run --nproc-per-node N, which starts N ranks"},
    {"output_dir", NULL, "use the flag --run-dir DIR"},
    {"config", NULL, "the recipe is the first word and needs no flag"},
    // Keys of config.json, the file with which Hugging Face describes a model.
    {"architectures", NULL, HUGGING_FACE},
    {"model_type", NULL, HUGGING_FACE},
};

typedef struct missing {
    const char *key;
    const char *value;   // the value that is rejected; NULL: any value
    const char *instead; // advice what to write instead; NULL: no advice
} missing;

static const missing rows[] = {
    {"schedule.cycle_momentum", "true", NULL},
    {"log.mlflow", NULL, "use log.tensorboard"},
};

static bool matches(const missing *row, const tri_tree *node) {
    bool truth;
    if (tri_tree_is_null(node)) return false;
    if (!row->value) return true;
    if (!strcmp(row->value, "true")) return tri_tree_to_bool(node, &truth) && truth;
    return node->kind == TRI_TREE_SCALAR && !strcmp(node->text, row->value);
}

static const char *instead_of_key(tri_arena *arena, size_t i) {
    const char *own = foreign_keys[i].own, *remark = foreign_keys[i].remark;
    if (!own) return remark;
    return tri_arena_printf(arena, "use %s%s%s", own, remark ? ", " : "", remark ? remark : "");
}

// A search for the only key of a recipe that is `name` or ends with it: "trainer.max_epochs" for
// "max_epochs".
typedef struct key_search {
    tri_arena *arena;
    const char *name, *found;
    bool is_ambiguous;
} key_search;

static void look_at_key(void *data, const tri_option_entry *entry) {
    key_search *search = data;
    const char *dot = strrchr(entry->key, '.');
    if (entry->is_element || !entry->row) return;
    if (strcmp(entry->key, search->name) != 0 && (!dot || strcmp(dot + 1, search->name) != 0))
        return;
    if (search->found && strcmp(search->found, entry->key) != 0) search->is_ambiguous = true;
    search->found = tri_arena_strdup(search->arena, entry->key);
}

const char *tri_recipe_instead_of_flag(tri_arena *arena, const tri_option_table *table,
                                       const char *flag, const char *value) {
    char *name = tri_arena_strdup(arena, flag);
    for (char *c = name; *c; c++)
        if (*c == '-') *c = '_';
    const char *own = NULL;
    for (size_t i = 0; i < sizeof foreign_keys / sizeof *foreign_keys; i++) {
        if (strcmp(foreign_keys[i].key, name) != 0) continue;
        own = foreign_keys[i].own;
        if (!own) return foreign_keys[i].remark;
    }
    key_search search = {.arena = arena, .name = name};
    if (!own) tri_option_walk(table, look_at_key, &search);
    if (!own && !search.is_ambiguous) own = search.found;
    if (!own) return NULL;
    return tri_arena_printf(arena, "did you mean %s=%s, without dashes?", own,
                            value ? value : "VALUE");
}

tri_status tri_recipe_refuse_missing(tri_arena *arena, const tri_tree *root) {
    for (size_t i = 0; i < sizeof foreign_keys / sizeof *foreign_keys; i++) {
        const tri_tree *node = tri_tree_find(root, foreign_keys[i].key);
        if (node)
            return tri_tree_fail(node, "'%s' is not a key of Trireme: %s", foreign_keys[i].key,
                                 instead_of_key(arena, i));
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const missing *row = &rows[i];
        const tri_tree *node = tri_tree_find(root, row->key);
        if (!matches(row, node)) continue;
        const char *value = "";
        if (node->kind == TRI_TREE_SCALAR && row->value)
            value = tri_arena_printf(arena, ": %s", tri_yaml_flow(arena, node));
        return tri_tree_fail_as(TRI_UNSUPPORTED, node,
                                "'%s%s' is not in this version of Trireme%s%s", row->key, value,
                                row->instead ? "; " : "", row->instead ? row->instead : "");
    }
    return TRI_OK;
}
