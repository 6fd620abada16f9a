// Refuses settings of other systems, and settings that this version does not support, before
// anything starts: one row each. When a feature is added, its row is deleted.
#include "recipe/missing.h"

#include <string.h>

// Names of Lightning and PyTorch for settings that have another name here, or are flags.
static const struct {
    const char *key, *instead;
} foreign_keys[] = {
    {"trainer.profiler", "train --trace FILE records all actions; trireme trace FILE sums them up"},
    {"trainer.resume", "use the flag --resume auto|never|PATH"},
    {"trainer.resume_from_checkpoint", "use the flag --resume auto|never|PATH"},
    {"trainer.ckpt_path", "use the flag --resume auto|never|PATH"},
    {"trainer.default_root_dir", "use the flag --run-dir DIR"},
    {"trainer.enable_progress_bar", "use log.progress"},
    {"trainer.enable_model_summary", "use log.summary"},
    {"trainer.enable_checkpointing", "use checkpoint.save_last and checkpoint.save_top_k"},
    {"trainer.logger", "metrics.jsonl is always written; log.tensorboard writes curves"},
    {"trainer.track_grad_norm", "grad_norm is always logged"},
    {"trainer.gradient_clip_algorithm", "trainer.gradient_clip_val clips the norm"},
    {"trainer.accelerator", "use the flag --device"},
    {"trainer.devices", "trireme run --nproc-per-node N starts N ranks"},
    {"trainer.num_nodes", "start the ranks of several nodes with srun or mpirun"},
    {"trainer.strategy", "use strategy.name"},
    {"trainer.callbacks", "see trainer.early_stopping and the section checkpoint"},
    {"trainer.benchmark", "kernels are always chosen by shape"},
    {"trainer.limit_test_batches", "use trainer.limit_val_batches"},
    {"trainer.learning_rate_monitor", "lr is always logged"},
    {"trainer.use_distributed_sampler", "the samples are always divided among the ranks"},
    {"trainer.gradient_accumulation_steps", "use trainer.accumulate_grad_batches"},
    {"checkpoint.dirpath", "checkpoints are in the run folder; use the flag --run-dir DIR"},
    {"checkpoint.every_n_train_steps", "use checkpoint.every_n_steps"},
    {"optimizer.learning_rate", "use optimizer.lr"},
    {"data.batch_size", "use batch.global, the samples of a step over all ranks"},
    {"data.num_workers", "use data.workers"},
    {"trainer.gpus", "use trireme run --nproc-per-node N, which starts N ranks"},
    {"trainer.epochs", "use trainer.max_epochs"},
    {"lr", "use optimizer.lr"},
    {"learning_rate", "use optimizer.lr"},
    {"batch_size", "use batch.global, the samples of a step over all ranks"},
    {"batch.size", "use batch.global, the samples of a step over all ranks"},
    {"epochs", "use trainer.max_epochs"},
    {"max_epochs", "use trainer.max_epochs"},
    {"max_steps", "use trainer.max_steps"},
    {"precision", "use trainer.precision"},
    {"scheduler", "use the section schedule"},
};

typedef struct missing {
    const char *key;
    const char *value;   // the value that is refused; NULL: any
    const char *instead; // what to do, or NULL
} missing;

static const missing rows[] = {
    {"schedule.cycle_momentum", "true", NULL},
    {"data.name", "cifar10", NULL},
    {"data.name", "imagefolder", NULL},
    {"data.name", "webdataset", NULL},
    {"data.name", "hdf5", NULL},
    {"data.name", "jsonl", NULL},
    {"log.mlflow", NULL, "use log.tensorboard"},
};

static bool matches(const missing *row, const tri_tree *node) {
    bool truth;
    if (tri_tree_is_null(node)) return false;
    if (!row->value) return true;
    if (!strcmp(row->value, "true")) return tri_tree_to_bool(node, &truth) && truth;
    return node->kind == TRI_TREE_SCALAR && !strcmp(node->text, row->value);
}

tri_status tri_recipe_refuse_missing(tri_arena *arena, const tri_tree *root) {
    for (size_t i = 0; i < sizeof foreign_keys / sizeof *foreign_keys; i++) {
        const tri_tree *node = tri_tree_find(root, foreign_keys[i].key);
        if (node)
            return tri_tree_fail(node, "'%s' is not a key of Trireme: %s", foreign_keys[i].key,
                                 foreign_keys[i].instead);
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
