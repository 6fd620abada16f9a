// Everything that one rank needs for a run, made and sized before the first step: a program for
// every size of micro-batch, a schedule for every shape of step, and the location of everything in
// memory.
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
    TRI_STEP_EVALUATE, // an evaluation batch of the validation data, with which epochs end
    TRI_STEP_TEST,     // an evaluation batch of the test data, with which a run ends
    TRI_STEP_SHAPE_COUNT
} tri_step_shape;

static inline bool tri_step_trains(tri_step_shape shape) { return shape <= TRI_STEP_TAIL; }

// One micro-batch of this rank's replica: its samples and its program.
typedef struct tri_round {
    // Position of the micro-batch's first sample in the step, and its number of samples; size 0:
    // the replica has one micro-batch fewer than others.
    int64_t first, size;
    tri_program *program; // NULL when there are no samples
    // All values that pipeline stages send each other for this micro-batch.
    const tri_edge_value *edge_values;
    const int *edge_of_value; // by edge value: number of the tri_edge that carries it
    int edge_value_count;
} tri_round;

typedef struct tri_step_plan {
    int64_t samples; // samples of the step over all replicas; 0: the run has no step of this shape
    int rounds;
    tri_round *items;
    tri_schedule_request request; // the input from which the schedule was written
    tri_schedule schedule;
    tri_step_memory memory;
} tri_step_plan;

typedef struct tri_plan tri_plan;

typedef struct tri_plan_request {
    // The model. Its options.training is not used, because the plan compiles the model for training
    // and for evaluation, as the run needs them.
    const tri_model_request *model;
    const tri_strategy_options *options;
    tri_mesh mesh;
    int rank;
    // How many samples a step of each shape has; 0: the run has no such step.
    int64_t step_samples[TRI_STEP_SHAPE_COUNT];
    int64_t micro; // samples of a micro-batch; 0: each replica runs its samples as one micro-batch
    int64_t eval_micro;   // samples of a micro-batch of evaluation and test
    bool gives_rounds;    // the recipe gives the micro-batches per step; see tri_batch_options
    bool sync_batchnorm;  // batch norm is computed over the micro-batches of all replicas
    bool deterministic;   // true: results have the same bits on any number of ranks
    tri_comm_choice comm; // the network or shared memory that connects the ranks
    int optimizer_states;
    const char *const *freeze; // patterns of the names of parameters that are not trained
    int freeze_count;
    int64_t loader_batches; // how many micro-batches the loader holds or reads ahead
    // With TRI_RECOMPUTE_FIT, how many blocks are recomputed, from the first on; set by
    // tri_plan_create.
    int recompute_first;
    // Another rank's plan of the same request, whose graphs this plan uses again; NULL: none.
    const tri_plan *reuse_graphs_of;
} tri_plan_request;

// Bytes that one rank holds while it trains. `communication`: gathered parameters, gradients that
// are to be scattered, staging memory, and what communicators need for themselves
// (tri_comm_scratch_bytes). `workspace`: what kernels need while they run, the loader's batches,
// and the process itself (TRI_PROGRAM_BYTES).
typedef struct tri_memory_plan {
    int64_t parameters, gradients, optimizer, activations, workspace, communication, peak;
    int64_t nccl_estimate; // memory that NCCL allocates for itself, estimated; part of the peak
    // Bytes of the offloaded state, which lies in a file or in the host's memory and is not part of
    // the peak.
    int64_t offloaded;
} tri_memory_plan;

enum { TRI_MAX_PROGRAMS = 8 };

// How the ranks share the training state, which the mesh and the strategy decide.
typedef struct tri_plan_sharing {
    // The axes along which ranks divide one state, and along which they hold copies of it.
    tri_axis shard_axis, replicate_axis;
    int shards, shard;                  // size of shard_axis, and this rank's coordinate on it
    int replicate_size, replicate_rank; // size of replicate_axis, and this rank's coordinate on it
    bool releases;                      // parameters are whole only from GATHER to RELEASE
    bool scatters_rounds; // SCATTER follows every micro-batch; only until then gradients are whole
    // Gradients take memory only from the first action that writes them to the end of the step, so
    // they lie where activations lay before. This is so in a run of one rank, where no communicator
    // touches gradients.
    bool packs_gradients;
    // Scratch takes memory only while an action uses it. This is so in a run of one rank. With
    // several ranks, communicators may still be using that memory for earlier values, and kernels
    // would have to wait for them.
    bool packs_scratch;
    tri_dtype reduce_dtype; // wire type of the gradients of trained parameters
} tri_plan_sharing;

typedef struct tri_plan_stages {
    int count;
    int *of_block;     // by block: number of the stage to which it belongs
    bool *blocks_here; // blocks_here[b]: this rank computes block b
} tri_plan_stages;

typedef struct tri_plan_offload {
    tri_offload_set set;
    const char *path; // folder for the file, from the recipe
    // The state lies in the host's memory instead of a file; see strategy.offload_path.
    bool in_host_memory;
    // The host's CPU runs the optimizer on the offloaded state: see strategy.offload_step. Then the
    // masters lie in the host's memory too. Parameters that kernels read as they are stored are in
    // both memories: the host changes its copy, and UPLOAD copies it over the device's.
    bool steps_on_host;
} tri_plan_offload;

// Memory that all steps share. Only one step runs at a time on the compute lane, so the step that
// needs the most decides its size.
typedef struct tri_plan_sizes {
    int64_t heap_bytes[TRI_HEAP_COUNT];
    int64_t scratch_bytes, workspace_bytes, result_bytes;
    // Length of the round gradients, the memory for gradients that kernels cannot add to earlier
    // ones directly (tri_round_gradients). The compute action that needs the most decides.
    int64_t round_elements;
} tri_plan_sizes;

struct tri_plan {
    tri_arena *arena;
    tri_mesh mesh;
    int rank, replicas;
    tri_device_description device; // the device for which the kernels were chosen
    bool deterministic;
    tri_comm_choice comm; // the recipe's choice of what connects the ranks
    // The device is asynchronous, so a micro-batch is copied to it while it computes the one
    // before.
    bool takes_ahead;
    int optimizer_states;         // optimizer states per trained parameter
    const tri_strategy *strategy; // the recipe's strategy
    // The strategy by which schedules are written; see tri_strategy_effective.
    const tri_strategy *effective_strategy;
    const tri_order *order;
    tri_plan_sharing sharing;
    tri_plan_stages stages;
    tri_plan_offload offload;
    // Graph of the first program. It is used for what the graphs of all programs have in common:
    // parameters, blocks, metrics.
    const tri_graph *graph;
    int block_count;
    tri_schedule_block *blocks;
    tri_flat flat;
    tri_unit *units; // parameters that are gathered and reduced together, as numbered in `flat`
    tri_program *programs[TRI_MAX_PROGRAMS];
    int program_count;
    tri_step_plan steps[TRI_STEP_SHAPE_COUNT];
    tri_plan_sizes sizes;
    tri_memory_plan memory;
};

// Makes the plan of one rank. `request->reuse_graphs_of` must outlive the plan. TRI_BAD_INPUT: some
// settings contradict each other; the message names them. This is found before anything large is
// allocated.
tri_status tri_plan_create(tri_arena *parent, const tri_device_description *device,
                           const tri_plan_request *request, tri_plan **out);
void tri_plan_destroy(tri_plan *plan); // NULL allowed

enum { TRI_TAKEN_BATCHES = 2 }; // how many micro-batches are copied at the same time

// How many micro-batches of training data the engine may read at one time, so that the loader must
// not overwrite them. It is 1, or TRI_TAKEN_BATCHES on a device that works asynchronously
// (takes_ahead). If the step counts its labels first, in order to divide the loss by their number,
// all its micro-batches of this replica are read twice: then the result is at least their number.
int64_t tri_plan_held_batches(const tri_plan *plan);

// The round gradients are memory in which a compute action makes the gradients that its kernels
// cannot add to earlier gradients directly; they are added afterwards. This is one range of them: a
// whole bucket, or one parameter of a bucket in which kernels add other parameters' gradients
// directly.
typedef struct tri_round_range {
    int unit;
    tri_bucket_kind bucket;
    int parameter;        // -1: the whole bucket
    int64_t first;        // elements from the start of the bucket
    int64_t elements, at; // `at`: elements from the start of the round gradients
    bool drop;            // of RECOMPUTE: statistics that FORWARD has made already; not added
} tri_round_range;

// Lists the ranges of round gradients that the action makes. Returns how many elements they need.
// `ranges` has room for tri_round_range_limit(plan); NULL: they are only counted.
int64_t tri_round_gradients(const tri_plan *plan, const tri_step_plan *step, const tri_action *a,
                            tri_round_range *ranges, int *count);
int tri_round_range_limit(const tri_plan *plan);
// Whether the program's kernels add the gradient, which one of the block's nodes makes, directly.
bool tri_round_adds(const tri_program *program, const tri_gradient_info *gradient);

// The functions below are for the files of src/plan only; other code uses tri_plan_create.

// Decides stages, order, groups, and what this rank computes. This happens before any program is
// compiled, because programs depend on it.
tri_status tri_plan_arrange(tri_plan *plan, const tri_plan_request *request);
// Decides what is offloaded, and whether to the host's memory or to a file.
void tri_plan_find_offload_set(tri_plan *plan, const tri_plan_request *request);
// Decides whether the device or its host runs the optimizer on offloaded state. The flat buffers
// have to be planned before, because the decision depends on how many bytes would be copied.
void tri_plan_choose_steps(tri_plan *plan, const tri_strategy_options *options);
// How many bytes the offloaded state takes where it lies.
int64_t tri_plan_offloaded_bytes(const tri_plan *plan);
// What an optimizer step on the host moves, in bytes: gradients to the host, parameters to the
// device, and what its CPU reads and writes in the host's memory. A unit is parameters that are
// updated together; unit -1: all units.
typedef struct tri_host_step_bytes {
    int64_t down, up, memory;
} tri_host_step_bytes;
tri_host_step_bytes tri_plan_host_step_bytes(const tri_plan *plan, int unit);
// Plans the schedule and memory of one shape of step. Its programs and the flat buffers have to be
// planned before.
tri_status tri_plan_make_step(tri_plan *plan, const tri_plan_request *request,
                              tri_step_shape shape);
// How many bytes this rank's communicators need for themselves. *nccl_estimate: how many more bytes
// NCCL allocates, estimated; 0 without NCCL.
int64_t tri_plan_communicator_bytes(const tri_plan *plan, int64_t *nccl_estimate);
// Describes the plan's blocks, and its units (parameters that are gathered and reduced together),
// for schedules. Schedules know nothing of graphs, so that they can be tested without a model.
tri_status tri_plan_describe(tri_plan *plan, const tri_plan_request *request);

#endif
