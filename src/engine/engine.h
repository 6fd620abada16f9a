// The engine: holds one rank's memory and runs the schedules of a plan on any device and any
// network. It knows no strategy and no model, because the plan has turned both into actions and
// memory: a new strategy or model needs no change here.
#ifndef TRIREME_ENGINE_ENGINE_H
#define TRIREME_ENGINE_ENGINE_H

#include "base/limits.h"
#include "comm/comm.h"
#include "nn/optimizer.h"
#include "ops/loss_scale.h"
#include "plan/plan.h"

typedef struct tri_engine tri_engine;

typedef struct tri_engine_config {
    const tri_plan *plan;           // both outlive the engine
    tri_device *device;             // as plan->device describes it
    tri_comm *world;                // of all ranks of the mesh; one rank: tri_comm_self_open
    const tri_optimizer *optimizer; // copied
    const tri_loss_scale_options *loss_scale; // the rule, copied; NULL: no scale is ever carried
    // Check all that compute actions make: TRI_NOT_FINITE names op, block and value.
    bool detect_anomaly;
} tri_engine_config;

// A micro-batch in the host's memory: one pointer per field, in the order in which the model's
// request names the fields.
typedef struct tri_engine_batch {
    int64_t size;
    const void *fields[TRI_MAX_DATA_FIELDS];
} tri_engine_batch;

// What one step hands to the next. It lies in the device's memory, where each step changes it
// (TRI_CARRIED_UPDATES and others), because a device that runs ahead begins the next step before
// the host has read the last one. The host has what the last collected step left: the engine's
// copy, and the caller's tri_progress. The host tells the device with which update the learning
// rates of the input begin (TRI_CONTROL_UPDATES).
typedef struct tri_carried {
    tri_loss_scale scale; // gradients travel multiplied by it; scale.scale 0: as they are
    int64_t updates;      // steps that changed the parameters
} tri_carried;

enum { TRI_MAX_SHARED = 5 };

typedef struct tri_step_input {
    tri_step_shape shape;
    int64_t step; // number of the step, also if earlier ones were no updates; dropout draws by it
    // Learning rates: lr[0] of the first update after those that the last collected results
    // counted, and lr[1] and so on of the updates after it. The step picks its own on the device,
    // because the host does not know yet which steps in flight become updates.
    double lr[1 + TRI_MAX_STEPS_AHEAD];
    double clip;                   // largest norm of all gradients; 0: no clipping
    double shared[TRI_MAX_SHARED]; // the caller's own numbers, summed over all ranks on the way
    // The next micro-batch of this rank's replica, in the order of its rounds; valid until it is
    // released.
    tri_status (*next)(void *context, tri_engine_batch *out);
    // Called when the oldest micro-batch that `next` gave is no longer read, so that the loader may
    // fill its memory again. NULL: the caller does not need to know. At most TRI_TAKEN_BATCHES are
    // read at once.
    void (*release)(void *context);
    // Shows the micro-batch that `next` will give after `ahead` others (0: the very next one), and
    // does not take it; valid until `next` has given it. Called only if labels are counted ahead of
    // the step (TRI_COUNT_AHEAD), because their count then divides the loss; else it may be NULL.
    tri_status (*look)(void *context, int64_t ahead, tri_engine_batch *out);
    void *context;
} tri_step_input;

typedef struct tri_step_output {
    double sum[TRI_MAX_METRICS],
        count[TRI_MAX_METRICS]; // over all replicas, in the order of the graph's metrics
    double shared[TRI_MAX_SHARED];
    // Of training only:
    double gradient_norm; // of the mean gradient, before clipping
    double lr;            // the one that was used
    bool overflowed;      // with a loss scale: a gradient was not finite, nothing was changed
    bool exhausted;       // the same at the smallest scale: training cannot go on
    tri_carried carried;  // after the step
} tri_step_output;

// Prepares the kernels that the plan chose, allocates everything and splits the world into the
// groups of the plan. Collective. Parameters are zero until initialised or loaded.
tri_status tri_engine_create(const tri_engine_config *config, tri_engine **out);
void tri_engine_destroy(tri_engine *engine); // NULL allowed
// Sets initial weights. They depend on the seed, the parameter's name and the element only, so that
// they are the same on any number of ranks. TRI_NO_MEMORY, and errors of the storage where
// parameters are offloaded.
tri_status tri_engine_initialize(tri_engine *engine, uint64_t seed);
// Sets the carried numbers that the next step finds. Called when a run begins, because those of a
// new engine are zero, and when it continues from a checkpoint, which stores them.
tri_status tri_engine_carry(tri_engine *engine, const tri_carried *carried);
// Issues a step, which may go on behind the call, after all that were issued before. Collective. Up
// to tri_engine_steps_ahead steps may be in flight already, so that the device has work while the
// host reads results: 0 on a device whose work is done when a call returns. The input is only used
// during the call; micro-batches stay in use until later ones are taken or the step's results were
// collected. While a step is in flight, the state must neither be read nor written, because the
// step changes it.
tri_status tri_engine_issue(tri_engine *engine, const tri_step_input *input);
int tri_engine_steps_ahead(const tri_engine *engine);
// Waits for the oldest step in flight. Collective. TRI_NOT_FINITE names the loss or the first
// parameter whose gradient is not finite (without a loss scale); parameters are then as they were
// before that step. This also holds where more steps were issued behind it: the device makes them
// change nothing, and they are in flight no longer.
tri_status tri_engine_collect(tri_engine *engine, tri_step_output *out);
// Issues one step and collects it. No other step may be in flight.
tri_status tri_engine_step(tri_engine *engine, const tri_step_input *input, tri_step_output *out);
// Ends all work after a failure other than TRI_NOT_FINITE: stops the communicators, because other
// ranks may never join what is in flight, and waits for the device's queues, so that the caller may
// free the loader's micro-batches. Keeps the failure's message. Only tri_engine_destroy may follow.
// Not collective.
void tri_engine_abandon(tri_engine *engine);

// Waits until no micro-batch is read any more, and releases them all, so that the caller may free
// their memory. Called after a step that succeeded or ended with TRI_NOT_FINITE; after any other
// failure call tri_engine_abandon, because the work that reads them may never end by itself.
tri_status tri_engine_release_batches(tri_engine *engine);

enum { TRI_STATE_MASTERS = -1 }; // no optimizer state: the parameter itself

// A tensor of the training state by name, for checkpoints. There is a list of the model's tensors
// (all parameters, in the graph's order) and one of the optimizer's (for each of its states, all
// trained parameters). The lists are the same on every rank, so that ranks agree on files and take
// part in the same fetches.
typedef struct tri_engine_tensor {
    const char *name; // "conv1.weight", "conv1.weight.exp_avg"; lives as long as the engine
    tri_dtype dtype;
    tri_shape shape;
    tri_parameter_role role;
    int parameter;
    int state; // of the optimizer; TRI_STATE_MASTERS: the parameter itself
} tri_engine_tensor;

int tri_engine_model_tensors(const tri_engine *engine, const tri_engine_tensor **out);
int tri_engine_optimizer_tensors(const tri_engine *engine, const tri_engine_tensor **out);
// How many ranks have to take part in fetching the tensor, because each may hold only a part of its
// elements; *index is this rank's number among them, -1: it is none of them.
int tri_engine_holders(const tri_engine *engine, const tri_engine_tensor *tensor, int *index);
// Makes the full tensor readable by tri_engine_read until the next fetch, write or step. Collective
// over its holders, which fetch the same tensors in the same order, because the elements travel
// between them.
tri_status tri_engine_fetch(tri_engine *engine, const tri_engine_tensor *tensor);
// Copies elements first … first + count - 1 in row-major order of a tensor that was fetched.
void tri_engine_read(const tri_engine *engine, const tri_engine_tensor *tensor, int64_t first,
                     int64_t count, void *to);
// Whether this rank holds any element of the tensor, and so has to be given it when a checkpoint is
// loaded.
bool tri_engine_wants(const tri_engine *engine, const tri_engine_tensor *tensor);
// Sets elements first … first + count - 1 in row-major order. Elements that this rank does not hold
// are ignored, so that all ranks may be given the whole tensor. Not collective. TRI_NO_MEMORY, and
// errors of the storage where the tensor is offloaded.
tri_status tri_engine_write(tri_engine *engine, const tri_engine_tensor *tensor, int64_t first,
                            int64_t count, const void *from);
// Counts an update in batch norm's num_batches_tracked, a tensor of PyTorch's checkpoints that no
// kernel reads: the number of updates of this run, and of the runs whose weights it began with.
void tri_engine_count_update(tri_engine *engine);

#endif
