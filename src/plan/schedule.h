// A schedule: what one rank does in one step, as a list of actions. It is data and a pure function
// of (blocks, mesh, strategy, step, rank), so that it can be printed, drawn, verified and simulated
// without running it.
//
// An action has a subject: a block, a unit or an edge. A *block* is computed. A *unit* is state
// that is gathered, reduced and stepped together: unit b is the parameters that only block b reads,
// and each parameter that several blocks read (tied weights) is a unit behind those. A *stage* is a
// run of consecutive blocks; stage v of a pipeline of P ranks is on pipeline rank v mod P. A
// *round* is the number of a micro-batch of this rank's replica. An *edge* is what one stage sends
// to another for one micro-batch.
//
// A lane runs its actions one after the other, beside the other lanes. One step of zero2 with two
// blocks and one round; an arrow down is a dependency:
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

// Lanes run side by side, so that communication and storage overlap with computing; within a lane,
// actions run in the order of the list.
typedef enum tri_lane {
    TRI_LANE_COMPUTE,
    TRI_LANE_SHARD,     // the communicator of the ranks that share one state
    TRI_LANE_REPLICATE, // the communicator of the ranks that hold copies of the same state
    TRI_LANE_ALONG,     // pipeline: activations, to later stages
    TRI_LANE_BACK,      // pipeline: gradients, to earlier stages
    TRI_LANE_STORE,     // local storage
    TRI_LANE_TAKE,      // micro-batches, from the loader's memory to the device's
    TRI_LANE_COUNT
} tri_lane;

// What an action works on; it says into which list the action's number is an index.
typedef enum tri_subject {
    TRI_SUBJECT_NONE,
    TRI_SUBJECT_BLOCK,
    TRI_SUBJECT_UNIT,
    TRI_SUBJECT_EDGE
} tri_subject;

// The kinds of actions, one row each: X(action, name, lane, subject, has a round).
#define TRI_ACTION_LIST(X)                                                                         \
    X(TAKE, "TAKE", TRI_LANE_TAKE, NONE, true) /* the round's micro-batch, from the loader */      \
    /* makes parameters as kernels read them: all shards, in the type of computation */            \
    X(GATHER, "GATHER", TRI_LANE_SHARD, UNIT, false)                                               \
    X(RELEASE, "RELEASE", TRI_LANE_COMPUTE, UNIT, false) /* they are no longer needed */           \
    X(FORWARD, "FORWARD", TRI_LANE_COMPUTE, BLOCK, true)                                           \
    X(RECOMPUTE, "RECOMPUTE", TRI_LANE_COMPUTE, BLOCK, true) /* FORWARD again, for BACKWARD */     \
    X(BACKWARD, "BACKWARD", TRI_LANE_COMPUTE, BLOCK, true)   /* both halves below */               \
    X(BACKWARD_INPUT, "BACKWARD_INPUT", TRI_LANE_COMPUTE, BLOCK, true)                             \
    X(BACKWARD_WEIGHT, "BACKWARD_WEIGHT", TRI_LANE_COMPUTE, BLOCK, true)                           \
    X(SEND_ALONG, "SEND", TRI_LANE_ALONG, EDGE, true)                                              \
    X(RECV_ALONG, "RECV", TRI_LANE_ALONG, EDGE, true)                                              \
    X(SEND_BACK, "SEND", TRI_LANE_BACK, EDGE, true)                                                \
    X(RECV_BACK, "RECV", TRI_LANE_BACK, EDGE, true)                                                \
    X(CLEAR, "CLEAR", TRI_LANE_COMPUTE, UNIT, false)     /* gradients = 0 */                       \
    X(SCATTER, "SCATTER", TRI_LANE_SHARD, UNIT, false)   /* reduce-scatter of gradients */         \
    X(REDUCE, "REDUCE", TRI_LANE_REPLICATE, UNIT, false) /* all-reduce of own gradients */         \
    X(TIE, "TIE", TRI_LANE_BACK, UNIT, false)      /* sum over the stages that hold the unit */    \
    X(NORM, "NORM", TRI_LANE_COMPUTE, NONE, false) /* counts, norm, step scalars */                \
    X(FETCH, "FETCH", TRI_LANE_STORE, UNIT, false) /* what GATHER sends, from storage */           \
    X(LOAD, "LOAD", TRI_LANE_STORE, UNIT, false)   /* what STEP changes, from storage */           \
    X(STEP, "STEP", TRI_LANE_COMPUTE, UNIT, false) /* optimizer and statistics */                  \
    X(PREPARE, "PREPARE", TRI_LANE_COMPUTE, UNIT, false) /* what STEP left, cast for GATHER */     \
    X(EVICT, "EVICT", TRI_LANE_STORE, UNIT, false)       /* what LOAD brought, to storage */

typedef enum tri_action_kind {
#define X(kind, name, lane, subject, round) TRI_ACTION_##kind,
    TRI_ACTION_LIST(X)
#undef X
        TRI_ACTION_KIND_COUNT
} tri_action_kind;

typedef struct tri_action {
    tri_action_kind kind;
    int subject;              // number of the block, unit or edge; -1: none
    int round;                // of the micro-batch; -1: none
    int from_stage, to_stage; // SEND, RECV: of the edge
    // FORWARD, BACKWARD…: some unit's gradients already hold something to add to (see `adds`).
    // SCATTER: adds to what earlier rounds left in this rank's own gradients.
    bool accumulate;
    // FORWARD: the first compute action of this rank in the round. It alone waits for TAKE, because
    // all later ones of the round come after it.
    bool begins_round;
    // FORWARD: RECOMPUTE makes the block's activations again, so only what other blocks read is
    // kept.
    bool forgets;
    // Bit k: adds to the gradients of the block's k-th unit; else it overwrites them, so that
    // nobody has to set them to zero. FORWARD makes those of statistics, BACKWARD those of trained
    // parameters, each half of BACKWARD some of them. (Where both halves make gradients of one
    // unit, CLEAR stands before the first of them.)
    uint64_t adds;
    int first_dependency, dependency_count; // into the schedule's dependencies
} tri_action;

typedef struct tri_schedule {
    tri_arena *arena;
    tri_action *actions;
    int count, capacity;
    int *dependencies; // actions of other lanes that have to be done before this one starts
    int dependency_count, dependency_capacity;
} tri_schedule;

// What one stage makes and another reads, for each micro-batch: a message of a pipeline.
typedef struct tri_edge {
    int from_stage, to_stage;
    int from_block, to_block; // the block that makes the last of it, and the first that reads it
    bool back;                // made and read by BACKWARD
    int64_t bytes;            // per sample
} tri_edge;

enum { TRI_MAX_BLOCK_UNITS = 64 }; // bits of tri_action.adds

typedef struct tri_unit {
    int64_t bytes;      // of parameters as stored, all shards
    bool has_gradients; // trained parameters or statistics (else all are frozen, or there are none)
    bool has_statistics;
    bool has_half;   // kernels read some of its parameters in a half type
    bool has_stored; // kernels read some of its parameters in the type they are stored in
    bool persistent; // fsdp: so small that it stays gathered from first to last use in a step
    int first_holder, holder_count; // pipeline ranks that hold it; more than one: TIE
    bool here;                      // this rank holds it
} tri_unit;

typedef struct tri_schedule_block {
    int stage;
    bool recompute;
    int units[TRI_MAX_BLOCK_UNITS]; // that it reads, its own first
    int unit_count;
    double forward_s, backward_s; // costs, in any unit: for cutting stages and for simulation
} tri_schedule_block;

// A strategy: how the ranks of the shard axis share the training state.
typedef struct tri_strategy {
    const char *name;
    bool needs_one_rank;
    tri_axis own_axis; // takes the ranks that the recipe leaves open
    bool shards_optimizer, shards_gradients, shards_parameters;
} tri_strategy;

typedef struct tri_schedule_request tri_schedule_request;

// In which order a pipeline rank runs its compute actions. The order decides how long ranks wait
// for each other and how many activations they hold. With one stage in all, orders differ only in
// how many rounds they keep in flight.
typedef struct tri_order {
    const char *name;
    bool loops_over_stages; // ranks have several stages (strategy.stages_per_rank)
    bool splits_backward;   // BACKWARD_INPUT and BACKWARD_WEIGHT
    // Adds FORWARD and BACKWARD… of this rank's stages for every round, also for rounds without
    // samples, because ranks that have samples in them need the same list; and nothing else. The
    // rounds of a block come in ascending order. tri_schedule_add_stage helps.
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
    int pipeline, pipeline_rank; // ranks along the pipeline, and this one's coordinate
    int replicate, shard;        // sizes of the groups of lanes REPLICATE and SHARD
    int rounds;                  // of the step, on every replica
    const int64_t *round_sizes;  // by round: samples of this rank's micro-batch; 0: none
    bool training;               // false: evaluation, FORWARD only
    bool takes_ahead; // TAKE is one round ahead of its use: the device runs ahead of the host
    // Gradients are added in the order of micro-batches, so that the sum does not depend on how
    // ranks share them. For that every round is scattered, and the strategy is the effective one.
    bool deterministic;
    bool reshard_after_forward; // fsdp: RELEASE after FORWARD, GATHER again for BACKWARD
    // How many units ahead of their use GATHER starts; fewer than 2 only in a strategy that
    // releases parameters, without a pipeline.
    int prefetch;
    bool offloads; // LOAD before STEP, EVICT after it
    bool fetches;  // FETCH before GATHER, of units that kernels read as they are stored
};

// The functions that write the orders in TRI_ORDER_LIST, each in a file order_IDENTIFIER.c.
#define X(identifier, ...)                                                                         \
    void tri_order_write_##identifier(const tri_schedule_request *request, tri_schedule *out);
TRI_ORDER_LIST(X)
#undef X

extern const tri_order *const tri_orders[]; // in the order of the list; ends with NULL
const tri_strategy *tri_strategy_of(tri_strategy_kind kind);
const tri_strategy *tri_strategy_find(const char *name); // NULL: none
// The strategy by which schedules are written. A deterministic run scatters the gradients of every
// round, so that they are added in the order of the step's micro-batches; where the recipe's
// strategy shards nothing, it does so as zero2.
const tri_strategy *tri_strategy_effective(const tri_strategy *strategy, bool deterministic);
const tri_order *tri_order_find(const char *name); // NULL: none

// Which kind of compute action makes a gradient. For each source of a unit, the first action in a
// sum overwrites the gradients and later ones add to them, because sources write gradients of
// different parameters. (Where they may write the same, CLEAR comes first and all add.)
typedef enum tri_gradient_source {
    TRI_GRADIENT_STATISTICS,  // FORWARD
    TRI_GRADIENT_INPUT,       // BACKWARD_INPUT
    TRI_GRADIENT_REST,        // BACKWARD and BACKWARD_WEIGHT
    TRI_GRADIENT_SOURCE_COUNT // all others: none
} tri_gradient_source;
tri_gradient_source tri_action_gradient_source(tri_action_kind kind);
// Whether the unit has gradients of that source: STATISTICS where it has some, INPUT where the
// order splits the backward pass.
bool tri_schedule_has_gradient_source(const tri_schedule_request *request, int unit,
                                      tri_gradient_source source);
// Whether both halves of BACKWARD may write one parameter's gradient, so that neither may overwrite
// it: several blocks of this rank read the unit, and the order splits the backward pass.
bool tri_schedule_mixes_halves(const tri_schedule_request *request, int unit);

// What the strategy demands of a schedule, given the sizes of the groups (a group of one rank
// neither gathers nor scatters). SCATTER leaves a unit's sum in this rank's *own gradients*, its
// range of them; without SCATTER, all gradients are its own. REDUCE, TIE, NORM and STEP work on own
// gradients, so that they are the same for all strategies.
bool tri_schedule_gathers(const tri_schedule_request *request);  // parameters, in each step
bool tri_schedule_releases(const tri_schedule_request *request); // ... and releases them after use
bool tri_schedule_scatters(const tri_schedule_request *request); // gradients, once at least
bool tri_schedule_scatters_rounds(const tri_schedule_request *request); // ... after every round

// Writes the compute actions by the order, and around them what the strategy, edges and units
// demand. The schedule is verified, and has no dependencies yet. TRI_INTERNAL: the order is wrong.
tri_status tri_schedule_make(tri_arena *arena, const tri_schedule_request *request,
                             tri_schedule *out);

// The most rounds whose activations a stage holds at one time: forward is done, backward (with
// BACKWARD_WEIGHT) is not. So many copies of its activations need memory.
int tri_schedule_in_flight(const tri_schedule *schedule, const tri_schedule_request *request,
                           int stage);

// Whether GATHER of the unit sends what FETCH brings: the unit's parameters are offloaded, and
// kernels read them as they are stored.
bool tri_schedule_fetches(const tri_schedule_request *request, int unit);

// These help to write orders: the first adds the stage's blocks, forward or backward, for one
// round.
void tri_schedule_add_stage(const tri_schedule_request *request, tri_schedule *out,
                            tri_action_kind kind, int stage, int round);
void tri_schedule_add(tri_schedule *schedule, tri_action_kind kind, int subject, int round);

// `action` has to start after `other` is done, because it uses memory that `other` used; what the
// two compute need not be related.
typedef struct tri_wait {
    int action, other;
} tri_wait;

// Finds for each action the actions of other lanes for which it has to wait: from what actions read
// and write, and from `waits`. Within a lane the order of the list is enough.
void tri_schedule_find_dependencies(tri_schedule *schedule, const tri_schedule_request *request,
                                    const tri_wait *waits, int wait_count);
// Checks that the schedule computes the step: each block goes forward before backward in each round
// on gathered parameters, each gradient is complete when it is reduced, reduced once and before
// NORM, stepped once; that edges arrive before they are read; that the dependencies order every
// conflicting pair (when they are there). TRI_INTERNAL names action and rule.
tri_status tri_schedule_verify(const tri_schedule *schedule, const tri_schedule_request *request);
// Checks the schedules of all ranks of a mesh together (schedules[rank]): every send meets its
// receive, the ranks of a group have the same collectives in the same order, ranks that share
// layers have the same actions (they exchange values inside blocks), and nothing can deadlock. The
// groups of the lanes SHARD and REPLICATE are those along the mesh's axes of that name.
// Dependencies are derived where a schedule has none yet.
tri_status tri_schedule_verify_ranks(const tri_mesh *mesh, const tri_schedule *schedules,
                                     const tri_schedule_request *requests);

const char *tri_action_name(tri_action_kind kind);
tri_lane tri_action_lane(tri_action_kind kind);
tri_subject tri_action_subject(tri_action_kind kind);
const char *tri_lane_name(tri_lane lane);
// Writes an action as text: "REDUCE conv1", "FORWARD fc1,2" or "SEND 0>1,2". `names` are the names
// of the units, which begin with those of the blocks.
char *tri_action_text(const tri_action *action, const char *const *names, char *out, size_t size);
void tri_schedule_print(const tri_schedule *schedule, const char *const *names, FILE *out);

#endif
