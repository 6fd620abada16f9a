// The option tables of the recipe's sections `strategy` and `batch`, from which recipes are read,
// checked and documented.
#include "plan/options.h"

#include "base/limits.h"
#include "base/quantity.h"

#include <string.h>

#define X(constant, name, ...) #name,
const char *const tri_strategy_names[] = {TRI_STRATEGY_LIST(X) NULL};
#undef X
#define X(constant, name, help, ...) "; " #name ": " help
static const char strategy_help[] =
    "how replicas share the training state; names of Lightning, FSDP and DeepSpeed are understood "
    "too (deepspeed_stage_2_offload, full_shard)" TRI_STRATEGY_LIST(X);
#undef X
#define X(identifier, name, ...) name,
static const char *const schedules[] = {TRI_ORDER_LIST(X) NULL};
#undef X
#define X(identifier, name, flags, help) "; " name ": " help
static const char schedule_help[] = "order of a pipeline" TRI_ORDER_LIST(X);
#undef X
static const char *const recomputes[] = {"none", "block", "fit", NULL};

// X(name in recipes, type): the types in which gradients may travel.
#define REDUCE_DTYPE_LIST(X)                                                                       \
    X("float32", TRI_F32)                                                                          \
    X("bfloat16", TRI_BF16)                                                                        \
    X("float16", TRI_F16)
#define X(name, dtype) name,
static const char *const reduce_names[] = {REDUCE_DTYPE_LIST(X) NULL};
#undef X
#define X(name, dtype) dtype,
static const tri_dtype reduce_dtypes[] = {REDUCE_DTYPE_LIST(X)};
#undef X
static const char *const offloads[] = {"none", "optimizer", "parameters", NULL};
static const char *const offload_steps[] = {"auto", "device", "host", NULL};

static const tri_option mesh_rows[] = {
    TRI_OPTION_INT_OR_AUTO(tri_mesh_options, replicate, "auto", 1, TRI_MAX_RANKS,
                           "copies of the model, each with its own samples"),
    TRI_OPTION_INT_OR_AUTO(tri_mesh_options, shard, "auto", 1, TRI_MAX_RANKS,
                           "ranks that share one copy of the training state"),
    TRI_OPTION_INT_OR_AUTO(tri_mesh_options, tensor, "1", 1, TRI_MAX_RANKS,
                           "ranks that share each layer"),
    TRI_OPTION_INT_OR_AUTO(tri_mesh_options, pipeline, "auto", 1, TRI_MAX_RANKS,
                           "stages of consecutive blocks"),
};
static const tri_option_table mesh_table =
    TRI_OPTION_TABLE("mesh", tri_mesh_options, mesh_rows, "how ranks are arranged");

static const tri_option strategy_rows[] = {
    TRI_OPTION_CHOICE(tri_strategy_options, name, "ddp", tri_strategy_names, strategy_help),
    TRI_OPTION_NESTED(tri_strategy_options, mesh, tri_mesh_options, &mesh_table,
                      "how ranks are arranged; the product is the number of ranks"),
    TRI_OPTION_CHOICE(tri_strategy_options, schedule, "1f1b", schedules, schedule_help),
    TRI_OPTION_CHOICE(tri_strategy_options, recompute, "none", recomputes,
                      "what is computed again in the backward pass instead of kept; fit: as few "
                      "blocks as strategy.memory allows"),
    TRI_OPTION_INT(tri_strategy_options, recompute_every, "1", 1, TRI_MAX_MODEL_BLOCKS,
                   "of recompute: block: one of so many blocks"),
    TRI_OPTION_STRING(tri_strategy_options, memory, "auto",
                      "bytes that a rank may use (64G, 80GiB): a run that needs more is refused; "
                      "auto: the host's free memory divided by its ranks"),
    TRI_OPTION_INT(tri_strategy_options, stages_per_rank, "2", 1, TRI_MAX_MODEL_BLOCKS,
                   "of schedules with several stages on each rank: how many"),
    TRI_OPTION_STRINGS(tri_strategy_options, stages, "[]",
                       "blocks that begin the second and later stages; []: cut by cost"),
    TRI_OPTION_INT(
        tri_strategy_options, prefetch, "1", 0, TRI_MAX_MODEL_BLOCKS,
        "of zero1, zero2 and fsdp: blocks whose parameters are gathered ahead of their use; at "
        "least 2, except with fsdp and no pipeline"),
    TRI_OPTION_BOOL(tri_strategy_options, reshard_after_forward, "true",
                    "of fsdp: parameters are gathered again for the backward pass"),
    TRI_OPTION_INT(tri_strategy_options, persistent_bytes, "65536", 0, INT64_MAX / 2,
                   "of fsdp: blocks with fewer bytes of parameters stay gathered during a step"),
    TRI_OPTION_CHOICE(tri_strategy_options, reduce_dtype, "float32", reduce_names,
                      "gradients travel between replicas and shards in this type; they are added "
                      "in float32 and kept in it"),
    TRI_OPTION_CHOICE(
        tri_strategy_options, offload, "none", offloads,
        "what lies in a local file, or in the host's memory beside a GPU, between its "
        "uses: the optimizer's states, or the parameters' own ranges and masters too"),
    TRI_OPTION_STRING(tri_strategy_options, offload_path, NULL,
                      "of offload: folder of the file, on a fast local disk; if not given, a GPU's "
                      "state goes to pinned memory of the host, a CPU's to TMPDIR or /tmp",
                      .path = TRI_PATH_ANY),
    TRI_OPTION_CHOICE(
        tri_strategy_options, offload_step, "auto", offload_steps,
        "of offload to a GPU's host: where the optimizer runs. device: states are copied to the "
        "GPU and back; host: gradients are copied to the host, its CPU updates states and masters "
        "there, and new parameters are copied back; auto: what takes less time"),
    TRI_OPTION_TREE(tri_strategy_options, tensor, NULL,
                    "of mesh.tensor: patterns of layers' names with none, column or row, instead "
                    "of what the model says ({'*.mlp.*': none, fc1: column})"),
    TRI_OPTION_BOOL(tri_strategy_options, sequence_parallel, "false",
                    "of mesh.tensor: between layers each rank has a slice of the sequences"),
};

int64_t tri_strategy_memory(const tri_strategy_options *o) {
    double bytes;
    bool given = o->memory && strcmp(o->memory, "auto") != 0;
    if (!given || !tri_quantity_read(o->memory, &bytes)) return 0;
    return bytes < (double)INT64_MAX ? (int64_t)bytes : INT64_MAX;
}

tri_dtype tri_strategy_reduce_dtype(const tri_strategy_options *o) {
    return reduce_dtypes[o->reduce_dtype];
}

static tri_status check_strategy(const void *options, const tri_tree *map) {
    const tri_strategy_options *o = options;
    int64_t bytes = tri_strategy_memory(o);
    if (strcmp(o->memory, "auto") != 0 && (bytes < 1 || bytes > INT64_MAX / 2))
        return tri_tree_fail(tri_tree_get(map, "memory"),
                             "'strategy.memory: %s' is neither auto nor bytes such as 64G",
                             o->memory);
    if (o->offload_step == TRI_OFFLOAD_STEP_HOST && o->offload_path && *o->offload_path)
        return tri_tree_fail(tri_tree_get(map, "offload_step"),
                             "'strategy.offload_step: host' is for states in the host's memory, "
                             "and 'strategy.offload_path: %s' is a file's folder: give one of them",
                             o->offload_path);
    if (o->recompute == TRI_RECOMPUTE_FIT && bytes == 0)
        return tri_tree_fail(tri_tree_get(map, "recompute"),
                             "'strategy.recompute: fit' needs strategy.memory, e.g. 64G");
    return TRI_OK;
}

const tri_option_table tri_strategy_table =
    TRI_OPTION_TABLE("strategy", tri_strategy_options, strategy_rows,
                     "how the ranks divide the work", .check = check_strategy);

static const tri_option batch_rows[] = {
    TRI_OPTION_INT_OR_AUTO(tri_batch_options, global, "64", 1, TRI_MAX_BATCH,
                           "samples of a step, over all ranks; auto: batch.micro times "
                           "trainer.accumulate_grad_batches on each replica"),
    TRI_OPTION_INT(tri_batch_options, micro, "0", 0, TRI_MAX_BATCH,
                   "samples of a micro-batch; 0: one micro-batch per replica",
                   .change = TRI_CHANGE_ON_ORDER),
    TRI_OPTION_INT(tri_batch_options, eval, "0", 0, TRI_MAX_BATCH,
                   "samples of an evaluation batch on one replica; 0: chosen",
                   .change = TRI_CHANGE_FREELY),
};

static tri_status check_batch(const void *options, const tri_tree *map) {
    const tri_batch_options *o = options;
    if (o->global == TRI_AUTO && o->micro == 0)
        return tri_tree_fail(tri_tree_get(map, "global"), "'batch.global: auto' needs batch.micro");
    if (o->global == TRI_AUTO || o->micro <= o->global) return TRI_OK;
    return tri_tree_fail(tri_tree_get(map, "micro"),
                         "'batch.micro' (%lld) cannot be more than 'batch.global' (%lld)",
                         (long long)o->micro, (long long)o->global);
}

const tri_option_table tri_batch_table = TRI_OPTION_TABLE(
    "batch", tri_batch_options, batch_rows,
    "samples of a step, a micro-batch and an evaluation batch", .check = check_batch);
