// The settings of the recipe's sections `strategy` and `batch`: how the ranks share the work. A
// block is a layer or a group of layers that is scheduled as one; a stage is a run of blocks on one
// rank of a pipeline. A unit is parameters that are gathered and reduced together, mostly those of
// one block. GATHER is the action that collects a unit's parameters from the ranks that divide
// them.
#ifndef TRIREME_PLAN_OPTIONS_H
#define TRIREME_PLAN_OPTIONS_H

#include "base/option.h"

#include <trireme/tensor.h>

// Flags of a strategy: what it needs, and what of the training state it shards. All code that
// depends on a strategy asks for a flag, never for a name, so that a new strategy is one row.
enum {
    TRI_NEEDS_ONE_RANK = 1,
    TRI_SHARDS_OPTIMIZER = 2,
    TRI_SHARDS_GRADIENTS = 4,
    TRI_SHARDS_PARAMETERS = 8
};

// The strategies. X(constant, name in recipes, help, axis, flags). `axis` is the mesh axis whose
// size follows from the number of ranks if the recipe does not give it, so that `strategy.name`
// alone is enough in most recipes.
#define TRI_STRATEGY_LIST(X)                                                                       \
    X(SINGLE, single, "one rank", REPLICATE, TRI_NEEDS_ONE_RANK)                                   \
    X(DDP, ddp,                                                                                    \
      "every replica holds all parameters, and gradients are summed during the backward pass",     \
      REPLICATE, 0)                                                                                \
    X(ZERO1, zero1, "optimizer states are sharded", SHARD, TRI_SHARDS_OPTIMIZER)                   \
    X(ZERO2, zero2, "optimizer states and gradients are sharded", SHARD,                           \
      TRI_SHARDS_OPTIMIZER | TRI_SHARDS_GRADIENTS)                                                 \
    X(FSDP, fsdp, "parameters too, gathered for each block when it is computed (ZeRO-3)", SHARD,   \
      TRI_SHARDS_OPTIMIZER | TRI_SHARDS_GRADIENTS | TRI_SHARDS_PARAMETERS)                         \
    X(PIPELINE, pipeline,                                                                          \
      "ranks hold consecutive blocks, and micro-batches go through them one behind the other",     \
      PIPELINE, 0)

typedef enum tri_strategy_kind {
#define X(constant, ...) TRI_STRATEGY_##constant,
    TRI_STRATEGY_LIST(X)
#undef X
        TRI_STRATEGY_COUNT
} tri_strategy_kind;
// Names, indexed by tri_strategy_kind; NULL at the end.
extern const char *const tri_strategy_names[];

// Flags of a pipeline's order, that is, of the order in which each rank runs its stages forward and
// backward. Schedules are written differently for orders with these flags.
enum {
    TRI_LOOPS_OVER_STAGES = 1, // each rank has several stages (strategy.stages_per_rank)
    TRI_SPLITS_BACKWARD = 2    // writes BACKWARD_INPUT and BACKWARD_WEIGHT instead of BACKWARD
};

// The orders of a pipeline that strategy.schedule can choose. X(identifier, name in recipes, flags,
// help); the function tri_order_write_IDENTIFIER writes the order.
#define TRI_ORDER_LIST(X)                                                                          \
    X(1f1b, "1f1b", 0,                                                                             \
      "forward and backward in turns, so that a rank holds at most one micro-batch more than "     \
      "there are ranks after it")                                                                  \
    X(gpipe, "gpipe", 0,                                                                           \
      "all micro-batches forward, then all backward, holding the activations of all")              \
    X(interleaved, "interleaved", TRI_LOOPS_OVER_STAGES,                                           \
      "1f1b with several stages on each rank, for less idle time and more sending")                \
    X(looped, "looped", TRI_LOOPS_OVER_STAGES,                                                     \
      "all micro-batches through each of a rank's stages before the next (breadth-first)")         \
    X(zero_bubble, "zero-bubble", TRI_SPLITS_BACKWARD,                                             \
      "1f1b with gradients of weights put off into idle time (ZB-H1)")

typedef enum tri_order_kind {
#define X(identifier, ...) TRI_ORDER_##identifier,
    TRI_ORDER_LIST(X)
#undef X
        TRI_ORDER_COUNT
} tri_order_kind;

typedef enum tri_recompute {
    TRI_RECOMPUTE_NONE,
    TRI_RECOMPUTE_BLOCK,
    // Recomputes the first blocks: as many as are needed for the run to fit into strategy.memory.
    TRI_RECOMPUTE_FIT,
} tri_recompute;
typedef enum tri_offload {
    TRI_OFFLOAD_NONE,
    TRI_OFFLOAD_OPTIMIZER,
    TRI_OFFLOAD_PARAMETERS,
} tri_offload;

// Where the optimizer runs if its states are kept in the memory of a GPU's host.
typedef enum tri_offload_step {
    TRI_OFFLOAD_STEP_AUTO, // where a step takes less time, by the rates of the device and its host
    TRI_OFFLOAD_STEP_DEVICE,
    TRI_OFFLOAD_STEP_HOST,
} tri_offload_step;

// How many ranks there are along each axis. TRI_AUTO: for the strategy's own axis, the number of
// ranks divided by the sizes of the other axes; for any other axis, 1.
typedef struct tri_mesh_options {
    int64_t replicate, shard, tensor, pipeline;
} tri_mesh_options;

typedef struct tri_strategy_options {
    tri_strategy_kind name;
    tri_mesh_options mesh;
    int schedule;            // the pipeline's order: index into tri_orders
    int64_t stages_per_rank; // stages of each rank, for orders with TRI_LOOPS_OVER_STAGES
    // Names of the blocks that begin the second and later stages; none: stages are cut by cost.
    tri_strings stages;
    tri_recompute recompute;
    int64_t recompute_every; // with TRI_RECOMPUTE_BLOCK: every n-th block is recomputed
    const char *memory;      // bytes that a rank may use (such as 64G), or "auto"
    int64_t prefetch;        // how many units ahead of a unit's use GATHER starts
    // Fsdp: parameters are released after the forward pass and gathered again for the backward
    // pass.
    bool reshard_after_forward;
    // Fsdp: units with fewer bytes of parameters than this stay gathered during a step.
    int64_t persistent_bytes;
    int reduce_dtype; // type in which gradients travel between ranks; see tri_strategy_reduce_dtype
    tri_offload offload;
    // Folder of the file that holds the offloaded state. NULL: a GPU's state goes to its host's
    // memory instead of a file, a CPU's to a file in TMPDIR or /tmp.
    const char *offload_path;
    tri_offload_step offload_step;
    const tri_tree *tensor; // how single layers are sliced: see tri_tensor_parallel_options.layers
    bool sequence_parallel;
} tri_strategy_options;

typedef struct tri_batch_options {
    // Samples of a step, over all ranks. TRI_AUTO: not given; computed from `micro` and `rounds`
    // (see gives_rounds) when the number of replicas is known.
    int64_t global;
    int64_t micro; // samples of a micro-batch; 0: each replica runs its samples as one micro-batch
    int64_t eval;  // samples of an evaluation batch on one replica; 0: chosen automatically
    // The recipe also gives `rounds`, the micro-batches of each replica in a step
    // (trainer.accumulate_grad_batches), so that global = micro × rounds × replicas. Code that
    // changes `global` or `micro` then has to change `rounds` too. This flag is set when the number
    // of replicas is known.
    bool gives_rounds;
    // `micro` is computed from `global` and `rounds`, so it depends on the number of replicas.
    bool micro_follows;
} tri_batch_options;

// Gets strategy.memory in bytes; 0: auto.
int64_t tri_strategy_memory(const tri_strategy_options *options);
// The type in which gradients travel: TRI_F32, TRI_BF16 or TRI_F16.
tri_dtype tri_strategy_reduce_dtype(const tri_strategy_options *options);

extern const tri_option_table tri_strategy_table, tri_batch_table;

#endif
