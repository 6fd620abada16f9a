// The plan: everything that one rank needs for a run, made and sized before the first step. It has
// a program (the compiled model) for every size of micro-batch, a schedule (a list of actions) for
// every shape of step, and the location of everything in memory. The engine runs the plan; `trireme
// plan` prints it.
//
// A block is a layer or a group of layers that is scheduled as one. A unit is parameters that are
// gathered, reduced and updated together: those that only one block reads, or one parameter that
// several blocks read. A bucket is a contiguous range of parameters of a unit (flat.h). A replica
// is the ranks that together run one micro-batch. Actions, such as GATHER and SCATTER, are listed
// in schedule.h.
#ifndef TRIREME_PLAN_PLAN_H
#define TRIREME_PLAN_PLAN_H

#include "comm/options.h"
#include "mesh/mesh.h"
#include "plan/flat.h"
#include "plan/options.h"
#include "plan/program.h"
#include "plan/schedule.h"
#include "plan/step_memory.h"

// The kinds of steps. Each has its own number of samples, and so its own schedule and memory.
typedef enum tri_step_shape {
    TRI_STEP_FULL,     // a step of training with all samples of the global batch
    TRI_STEP_TAIL,     // an epoch's last step, when it is smaller
    TRI_STEP_EVALUATE, // one batch of an evaluation on the validation data
    TRI_STEP_TEST,     // one batch of the evaluation on the test data
    TRI_STEP_SHAPE_COUNT,
    // A plan that generates text has only these two steps, whose programs share caches.
    TRI_STEP_PREFILL = TRI_STEP_EVALUATE, // many tokens of each sequence
    TRI_STEP_DECODE = TRI_STEP_TEST,      // one token of each
} tri_step_shape;

static inline bool tri_step_trains(tri_step_shape shape) { return shape <= TRI_STEP_TAIL; }

// One micro-batch of this rank's replica: its samples and its program.
typedef struct tri_step_round {
    // `first`: position of the micro-batch's first sample among the samples of the step. `size`:
    // its number of samples; 0: the replica has one micro-batch fewer than others.
    int64_t first, size;
    tri_program *program; // NULL when there are no samples
    // All values that pipeline stages send each other for this micro-batch.
    const tri_edge_value *edge_values;
    const int *edge_of_value; // by edge value: number of its tri_edge, the message that carries it
    int edge_value_count;
} tri_step_round;

typedef struct tri_step_plan {
    int64_t samples; // samples of the step over all replicas; 0: the run has no step of this shape
    // By loss of a weighted sum, or of the one loss: what all micro-batches of the step add to its
    // divisor if no label is ignored (the nominal count). NULL: the step does not train.
    double *term_counts;
    int rounds;                   // micro-batches of each replica
    tri_step_round *round_items;  // by micro-batch of this rank's replica
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
    // Fields of the samples of a step of this shape, as many as the model has, whose shapes differ
    // from those of the model: other numbers of tokens. NULL: they are the model's.
    const tri_field *step_fields[TRI_STEP_SHAPE_COUNT];
    int64_t micro; // samples of a micro-batch; 0: each replica runs its samples as one micro-batch
    bool micro_follows; // `micro` depends on the number of replicas; see tri_batch_options
    int64_t eval_micro; // samples of a micro-batch of evaluation and test
    // The recipe gives the number of micro-batches in a step; see tri_batch_options.
    bool gives_rounds;
    bool sync_batchnorm;  // batch norm is computed over the micro-batches of all replicas
    bool deterministic;   // true: results have the same bits on any number of ranks
    tri_comm_choice comm; // the network or shared memory that connects the ranks
    int optimizer_states;
    const tri_parameter_group *groups; // of parameters: see tri_graph_group
    int group_count;
    int64_t loader_batches; // for how many micro-batches the loader has buffers in memory
    // With TRI_RECOMPUTE_FIT, how many blocks are recomputed, from the first on; set by
    // tri_plan_create.
    int recompute_first;
    // The plan of another rank, made from the same request, whose graphs this plan uses again;
    // NULL: this plan builds its own graphs.
    const tri_plan *reuse_graphs_of;
} tri_plan_request;

// Bytes that one rank holds while it trains. `communication`: gathered parameters, gradients that
// are to be scattered, the memory through which initial weights and checkpoints pass, and what
// communicators need for themselves (tri_comm_scratch_bytes). `caches`: what lives from call to
// call. `workspace`: what kernels need while
// they run, the loader's batches, the host's copies of outputs, and the process itself
// (TRI_PROGRAM_BYTES).
typedef struct tri_memory_plan {
    int64_t parameters, gradients, optimizer, activations, caches, workspace, communication, peak;
    int64_t nccl_estimate; // memory that NCCL allocates for itself, estimated; part of the peak
    // Bytes of the offloaded state, which lies in a file or in the host's memory and is not part of
    // the peak.
    int64_t offloaded;
} tri_memory_plan;
// What is shown of it, in this order: X(member).
#define TRI_MEMORY_PLAN_LIST(X)                                                                    \
    X(parameters)                                                                                  \
    X(gradients) X(optimizer) X(activations) X(workspace) X(communication) X(peak)

enum { TRI_MAX_PROGRAMS = 8 };

// How the ranks share the training state, which the mesh and the strategy decide.
typedef struct tri_plan_sharing {
    // The axis of the mesh along which ranks divide one training state among them, and the axis
    // along which they hold copies of it.
    tri_axis shard_axis, replicate_axis;
    int shards, shard;                  // size of shard_axis, and this rank's coordinate on it
    int replicate_size, replicate_rank; // size of replicate_axis, and this rank's coordinate on it
    bool releases; // the rank holds whole parameters only from the action GATHER to RELEASE
    // The action SCATTER (reduce-scatter) follows every micro-batch, and leaves the rank only its
    // shard of the gradients.
    bool scatters_rounds;
    // Gradients take memory only from the first action that writes them to the end of the step, so
    // that activations can use the same memory before. True in a run of one rank that does not
    // scatter gradients: no communicator touches gradients then.
    bool packs_gradients;
    // Scratch (memory for values that only one action uses) takes memory only while that action
    // runs; other values lie there before and after. True in a run of one rank. With several ranks,
    // scratch has memory of its own during the whole run: if it shared memory with values that a
    // communicator is still sending, the action would have to wait for the communicator.
    bool packs_scratch;
    // The type in which gradients of trained parameters travel between ranks.
    tri_dtype reduce_dtype;
} tri_plan_sharing;

typedef struct tri_plan_stages {
    int count;
    int *of_block;     // by block: number of the stage to which it belongs
    bool *blocks_here; // blocks_here[b]: this rank computes block b
} tri_plan_stages;

typedef struct tri_plan_offload {
    tri_offload_set set; // which optimizer states and master weights are offloaded
    const char *path;    // folder for the file, from the recipe
    // The state lies in the host's memory instead of a file; see strategy.offload_path.
    bool in_host_memory;
    // The host's CPU runs the optimizer on the offloaded state: see strategy.offload_step. Then the
    // masters (the F32 weights that it updates) lie in the host's memory too. Parameters that
    // kernels read in F32 lie in both memories: the host changes its copy, and UPLOAD copies it
    // over the device's.
    bool steps_on_host;
} tri_plan_offload;

// Memory that all steps share. Only one step computes at a time, so the step that needs the most
// decides the size.
typedef struct tri_plan_sizes {
    int64_t heap_bytes[TRI_HEAP_COUNT];
    int64_t scratch_bytes, workspace_bytes, result_bytes;
    // The size of the round gradients, in elements of F32: memory for the gradients of one
    // micro-batch that kernels cannot add to earlier gradients directly (see tri_round_range). It
    // is enough for the compute action that needs the most.
    int64_t round_elements;
} tri_plan_sizes;

// Where the caches lie, in memory that lives as long as the engine: cache i of all programs has a
// row for each sequence of this replica, of which a micro-batch has those that follow each other.
typedef struct tri_plan_caches {
    int64_t *offsets; // by cache of a program
    int64_t rows, bytes;
} tri_plan_caches;

struct tri_plan {
    tri_arena *arena;
    tri_mesh mesh;
    int rank, replicas;
    // Some steps train. If none does, parameters that kernels read in a half type have no masters.
    bool trains;
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
    const tri_order *order; // order of the compute actions
    tri_plan_sharing sharing;
    tri_plan_stages stages;
    tri_plan_offload offload;
    // Graph of the first program. It is used for what the graphs of all programs have in common:
    // parameters, blocks, metrics.
    const tri_graph *graph;
    // The graphs of evaluation and of training ([training]) that no pass has changed: all ranks
    // have the same. NULL: the run has no such steps.
    const tri_graph *plain_graphs[2];
    int block_count;
    tri_schedule_block *blocks;
    tri_flat flat;
    tri_unit *units; // indexed as the units in `flat`
    tri_program *programs[TRI_MAX_PROGRAMS];
    int program_count;
    tri_step_plan steps[TRI_STEP_SHAPE_COUNT];
    tri_plan_sizes sizes;
    tri_memory_plan memory;
    tri_plan_caches caches;
    int64_t output_bytes; // the largest output of the model that this rank hands over
};

// Makes the plan of one rank. `request->reuse_graphs_of` must outlive the plan. TRI_BAD_INPUT: some
// settings contradict each other; the message names them. This is found before anything large is
// allocated.
tri_status tri_plan_create(tri_arena *parent, const tri_device_description *device,
                           const tri_plan_request *request, tri_plan **out);
void tri_plan_destroy(tri_plan *plan); // NULL allowed

// How many micro-batches at most are being copied to the device at one time.
enum { TRI_TAKEN_BATCHES = 2 };

// Whether this rank hands over the outputs of the model that the program's node makes: it computes
// the block and, of the ranks that share layers and all have the whole output, is the first.
bool tri_plan_hands_over(const tri_plan *plan, const tri_node *node);
// How many outputs of the model may be on their way to the host, each with memory of its own.
enum { TRI_OUTPUT_COPIES = 2 };

// How many micro-batches of training data the loader must keep because the engine may still read
// them: 1, or TRI_TAKEN_BATCHES on a device that works asynchronously (takes_ahead). If the labels
// of a step are counted before the step (TRI_COUNT_AHEAD), the engine reads this replica's
// micro-batches twice: first for their labels, then for training. Then the result is at least the
// number of the replica's micro-batches in a step.
int64_t tri_plan_held_batches(const tri_plan *plan);

// The round gradients (a round is one micro-batch of a step) are memory for gradients that a
// compute action has to add to those of an earlier micro-batch or of another block, although its
// kernels can only overwrite their outputs. The kernels write them here, and they are added
// afterwards. This struct is one range of that memory. It is for the gradients of a whole bucket
// or, if kernels add gradients of other parameters of the bucket directly, for the gradient of one
// parameter.
typedef struct tri_round_range {
    int unit;
    tri_bucket_kind bucket;
    int parameter;        // index of the graph's parameter; -1: the range is for the whole bucket
    int64_t first;        // elements from the start of the bucket
    int64_t elements, at; // `at`: elements from the start of the round gradients
    // The range is not added: RECOMPUTE makes these statistics again, which FORWARD has made
    // already.
    bool is_discarded;
} tri_round_range;

// Lists the ranges of round gradients that the action makes; *count is how many there are. Returns
// how many elements they need. `ranges` has room for tri_round_range_limit(plan) ranges; NULL: they
// are only counted.
int64_t tri_round_gradients(const tri_plan *plan, const tri_step_plan *step, const tri_action *a,
                            tri_round_range *ranges, int *count);
int tri_round_range_limit(const tri_plan *plan);
// Whether the kernel that makes the gradient adds it directly to the gradients of earlier
// micro-batches.
bool tri_round_adds(const tri_program *program, const tri_gradient_info *gradient);

// The functions below are for the files of src/plan only; other code uses tri_plan_create.

// Decides stages, order, groups, and what this rank computes. This happens before any program is
// compiled, because programs depend on it.
tri_status tri_plan_arrange(tri_plan *plan, const tri_plan_request *request);
// Decides what is offloaded, and whether to the host's memory or to a file.
void tri_plan_find_offload_set(tri_plan *plan, const tri_plan_request *request);
// Decides whether the device or its host runs the optimizer on offloaded state. The flat buffers
// have to be planned before, because the decision depends on how many bytes would be copied.
void tri_plan_choose_optimizer_side(tri_plan *plan, const tri_strategy_options *options);
// How many bytes the offloaded state takes in its file or in the host's memory.
int64_t tri_plan_offloaded_bytes(const tri_plan *plan);
// What an optimizer step on the host moves, in bytes. `down`: gradients, which are copied to the
// host. `up`: parameters, which are copied to the device. `memory`: what the host's CPU and these
// copies read and write in the host's memory. `unit` -1: the sum over all units.
typedef struct tri_host_step_bytes {
    int64_t down, up, memory;
} tri_host_step_bytes;
tri_host_step_bytes tri_plan_host_step_bytes(const tri_plan *plan, int unit);
// Plans the schedule and memory of one shape of step. Its programs and the flat buffers have to be
// planned before.
tri_status tri_plan_make_step(tri_plan *plan, const tri_plan_request *request,
                              tri_step_shape shape);
// Checks that no action of the step finds another value in memory than the one that it reads, where
// values share memory. TRI_INTERNAL: the message names two actions that no dependency orders, or
// that stand in the wrong order. Defined in verify_values.c.
tri_status tri_step_values_verify(const tri_step_plan *step);
// Places the caches of the programs. TRI_BAD_INPUT: the programs have other caches, or a cache is
// read on another stage of the pipeline, or its spans are no field of the data.
tri_status tri_plan_place_caches(tri_plan *plan);
// How many bytes this rank's communicators need for themselves. *nccl_estimate: how many bytes NCCL
// allocates in addition, estimated; 0 without NCCL.
int64_t tri_plan_communicator_bytes(const tri_plan *plan, int64_t *nccl_estimate);
// Describes the plan's blocks and units for schedules (tri_schedule_block, tri_unit). Schedules
// know nothing of graphs, so that they can be tested without a model.
tri_status tri_plan_describe(tri_plan *plan, const tri_plan_request *request);
// Counts what losses are divided by in a step if no label is ignored (term_counts). Defined in
// terms.c.
tri_status tri_plan_count_terms(tri_plan *plan, const tri_plan_request *request,
                                tri_step_shape shape);

// Finds a parameter, buffer or constant of `a` that is another one in `b`; NULL: there is none.
// Defined, as the next function, in division.c.
const char *tri_plan_other_parameter(const tri_graph *a, const tri_graph *b);
// Fails if the model's losses depend on how a training step is divided into micro-batches, and the
// number of replicas divides it.
tri_status tri_plan_check_division(const tri_plan *plan, const tri_plan_request *request);

#endif
