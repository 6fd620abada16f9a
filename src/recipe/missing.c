// One row per thing that recipes name and this version lacks, so that it is refused before anything
// starts. Whoever builds it deletes the row.
#include "recipe/missing.h"

#include <string.h>

// Lightning's and PyTorch's names of what is called otherwise here, or is done by another command.
static const struct {
    const char *key, *instead;
} named_otherwise[] = {
    {"trainer.profiler", "train --trace FILE writes all actions, trireme trace FILE sums them"},
    {"trainer.resume", "it is the flag --resume auto|never|PATH"},
    {"trainer.resume_from_checkpoint", "it is the flag --resume auto|never|PATH"},
    {"trainer.ckpt_path", "it is the flag --resume auto|never|PATH"},
    {"trainer.default_root_dir", "it is the flag --run-dir DIR"},
    {"trainer.enable_progress_bar", "it is log.progress"},
    {"trainer.enable_model_summary", "it is log.summary"},
    {"trainer.enable_checkpointing", "it is checkpoint.save_last and checkpoint.save_top_k"},
    {"trainer.logger", "metrics.jsonl is always written; log.tensorboard writes curves"},
    {"trainer.track_grad_norm", "grad_norm is always logged"},
    {"trainer.gradient_clip_algorithm", "trainer.gradient_clip_val clips the norm"},
    {"trainer.accelerator", "it is the flag --device"},
    {"trainer.devices", "trireme run --nproc-per-node N starts so many ranks"},
    {"trainer.num_nodes", "trireme run --nnodes N, or the site's launcher, starts them"},
    {"trainer.strategy", "it is strategy.name"},
    {"trainer.callbacks", "see trainer.early_stopping and the section checkpoint"},
    {"trainer.benchmark", "kernels are chosen by shape, always"},
    {"trainer.limit_test_batches", "it is trainer.limit_val_batches"},
    {"trainer.learning_rate_monitor", "lr is always logged"},
    {"trainer.use_distributed_sampler", "ranks always share the samples"},
    {"trainer.gradient_accumulation_steps", "it is trainer.accumulate_grad_batches"},
    {"checkpoint.dirpath", "checkpoints lie in the run directory: the flag --run-dir DIR"},
    {"checkpoint.every_n_train_steps", "it is checkpoint.every_n_steps"},
    {"optimizer.learning_rate", "it is optimizer.lr"},
    {"data.batch_size", "it is batch.global, over all ranks"},
    {"data.num_workers", "it is data.workers"},
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

static bool holds(const missing *row, const tri_tree *node) {
    bool truth;
    if (tri_tree_is_null(node)) return false;
    if (!row->value) return true;
    if (!strcmp(row->value, "true")) return tri_tree_to_bool(node, &truth) && truth;
    return node->kind == TRI_TREE_SCALAR && !strcmp(node->text, row->value);
}

tri_status tri_recipe_refuse_missing(tri_arena *arena, const tri_tree *root) {
    for (size_t i = 0; i < sizeof named_otherwise / sizeof *named_otherwise; i++) {
        const tri_tree *node = tri_tree_find(root, named_otherwise[i].key);
        if (node)
            return tri_tree_fail(node, "'%s' is no key of Trireme: %s", named_otherwise[i].key,
                                 named_otherwise[i].instead);
    }
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
