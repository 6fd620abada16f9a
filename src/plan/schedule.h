// A schedule: what one rank does in one step, as a list of actions. It is data, made by a pure
// function of (blocks, mesh, strategy, step, rank), so that it can be printed, drawn, verified and
// simulated without running it.
//
// An action has a subject: a block, a unit or an edge. A *block* is a layer or a group of layers
// that is computed as one. A *unit* is state that is gathered, reduced and updated together. Unit b
// has the parameters that only block b reads. The units after the last block's have one parameter
// each, which several blocks read (tied weights). A *stage* is a run of consecutive blocks; stage v
// of a pipeline of P ranks is on pipeline rank v mod P (a pipeline rank is a rank's number along
// the pipeline). A micro-batch has a number among those of its replica in the step, in code its
// `round`. An *edge* is the values that one block makes and another stage reads; a SEND and a RECV
// carry them, once for each micro-batch. There may be several edges from one stage to another.
//
// A lane (computation, a communicator, storage, …) starts its actions in the order of the list,
// beside the other lanes; all lanes but ALONG and BACK also finish them in that order. One step of
// zero2 with two blocks (a, b) and one micro-batch; an arrow leads from an action to the one that
// waits for it:
//
//     take     TAKE
//                   ↓
//     shard    GATHER a · GATHER b                        SCATTER b · SCATTER a
//                   ↓          ↓                              ↑           ↑   ↓
//     compute       FORWARD a · FORWARD b · BACKWARD b ───────┘ BACKWARD a┘   NORM · STEP a, b
#ifndef TRIREME_PLAN_SCHEDULE_H
#define TRIREME_PLAN_SCHEDULE_H

#include "base/arena.h"
#include "base/status.h"
#include "mesh/mesh.h"
#include "plan/options.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// Lanes run side by side, so that communication and storage overlap with computing. A lane starts
// its actions in the order of the schedule's list. All lanes but ALONG and BACK also finish them in
// that order.
typedef enum tri_lane {
    TRI_LANE_COMPUTE,
    TRI_LANE_SHARD,     // the communicator of the ranks that divide one training state among them
    TRI_LANE_REPLICATE, // the communicator of the ranks that hold copies of the same state
    TRI_LANE_ALONG,     // messages of a pipeline to later stages: activations
    TRI_LANE_BACK,      // messages of a pipeline to earlier stages: gradients
    // Reads offloaded state from storage and writes it back, or has the host's CPU update it there.
    TRI_LANE_STORE,
    TRI_LANE_DOWN, // copies gradients from the device to the host, whose CPU runs the optimizer
    TRI_LANE_UP,   // copies updated parameters from the host to the device
    TRI_LANE_TAKE, // copies micro-batches from the loader's memory to the device's
    TRI_LANE_COUNT
} tri_lane;

// What an action works on: it says into which list tri_action.subject is an index.
typedef enum tri_subject {
    TRI_SUBJECT_NONE,
    TRI_SUBJECT_BLOCK,
    TRI_SUBJECT_UNIT,
    TRI_SUBJECT_EDGE
} tri_subject;

// The kinds of actions, one row each: X(action, name, lane, subject, whether it is for one
// micro-batch). A unit is parameters that are gathered and reduced together.
#define TRI_ACTION_LIST(X)                                                                         \
    X(TAKE, "TAKE", TRI_LANE_TAKE, NONE, true) /* gets a micro-batch from the loader */            \
    /* collects the unit's parameters from all shards, in the type with which kernels compute */   \
    X(GATHER, "GATHER", TRI_LANE_SHARD, UNIT, false)                                               \
    X(RELEASE, "RELEASE", TRI_LANE_COMPUTE, UNIT, false) /* frees the gathered parameters */       \
    X(FORWARD, "FORWARD", TRI_LANE_COMPUTE, BLOCK, true)                                           \
    X(RECOMPUTE, "RECOMPUTE", TRI_LANE_COMPUTE, BLOCK,                                             \
      true) /* runs FORWARD again, because BACKWARD needs the activations */                       \
    X(BACKWARD, "BACKWARD", TRI_LANE_COMPUTE, BLOCK,                                               \
      true) /* BACKWARD_INPUT and BACKWARD_WEIGHT in one action */                                 \
    X(BACKWARD_INPUT, "BACKWARD_INPUT", TRI_LANE_COMPUTE, BLOCK, true)                             \
    X(BACKWARD_WEIGHT, "BACKWARD_WEIGHT", TRI_LANE_COMPUTE, BLOCK, true)                           \
    X(SEND_ALONG, "SEND", TRI_LANE_ALONG, EDGE, true)                                              \
    X(RECV_ALONG, "RECV", TRI_LANE_ALONG, EDGE, true)                                              \
    X(SEND_BACK, "SEND", TRI_LANE_BACK, EDGE, true)                                                \
    X(RECV_BACK, "RECV", TRI_LANE_BACK, EDGE, true)                                                \
    X(CLEAR, "CLEAR", TRI_LANE_COMPUTE, UNIT, false)     /* sets gradients to zero */              \
    X(SCATTER, "SCATTER", TRI_LANE_SHARD, UNIT, false)   /* reduce-scatter of gradients */         \
    X(REDUCE, "REDUCE", TRI_LANE_REPLICATE, UNIT, false) /* all-reduce of gradients */             \
    X(TIE, "TIE", TRI_LANE_BACK, UNIT,                                                             \
      false) /* sums a tied parameter's gradients over the stages that hold it */                  \
    X(NORM, "NORM", TRI_LANE_COMPUTE, NONE,                                                        \
      false) /* over all ranks: the counts by which losses are divided, the gradients' norm */     \
    X(FETCH, "FETCH", TRI_LANE_STORE, UNIT,                                                        \
      false) /* reads from storage the parameters that GATHER sends */                             \
    X(LOAD, "LOAD", TRI_LANE_STORE, UNIT,                                                          \
      false) /* reads from storage the state that STEP changes */                                  \
    X(STEP, "STEP", TRI_LANE_COMPUTE, UNIT,                                                        \
      false) /* runs the optimizer, and updates statistics */                                      \
    X(PREPARE, "PREPARE", TRI_LANE_COMPUTE, UNIT,                                                  \
      false) /* casts the new F32 weights to the type that GATHER sends */                         \
    X(EVICT, "EVICT", TRI_LANE_STORE, UNIT,                                                        \
      false) /* writes to storage what LOAD has read and STEP has changed */                       \
    X(DOWNLOAD, "DOWNLOAD", TRI_LANE_DOWN, UNIT, false) /* copies gradients to the host */         \
    X(HOST_STEP, "HOST_STEP", TRI_LANE_STORE, UNIT,                                                \
      false) /* does on the host, with its CPU, what STEP and PREPARE do on the device */          \
    X(UPLOAD, "UPLOAD", TRI_LANE_UP, UNIT, false) /* copies the new parameters to the device */

typedef enum tri_action_kind {
#define X(kind, name, lane, subject, round) TRI_ACTION_##kind,
    TRI_ACTION_LIST(X)
#undef X
        TRI_ACTION_KIND_COUNT
} tri_action_kind;

typedef struct tri_action {
    tri_action_kind kind;
    int subject;              // number of the block, unit or edge (see tri_subject); -1: none
    int round;                // number of the micro-batch; -1: the action belongs to none
    int from_stage, to_stage; // for SEND and RECV: the stages that the edge connects
    // Of a compute action: it adds to gradients that are in memory already, so `adds` is not 0. Of
    // a SCATTER: it adds to the sums which earlier SCATTERs of the step have left on this rank.
    bool accumulate;
    // FORWARD: it is the first compute action of this rank for the micro-batch. It alone waits for
    // TAKE, because all later ones of the micro-batch come after it.
    bool begins_round;
    // FORWARD: RECOMPUTE will make the block's activations again, so only the values that other
    // blocks read are kept.
    bool forgets;
    // Bit k is set: the action adds to the gradients of the k-th unit in the list `units` of its
    // block. The bit is not set: the action overwrites these gradients, so that they need not be
    // set to zero before. The gradients in memory are those of earlier micro-batches, or of another
    // block that reads the same parameter. FORWARD makes the gradients of statistics (see
    // TRI_ROLE_STATISTIC) and BACKWARD those of trained parameters. Schedules let both halves of
    // BACKWARD make gradients of trained parameters, although after the pass split_backward only
    // BACKWARD_WEIGHT does.
    uint64_t adds;
    // The action's dependencies: this range of tri_schedule.dependencies.
    int first_dependency, dependency_count;
} tri_action;

typedef struct tri_schedule {
    tri_arena *arena;
    tri_action *actions;
    int count, capacity;
    // The actions that must be done before an action starts; mostly they are of other lanes. Those
    // of one action lie side by side: tri_action.first_dependency and dependency_count say where.
    int *dependencies;
    int dependency_count, dependency_capacity;
} tri_schedule;

// An edge: the values that a block makes and another stage reads, sent as one message for each
// micro-batch.
typedef struct tri_edge {
    int from_stage, to_stage;
    // The block that makes all of the edge's values, and the first block of to_stage that reads
    // them.
    int from_block, to_block;
    bool back;     // true: BACKWARD makes and reads the values
    int64_t bytes; // size of the values, per sample
} tri_edge;

// The most units that a block can read, because tri_action.adds has one bit for each of them.
enum { TRI_MAX_BLOCK_UNITS = 64 };

typedef struct tri_unit {
    int64_t bytes; // size of the parameters as they are stored, all shards together
    // Some of the parameters are trained, or are running statistics of batch norm. False: all are
    // frozen, or there are none.
    bool has_gradients;
    bool has_statistics;
    bool has_half;    // kernels read some of its parameters in a half type (BF16 or F16)
    bool has_stored;  // kernels read some of its parameters in the type in which they are stored
    bool has_partial; // NORM sums some of its gradients over the tensor-parallel ranks
    // Fsdp: the unit (parameters gathered together) is so small that it stays gathered from its
    // first to its last use in a step.
    bool persistent;
    // The lowest pipeline rank that holds the unit, and how many pipeline ranks hold it. There are
    // several if stages of several ranks read the unit's parameter. TIE then sums the parameter's
    // gradients over these ranks.
    int first_holder, holder_count;
    bool here; // a stage of this rank reads the unit's parameters
} tri_unit;

typedef struct tri_schedule_block {
    int stage;
    bool recompute;
    // The units that the block reads: its own first, then shared ones.
    int units[TRI_MAX_BLOCK_UNITS];
    int unit_count;
    // Arithmetic operations for one sample; the same on every rank. Unless the recipe names the
    // blocks that begin stages, blocks are divided into stages by forward_flops: the largest sum
    // over a stage is as small as possible.
    double forward_flops, backward_flops;
} tri_schedule_block;

// A strategy: how the ranks of the shard axis share the training state.
typedef struct tri_strategy {
    const char *name;
    bool needs_one_rank;
    // If the recipe gives no size of this axis, it gets the number of ranks divided by the sizes of
    // the other axes.
    tri_axis own_axis;
    bool shards_optimizer, shards_gradients, shards_parameters;
} tri_strategy;

typedef struct tri_schedule_request tri_schedule_request;

// In which order a pipeline rank runs its compute actions. The order decides how long ranks wait
// for each other and how many activations they hold. If there is only one stage, orders differ only
// in how many micro-batches run forward before the first one runs backward, and in whether BACKWARD
// is split.
typedef struct tri_order {
    const char *name;
    bool loops_over_stages; // each rank has several stages (strategy.stages_per_rank)
    bool splits_backward;   // writes BACKWARD_INPUT and BACKWARD_WEIGHT instead of BACKWARD
    // Adds FORWARD and BACKWARD (or its two halves) of this rank's stages for every micro-batch,
    // and nothing else. It adds them also for a micro-batch without samples on this rank, because
    // other replicas may have samples in theirs, and all need the same list for their collectives.
    // The micro-batches of a block come in ascending order. The function tri_schedule_add_stage
    // adds the actions of a stage.
    void (*write)(const tri_schedule_request *request, tri_schedule *out);
} tri_order;

// All that a schedule depends on. Nothing else may have an influence, so that each rank makes its
// own schedule, and all of them match without an exchange.
struct tri_schedule_request {
    const tri_strategy *strategy;
    const tri_order *order;
    int block_count, unit_count, edge_count, stage_count;
    const tri_schedule_block *blocks;
    const tri_unit *units;
    const tri_edge *edges;
    int pipeline, pipeline_rank; // number of pipeline ranks, and which of them this one is
    // How many ranks take part in the collectives of the lanes (communicators) REPLICATE and SHARD.
    int replicate, shard;
    int rounds;                 // micro-batches of a replica in the step
    const int64_t *round_sizes; // by micro-batch: its samples on this rank; 0: none
    bool training;              // false: evaluation, FORWARD only
    // The device is asynchronous. The action TAKE, which brings the inputs of a micro-batch to the
    // device, then comes one micro-batch earlier than these inputs are used, so that they are
    // copied while the device computes the micro-batch before.
    bool takes_ahead;
    // Gradients are added in the order of micro-batches, so that the sum does not depend on how the
    // ranks divide the samples. For that, gradients are scattered after every micro-batch, and
    // `strategy` is the one that tri_strategy_effective returns.
    bool deterministic;
    // Fsdp: RELEASE follows FORWARD, and GATHER comes again before BACKWARD.
    bool reshard_after_forward;
    // How many units ahead of a unit's use GATHER starts. If gathered parameters are released and
    // there is no pipeline, it is exactly this number, because each unit gathered ahead takes
    // memory. Otherwise it is at least 2 (AHEAD in complete.c).
    int prefetch;
    bool offloads; // optimizer state is offloaded: LOAD before STEP, EVICT after it
    // The host's CPU runs the optimizer: DOWNLOAD, HOST_STEP and UPLOAD instead of STEP and
    // PREPARE.
    bool steps_on_host;
    // The F32 master weights are offloaded. Where kernels read parameters as they are stored
    // (tri_unit.has_stored), GATHER sends the masters, so FETCH reads these from storage before.
    bool fetches;
};

// The functions that write the orders in TRI_ORDER_LIST, each in a file order_IDENTIFIER.c.
#define X(identifier, ...)                                                                         \
    void tri_order_write_##identifier(const tri_schedule_request *request, tri_schedule *out);
TRI_ORDER_LIST(X)
#undef X

extern const tri_order *const tri_orders[]; // in the order of TRI_ORDER_LIST; ends with NULL
const tri_strategy *tri_strategy_of(tri_strategy_kind kind);
// Finds a strategy by its name; NULL: there is none of this name.
const tri_strategy *tri_strategy_find(const char *name);
// Gets the strategy by which schedules are written. It differs from the recipe's strategy only in a
// deterministic run that shards nothing: then it is zero2, which scatters the gradients of every
// micro-batch, so that they are added in the order of the step's micro-batches.
const tri_strategy *tri_strategy_effective(const tri_strategy *strategy, bool deterministic);
// Finds an order by its name; NULL: there is none of this name.
const tri_order *tri_order_find(const char *name);

// Which kind of compute action makes a gradient. The gradients of a unit (parameters that are
// reduced together) are summed in memory over micro-batches. Usually the gradient of each parameter
// has one source, so the first action of each source overwrites what lies in memory, and later
// actions add to it. Where both halves of BACKWARD may make the same gradient, CLEAR first sets the
// memory to zero, and all actions add.
typedef enum tri_gradient_source {
    TRI_GRADIENT_STATISTICS,  // made by FORWARD
    TRI_GRADIENT_INPUT,       // made by BACKWARD_INPUT
    TRI_GRADIENT_REST,        // made by BACKWARD and BACKWARD_WEIGHT
    TRI_GRADIENT_SOURCE_COUNT // also stands for actions that make no gradients
} tri_gradient_source;
tri_gradient_source tri_action_gradient_source(tri_action_kind kind);
// Whether actions of this source may make gradients of the unit (parameters that are reduced
// together). True for STATISTICS if the unit has statistics, for INPUT if the order splits the
// backward pass, and always for REST. The unit must have gradients.
bool tri_schedule_has_gradient_source(const tri_schedule_request *request, int unit,
                                      tri_gradient_source source);
// Whether both halves of BACKWARD may write one parameter's gradient, so that neither may overwrite
// it: several blocks of this rank read the parameter, and the order splits the backward pass.
bool tri_schedule_mixes_halves(const tri_schedule_request *request, int unit);

// The four functions below tell what the strategy demands of a schedule, given the sizes of the
// groups (a group of one rank gathers nothing). A rank's *own gradients* are those with which it
// updates parameters: the sums for its own shard, which SCATTER leaves on it, or all gradients if
// there is no SCATTER. REDUCE, TIE, NORM and STEP work on own gradients, so that these actions are
// the same for all strategies.

// Whether each step gathers parameters (GATHER). True if optimizer states are sharded, because each
// rank then updates only its own shard of the parameters.
bool tri_schedule_gathers(const tri_schedule_request *request);
// Whether gathered parameters are released after their use.
bool tri_schedule_releases(const tri_schedule_request *request);
// Whether gradients are scattered at least once in a step.
bool tri_schedule_scatters(const tri_schedule_request *request);
// Whether gradients are scattered after every micro-batch.
bool tri_schedule_scatters_rounds(const tri_schedule_request *request);
// Whether gradients of this unit are. Statistics of a deterministic pipeline are not: several
// FORWARDs may come between two BACKWARDs, so that a SCATTER after each of these would add sums of
// several micro-batches. As no other replica adds to them, one sum over the step has the same bits
// as that of one rank.
bool tri_schedule_scatters_rounds_of(const tri_schedule_request *request, int unit);

// Makes a schedule: the compute actions in the sequence that request->order writes, and around them
// the actions that the strategy demands, and those that send values between stages. The schedule is
// verified, and has no dependencies yet. TRI_INTERNAL: the list that the order writes is wrong.
tri_status tri_schedule_make(tri_arena *arena, const tri_schedule_request *request,
                             tri_schedule *out);

// The largest number of micro-batches whose activations a stage holds at one time: those whose
// forward pass is done and whose backward pass (with BACKWARD_WEIGHT) is not. The activations need
// memory this many times.
int tri_schedule_in_flight(const tri_schedule *schedule, const tri_schedule_request *request,
                           int stage);

// Whether GATHER of the unit (parameters that are gathered together) sends what FETCH has read: the
// parameters are offloaded, and kernels read them in the type in which they are stored.
bool tri_schedule_fetches(const tri_schedule_request *request, int unit);

// Adds an action of the kind for each block of the stage, for one micro-batch. FORWARD begins with
// the stage's first block, the other kinds with its last. For the functions that write orders
// (tri_order.write).
void tri_schedule_add_stage(const tri_schedule_request *request, tri_schedule *out,
                            tri_action_kind kind, int stage, int round);
void tri_schedule_add(tri_schedule *schedule, tri_action_kind kind, int subject, int round);

// Two actions, by their indices in the schedule: `action` must not start before `other` is done,
// because it uses memory that `other` used for something else.
typedef struct tri_wait {
    int action, other;
} tri_wait;

// Finds for each action the actions of other lanes (communicators, storage, …) for which it has to
// wait. These follow from what actions read and write, and from `waits`. Within a lane no
// dependency is needed, because a lane finishes its actions in the order of the list. Only in the
// lanes ALONG and BACK (messages between stages) an action may end before an earlier one, so
// dependencies within these lanes are found too.
void tri_schedule_find_dependencies(tri_schedule *schedule, const tri_schedule_request *request,
                                    const tri_wait *waits, int wait_count);
// Checks that the schedule computes the step. For each micro-batch, each block goes forward before
// backward, on gathered parameters. Each gradient is complete when it is reduced, is reduced once
// and before NORM, and is used by one STEP. The values of edges arrive before they are read. The
// dependencies, if there are any yet, order every conflicting pair of actions. TRI_INTERNAL: the
// message names the action and the rule that it breaks.
tri_status tri_schedule_verify(const tri_schedule *schedule, const tri_schedule_request *request);
// Checks the schedules of all ranks of a mesh together (schedules[rank]). Every SEND meets its
// RECV. Ranks along the shard axis have the same actions of the lane (communicator) SHARD in the
// same order, and ranks along the replicate axis those of REPLICATE. Ranks along the
// tensor-parallel axis have the same actions in all lanes, because they exchange values inside
// blocks. Nothing can deadlock. A schedule without dependencies gets them for this check.
tri_status tri_schedule_verify_ranks(const tri_mesh *mesh, const tri_schedule *schedules,
                                     const tri_schedule_request *requests);

const char *tri_action_name(tri_action_kind kind);
tri_lane tri_action_lane(tri_action_kind kind);
tri_subject tri_action_subject(tri_action_kind kind);
const char *tri_lane_name(tri_lane lane);
// Writes an action as text: "REDUCE conv1", "FORWARD fc1,2" or "SEND 0>1,2". `names` are the names
// of the blocks, then those of the shared parameters, as units are numbered.
char *tri_action_text(const tri_action *action, const char *const *names, char *out, size_t size);
void tri_schedule_print(const tri_schedule *schedule, const char *const *names, FILE *out);

#endif
