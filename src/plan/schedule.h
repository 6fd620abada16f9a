// A schedule: what one rank does in one step, as a list of actions. It is data and a pure function
// of (blocks, step, strategy, rank), so it can be printed, drawn and verified without running it.
#ifndef TRIREME_PLAN_SCHEDULE_H
#define TRIREME_PLAN_SCHEDULE_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef enum tri_lane {
    TRI_LANE_COMPUTE,
    TRI_LANE_REDUCE, // the communicator of the replicas
    TRI_LANE_COUNT
} tri_lane;

// X(action, name, lane, has a block, has a micro-batch)
#define TRI_ACTION_LIST(X)                                                                         \
    X(FORWARD, "FORWARD", TRI_LANE_COMPUTE, true, true)                                            \
    X(BACKWARD, "BACKWARD", TRI_LANE_COMPUTE, true, true)                                          \
    X(CLEAR, "CLEAR", TRI_LANE_COMPUTE, true,                                                      \
      false) /* gradients = 0: no micro-batch of its own */                                        \
    X(REDUCE, "REDUCE", TRI_LANE_REDUCE, true, false) /* sum the gradients over the replicas */    \
    X(NORM, "NORM", TRI_LANE_COMPUTE, false, false)   /* counts, norm, step scalars */             \
    X(STEP, "STEP", TRI_LANE_COMPUTE, true, false)    /* optimizer and statistics */

typedef enum tri_action_kind {
#define X(kind, name, lane, block, micro) TRI_ACTION_##kind,
    TRI_ACTION_LIST(X)
#undef X
        TRI_ACTION_KIND_COUNT
} tri_action_kind;

typedef struct tri_action {
    tri_action_kind kind;
    int block;                              // -1: none
    int round;                              // of the micro-batch; -1: none
    bool accumulate;                        // FORWARD, BACKWARD: adds to what earlier rounds left
    int first_dependency, dependency_count; // into the schedule's dependencies
} tri_action;

typedef struct tri_schedule {
    tri_arena *arena;
    tri_action *actions;
    int count, capacity;
    int *dependencies; // actions of other lanes that have to be done before
    int dependency_count, dependency_capacity;
    int blocks, rounds;
} tri_schedule;

// What a strategy writes a schedule from.
typedef struct tri_schedule_request {
    int blocks;
    const bool *has_state;      // by block: has parameters or statistics
    int rounds;                 // of the step, on every replica
    const int64_t *round_sizes; // by round: samples of this rank's micro-batch; 0: none
    int replicas;
    bool training; // false: evaluation, FORWARD only
} tri_schedule_request;

// One way to divide the training state over replicas. It knows no kernel and no network.
typedef struct tri_strategy {
    const char *name;
    const char *help;
    bool needs_one_rank;
    void (*write)(const tri_schedule_request *request, tri_schedule *out);
} tri_strategy;

extern const tri_strategy tri_strategy_single, tri_strategy_ddp;
const tri_strategy *tri_strategy_find(const char *name); // NULL: none

// Writes, completes with dependencies and verifies.
tri_status tri_schedule_make(tri_arena *arena, const tri_strategy *strategy,
                             const tri_schedule_request *request, tri_schedule *out);

// For strategies. Block and round are -1 where the action has none.
void tri_schedule_add(tri_schedule *schedule, tri_action_kind kind, int block, int round);
// FORWARD of all blocks and their BACKWARD of one round; CLEAR where a replica had none in any
// round.
void tri_schedule_add_passes(const tri_schedule_request *request, tri_schedule *out,
                             void (*after_backward)(tri_schedule *out, int block));

// Derives what has to wait for what from what actions read and write.
void tri_schedule_find_dependencies(tri_schedule *schedule);
// That every conflicting pair of actions is ordered by lanes and dependencies, and that each block
// goes FORWARD before BACKWARD, is reduced at most once and after its last BACKWARD, and is stepped
// once.
tri_status tri_schedule_verify(const tri_schedule *schedule, const tri_schedule_request *request);
// That the collectives of all ranks are the same, in the same order.
tri_status tri_schedule_verify_ranks(const tri_schedule *schedules, int count);

const char *tri_action_name(tri_action_kind kind);
tri_lane tri_action_lane(tri_action_kind kind);
// "REDUCE conv1" or "FORWARD fc1,2".
char *tri_action_text(const tri_action *action, const char *const *block_names, char *out,
                      size_t size);
void tri_schedule_print(const tri_schedule *schedule, const char *const *block_names, FILE *out);

#endif
