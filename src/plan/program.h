// A program: a model compiled for one size of micro-batch and one mode (training or evaluation),
// for one kind of device (tri_device_description). It has the graph, the choice of kernels, and the
// location of every value. It is read-only once it is made; any number of micro-batches run through
// it, several of them at a time.
//
// A block is a layer or a group of layers that is scheduled as one. A block's nodes in one phase
// (forward, backward, …) are a segment, which one action runs. RECOMPUTE is the action that runs a
// block's FORWARD again before BACKWARD, instead of keeping its activations.
#ifndef TRIREME_PLAN_PROGRAM_H
#define TRIREME_PLAN_PROGRAM_H

#include "device/device.h"
#include "pass/pass.h"

#include <trireme/task.h>

typedef struct tri_model_request {
    const tri_task *task;
    const tri_field *fields; // the named tensors of a sample, such as its image and label
    int field_count;
    // Fields that the samples of training had, and the data of a program for outputs do not. Where
    // the model cannot be built without them, inputs stand in for them: its losses and metrics,
    // which are dropped, may read them, but no output may.
    const tri_field *absent;
    int absent_count;
    tri_graph_options options; // options of the graph, `training` and `seed` included
    // How the device converts the bytes of the field `images` to F32. Images are then copied to the
    // device as U8, which takes a quarter of the bytes of F32. NULL: images arrive as F32.
    const tri_pixel_scale *image_scale;
} tri_model_request;

// Where a value lies while the program runs. The kind says how its address is found: some addresses
// are the same in every step, others change with the micro-batch. The comment of each kind says
// what `index` and `offset` of a tri_location are.
typedef enum tri_location_kind {
    TRI_LOCATION_NONE,    // lies nowhere: the value never has memory of its own
    TRI_LOCATION_SCRATCH, // offset into the scratch memory of the running tri_segment
    TRI_LOCATION_BUNDLE,  // index of the tri_bundle (values kept between segments), offset into it
    TRI_LOCATION_INPUT,   // offset into the inputs of the micro-batch
    // Offset into the results, which are pairs (sum, count) of losses and of metrics, and a few
    // numbers of others.
    TRI_LOCATION_RESULT,
    TRI_LOCATION_COUNTS,    // offset into the counts of metrics of the micro-batch
    TRI_LOCATION_PARAMETER, // index of the parameter
    TRI_LOCATION_GRADIENT,  // index of the parameter to whose gradient the value is added
    TRI_LOCATION_SCALAR,    // which scalar it is: a tri_scalar_kind
    TRI_LOCATION_CACHE,     // index of the cache (tri_program.caches)
} tri_location_kind;

typedef struct tri_location {
    tri_location_kind kind;
    int index;
    int64_t offset;
} tri_location;

// A bundle: values that are made and read by the same segments, and are kept from one segment to
// another. They share one buffer, which exists once for each micro-batch in flight. One buffer
// instead of many keeps the planning of memory small.
typedef struct tri_bundle {
    int64_t size_bytes;
    int own_block; // the only block whose nodes use the bundle's values; -1: several blocks do
} tri_bundle;

// A cache: a value that lives from call to call (TRI_OP_KEPT).
typedef struct tri_program_cache {
    const char *name;
    int block;
    int64_t row_bytes; // of one sequence
    int64_t length;    // the most tokens of a sequence
    int spans;         // index of the graph's input that has its spans; -1: they are no input
} tri_program_cache;

// Nodes first … end - 1 of the graph: those of one block in one phase, which one action runs.
typedef struct tri_segment {
    int first, end;
    int *bundles; // indices of the bundles (tri_bundle) that the segment reads or writes
    bool *writes; // writes[i]: the segment writes bundles[i]
    int bundle_count;
    bool reads_inputs;
    int64_t scratch_bytes; // scratch that the segment needs
} tri_segment;

// A value that one stage makes and another reads, so that it has to be sent.
typedef struct tri_edge_value {
    tri_value value;
    // The block that makes the value, and the first block of the reading stage that reads it.
    int from_block, to_block;
    int to_stage;
    bool back; // the value is made in the backward pass, and goes to an earlier stage
} tri_edge_value;

typedef struct tri_program_request {
    const tri_model_request *model;
    int64_t batch; // samples of the micro-batch
    // recompute[b]: FORWARD of block b runs again before BACKWARD; NULL: no block is recomputed.
    const bool *recompute;
    // blocks_here[b]: this rank runs block b and needs its kernels; NULL: all blocks.
    const bool *blocks_here;
    const int *stages; // stages[b]: the stage of the pipeline that runs block b; NULL: there is one
    // Kernels that can do so add the gradients that they compute directly to those of earlier
    // micro-batches. The numbers are then added in another order, and so rounded differently, than
    // if each micro-batch's gradients are first computed on their own and then added.
    bool adds_in_place;
    bool splits_backward; // the backward pass is divided into the phases BACKWARD and WEIGHT
    const tri_parameter_group *groups; // of parameters: see tri_graph_group
    int group_count;
    // The mesh whose ranks share layers (tensor parallelism); NULL: each layer is on one rank.
    const tri_mesh *mesh;
    int rank;
    tri_tensor_parallel_options tensor_parallel;
    // The graph of a program of the same model, batch and passes, which is used again; NULL: a new
    // graph is built.
    tri_graph *graph;
} tri_program_request;

typedef struct tri_program {
    tri_arena *arena;
    tri_device_description device;
    tri_graph *graph;
    int64_t batch; // samples of the micro-batch
    bool training;
    const tri_field *fields; // those for which it was made (tri_model_request)
    tri_program_cache *caches;
    int cache_count;
    // By node: its kernel; NULL: the node needs none, because it is a view, a collective op (which
    // the engine runs), or belongs to a block on another rank.
    const tri_kernel_def **kernels;
    // By node: bit k is set if output k is the gradient of a parameter, and the kernel can add it
    // directly to the gradient of earlier micro-batches.
    unsigned *adds;
    tri_location *locations;                  // by value
    bool *recomputed;                         // recomputed[i]: RECOMPUTE runs node i again
    tri_segment (*segments)[TRI_PHASE_COUNT]; // by block
    tri_bundle *bundles;
    int bundle_count;
    // Sizes of memory. scratch_bytes: values that only one segment uses, in the segment that needs
    // the most. workspace_bytes: what a kernel needs while it runs, for the kernel that needs the
    // most. input_bytes: the inputs of a micro-batch. result_bytes: the numbers of losses and
    // metrics of a micro-batch, and the counts of a micro-batch and of the step.
    int64_t scratch_bytes, workspace_bytes, input_bytes, result_bytes;
} tri_program;

// Builds and verifies the graph for `batch` samples: its inputs and the task's model. Runs no pass
// and needs no device, so that stages can be cut and a summary shown before anything is compiled.
// *out lives in `arena`. TRI_BAD_INPUT: the model has an error.
tri_status tri_model_build(tri_arena *arena, const tri_model_request *request, int64_t batch,
                           tri_graph **out);
// Builds the graph, rewrites it by the passes, and compiles it. It prepares no kernel: preparing
// needs an open device, so the engine does that.
tri_status tri_program_create(tri_arena *parent, const tri_device_description *device,
                              const tri_program_request *request, tri_program **out);
void tri_program_destroy(tri_program *program); // NULL allowed

// Counts the flops of one run of a block's segment, without those that are only repeated: what the
// model needs. Estimates and benchmarks use them.
double tri_program_flops(const tri_program *program, int block, tri_phase phase);
// Lists the values that one stage makes and another reads. A value that several stages read is
// listed once for each of them, because it is sent to each. stages[b] is the stage of block b.
// Returns how many values there are; *out lives in `arena`.
int tri_program_edge_values(tri_arena *arena, const tri_program *program, const int *stages,
                            tri_edge_value **out);

// Assigns a location to every value of a graph: fills locations, segments, bundles and sizes.
void tri_program_assign_locations(tri_program *program, const tri_program_request *request);

#endif
