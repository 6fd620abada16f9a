// The recipe's sections `strategy` and `batch`.
#ifndef TRIREME_PLAN_OPTIONS_H
#define TRIREME_PLAN_OPTIONS_H

#include "base/option.h"

#include <trireme/tensor.h>

typedef enum tri_strategy_kind {
    TRI_STRATEGY_SINGLE,
    TRI_STRATEGY_DDP,
    TRI_STRATEGY_ZERO1,
    TRI_STRATEGY_ZERO2,
    TRI_STRATEGY_FSDP,
    TRI_STRATEGY_PIPELINE,
} tri_strategy_kind;
extern const char *const tri_strategy_names[]; // in the order of the enum; NULL at the end

typedef enum tri_recompute {
    TRI_RECOMPUTE_NONE,
    TRI_RECOMPUTE_BLOCK,
    TRI_RECOMPUTE_FIT, // as many blocks from the first on as `memory` makes necessary
} tri_recompute;
typedef enum tri_offload {
    TRI_OFFLOAD_NONE,
    TRI_OFFLOAD_OPTIMIZER,
    TRI_OFFLOAD_PARAMETERS,
} tri_offload;

// Ranks along each axis; TRI_AUTO: the strategy's own axis takes what the others leave, else 1.
typedef struct tri_mesh_options {
    int64_t replicate, shard, tensor, pipeline;
} tri_mesh_options;

typedef struct tri_strategy_options {
    tri_strategy_kind name;
    tri_mesh_options mesh;
    int schedule;            // of a pipeline: which of tri_orders
    int64_t stages_per_rank; // of schedules whose ranks have several
    tri_strings stages;      // blocks that begin the second and later stages; none: cut by cost
    tri_recompute recompute;
    int64_t recompute_every;    // of recompute block: every so many blocks, one
    const char *memory;         // bytes that a rank may use, or "auto"
    int64_t prefetch;           // fsdp: units gathered ahead of their use
    bool reshard_after_forward; // fsdp: parameters are gathered again for the backward pass
    int64_t persistent_bytes;   // fsdp: units smaller than this stay gathered during a step
    int reduce_dtype;           // of gradients between ranks; see tri_strategy_reduce_dtype
    tri_offload offload;
    const char *offload_path; // folder; NULL: TMPDIR, or /tmp
    const tri_tree *tensor;   // see tri_tensor_parallel_options.layers
    bool sequence_parallel;
} tri_strategy_options;

typedef struct tri_batch_options {
    int64_t global; // samples of a step, over all ranks; TRI_AUTO before the ranks are known
    int64_t micro;  // samples of a forward pass; 0: one pass per replica
    int64_t eval;   // samples of an evaluation pass; 0: chosen
    // Once settled: that the recipe also says how many passes each replica makes, so that `global`
    // and `micro` cannot be set apart from it.
    bool gives_rounds;
} tri_batch_options;

// strategy.memory in bytes; 0: auto.
int64_t tri_strategy_memory(const tri_strategy_options *options);
// TRI_F32, TRI_BF16 or TRI_F16.
tri_dtype tri_strategy_reduce_dtype(const tri_strategy_options *options);

extern const tri_option_table tri_strategy_table, tri_batch_table;

#endif
