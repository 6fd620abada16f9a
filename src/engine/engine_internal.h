// What the files of the engine share: its state, and the functions of each file that others call.
// Terms of the plan that all these files use:
//
// - A rank's schedule is its list of actions in a step (FORWARD of a block, GATHER of a unit, …).
//   A lane starts its actions in the order of the list, beside the other lanes; all lanes but ALONG
//   and BACK also finish them in that order. The compute lane is a queue of the device; other lanes
//   are communicators, storage and copies. A ticket stands for work that was started and is waited
//   for later. The ledger is the rank's record of its actions.
// - A block is a layer or a group of layers that is scheduled as one. A unit is parameters that are
//   gathered, reduced and updated together: those that only one block reads, or one parameter that
//   several blocks read. A bucket is the part of a unit whose parameters have one role (trained,
//   frozen, statistic of batch norm), one type and one placement; it is contiguous. Where ranks
//   shard the state, "this rank's range" of a bucket is this rank's shard; else it is all of it.
// - Masters are parameters in F32, as the optimizer keeps them; kernels may read a copy in a half
//   type (BF16 or F16). Statistics are the running averages of batch norm.
// - A program is the model's graph, compiled for one size of micro-batch and for training or
//   evaluation. A round is the number of a micro-batch in the step.
// - A heap is memory in which buffers lie only during a part of a step. A slot is the entry of a
//   table that says where a buffer lies now.
// - A flight is a step in flight: issued, its results not yet read by the host.
// - NORM is the action that sums the losses and the squares of gradients over all ranks. From them
//   it makes the step scalars, numbers that the update reads (learning rate, factor of gradients).
#ifndef TRIREME_ENGINE_ENGINE_INTERNAL_H
#define TRIREME_ENGINE_ENGINE_INTERNAL_H

#include "base/ticket.h"
#include "device/queue.h"
#include "engine/counts.h"
#include "engine/engine.h"
#include "engine/handover.h"
#include "engine/storage.h"

// The pointers of one node's inputs and outputs, collected for one call of its kernel.
typedef struct engine_args {
    void *in[TRI_MAX_INPUTS], *out[TRI_MAX_OUTPUTS];
} engine_args;

// A range kernel handles many parameters at once: it runs over this rank's range of a bucket, in
// which parameters lie one after the other, from element `first` of that range on. It is a kernel
// of the action STEP (the optimizer), a cast of the action PREPARE (to the half type that kernels
// read), a sum of squares, or a finder, which looks for numbers that are not finite.
typedef struct engine_range_kernel {
    tri_kernel kernel;
    int unit;
    tri_bucket_kind bucket;
    int64_t first;
    int states;    // number of optimizer states that the kernel reads and writes
    bool averages; // the kernel adds the parameters to their averages (the op average_weights)
    // Of a kernel that sums squares: the index in numbers.squares of the first sum that it writes.
    // Of a finder, which searches one range for each parameter of its bucket: the number of the
    // first of these ranges, counted from 0 over all ranges in numbers.ranges.
    int64_t at;
} engine_range_kernel;

typedef struct engine_range_kernels {
    engine_range_kernel *items; // sorted by unit
    int count;
    // By unit (parameters that are updated together): index of its first item; one more entry at
    // the end holds the number of items.
    int *first;
    tri_graph *graph; // the graph to which the kernels' nodes belong
    tri_queue *queue; // the queue that runs the kernels; they are made for its device
    // Collects the pointers for a kernel before each call, because its operands may have other
    // addresses in every step.
    engine_args (*args)(const tri_engine *engine, const engine_range_kernel *range);
} engine_range_kernels;

// A gap: elements of a bucket that are padding, between two parameters or after the last one. No
// kernel writes gradients there. So the engine sets the gaps to zero, because reductions and the
// norm cover the whole bucket. `first` is counted from the beginning of the bucket.
typedef struct engine_gap {
    int unit;
    tri_bucket_kind bucket;
    int64_t first, count;
} engine_gap;

// Communicators of this rank's groups of ranks. There are two such sets: control communicators
// carry what lies in the host's memory, data communicators what lies in the device's. If a control
// communicator can use the device's memory itself and has all abilities that actions need, no
// second one is opened: both sets then have the same communicator.
typedef struct engine_groups {
    tri_comm *world;     // all ranks
    tri_comm *shards;    // the ranks that divide one copy of the training state
    tri_comm *replicate; // the ranks that hold copies of this rank's shards
    // The stages of this rank's pipeline, with one communicator for each direction.
    tri_comm *along, *back;
    tri_comm *tensor_parallel; // the ranks that share each layer with this rank
    // This rank and those that do the same work on other micro-batches: they have the same stage,
    // and the same slices of parameters.
    tri_comm *replicas;
    // By unit (parameters that are reduced together): connects the ranks whose stages hold the
    // unit; NULL: only one stage holds it.
    tri_comm **ties;
    // One of the communicators above: it allocates the memory from which ranks send and to which
    // they receive (see memory.c).
    tri_comm *memory;
} engine_groups;

// Memory of the device, allocated once, so that no step allocates. If ranks shard parameters
// (fsdp), `stored` and `half_parameters` hold only this rank's ranges, and GATHER puts whole
// parameters into heaps[TRI_HEAP_STATE]. A unit is parameters that are gathered together.
typedef struct engine_memory {
    float *stored; // parameters that kernels read in F32
    // This rank's ranges, in F32, of the parameters that kernels read in a half type.
    float *masters;
    char *half_parameters; // the same parameters in the half type
    // Whole gradients; NULL if the plan puts them into `heaps`, because they need memory only from
    // BACKWARD to SCATTER or to the end of the step (see tri_step_memory_request).
    float *gradients;
    // The gradients of this rank's own ranges, summed over the micro-batches, if SCATTER (the
    // reduce-scatter of gradients) follows every micro-batch; else NULL.
    float *own_gradients;
    // Room for the gradients of one compute action. Kernels that cannot add their gradients to
    // earlier ones write them here, and the engine adds them after the action
    // (plan/round_gradients.c).
    float *round_gradients;
    float *states; // optimizer states: sorted by unit, then by bucket, then by state
    char *heaps[TRI_HEAP_COUNT], *scratch, *workspace, *caches;
    // The two heaps TRI_HEAP_INPUTS, for micro-batches that are copied ahead. Steps use them in
    // turn; `heaps` has the one of the step that is being issued.
    char *inputs[2];
    void *scalars[TRI_SCALAR_KIND_COUNT];
    // The table of the buffers' present addresses, in the host's memory. It has an entry (slot) for
    // each buffer (see step_memory.h). The operands of kernels are looked up here.
    char **slots;
    struct engine_mapped *mapped; // by parameter: see kept.h
} engine_memory;

// The numbers of a step that all ranks need (loss, metrics, squares of gradients): F64 in the
// device's memory. See numbers.c.
typedef struct engine_numbers {
    // Rows of results (loss and metrics), one for each micro-batch. The same memory continues
    // behind the rows: with `caller_numbers` and then `squares` in a deterministic run, else with
    // `squares` only.
    double *result_rows;
    // The caller's numbers (tri_step_input.caller_numbers), and this rank's sums of squares of
    // gradients. In a deterministic run (the same bits on any number of ranks) the ranks exchange
    // the rows and all that lies behind them, and each rank adds them in the same order. In any
    // other run each rank first adds up its own rows, and the ranks exchange only `sums`; in such a
    // run `caller_numbers` points into `sums`.
    double *caller_numbers, *squares;
    // The results of a step, which lie one after the other so that one copy brings them to the
    // host: a row of sums over the step, room for `caller_numbers`, the sum of squares (from index
    // total_at on), the step scalars (scalars_at), the carried numbers (tri_carried; carried_at),
    // and one number for each finder (found_at): in which range it found a gradient that is not
    // finite.
    double *sums;
    int64_t total_at, scalars_at, carried_at, found_at, result_count;
    double *carried; // the carried numbers in `sums`, from carried_at on
    // Input of the op step_numbers, which makes step scalars and carried numbers from the sums. It
    // contains the learning rates, the limit of the norm, the step's numbers of samples and of
    // labels, and the number of updates so far (TRI_CONTROL_…).
    double *control;
    // Input of the op loss_seeds: a pair (weight, count) for the loss as a whole, then one for each
    // loss of a weighted sum. The gradient of each loss is multiplied by its weight and divided by
    // its count before BACKWARD adds it to the others (see terms.c).
    double *losses;
    float *seeds;         // output of loss_seeds: losses' gradients, with which BACKWARD begins
    int64_t width;        // how many numbers a row of `result_rows` has
    int64_t capacity;     // how many numbers `result_rows` has room for
    int64_t square_count; // how many numbers `squares` has
    // The ranges of gradients that the finders (engine_make_finders) search for numbers that are
    // not finite. Of each range, one after the other: its first element, and the element after its
    // last one, both counted from the beginning of this rank's range of the bucket.
    int64_t *ranges;
    // By range: the parameter to whose gradient the range belongs; in the host's memory.
    int *parameters;
    tri_graph *graph; // the graph to which the nodes of the kernels below belong
    tri_kernel sum_rows[TRI_STEP_SHAPE_COUNT], sum_squares, make_step, make_seeds;
} engine_numbers;

typedef struct engine_gaps {
    engine_gap *items; // sorted by unit (parameters reduced together), then by bucket
    int count;
    // first[unit × TRI_BUCKET_COUNT + bucket]: the index in `items` of the first item of this unit
    // and bucket; a last entry holds the number of items.
    int *first;
} engine_gaps;

// Names of actions, for communicators and the ledger (the record of this rank's actions). They are
// made once, because communicators and the ledger keep pointers to them.
typedef struct engine_labels {
    // subjects[kind][i]: the name of an action of this kind on block i or on unit i (the parameters
    // of block i, or a tied parameter); NULL: actions of this kind are on neither.
    const char **subjects[TRI_ACTION_KIND_COUNT];
    // kinds[kind]: the kind's name alone, such as "SEND". SEND and RECV use it, because they belong
    // to an edge (values that one pipeline stage sends to another), which has no name.
    const char *kinds[TRI_ACTION_KIND_COUNT];
} engine_labels;

// The tensors of the training state, with the names that they have in checkpoints.
typedef struct engine_tensors {
    tri_engine_tensor *model, *optimizer, *average;
    int model_count, optimizer_count, average_count;
    // By parameter: its value, if it is a counter (num_batches_tracked of a batch norm).
    int64_t *counters;
} engine_tensors;

// Host memory through which checkpoints and initial weights pass, outside of steps. It is needed
// because a rank may hold only a range of a bucket (parameters that are reduced together), or may
// hold the bucket in memory that the host cannot read.
typedef struct engine_staging {
    // Room for the parameters or one optimizer state of a whole bucket. `memory` lies in a heap of
    // the device, which is empty between steps, if the host can use it and it is large enough. Else
    // it is `own`, which is allocated for it.
    float *memory, *own; // in the type that engine_kept_dtype returns
    int64_t own_elements;
    int unit, bucket, state; // which bucket and state `memory` holds at present; unit -1: none
    bool is_new;             // `memory` was changed and not yet copied to where it belongs
    // The slices of the last fetched tensor: those of all tensor-parallel ranks, one after the
    // other.
    float *joined; // in the type `kept`
    int64_t joined_elements;
    // Room in device memory for the masters of one unit (parameters that are gathered together),
    // if the host cannot use the device's memory; else `memory` holds them.
    float *masters;
    int64_t masters_elements;
} engine_staging;

// A step in flight: its results, on their way to the host's memory. Each step in flight has room of
// its own, so that the next step does not overwrite results before the host has read them.
typedef struct engine_flight {
    // Copies of what the step leaves in engine_numbers: its results, and the caller's numbers. They
    // lie in pinned memory of the host if the device offers it, so that copying does not block the
    // host.
    double *results, *caller_numbers;
    tri_step_shape shape;
    int64_t step;    // number of the step, as in tri_step_input
    tri_ticket done; // stands for the step and the copy of its results
} engine_flight;

// The steps that were issued and not collected, as a ring, because they are collected in the order
// in which they were issued: `first` is the oldest.
typedef struct engine_flights {
    engine_flight items[1 + TRI_MAX_STEPS_AHEAD];
    int first, count;
} engine_flights;

// When the device carried out the actions of the steps in flight, if the device can measure that.
// The host's clock shows only when the host issued them. See times.c.
typedef struct engine_times {
    int lane; // the lane of the ledger that shows these times
    // spans[f][i]: when the device carried out action i of the step in engine_flights.items[f]. The
    // times lie in host memory that the device can write, because a kernel of the device writes
    // them; NULL: the device cannot measure them.
    struct engine_span *spans[1 + TRI_MAX_STEPS_AHEAD];
} engine_times;

// The parts of a step (runs of actions) that the device captures, to repeat each of them with one
// call (CUDA graphs; see capture.c). By step shape (a full step, an evaluation batch, …), because
// each shape has a schedule of its own.
typedef struct engine_captures {
    struct engine_part *parts[TRI_STEP_SHAPE_COUNT];
    int count[TRI_STEP_SHAPE_COUNT];
    // By shape and action: the part to which the action belongs; -1: it is issued by itself.
    int *of_action[TRI_STEP_SHAPE_COUNT];
} engine_captures;

// The host's CPU, where it runs the optimizer on offloaded state; see host_step.c.
typedef struct engine_host {
    tri_device *device;         // NULL: the engine's device runs the optimizer
    tri_queue *queue;           // a queue of `device`; its work is done when a call returns
    tri_queue *down, *up;       // queues of the engine's device for DOWNLOAD and UPLOAD
    double *scalars;            // the host's copy of the step scalars, which NORM makes
    engine_range_kernels casts; // the CPU's casts from masters to the half type that kernels read
} engine_host;

// A micro-batch that is being copied to the device. When the copy is done, its memory is given back
// to the loader.
typedef struct engine_copy {
    tri_ticket ticket;
    void (*release)(void *context);
    void *context;
} engine_copy;

typedef struct engine_takes {
    // Queue of the action TAKE; the compute lane's queue, unless the device works asynchronously.
    tri_queue *queue;
    engine_copy copies[TRI_TAKEN_BATCHES]; // the copies that may be under way, the oldest first
    int copy_count;
    int turn; // which heap of engine_memory.inputs belongs to the step that is being issued
    // By heap of engine_memory.inputs: the ticket of the last step that reads the heap.
    tri_ticket last_reader[2];
} engine_takes;

// The step that is being issued, with everything that an action needs to know of it.
typedef struct engine_run {
    const tri_step_input *input;
    const tri_step_plan *step;
    tri_ticket *tickets; // by action: the action's ticket
    tri_ticket begin;    // stands for the compute lane's work from before this step
    // The ranges of gradients that the kernels of the present compute action write to
    // engine_memory.round_gradients, because they cannot add them to earlier gradients directly.
    tri_round_range *ranges;
    // By range in `ranges`: for a whole bucket, the address of the earlier gradients, to which the
    // range is added after the action. During the action the bucket's slot has the range's address
    // instead. Not used for a range of a single parameter.
    char **earlier;
    int range_count;
    // By parameter: where in engine_memory.round_gradients kernels write its gradient; NULL: they
    // write it to the address in the slot of its bucket.
    float **round_address;
    tri_comm_op *ops; // operations of the action that is being started
    int most_ops;     // how many `ops` has room for
    int round;        // the number of the micro-batch whose compute action is being issued
    // What detect_anomaly found: the message that names the first value that was not finite; "":
    // all were finite.
    char anomaly[TRI_MESSAGE_MAX_BYTES];
    tri_phase anomaly_phase; // of the op that made or read that value
    // The evaluation that is being issued was cut short (tri_step_input.is_cancelled).
    bool is_cancelled;
    double cancel_numbers[TRI_MAX_CALLER_NUMBERS];
} engine_run;

struct tri_engine {
    tri_arena *arena;
    const tri_plan *plan;
    tri_device *device;
    tri_queue *queue; // the queue of the compute lane
    tri_optimizer optimizer;
    tri_loss_scale_options loss_scale;
    // Loss scale and count of updates after the last step that was collected (whose results the
    // host has read).
    tri_carried carried;
    tri_storage *storage; // NULL: no state is offloaded
    engine_host host;
    tri_kernel *kernels[TRI_MAX_PROGRAMS]; // by program of the plan, then by node; see kernels.c
    engine_groups groups;                  // control communicators, for the host's memory
    engine_groups data; // data communicators, for the device's memory; data.memory is not used
    engine_memory memory;
    engine_gaps gaps;
    engine_labels labels;
    engine_range_kernels step_kernels, casts, squares, finders;
    engine_numbers numbers;
    engine_counts counts;
    // State was written (by tri_engine_write or tri_engine_initialize) after the parameters were
    // last cast to the half type, so the casts may be out of date.
    bool is_stale;
    bool was_issued[TRI_STEP_SHAPE_COUNT]; // by shape: such a step was issued before
    // By block: bit k tells whether the block, in every program that trains, makes gradients of the
    // k-th of the units that it uses (parameters that are reduced together). If not, kernels may
    // leave these gradients unwritten, so the engine sets them to zero before the action.
    uint64_t *gradient_unit_bits;
    engine_tensors tensors;
    engine_staging staging;
    engine_takes takes;
    engine_run run;
    engine_flights flights;
    engine_times times;
    engine_captures captures;
    bool detects_anomaly;
    engine_outputs outputs;
};

// These functions return where this rank's range of a bucket lies: its masters, the gradients that
// STEP reads, an optimizer state, and (engine_own) the parameters that GATHER sends, of the type of
// engine_bucket_dtype. Offloaded ones are in memory from FETCH or LOAD to their last use.
float *engine_master(const tri_engine *engine, int unit, tri_bucket_kind bucket);
float *engine_own_gradients(const tri_engine *engine, int unit, tri_bucket_kind bucket);
float *engine_state(const tri_engine *engine, int state, int unit, tri_bucket_kind bucket);
void *engine_own(const tri_engine *engine, int unit, tri_bucket_kind bucket);
tri_dtype engine_bucket_dtype(const tri_engine *engine, tri_bucket_kind bucket);

// Defined in kernels.c.
tri_status engine_prepare_kernels(tri_engine *engine);
void engine_release_kernels(tri_engine *engine);
// Gets the kernels of a program, by node. A kernel without `def` belongs to a node that needs no
// kernel: a view, or a collective, which a communicator runs.
const tri_kernel *engine_kernels_of(const tri_engine *engine, const tri_program *program);

// Lets the queue wait for the ticket. In the first step of each tri_step_shape the host waits
// instead, because that step loads kernels. While a driver loads a kernel, it may block all calls
// of the process until the device has nothing to do. If the queue waited for work that another
// thread has not issued yet, the device would wait for that thread, and the driver would block the
// thread until the device is done: neither would ever go on.
tri_status engine_let_wait(tri_engine *engine, tri_queue *queue, const tri_ticket *ticket);

// Describes an action of the compute lane for the ledger (the rank's record of its actions), so
// that traces and messages name actions as schedules do.
tri_ledger_action engine_ledger_action(const tri_engine *engine, const tri_action *action);

// Defined in engine.c. engine_set_slots sets the slots to the addresses of the action's buffers.
// engine_issue_action issues an action of the compute lane; if the device can measure times, it
// also lets the device write down when the action begins and ends (times.c).
void engine_set_slots(tri_engine *engine, const tri_action *action);
tri_status engine_issue_action(tri_engine *engine, const tri_action *action);

// Defined in capture.c. Finds for each shape of step the parts to capture: runs of actions that the
// device can repeat as one, so that the host need not issue their kernels one by one. There are
// none if the device cannot capture, the user wants none, or values are searched for anomalies.
void engine_find_parts(tri_engine *engine);
// Has all actions issued one by one from now on.
void engine_forget_parts(tri_engine *engine);
// Frees the captured parts. To be called only after the device has finished their work.
void engine_close_parts(tri_engine *engine);
// Finds the captured part (actions that the device repeats as one, as a CUDA graph) to which an
// action of the running step belongs; NULL: it belongs to none.
struct engine_part *engine_part_of(const tri_engine *engine, const tri_action *action);
// Returns the index of the action of the compute lane that stands before action i in the same part;
// -1: i belongs to no part, or is the first of its part.
int engine_before_in_part(const tri_engine *engine, tri_step_shape shape, int i);
// Issues an action of a captured part. The device gets the part as a whole: so the part's first
// action issues all of it, its last action makes *ticket, which stands for the part's work, and the
// others do nothing.
tri_status engine_run_in_part(tri_engine *engine, struct engine_part *part,
                              const tri_action *action, tri_ticket *ticket);

// Defined in times.c.
tri_status engine_make_times(tri_engine *engine);
void engine_release_times(tri_engine *engine);
// Whether the device measures when it begins and ends the action. (The host cannot know this,
// because it issues actions ahead of the device.) If so, engine_time_begin and engine_time_end make
// the device write down these times. Inside a captured part, engine_time_begin does nothing for all
// actions but the first, because such an action begins when the one before it ends.
bool engine_is_timed(const tri_engine *engine, const tri_action *action);
tri_status engine_time_begin(tri_engine *engine, const tri_action *action);
tri_status engine_time_end(tri_engine *engine, const tri_action *action);
// Records when the actions of a finished step ran on the device, so that traces show them.
void engine_note_times(tri_engine *engine, const engine_flight *flight);
// Clears the times that an earlier step has left in the memory of this flight (a step in flight).
void engine_clear_times(tri_engine *engine, engine_flight *flight);
// Adds to the message of a device's failure the rank and, if the device's times show an action that
// has begun and not ended, the step and the action. Returns `status`.
tri_status engine_name_failure(tri_engine *engine, tri_status status);

// Defined in groups.c.
tri_status engine_make_groups(tri_engine *engine, tri_comm *world);
// Makes the groups' operations in flight fail, with everything that waits for them. To be called
// before queues are closed, because operations wait for work of queues and would never end then.
void engine_stop_groups(tri_engine *engine);
void engine_close_groups(tri_engine *engine);

// Defined in memory.c.
tri_status engine_allocate(tri_engine *engine);
void engine_release(tri_engine *engine);
void engine_find_gaps(tri_engine *engine);
// Makes room for this many elements in engine_staging.memory. What it held is lost. Memory is
// allocated only here, and not when the engine is made, because many runs never need it; the plan's
// estimate of the memory contains the most that can be needed. TRI_NO_MEMORY.
tri_status engine_reserve_staging(tri_engine *engine, int64_t elements);
// The same of engine_staging.joined, for the slices of all tensor-parallel ranks. TRI_NO_MEMORY.
tri_status engine_reserve_joined(tri_engine *engine, int64_t elements);
// Makes room for this many elements of masters that kernels read outside of a step. *out is in
// engine_staging.memory or, on a device whose memory the host cannot use, in memory of the device.
// TRI_NO_MEMORY.
tri_status engine_reserve_masters(tri_engine *engine, int64_t elements, float **out);

// Defined in update.c.
tri_status engine_make_range_kernels(tri_engine *engine);
tri_status engine_run_range_kernels(tri_engine *engine, const engine_range_kernels *list, int unit);
// Adds a kernel that sums the squares of `elements` gradients, from `range.first` on, for the norm.
tri_status engine_add_squares(tri_engine *engine, const tri_sum_of_squares_attr *attr,
                              engine_range_kernel range, int64_t elements);
// Adds a finder, a kernel that looks, among `elements` gradients of a bucket, for the first of
// `ranges` ranges that has a number that is not finite.
tri_status engine_add_finder(tri_engine *engine, engine_range_kernel range, int64_t elements,
                             int64_t ranges);
void engine_release_range_kernels(engine_range_kernels *list);

// Defined in anomaly.c. engine_look_for_anomaly looks for numbers that are not finite in what a
// node has read and written, if trainer.detect_anomaly is set. The rank keeps its finding until
// engine_agree_on_anomaly, which all ranks call in NORM or at the end of an evaluation batch. Then
// all stop together: if one rank failed alone, the others would wait for it.
tri_status engine_look_for_anomaly(tri_engine *engine, const tri_graph *graph, const tri_node *node,
                                   void *const *in, void *const *out);
tri_status engine_agree_on_anomaly(tri_engine *engine);

// Defined in numbers.c, which prepares the engine_numbers before a step, sums them over all
// ranks, and in NORM computes the step scalars from them.
tri_status engine_make_numbers(tri_engine *engine);
void engine_release_numbers(tri_engine *engine);
tri_status engine_begin_numbers(tri_engine *engine);
tri_status engine_norm(tri_engine *engine);
// Sums the rows of engine_numbers.result_rows (losses and metrics) over all micro-batches and ranks
// and, if `squared` (in training), also the squares of gradients.
tri_status engine_sum_over_step(tri_engine *engine, bool squared);
// Make and run a kernel of `op`, which belongs to no program; its `count` inputs are F64.
tri_status engine_make_number_kernel(tri_engine *engine, const tri_op *op, const void *attr,
                                     const tri_shape *shapes, int count, tri_kernel *out);
tri_status engine_run_numbers(tri_engine *engine, const tri_kernel *kernel, void *const *in,
                              void *const *out);
tri_status engine_reduce_numbers(tri_engine *engine, double *values, int64_t count);
// Where the kernels of a micro-batch write loss and metrics. Kernels overwrite and do not add, so
// each micro-batch has a row of its own, and all rows are summed after the last one. `round`:
// number of the micro-batch.
char *engine_results(const tri_engine *engine, int round);
// Sums numbers in the host's memory over all ranks; engine_reduce_numbers in the device's.
tri_status engine_sum_over_ranks(tri_engine *engine, const char *label, double *values,
                                 int64_t count);

// Defined in terms.c: the count by which BACKWARD divides a loss whose true count is known only
// afterwards; the loss seeds, with which BACKWARD begins; the value of a weighted sum of losses.
double engine_nominal_count(const tri_engine *engine);
tri_status engine_write_seeds(tri_engine *engine);
void engine_sum_terms(const tri_engine *engine, tri_step_output *out);

// Defined in results.c, which brings the results of steps to the host.
tri_status engine_make_flights(tri_engine *engine);
void engine_release_flights(tri_engine *engine);
// Makes the finders, kernels that find the first parameter with a gradient that is not finite, so
// that the error can name the parameter. They do something only in a step that halts: one that is
// not finite, in a run without a loss scale or at the smallest scale.
tri_status engine_make_finders(tri_engine *engine);
tri_status engine_find_not_finite(tri_engine *engine);
// Issues the copy of a step's results to the host, right after the step, so that the host need not
// wait for the step before it issues the next one.
tri_status engine_send_results(tri_engine *engine, engine_flight *flight);
// The index into engine_flights.items of the step that is being issued.
int engine_next_flight(const tri_engine *engine);

// Defined in state.c.
void engine_list_tensors(tri_engine *engine);
tri_status engine_make_constants(tri_engine *engine); // writes the values of tri_constant
// Copies what tri_engine_write has left in the staging memory to where it belongs. Writes are
// collected there because the next tensor often lies in the same bucket.
tri_status engine_flush_staging(tri_engine *engine);

// Defined in collective.c. Runs a node with TRI_OP_COLLECTIVE (for example tensor parallelism's
// all-reduce) on the communicator of its group. All ranks of the group have to call it.
tri_status engine_run_collective(tri_engine *engine, const tri_program *program,
                                 const tri_node *node, void *const *in, void *const *out);
// As engine_run_collective, but `in` and `out` are in the host's memory, and the caller passes the
// communicator, which must have one rank for each slice of the node. It needs no engine, so that
// tests of single ops can call it.
tri_status engine_collective(tri_comm *comm, const tri_graph *graph, const tri_node *node,
                             void *const *in, void *const *out);

// Defined in offload.c.
tri_status engine_open_storage(tri_engine *engine, tri_ledger *ledger);
// Whether a bucket's state is offloaded; TRI_STATE_MASTERS stands for its masters.
bool engine_is_offloaded(const tri_engine *engine, tri_bucket_kind bucket, int state);
// Copies `count` elements of this rank's range of a state, or of the masters (TRI_STATE_MASTERS),
// between the host's memory and their location between steps, which is in memory or in storage.
tri_status engine_read_own(tri_engine *engine, int unit, tri_bucket_kind bucket, int state,
                           int64_t first, int64_t count, void *to);
tri_status engine_write_own(tri_engine *engine, int unit, tri_bucket_kind bucket, int state,
                            int64_t first, int64_t count, const void *from);
// Reads from storage those offloaded masters of a unit (parameters that are gathered together) that
// have a copy in a half type, to where kernels can read them. Called before a step if state was
// written since the last casts (is_stale), so that the masters can be cast again. In a step, LOAD
// reads the masters, and PREPARE casts them.
tri_status engine_fetch_masters(tri_engine *engine, int unit);
// Starts the transfer of FETCH, LOAD or EVICT: reading from storage or writing to it.
tri_status engine_start_storage(tri_engine *engine, const tri_action *action, tri_ticket *ticket);

// Where the host runs the optimizer, the storage also contains, for this rank's ranges, the
// gradients and the parameters in the half type. These constants stand for them in place of the
// number of an optimizer state, as TRI_STATE_MASTERS stands for masters.
enum { ENGINE_HOST_GRADIENTS = TRI_STATE_MASTERS - 1, ENGINE_HOST_HALF = TRI_STATE_MASTERS - 2 };
// Finds where in the storage this rank's range of a bucket begins, as an offset in bytes. `what` is
// the number of an optimizer state, TRI_STATE_MASTERS, ENGINE_HOST_GRADIENTS or ENGINE_HOST_HALF.
int64_t engine_storage_offset(const tri_engine *engine, int unit, tri_bucket_kind bucket, int what);
// Whether `state` (the number of an optimizer state, or TRI_STATE_MASTERS) is kept both in the
// device's memory and in the host's, so that a change has to be made in both. This is so for
// masters that kernels read directly, if the host runs the optimizer.
bool engine_has_host_copy(const tri_engine *engine, tri_bucket_kind bucket, int state);

// Defined in host_step.c.
tri_status engine_open_host(tri_engine *engine);
void engine_close_host(tri_engine *engine);
engine_args engine_host_step_args(const tri_engine *engine, const engine_range_kernel *range);
engine_args engine_host_cast_args(const tri_engine *engine, const engine_range_kernel *range);
// Issues the copy of the step scalars to the host, at the end of NORM.
tri_status engine_send_scalars(tri_engine *engine);
// Runs HOST_STEP of a unit (parameters that are updated together): the optimizer, and casts. The
// storage's thread calls this function; `context` is the engine.
tri_status engine_host_step(void *context, int unit);
tri_status engine_download(tri_engine *engine, const tri_action *action, tri_ticket *ticket);
tri_status engine_upload(tri_engine *engine, const tri_action *action, tri_ticket *ticket);

// Defined in take.c.
tri_status engine_open_takes(tri_engine *engine);
void engine_close_takes(tri_engine *engine);
// engine_begin_takes is called before the first action of a step and engine_end_takes after the
// last one. They switch between the two heaps of inputs, so that one step's inputs can arrive while
// the previous step still reads its own.
void engine_begin_takes(tri_engine *engine);
tri_status engine_end_takes(tri_engine *engine);
// Makes TAKE start only after earlier steps have read the memory to which it copies, so that it
// does not overwrite their inputs.
tri_status engine_may_take(tri_engine *engine, const tri_action *action);
tri_status engine_take(tri_engine *engine, const tri_action *action, tri_ticket *ticket);

// Defined in compute.c, which runs FORWARD, RECOMPUTE and the kinds of BACKWARD.
void engine_prepare_gradients(tri_engine *engine);
tri_status engine_run_compute(tri_engine *engine, const tri_action *action);

// Defined in communicate.c. engine_size_communication allocates room for the operations of the
// largest action, so that steps allocate nothing. engine_start_communication starts the operations
// of an action.
void engine_size_communication(tri_engine *engine);
// Gets the data communicator that carries the action's operations.
tri_comm *engine_group_of(const tri_engine *engine, const tri_action *action);
// Runs an operation on the device's memory in order with kernels: after everything that was issued
// to the compute lane before this call, and before everything that is issued to it later.
tri_status engine_run_between(tri_engine *engine, tri_comm *comm, const tri_comm_op *op);
tri_status engine_start_communication(tri_engine *engine, const tri_action *action,
                                      tri_ticket *ticket);

#endif
