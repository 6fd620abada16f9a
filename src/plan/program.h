// A model compiled for one size of micro-batch and one mode, for a device of one description:
// graph, choice of kernels, and the location of every value. It is read-only once it is made; any
// number of rounds run it, several of them at a time.
#ifndef TRIREME_PLAN_PROGRAM_H
#define TRIREME_PLAN_PROGRAM_H

#include "device/device.h"
#include "pass/pass.h"

#include <trireme/task.h>

typedef struct tri_model_request {
    const tri_task *task;
    const tri_field *fields; // of a sample
    int field_count;
    tri_graph_options options; // `training` and `seed` included
    // Not NULL: the field `images` arrives as U8, and the device applies this scale, so that only a
    // quarter of the bytes are copied.
    const tri_pixel_scale *image_scale;
} tri_model_request;

// Where a value lies while the program runs. The kind decides how its address is found: some
// addresses are the same in every step, others change with the round.
typedef enum tri_location_kind {
    TRI_LOCATION_NONE,      // never in memory of its own
    TRI_LOCATION_SCRATCH,   // offset into the scratch, which all segments use in turn
    TRI_LOCATION_BUNDLE,    // index of the bundle, offset into it
    TRI_LOCATION_INPUT,     // offset into the round's inputs
    TRI_LOCATION_RESULT,    // offset into the results: (sum, count) of loss and metrics
    TRI_LOCATION_PARAMETER, // index of the parameter
    TRI_LOCATION_GRADIENT,  // index of the parameter to whose gradient it is added
    TRI_LOCATION_SCALAR,    // tri_scalar_kind
} tri_location_kind;

// A metric's (sum, count) among the results takes a line of cache, because kernels that write
// neighbouring metrics at the same time would slow each other in one line.
enum { TRI_RESULT_BYTES = 64 };

typedef struct tri_location {
    tri_location_kind kind;
    int index;
    int64_t offset;
} tri_location;

// Values that live from one segment to another and are all made and read by the same segments: they
// share one buffer, which exists once for each round in flight. One buffer instead of many keeps
// the planning of memory small.
typedef struct tri_bundle {
    int64_t size_bytes;
    int own_block; // the only block whose segments touch it; -1: several do
} tri_bundle;

// Nodes first … end - 1 of the graph: a block in one phase, which is what one action runs.
typedef struct tri_segment {
    int first, end;
    int *bundles; // that it reads or writes
    bool *writes; // by the same index
    int bundle_count;
    bool reads_inputs;
} tri_segment;

// A value that one stage makes and another reads, so that it has to be sent.
typedef struct tri_edge_value {
    tri_value value;
    int from_block, to_block; // the block that makes it, and the first of that stage that reads it
    int to_stage;
    bool back; // made in the backward pass
} tri_edge_value;

typedef struct tri_program_request {
    const tri_model_request *model;
    int64_t batch;             // samples of the micro-batch
    const bool *recompute;     // by block: FORWARD is run again before BACKWARD; NULL: never
    const bool *blocks_here;   // by block: this rank needs its kernels; NULL: those of all blocks
    bool splits_backward;      // into the phases BACKWARD and WEIGHT
    const char *const *freeze; // patterns of parameters that stay as they are
    int freeze_count;
    // The mesh whose ranks share layers (tensor parallelism); NULL: no ranks share any.
    const tri_mesh *mesh;
    int rank;
    tri_tensor_parallel_options tensor_parallel;
    tri_graph *graph; // of a program of the same model, batch and passes, to be reused; NULL: build
} tri_program_request;

typedef struct tri_program {
    tri_arena *arena;
    tri_device_description device;
    tri_graph *graph;
    int64_t batch; // samples of the micro-batch
    bool training;
    const tri_kernel_def **kernels; // by node; NULL: a view, a collective, or of a block elsewhere
    tri_location *locations;        // by value
    bool *recomputed;               // by node: RECOMPUTE runs it again
    tri_segment (*segments)[TRI_PHASE_COUNT]; // by block
    tri_bundle *bundles;
    int bundle_count;
    int64_t scratch_bytes, workspace_bytes, input_bytes, result_bytes;
} tri_program;

// Builds and verifies the graph of `batch` samples: its inputs and the task's model. Runs no pass
// and needs no device, so that stages can be cut and a summary shown before anything is compiled.
// *out lives in `arena`. TRI_BAD_INPUT: an error of the model.
tri_status tri_model_build(tri_arena *arena, const tri_model_request *request, int64_t batch,
                           tri_graph **out);
// Builds the graph, rewrites it by the passes, and compiles it. Prepares no kernel, because that
// needs an open device: the engine does.
tri_status tri_program_create(tri_arena *parent, const tri_device_description *device,
                              const tri_program_request *request, tri_program **out);
void tri_program_destroy(tri_program *program); // NULL allowed

// Flops of one run of a block's segment, by which stages are cut and estimates made.
double tri_program_flops(const tri_program *program, int block, tri_phase phase);
// Lists the values that one stage makes and another reads, once for each stage that reads it,
// because each is a message of its own; `stages` is by block. Returns how many there are; *out
// lives in `arena`.
int tri_program_edge_values(tri_arena *arena, const tri_program *program, const int *stages,
                            tri_edge_value **out);

// Assigns a location to every value of a graph: fills locations, segments, bundles and sizes.
void tri_program_assign_locations(tri_program *program, const tri_program_request *request);

#endif
