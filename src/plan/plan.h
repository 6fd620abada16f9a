// Everything one rank needs for a run, made and sized before the first step: programs for every
// size of micro-batch, a schedule for every shape of step, the place of every parameter.
#ifndef TRIREME_PLAN_PLAN_H
#define TRIREME_PLAN_PLAN_H

#include "mesh/mesh.h"
#include "plan/flat.h"
#include "plan/program.h"
#include "plan/schedule.h"

typedef enum tri_step_shape {
    TRI_STEP_FULL,
    TRI_STEP_TAIL,     // an epoch's last step, when it is smaller
    TRI_STEP_EVALUATE, // one pass over the test set
    TRI_STEP_SHAPE_COUNT
} tri_step_shape;

// One micro-batch of this rank.
typedef struct tri_round {
    int64_t first, size;  // position in the step and samples; size 0: none in this round
    tri_program *program; // NULL when there are no samples
} tri_round;

typedef struct tri_step_plan {
    int64_t samples; // over all replicas; 0: this shape does not occur
    int rounds;
    tri_round *items;
    tri_schedule schedule;
} tri_step_plan;

typedef struct tri_plan_request {
    const tri_model_request *model; // options.training is set per program
    const tri_strategy *strategy;
    tri_mesh mesh;
    int rank;
    int64_t step_samples[TRI_STEP_SHAPE_COUNT]; // 0: does not occur
    int64_t micro;                              // of training steps; 0: one per replica
    int64_t eval_micro;                         // of evaluation
    bool sync_batchnorm; // batch norm over a whole step: what one replica's one pass is anyway
    int optimizer_states;
} tri_plan_request;

// Bytes that one rank will hold.
typedef struct tri_memory_plan {
    int64_t parameters, gradients, optimizer, activations, workspace, communication, peak;
} tri_memory_plan;

enum { TRI_MAX_PROGRAMS = 8 };

typedef struct tri_plan {
    tri_arena *arena;
    tri_mesh mesh;
    int rank, replicas;
    const tri_strategy *strategy;
    tri_program *programs[TRI_MAX_PROGRAMS];
    int program_count;
    tri_step_plan steps[TRI_STEP_SHAPE_COUNT];
    const tri_graph *graph; // of the first program: parameters, blocks, metrics
    tri_flat flat;
    bool accumulates; // some step has more than one round on this rank
    // What all programs share: as large as the largest needs.
    int64_t activation_bytes, workspace_bytes, input_bytes, result_bytes;
    int64_t round_elements; // gradients of one block, where rounds are accumulated; else 0
    tri_memory_plan memory;
} tri_plan;

// The device must outlive the plan. TRI_BAD_INPUT for settings that cannot be, before anything of
// size is allocated.
tri_status tri_plan_create(tri_arena *parent, tri_device *device, const tri_plan_request *request,
                           tri_plan **out);
void tri_plan_destroy(tri_plan *plan); // NULL allowed

#endif
