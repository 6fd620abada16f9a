// A model compiled for one size of micro-batch and one mode on one device: graph, kernels, and the
// place of every value. Read-only once made; any number of rounds run it.
#ifndef TRIREME_PLAN_PROGRAM_H
#define TRIREME_PLAN_PROGRAM_H

#include "device/device.h"

#include <trireme/task.h>

typedef struct tri_model_request {
    const tri_task *task;
    const tri_field *fields; // of a sample
    int field_count;
    tri_graph_options options; // `training` and `seed` included
} tri_model_request;

// Where a value lies while the program runs.
typedef enum tri_place_kind {
    TRI_PLACE_NONE,       // never in memory of its own
    TRI_PLACE_ACTIVATION, // offset into the activations
    TRI_PLACE_INPUT,      // offset into the inputs' buffer
    TRI_PLACE_RESULT,     // offset into the results: (sum, count) of loss and metrics
    TRI_PLACE_PARAMETER,  // index of the parameter
    TRI_PLACE_GRADIENT,   // index of the parameter whose gradient it is
    TRI_PLACE_SCALAR,     // tri_scalar_kind
} tri_place_kind;

typedef struct tri_place {
    tri_place_kind kind;
    int index;
    int64_t offset;
} tri_place;

// Nodes first … end - 1 of the graph: a block in one phase.
typedef struct tri_segment {
    int first, end;
} tri_segment;

typedef struct tri_program {
    tri_arena *arena;
    tri_device *device;
    tri_graph *graph;
    int64_t batch; // samples of the micro-batch
    bool training;
    tri_kernel *kernels;                      // by node
    tri_place *places;                        // by value
    tri_segment (*segments)[TRI_PHASE_COUNT]; // by block
    int64_t activation_bytes, workspace_bytes, input_bytes, result_bytes;
} tri_program;

// Builds the graph of `batch` samples: inputs, the task's model, verified. *out lives in `arena`.
// Errors of the model come back as TRI_BAD_INPUT. No device is needed.
tri_status tri_model_build(tri_arena *arena, const tri_model_request *request, int64_t batch,
                           tri_graph **out);
// Builds, rewrites and compiles. The device must outlive the program.
tri_status tri_program_create(tri_arena *parent, tri_device *device,
                              const tri_model_request *request, int64_t batch, tri_program **out);
void tri_program_destroy(tri_program *program); // NULL allowed

// Flops of one run of a block's segment.
double tri_program_flops(const tri_program *program, int block, tri_phase phase);

#endif
