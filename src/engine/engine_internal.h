// What the files of the engine share.
#ifndef TRIREME_ENGINE_ENGINE_INTERNAL_H
#define TRIREME_ENGINE_ENGINE_INTERNAL_H

#include "engine/engine.h"
#include "engine/storage.h"

// The pointers of one node's inputs and outputs.
typedef struct engine_args {
    void *in[TRI_MAX_INPUTS], *out[TRI_MAX_OUTPUTS];
} engine_args;

// A kernel over elements from `first` of this rank's range of a unit's part: an update of STEP, or
// a cast of PREPARE.
typedef struct engine_update {
    tri_kernel kernel;
    int unit;
    tri_bucket_kind bucket;
    int64_t first;
    int states; // of the optimizer that it reads and writes
} engine_update;

typedef struct engine_updates {
    engine_update *items; // unit by unit
    int count;
    int *first;       // by unit, and behind the last
    tri_graph *graph; // of the nodes they compute
    // Where everything lies now.
    engine_args (*args)(const tri_engine *engine, const engine_update *update);
} engine_updates;

// Elements between the parameters of a part, which no kernel writes.
typedef struct engine_gap {
    int unit;
    tri_bucket_kind bucket;
    int64_t first, count;
} engine_gap;

// What was started on a lane and is waited for later.
typedef struct engine_ticket {
    tri_status (*wait)(void *lane, uint64_t number); // NULL: nothing under way
    void *lane;                                      // a communicator, the storage
    uint64_t number;
} engine_ticket;

struct tri_engine {
    tri_arena *arena;
    const tri_plan *plan;
    tri_device *device;
    tri_optimizer optimizer;
    // Communicators: of all ranks; of those that share one state; of those that hold copies of it;
    // of the stages, one for each direction; of the parts of single operations; of all replicas.
    tri_comm *world, *shards, *copies, *along, *back, *tensor_parallel, *replicas;
    tri_comm **ties;       // by unit that several stages hold: those of them that do
    tri_comm *memory_comm; // whose memory is reduced fastest
    tri_storage *storage;  // NULL: everything stays in memory

    // Memory of the device. Parameters that are computed with as they are stored: whole, or this
    // rank's ranges where GATHER brings the rest. Of the others, this rank's ranges as stored, and
    // in the type of computation whole, or this rank's ranges.
    float *stored, *masters;
    char *half_parameters;
    float *gradients, *own_gradients; // whole; where they are scattered, this rank's ranges
    float *round_gradients;           // to be added to others
    float *states;                    // by unit and part, one state behind the other
    char *heaps[TRI_HEAP_COUNT], *scratch, *workspace, *results;
    void *scalars[TRI_SCALAR_KIND_COUNT];
    char **slots; // by slot: where it lies now

    engine_updates updates, casts;
    bool is_stale;    // parameters were written since they were last cast
    engine_gap *gaps; // part by part of unit by unit
    int gap_count;
    int *first_gap;               // by unit and part, and behind the last
    uint64_t *gradient_unit_bits; // by block: bit k: its passes make a gradient of its k-th unit
    const char **unit_labels[TRI_ACTION_KIND_COUNT]; // by unit, for communicators
    const char *edge_labels[TRI_ACTION_KIND_COUNT];
    engine_ticket *tickets; // by action of the running schedule
    tri_comm_op *ops;       // of the action that is being started
    int most_ops;
    int64_t *counters; // by parameter: of those that are counters
    tri_engine_tensor *model_tensors, *optimizer_tensors;
    int model_tensor_count, optimizer_tensor_count;
    // A whole part of a unit, or of one of its states, outside the running step.
    float *staging;
    int64_t staging_elements;
    int staged_unit, staged_bucket, staged_state; // unit -1: nothing
    bool staged_is_new;                           // written, but not yet in its place
    float *joined; // the tensor fetched last, where the ranks along `tensor` divide it
    int64_t joined_elements;
    // Of the running step.
    const tri_step_input *input;
    const tri_step_plan *step;
    tri_step_output *output;
    double *round_sums; // by round and metric: (sum, count)
    bool detects_anomaly;
    char anomaly[TRI_MESSAGE_MAX_BYTES]; // what was not finite; "": nothing
    double *fold;                        // of NORM
    int64_t fold_count;
};

// Places of a unit's part: its range of the masters, its range of the gradients that STEP reads,
// its range of a state; and what GATHER sends. Masters and states that move have one from FETCH or
// LOAD on.
float *engine_master(const tri_engine *engine, int unit, tri_bucket_kind bucket);
float *engine_own_gradients(const tri_engine *engine, int unit, tri_bucket_kind bucket);
float *engine_state(const tri_engine *engine, int state, int unit, tri_bucket_kind bucket);
void *engine_own(const tri_engine *engine, int unit, tri_bucket_kind bucket);
// Whether they move: state -1 is the masters.
bool engine_is_offloaded(const tri_engine *engine, tri_bucket_kind bucket, int state);
// Copies this rank's range of the masters (state -1) or of a state, wherever it lies between steps,
// to the host's memory or from it.
tri_status engine_read_own(tri_engine *engine, int unit, tri_bucket_kind bucket, int state,
                           float *to);
tri_status engine_write_own(tri_engine *engine, int unit, tri_bucket_kind bucket, int state,
                            const float *from);
tri_dtype engine_bucket_dtype(const tri_engine *engine, tri_bucket_kind bucket);

tri_status engine_make_groups(tri_engine *engine, tri_comm *world); // groups.c
void engine_close_groups(tri_engine *engine);
tri_status engine_allocate(tri_engine *engine); // memory.c
void engine_release(tri_engine *engine);
void engine_find_gaps(tri_engine *engine);
tri_status engine_make_updates(tri_engine *engine); // update.c
tri_status engine_run_updates(tri_engine *engine, const engine_updates *updates, int unit);
void engine_release_updates(engine_updates *updates);
// anomaly.c: looks at what a node reads and has made; fails on all ranks if one has found
// something.
tri_status engine_look_for_anomaly(tri_engine *engine, const tri_graph *graph, const tri_node *node,
                                   void *const *in, void *const *out);
tri_status engine_agree_on_anomaly(tri_engine *engine);
tri_status engine_norm(tri_engine *engine); // norm.c
tri_status engine_sum_metrics(tri_engine *engine);
tri_status engine_sum_over_ranks(tri_engine *engine, const char *label, double *values,
                                 int64_t count);
// terms.c: what gradients of losses begin with, before the step; what the sum of the losses is, and
// what gradients are yet to be multiplied by, behind NORM's sums.
tri_status engine_write_seeds(tri_engine *engine);
void engine_sum_terms(tri_engine *engine);
double engine_gradient_scale(const tri_engine *engine);
void engine_list_tensors(tri_engine *engine); // state.c
tri_status engine_keep_writes(tri_engine *engine);

// Runs a node with TRI_OP_COLLECTIVE on the communicator of its group (collective.c). Every rank of
// the group must come to it.
tri_status engine_run_collective(tri_engine *engine, const tri_program *program,
                                 const tri_node *node, void *const *in, void *const *out);
// The same on a communicator of as many ranks as the node has parts; memory of the host.
tri_status engine_collective(tri_comm *comm, const tri_graph *graph, const tri_node *node,
                             void *const *in, void *const *out);

tri_status engine_open_storage(tri_engine *engine, tri_ledger *ledger); // offload.c
// Brings the unit's masters that move to `staging`, for casts outside a step.
tri_status engine_bring_masters(tri_engine *engine, int unit);
// FETCH, LOAD, EVICT: starts the action's transfers.
tri_status engine_start_storage(tri_engine *engine, const tri_action *action,
                                engine_ticket *ticket);
float *engine_staging(tri_engine *engine, int64_t elements); // state.c: at least so many

// compute.c: FORWARD, RECOMPUTE and the kinds of BACKWARD.
void engine_find_makers(tri_engine *engine);
tri_status engine_run_compute(tri_engine *engine, const tri_action *action);
// communicate.c: room for what communicators do, and starting the action's operations.
void engine_size_communication(tri_engine *engine);
tri_status engine_start_communication(tri_engine *engine, const tri_action *action,
                                      engine_ticket *ticket);

#endif
