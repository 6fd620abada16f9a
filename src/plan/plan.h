// Everything one rank needs for a run, made and sized before the first step: a program for every
// size of micro-batch, a schedule for every shape of step, and where everything lies in memory.
#ifndef TRIREME_PLAN_PLAN_H
#define TRIREME_PLAN_PLAN_H

#include "comm/options.h"
#include "mesh/mesh.h"
#include "plan/flat.h"
#include "plan/options.h"
#include "plan/program.h"
#include "plan/schedule.h"
#include "plan/step_memory.h"

typedef enum tri_step_shape {
    TRI_STEP_FULL,
    TRI_STEP_TAIL,     // an epoch's last step, when it is smaller
    TRI_STEP_EVALUATE, // an evaluation batch of the data that epochs are evaluated on
    TRI_STEP_TEST,     // an evaluation batch of test data that are kept for the end
    TRI_STEP_SHAPE_COUNT
} tri_step_shape;

static inline bool tri_step_trains(tri_step_shape shape) { return shape <= TRI_STEP_TAIL; }

// One micro-batch of this rank's replica: its samples, its program, and what it sends along edges.
typedef struct tri_round {
    int64_t first, size;  // position in the step and samples; size 0: none in this round
    tri_program *program; // NULL when there are no samples
    const tri_edge_value *edge_values; // of all its edges
    const int *edge_of_value;          // by edge value: its edge
    int edge_value_count;
} tri_round;

typedef struct tri_step_plan {
    int64_t samples; // over all replicas; 0: this shape does not occur
    int rounds;
    tri_round *items;
    tri_schedule_request request; // what the schedule was written from
    tri_schedule schedule;
    tri_step_memory memory;
} tri_step_plan;

typedef struct tri_plan tri_plan;

typedef struct tri_plan_request {
    const tri_model_request *model; // options.training is set per program
    const tri_strategy_options *options;
    tri_mesh mesh;
    int rank;
    int64_t step_samples[TRI_STEP_SHAPE_COUNT]; // 0: does not occur
    int64_t micro;                              // samples of a micro-batch; 0: one per replica
    int64_t eval_micro;                         // of evaluation and test
    bool gives_rounds;                          // see tri_batch_options
    bool sync_batchnorm;                        // batch norm over the micro-batches of all replicas
    bool deterministic;                         // the same bits on any number of ranks
    tri_comm_choice comm;                       // what connects the ranks
    int optimizer_states;
    const char *const *freeze; // patterns of parameters that stay as they are
    int freeze_count;
    int64_t loader_batches; // micro-batches that the loader holds or reads ahead
    int recompute_first; // of TRI_RECOMPUTE_FIT: blocks from the first on; tri_plan_create sets it
    const tri_plan
        *reuse_graphs_of; // another rank's plan of the same request, for its graphs; NULL: none
} tri_plan_request;

// Bytes that one rank holds while it trains. `communication`: gathered parameters, gradients that
// are to be scattered, staging memory, and what communicators need for themselves
// (tri_comm_scratch_bytes). `workspace`: what kernels need while they run, the loader's batches,
// and the process itself (TRI_PROGRAM_BYTES).
typedef struct tri_memory_plan {
    int64_t parameters, gradients, optimizer, activations, workspace, communication, peak;
    int64_t nccl_estimate; // of what NCCL allocates for itself; part of the peak
    int64_t offloaded;     // in a file or in the host's memory instead, not part of the peak
} tri_memory_plan;

enum { TRI_MAX_PROGRAMS = 8 };

// How the ranks share the training state. It follows from the mesh and the strategy of the run.
typedef struct tri_plan_sharing {
    tri_axis shard_axis, replicate_axis; // whose ranks share one state; whose ranks hold copies
    int shards, shard;                   // their sizes, and this rank's coordinates
    int copies, copy;
    bool releases;          // parameters are whole only between GATHER and RELEASE
    bool scatters_rounds;   // gradients are whole only until SCATTER
    tri_dtype reduce_dtype; // wire type of the gradients of trained parameters
} tri_plan_sharing;

typedef struct tri_plan_stages {
    int count;
    int *of_block;     // by block: its stage
    bool *blocks_here; // by block: this rank computes it
} tri_plan_stages;

typedef struct tri_plan_offload {
    tri_offload_set set;
    const char *path;    // of the recipe
    bool in_host_memory; // instead of a file; see strategy.offload_path
} tri_plan_offload;

// Memory that all steps share. Only one step runs at a time on the compute lane, so it is as much
// as the step that needs most.
typedef struct tri_plan_sizes {
    int64_t heap_bytes[TRI_HEAP_COUNT];
    int64_t scratch_bytes, workspace_bytes, result_bytes;
    int64_t round_elements; // of the gradients that one compute action adds to others
} tri_plan_sizes;

struct tri_plan {
    tri_arena *arena;
    tri_mesh mesh;
    int rank, replicas;
    tri_device_description device; // that the kernels were chosen for
    bool deterministic;
    tri_comm_choice comm;                   // of the recipe
    bool takes_ahead;                       // the device runs ahead of the host
    int optimizer_states;                   // states per trained parameter
    const tri_strategy *strategy;           // of the recipe
    const tri_strategy *effective_strategy; // see tri_strategy_effective
    const tri_order *order;
    tri_plan_sharing sharing;
    tri_plan_stages stages;
    tri_plan_offload offload;
    const tri_graph *graph; // of the first program: parameters, blocks, metrics
    int block_count;
    tri_schedule_block *blocks;
    tri_flat flat;
    tri_unit *units; // by the flat buffers' unit
    tri_program *programs[TRI_MAX_PROGRAMS];
    int program_count;
    tri_step_plan steps[TRI_STEP_SHAPE_COUNT];
    tri_plan_sizes sizes;
    tri_memory_plan memory;
};

// Makes the plan of one rank. `request->reuse_graphs_of` must outlive the plan. TRI_BAD_INPUT names
// the settings that do not go together, before anything large is allocated.
tri_status tri_plan_create(tri_arena *parent, const tri_device_description *device,
                           const tri_plan_request *request, tri_plan **out);
void tri_plan_destroy(tri_plan *plan); // NULL allowed
// How many micro-batches the loader of the training data lets the engine hold at once, because the
// engine may still read them while the loader fills others: one; on a device that runs ahead, as
// many as are being copied; all of a step, if labels are counted before the step.
enum { TRI_TAKEN_BATCHES = 2 }; // that are being copied at once
int64_t tri_plan_held_batches(const tri_plan *plan);

// The functions below are shared by the files of src/plan only; callers use tri_plan_create.

// Decides stages, order, groups and what this rank computes. This comes before any program is
// compiled, because a program depends on it.
tri_status tri_plan_arrange(tri_plan *plan, const tri_plan_request *request);
// Plans the schedule and memory of one shape of step, after its programs and the flat buffers.
tri_status tri_plan_make_step(tri_plan *plan, const tri_plan_request *request,
                              tri_step_shape shape);
// What the communicators of the engine's groups need for themselves, in bytes. *nccl_estimate: what
// NCCL allocates besides.
int64_t tri_plan_communicator_bytes(const tri_plan *plan, int64_t *nccl_estimate);
// Describes units and blocks in the terms of schedules, which know nothing of graphs, so that they
// can be tested without a model.
tri_status tri_plan_describe(tri_plan *plan, const tri_plan_request *request);

#endif
