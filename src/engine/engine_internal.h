// What the files of the engine share.
#ifndef TRIREME_ENGINE_ENGINE_INTERNAL_H
#define TRIREME_ENGINE_ENGINE_INTERNAL_H

#include "engine/engine.h"

// The pointers of one node's inputs and outputs, resolved once.
typedef struct engine_args {
    void *in[TRI_MAX_INPUTS], *out[TRI_MAX_OUTPUTS];
} engine_args;

// A program's nodes bound to memory; [1] has gradients in `round_gradients`, to be added
// afterwards.
typedef struct engine_binding {
    const tri_program *program;
    engine_args *args[2];
} engine_binding;

// One update of a stretch of one block.
typedef struct engine_update {
    tri_kernel kernel;
    engine_args args;
    int block;
} engine_update;

struct tri_engine {
    tri_arena *arena;
    const tri_plan *plan;
    tri_device *device;
    tri_comm *replicas;
    tri_comm *axes[TRI_AXIS_COUNT]; // along one axis of the mesh; NULL: no op asks for it
    tri_optimizer optimizer;
    // Device memory, F32, places of plan->flat.
    float *parameters, *gradients, *round_gradients, *states[TRI_MAX_OPTIMIZER_STATES];
    char *activations, *workspace, *inputs, *results;
    void *scalars[TRI_SCALAR_KIND_COUNT];
    engine_binding bindings[TRI_MAX_PROGRAMS];
    engine_update *updates;
    int update_count;
    tri_graph *update_graph;
    const char **reduce_labels; // by block
    tri_comm_ticket *tickets;   // by action of the running schedule
    int64_t *counters;          // by parameter: of those that are counters
    tri_engine_tensor *model_tensors, *optimizer_tensors;
    int model_tensor_count, optimizer_tensor_count;
    // Of the running step.
    const tri_step_input *input;
    const tri_step_plan *step;
    tri_step_output *output;
};

// Allocation and binding (memory.c), updates (update.c), NORM (norm.c).
tri_status engine_allocate(tri_engine *engine);
void engine_release(tri_engine *engine);
tri_status engine_bind(tri_engine *engine);
tri_status engine_make_updates(tri_engine *engine);
tri_status engine_norm(tri_engine *engine);
tri_status engine_sum_metrics(tri_engine *engine, double *extra);
void engine_list_tensors(tri_engine *engine);

// Runs a node with TRI_OP_COLLECTIVE on the communicator of its group (collective.c). Every rank of
// the group must come to it.
tri_status engine_run_collective(tri_engine *engine, const tri_program *program,
                                 const tri_node *node, void *const *in, void *const *out);
// The same on a communicator of as many ranks as the node has parts; memory of the host.
tri_status engine_collective(tri_comm *comm, const tri_graph *graph, const tri_node *node,
                             void *const *in, void *const *out);

#endif
