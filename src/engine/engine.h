// The engine: holds one rank's memory and runs the schedules of its plan, on any device and any
// network. A plan is made for each rank before the run: it contains the kernels, the size and use
// of all memory, and the schedules. A schedule is the list of a rank's actions in a step: compute a
// block (a layer or a group of layers), gather or reduce parameters, and so on. The training loop
// (src/train) makes one engine for a run and calls it for every step. A step is one global batch:
// all its micro-batches forward and backward, then one update of the parameters; evaluation is done
// in steps too, which only run forward. The engine knows no strategy and no model, because the plan
// has turned both into actions and memory. So a new strategy or model needs no change here.
//
// A step is issued, and later collected. Issued: its work is handed to the device, which may run it
// later than the host. In flight: issued and not collected. Collected: done, and the host has read
// its results.
#ifndef TRIREME_ENGINE_ENGINE_H
#define TRIREME_ENGINE_ENGINE_H

#include "base/limits.h"
#include "comm/comm.h"
#include "nn/optimizer.h"
#include "ops/loss_scale.h"
#include "plan/plan.h"

typedef struct tri_engine tri_engine;

typedef struct tri_engine_config {
    const tri_plan *plan; // plan and device have to outlive the engine
    tri_device *device;   // must fit plan->device, the description by which the plan was made
    tri_comm *world; // a communicator over all ranks of the mesh; for one rank: tri_comm_self_open
    const tri_optimizer *optimizer; // copied, so it need not outlive the call
    // The rule of the loss scale, copied; NULL: the run has no loss scale.
    const tri_loss_scale_options *loss_scale;
    // Checks that all values that the forward and backward passes make are finite; with a loss
    // scale, only those of the forward pass. If one is not, the step fails with TRI_NOT_FINITE, and
    // the message names op, block and value.
    bool detect_anomaly;
} tri_engine_config;

// A micro-batch in the host's memory: one pointer for each field (a tensor of the samples, such as
// "images"), in the order of the fields in tri_model_request.
typedef struct tri_engine_batch {
    int64_t size; // number of samples
    const void *fields[TRI_MAX_DATA_FIELDS];
} tri_engine_batch;

// The carried numbers, which one step hands to the next, as the host has them: after the last
// collected step. The steps themselves read and change a copy in the device's memory, because a
// device that works asynchronously begins the next step before the host has read the results of the
// one before.
typedef struct tri_carried {
    // The loss scale with the counters of its rule. The loss, and so all gradients, are multiplied
    // by scale.scale; 0: there is no loss scale.
    tri_loss_scale scale;
    int64_t updates; // how many steps have changed the parameters
} tri_carried;

// The rows of one output of the model (graph->outputs) for a micro-batch, in plain layout.
typedef struct tri_output_rows {
    int output;          // index of the output
    int64_t first, size; // the micro-batch's first sample in the step, and its number of samples
    tri_dtype dtype;
    tri_shape shape; // [size, …]
    const void *data;
} tri_output_rows;

enum { TRI_MAX_CALLER_NUMBERS = 7 };

typedef struct tri_step_input {
    tri_step_shape shape;
    // Number of the step, from 0. It also counts steps that changed no parameter because a gradient
    // was not finite. Random numbers of dropout depend on it.
    int64_t step;
    // Learning rates of the next updates: if u updates were done up to the last collected step
    // (tri_carried.updates), lr[i] is the rate of the update after u + i others. The device picks
    // the rate, because the host does not know yet which steps in flight become updates.
    double lr[1 + TRI_MAX_STEPS_AHEAD];
    double clip; // the largest allowed norm of all gradients; 0: they are not clipped
    // How far the averages of the weights, if the optimizer keeps them, move towards the weights
    // after this step: 0 to 1. 1 begins them; before that they mean nothing.
    double average_weight;
    // Numbers whose meaning only the caller knows. The step sums them over all ranks, as it sums
    // losses.
    double caller_numbers[TRI_MAX_CALLER_NUMBERS];
    // Whether to cut this evaluation short: asked on each rank between the actions of blocks, until
    // it returns true. From then on this rank computes nothing more, but takes part in what the
    // ranks still exchange, so that no rank has to wait. The evaluation's sums are then wrong on
    // all ranks. They learn of it by caller_sums, to which `numbers`, as is_cancelled has set them,
    // are added in place of caller_numbers. NULL: the step runs to its end. Training steps and the
    // search for anomalies do not ask.
    bool (*is_cancelled)(void *context, double numbers[TRI_MAX_CALLER_NUMBERS]);
    // Gets the next micro-batch of this rank's replica. It stays valid until it is released.
    tri_status (*next)(void *context, tri_engine_batch *out);
    // Called when the oldest micro-batch that `next` has given is no longer read, so that the
    // loader may reuse its memory. NULL: the caller does not need to know. At most
    // TRI_TAKEN_BATCHES micro-batches are read at the same time.
    void (*release)(void *context);
    // Shows the micro-batch that `next` will give after `ahead` others (0: the very next one),
    // without taking it; valid until `next` has given it. The engine calls this only if it has to
    // count the labels of the step before the step begins (TRI_COUNT_AHEAD); else it may be NULL.
    tri_status (*look)(void *context, int64_t ahead, tri_engine_batch *out);
    void *context;
    // Takes the rows of an output of the model, on the rank that hands them over: each row on one
    // rank. They are valid during the call. The program has outputs only if it was planned for them
    // (tri_graph_options.predicts). NULL: the caller needs none.
    tri_status (*output)(void *context, const tri_output_rows *rows);
} tri_step_input;

typedef struct tri_step_output {
    // By metric of the graph (0 is the loss), over all replicas: the sum, and the count by which
    // the sum is divided to get the mean.
    double sum[TRI_MAX_METRICS], count[TRI_MAX_METRICS];
    // By metric: all its numbers, from which tri_metric_finish computes it; they are there until
    // the next step is issued. The loss of a weighted sum has none.
    const double *numbers[TRI_MAX_METRICS];
    double caller_sums[TRI_MAX_CALLER_NUMBERS]; // tri_step_input.caller_numbers, summed
    // The members below are filled in by training only.
    double gradient_norm; // norm of the mean gradient, before clipping
    double lr;            // the learning rate that was used
    bool is_empty;        // all labels are ignored: no parameter was changed
    bool overflowed; // a gradient was not finite: no parameter was changed; only with a loss scale
    // As `overflowed`, but the loss scale was the smallest already: training cannot go on.
    bool exhausted;
    tri_carried carried; // loss scale and count of updates after the step
} tri_step_output;

// Prepares the kernels that the plan has chosen, allocates all memory, and splits the communicator
// `world` into those of the plan's groups of ranks. Collective. Parameters are zero until they are
// initialised or loaded.
tri_status tri_engine_create(const tri_engine_config *config, tri_engine **out);
void tri_engine_destroy(tri_engine *engine); // NULL allowed
// Sets initial weights. They depend only on the seed, the parameter's name and the element, so that
// they are the same on any number of ranks. TRI_NO_MEMORY, and errors of storage if parameters are
// offloaded.
tri_status tri_engine_initialize(tri_engine *engine, uint64_t seed);
// Sets the carried numbers (loss scale, count of updates) that the next step uses: when a run
// begins, because a new engine has zeros, and when it continues from a checkpoint, which stores
// them.
tri_status tri_engine_carry(tri_engine *engine, const tri_carried *carried);
// Issues a step, which runs after all steps issued before. Collective. It may return before the
// step is done. When it is called, up to tri_engine_steps_ahead steps may be in flight already, so
// that the device has work while the host reads results. (That number is 0 on a device whose work
// is done when a call returns.) The input is only used during the call. Its micro-batches may be
// read until they are released or the step is collected. While a step is in flight, the training
// state must be neither read nor written, because the step changes it.
tri_status tri_engine_issue(tri_engine *engine, const tri_step_input *input);
int tri_engine_steps_ahead(const tri_engine *engine);
// From now on values are checked as with tri_engine_config.detect_anomaly. No step may be in
// flight.
void tri_engine_detect_anomaly(tri_engine *engine);
// Waits for the oldest step in flight. Collective. TRI_NOT_FINITE: the loss or, without a loss
// scale, the gradients are not finite; the message names the loss, or the first parameter whose
// gradient is not finite. *out has the step's sums and numbers then too. Parameters are then as
// they were before that step, even if more steps were issued after it: the device makes these steps
// change nothing, and they are no longer in flight.
tri_status tri_engine_collect(tri_engine *engine, tri_step_output *out);
// Issues one step and collects it. No other step may be in flight.
tri_status tri_engine_step(tri_engine *engine, const tri_step_input *input, tri_step_output *out);
// Ends all work of an engine that will not be used again, after a failure. It stops the
// communicators, because other ranks may never join the operations in flight, and waits for the
// device's queues, so that the caller may free the loader's micro-batches. The failure's message is
// kept. After this only tri_engine_destroy may be called. TRI_NOT_FINITE of tri_engine_collect
// leaves the engine usable: to continue after it, call tri_engine_release_batches instead. Not
// collective.
void tri_engine_abandon(tri_engine *engine);

// Moves the rows of all caches between steps: row i of each cache becomes what row from[i] was, as
// a search over several continuations of a text needs it. There is a row for each of the `rows`
// sequences of this replica, in the order of its micro-batches. Not collective. TRI_NO_MEMORY.
tri_status tri_engine_move_caches(tri_engine *engine, const int64_t *from, int64_t rows);

// Waits until the device has read all micro-batches that it took, and releases them, so that the
// caller may free their memory. To be called after a step that succeeded or ended with
// TRI_NOT_FINITE. After any other failure call tri_engine_abandon instead, because the work that
// reads the micro-batches may never end by itself.
tri_status tri_engine_release_batches(tri_engine *engine);

// Stands for the parameter itself, in place of the number of an optimizer state.
enum { TRI_STATE_MASTERS = -1 };

// A tensor of the training state by name, for checkpoints. There are two lists: the model's tensors
// (all parameters, in the graph's order) and the optimizer's (for each of its states, all trained
// parameters). Both lists are the same on every rank, so that ranks agree on files and take part in
// the same fetches.
typedef struct tri_engine_tensor {
    const char *name; // "conv1.weight", "conv1.weight.exp_avg"; lives as long as the engine
    tri_dtype dtype;  // in files
    // The type of the elements that are read and written here: that of the file or, of a parameter
    // that kernels read in a half type, this type, if nothing is trained.
    tri_dtype kept;
    tri_shape shape;
    tri_parameter_role role;
    int parameter;
    int state;         // index of the optimizer state; TRI_STATE_MASTERS: the parameter itself
    const char *alias; // another name of a tied parameter in files; NULL: none
    bool is_adapter;   // see tri_lora
} tri_engine_tensor;

int tri_engine_model_tensors(const tri_engine *engine, const tri_engine_tensor **out);
int tri_engine_optimizer_tensors(const tri_engine *engine, const tri_engine_tensor **out);
// The model's tensors with the averages in place of the parameters that are trained; 0: the
// optimizer keeps no averages.
int tri_engine_average_tensors(const tri_engine *engine, const tri_engine_tensor **out);
// Exchanges the trained parameters and their averages, in place and bit for bit, between steps: an
// evaluation between two exchanges uses the averages. A step that trains or a save between them
// would take the one for the other. On a device whose memory the host cannot use, or with offloaded
// state, they pass through the host's memory. TRI_NO_MEMORY, and errors of storage.
tri_status tri_engine_exchange_averages(tri_engine *engine);
// How many ranks have to take part in fetching the tensor, because each may hold only some of its
// elements. *index is this rank's number among them; -1: it does not take part.
int tri_engine_holders(const tri_engine *engine, const tri_engine_tensor *tensor, int *index);
// Makes the full tensor readable by tri_engine_read, until the next fetch, write or step.
// Collective over its holders, which must fetch the same tensors in the same order, because the
// elements travel between them.
tri_status tri_engine_fetch(tri_engine *engine, const tri_engine_tensor *tensor);
// Copies elements first … first + count - 1, in row-major order and the type `kept`, of the tensor
// that was fetched.
void tri_engine_read(const tri_engine *engine, const tri_engine_tensor *tensor, int64_t first,
                     int64_t count, void *to);
// Finds the next run of elements, from element `at` on, that this rank holds and therefore needs
// when a checkpoint is loaded. Returns its first element; *count: its length, 0: there is none.
int64_t tri_engine_next_held(const tri_engine *engine, const tri_engine_tensor *tensor, int64_t at,
                             int64_t *count);
// Sets elements first … first + count - 1 in row-major order, from the type `kept`. Elements that
// this rank does not hold are ignored, so that every rank may be given the whole tensor. Not
// collective. TRI_NO_MEMORY, and errors of storage if the tensor is offloaded.
tri_status tri_engine_write(tri_engine *engine, const tri_engine_tensor *tensor, int64_t first,
                            int64_t count, const void *from);
// Lets kernels read the tensor, or this rank's slice of it, where it lies in a file, which has all
// of it in row-major order and the type `kept` from byte `offset` on. The file may be closed.
// *is_mapped is false if the tensor has to be written instead: something is trained, the device or
// another layout needs a copy, or the tensor is small. TRI_IO.
tri_status tri_engine_map(tri_engine *engine, const tri_engine_tensor *tensor, int fd,
                          int64_t offset, bool *is_mapped);
// Counts an update in batch norm's num_batches_tracked, a tensor in PyTorch's checkpoints that no
// kernel reads. It counts the updates of this run, and of the runs from which this run's weights
// come.
void tri_engine_count_update(tri_engine *engine);

#endif
