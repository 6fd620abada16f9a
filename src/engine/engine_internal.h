// What the files of the engine share: its state, and the functions of each file that others call.
#ifndef TRIREME_ENGINE_ENGINE_INTERNAL_H
#define TRIREME_ENGINE_ENGINE_INTERNAL_H

#include "base/ticket.h"
#include "device/queue.h"
#include "engine/engine.h"
#include "engine/storage.h"

// The pointers of one node's inputs and outputs, gathered for one call of its kernel.
typedef struct engine_args {
    void *in[TRI_MAX_INPUTS], *out[TRI_MAX_OUTPUTS];
} engine_args;

// A range kernel: it runs over this rank's range of a bucket, or over elements of that range from
// `first` on. It is a kernel of STEP, a cast of PREPARE, a sum of squares, or a finder, which looks
// for what is not finite. Parameters of a bucket lie side by side, so that one kernel handles all
// of them.
typedef struct engine_range_kernel {
    tri_kernel kernel;
    int unit;
    tri_bucket_kind bucket;
    int64_t first;
    int states; // how many optimizer states it reads and writes
    int64_t at; // of a sum of squares: its index among them; of a finder: that of its first range
} engine_range_kernel;

typedef struct engine_range_kernels {
    engine_range_kernel *items; // unit by unit
    int count;
    int *first;       // by unit: its first item; one entry more than there are units
    tri_graph *graph; // of the nodes that they compute
    // Collects the pointers of a kernel before each call, because its operands may lie somewhere
    // else in every step.
    engine_args (*args)(const tri_engine *engine, const engine_range_kernel *range);
} engine_range_kernels;

// Padding: elements of a bucket between two parameters. No kernel writes them, so the engine sets
// them to zero: a reduction and the norm cover the whole bucket.
typedef struct engine_gap {
    int unit;
    tri_bucket_kind bucket;
    int64_t first, count;
} engine_gap;

// Communicators of this rank's groups. There are two sets: control communicators take the host's
// memory, data communicators the device's. They are the same where the host can touch the device's
// memory.
typedef struct engine_groups {
    tri_comm *world;           // all ranks
    tri_comm *shards;          // the ranks that share one copy of the training state
    tri_comm *copies;          // those that hold copies of this rank's shards
    tri_comm *along, *back;    // the stages of this rank's pipeline: one for each direction
    tri_comm *tensor_parallel; // those that share each layer with this rank
    tri_comm *replicas;        // one rank of each replica, with this rank's stage and slices
    tri_comm **ties;           // by unit: the ranks whose stages hold it; NULL: only one stage does
    tri_comm *memory;          // allocates what communicators touch; one of those above
} engine_groups;

// Memory of the device, allocated once, so that no step allocates. Where ranks shard parameters
// (fsdp), `stored` and `half_parameters` have only this rank's ranges, and GATHER puts whole ones
// on a heap.
typedef struct engine_memory {
    float *stored;          // parameters that kernels read as they are stored
    float *masters;         // this rank's ranges of those that kernels read in a half type, in F32
    char *half_parameters;  // ... and what kernels read of them
    float *gradients;       // whole; NULL where they are scattered
    float *own_gradients;   // this rank's ranges, where gradients are scattered
    float *round_gradients; // a compute action's, before they are added to those of other rounds
    float *states;          // bucket by bucket of unit by unit, one state after the other
    char *heaps[TRI_HEAP_COUNT], *scratch, *workspace;
    char *inputs[2]; // the two of TRI_HEAP_INPUTS; `heaps` has that of the running step
    void *scalars[TRI_SCALAR_KIND_COUNT];
    char **slots; // by slot: where its buffer lies now; the table itself is on the host
} engine_memory;

// The numbers of a step that all ranks need (loss, metrics, squares of gradients), F64 in the
// device's memory: see numbers.c.
typedef struct engine_numbers {
    double *rows;             // of results, one behind the other; what travels with them
    double *shared, *squares; // where they are in this step: behind the rows, or among the sums
    // The results of a step lie one behind the other, so that one copy brings them to the host: one
    // row of sums over the step; then shared; then the sum of squares, the step scalars, the
    // carried numbers, and what the finders found.
    double *sums;
    int64_t total_at, scalars_at, carried_at, found_at, result_count;
    double *carried; // among the results
    double *control; // of the op step_numbers
    double *losses;  // of the op loss_seeds
    float *seeds;
    int64_t width;    // of a row
    int64_t capacity; // of `rows`
    int64_t square_count;
    int64_t *ranges;  // in which finders look: first element and end
    int *parameters;  // on the host, by range: whose gradient it is
    tri_graph *graph; // of the kernels
    tri_kernel sum_rows[TRI_STEP_SHAPE_COUNT], sum_squares, make_step, make_seeds;
} engine_numbers;

typedef struct engine_gaps {
    engine_gap *items; // bucket by bucket of unit by unit
    int count;
    int *first; // by unit × TRI_BUCKET_COUNT + bucket: its first item; one entry more at the end
} engine_gaps;

// Names of actions, for communicators and the ledger: made once, because both keep the pointer
// after the call in which they got it.
typedef struct engine_labels {
    const char **units[TRI_ACTION_KIND_COUNT]; // by unit or block, of actions on those
    const char *edges[TRI_ACTION_KIND_COUNT];
} engine_labels;

// The state by name, as checkpoints name it.
typedef struct engine_tensors {
    tri_engine_tensor *model, *optimizer;
    int model_count, optimizer_count;
    int64_t *counters; // by parameter: the values of counters
} engine_tensors;

// Memory of the host through which checkpoints and initial weights pass, outside of steps: a rank
// may hold only a range of a bucket, or hold it where the host cannot touch it.
typedef struct engine_staging {
    // A whole bucket, or one of its states. It lies in the heap of the steps, which is free between
    // steps, if the host can touch that and it is large enough; else in `own`.
    float *memory, *own;
    int64_t own_elements;
    int unit, bucket, state; // what is in `memory`; unit -1: nothing
    bool is_new;             // it was written, and not yet moved to where it belongs
    float *joined;           // the slices of the tensor fetched last, one after the other
    int64_t joined_elements;
    float *masters; // of one unit, in memory of a device that the host cannot touch
    int64_t masters_elements;
} engine_staging;

// A step in flight: its results, on their way to the host's memory. Each has room of its own, so
// that the next step does not overwrite results before the host reads them.
typedef struct engine_flight {
    // As in the device's memory, in memory of the host to which a copy does not block.
    double *results, *shared;
    tri_step_shape shape;
    int64_t step;    // as in the step's input
    tri_ticket done; // stands for the step and the copy of its results
} engine_flight;

// The steps that were issued and not collected, in a ring, because they are collected in the order
// in which they were issued: the oldest is `first`.
typedef struct engine_flights {
    engine_flight items[1 + TRI_MAX_STEPS_AHEAD];
    int first, count;
} engine_flights;

// When the device carried out the actions of the steps in flight, if the device measures it: the
// host's own clock shows only when it issued them. See times.c.
typedef struct engine_times {
    int lane;
    // By flight and action, in memory of the host that the device can write, because a kernel of
    // the device writes the times; NULL: no times.
    struct engine_span *spans[1 + TRI_MAX_STEPS_AHEAD];
} engine_times;

// The parts of steps that are captured and repeated, by step shape, because each shape has a
// schedule of its own; see capture.c.
typedef struct engine_captures {
    struct engine_part *parts[TRI_STEP_SHAPE_COUNT];
    int count[TRI_STEP_SHAPE_COUNT];
    int *of_action[TRI_STEP_SHAPE_COUNT]; // its part; -1: it is issued by itself
} engine_captures;

// A micro-batch that is being copied to the device, with the call that gives its memory back to the
// loader.
typedef struct engine_copy {
    tri_ticket ticket;
    void (*release)(void *context);
    void *context;
} engine_copy;

typedef struct engine_takes {
    tri_queue *queue; // of the lane TAKE; the compute lane's where the device does not run ahead
    engine_copy copies[TRI_TAKEN_BATCHES]; // that may be under way, the oldest first
    int copy_count;
    int turn;           // which of memory.inputs the step that is being issued uses
    tri_ticket read[2]; // the last step that read each of memory.inputs
} engine_takes;

// The step that is being issued. Everything that an action needs to know of it is here.
typedef struct engine_run {
    const tri_step_input *input;
    const tri_step_plan *step;
    tri_ticket *tickets; // by action of the schedule
    tri_ticket begin;    // stands for what the compute lane was given before the step
    tri_comm_op *ops;    // of the action that is being started
    int most_ops;
    int round;                           // of the compute action that runs
    char anomaly[TRI_MESSAGE_MAX_BYTES]; // what was not finite; "": nothing
} engine_run;

struct tri_engine {
    tri_arena *arena;
    const tri_plan *plan;
    tri_device *device;
    tri_queue *queue; // of the compute lane
    tri_optimizer optimizer;
    tri_loss_scale_options loss_scale;
    tri_carried carried;                   // after the last step whose results were read
    tri_storage *storage;                  // NULL: nothing is offloaded
    tri_kernel *kernels[TRI_MAX_PROGRAMS]; // by program of the plan, by node; see kernels.c
    engine_groups groups;                  // take the host's memory
    engine_groups data;                    // take the device's; without `memory`
    engine_memory memory;
    engine_gaps gaps;
    engine_labels labels;
    engine_range_kernels step_kernels, casts, squares, finders;
    engine_numbers numbers;
    bool is_stale; // parameters were written since they were last cast
    // By block: bit k is set if its compute actions make a gradient of its k-th unit.
    uint64_t *gradient_unit_bits;
    engine_tensors tensors;
    engine_staging staging;
    engine_takes takes;
    engine_run run;
    engine_flights flights;
    engine_times times;
    engine_captures captures;
    bool detects_anomaly;
};

// These tell where this rank's ranges of a bucket lie: masters, the gradients that STEP reads, an
// optimizer state, and what GATHER sends. Offloaded masters and states are in memory only between
// FETCH or LOAD and the action that releases them.
float *engine_master(const tri_engine *engine, int unit, tri_bucket_kind bucket);
float *engine_own_gradients(const tri_engine *engine, int unit, tri_bucket_kind bucket);
float *engine_state(const tri_engine *engine, int state, int unit, tri_bucket_kind bucket);
void *engine_own(const tri_engine *engine, int unit, tri_bucket_kind bucket);
tri_dtype engine_bucket_dtype(const tri_engine *engine, tri_bucket_kind bucket);

tri_status engine_prepare_kernels(tri_engine *engine); // kernels.c
void engine_release_kernels(tri_engine *engine);
// Gets the kernels of a program, by node. A kernel without `def` belongs to a node that needs none:
// a view, or a collective, which a communicator runs.
const tri_kernel *engine_kernels_of(const tri_engine *engine, const tri_program *program);

// Describes an action of the compute lane for the ledger, so that traces and messages name actions
// as schedules do.
tri_ledger_action engine_ledger_action(const tri_engine *engine, const tri_action *action);

// In engine.c. engine_set_slots sets the slots to where the plan puts the action's buffers.
// engine_issue_action issues an action of the compute lane, and notes in the ledger when.
void engine_set_slots(tri_engine *engine, const tri_action *action);
tri_status engine_issue_action(tri_engine *engine, const tri_action *action);

// In capture.c. Finds the captured parts of all steps: they save the host the time to issue their
// kernels one by one. There are none where the device cannot capture or its user wants none.
void engine_find_parts(tri_engine *engine);
void engine_close_parts(tri_engine *engine); // after their work is done
// Finds the captured part of the running step that holds the action; NULL: none does.
struct engine_part *engine_part_of(const tri_engine *engine, const tri_action *action);
// Issues an action of a captured part. Since the device gets the part as a whole, the part's first
// action issues all of it, the last one makes the ticket, and those between do nothing.
tri_status engine_run_in_part(tri_engine *engine, struct engine_part *part,
                              const tri_action *action, tri_ticket *ticket);

tri_status engine_make_times(tri_engine *engine); // times.c
void engine_release_times(tri_engine *engine);
// Whether the device tells when it carried out the action: the host cannot know, because it issues
// actions ahead of the device. If so, engine_time_begin and engine_time_end note the times.
bool engine_is_timed(const tri_engine *engine, const tri_action *action);
tri_status engine_time_begin(tri_engine *engine, const tri_action *action);
tri_status engine_time_end(tri_engine *engine, const tri_action *action);
// Enters the times of a step that is done into the ledger, so that traces show them.
void engine_note_times(tri_engine *engine, const engine_flight *flight);
// Forgets the times of the step that was issued in this flight before.
void engine_clear_times(tri_engine *engine, engine_flight *flight);
// Adds to the message of a device's failure which rank it is and, if work failed behind the host,
// in which action. Returns `status`.
tri_status engine_name_failure(tri_engine *engine, tri_status status);

tri_status engine_make_groups(tri_engine *engine, tri_comm *world); // groups.c
// Makes all fail that waits for the groups' operations. Call it before anything is closed for which
// these operations wait: they would never end.
void engine_stop_groups(tri_engine *engine);
void engine_close_groups(tri_engine *engine);

tri_status engine_allocate(tri_engine *engine); // memory.c
void engine_release(tri_engine *engine);
void engine_find_gaps(tri_engine *engine);
// Makes room for so many elements in `staging.memory`, which then holds nothing. The size is known
// only when a tensor is read or written, and no step needs it. TRI_NO_MEMORY.
tri_status engine_reserve_staging(tri_engine *engine, int64_t elements);
// Makes room in `staging.joined` for so many elements of all tensor-parallel ranks' slices.
// TRI_NO_MEMORY.
tri_status engine_reserve_joined(tri_engine *engine, int64_t elements);
// Makes room for so many elements of masters that kernels read outside of a step. They lie in
// `staging.memory`, but on a device whose memory the host cannot touch they need memory of the
// device. TRI_NO_MEMORY.
tri_status engine_reserve_masters(tri_engine *engine, int64_t elements, float **out);

tri_status engine_make_range_kernels(tri_engine *engine); // update.c
tri_status engine_run_range_kernels(tri_engine *engine, const engine_range_kernels *list, int unit);
// Adds a kernel that sums the squares of `elements` gradients from `range.first` on, for the norm.
tri_status engine_add_squares(tri_engine *engine, const tri_sum_of_squares_attr *attr,
                              engine_range_kernel range, int64_t elements);
// Adds a kernel that looks for the first value that is not finite in each of `ranges` ranges of
// `elements` gradients.
tri_status engine_add_finder(tri_engine *engine, engine_range_kernel range, int64_t elements,
                             int64_t ranges);
void engine_release_range_kernels(engine_range_kernels *list);

// In anomaly.c. Looks for values that are not finite in what a node has read and made. The rank
// remembers its finding until all ranks exchange theirs after the step, so that they stop together:
// a rank that failed by itself would leave the others waiting.
tri_status engine_look_for_anomaly(tri_engine *engine, const tri_graph *graph, const tri_node *node,
                                   void *const *in, void *const *out);
tri_status engine_agree_on_anomaly(tri_engine *engine);

// In numbers.c: what is computed of a step's numbers before it, in NORM, and after it.
tri_status engine_make_numbers(tri_engine *engine);
void engine_release_numbers(tri_engine *engine);
tri_status engine_begin_numbers(tri_engine *engine);
tri_status engine_norm(tri_engine *engine);
// Sums the rows of results and, in training, the squares of gradients, over all rounds and ranks.
tri_status engine_sum_over_step(tri_engine *engine, bool squared);
// The offset of a metric's (sum, count) in a row of results. It is the same in all programs and on
// all ranks, so that rows can be summed element by element.
int64_t engine_metric_offset(int metric);
// Runs one of the kernels of numbers.c, which belong to no program.
tri_status engine_run_numbers(tri_engine *engine, const tri_kernel *kernel, void *const *in,
                              void *const *out);
// Where the kernels of a round write loss and metrics: kernels write and do not add, so each round
// has a row of its own, and all rows are summed after the last round.
char *engine_results(const tri_engine *engine, int round);
// Sums numbers in the host's memory over all ranks, with the control communicator of the world.
tri_status engine_sum_over_ranks(tri_engine *engine, const char *label, double *values,
                                 int64_t count);

// In terms.c. engine_write_seeds writes the seeds of the losses' gradients before the step, because
// BACKWARD begins with them. engine_sum_terms makes the value of a weighted sum of losses after it.
tri_status engine_write_seeds(tri_engine *engine);
void engine_sum_terms(const tri_engine *engine, tri_step_output *out);

// In results.c: brings the results of steps to the host.
tri_status engine_make_flights(tri_engine *engine);
void engine_release_flights(tri_engine *engine);
// Makes the kernels that find, in a step that halts, the first parameter with a gradient that is
// not finite, so that the error can name it.
tri_status engine_make_finders(tri_engine *engine);
tri_status engine_find_not_finite(tri_engine *engine);
// Issues the copy of a step's results to the host behind the step, so that the host need not wait
// for the step before it issues the next one.
tri_status engine_send_results(tri_engine *engine, engine_flight *flight);
// The place, among those of the steps in flight, of the step that is being issued.
int engine_next_flight(const tri_engine *engine);

void engine_list_tensors(tri_engine *engine); // state.c
// Moves what tri_engine_write left in the staging memory to where it belongs: writes are collected
// there, because the next tensor often lies in the same bucket.
tri_status engine_flush_staging(tri_engine *engine);

// In collective.c. Runs a node with TRI_OP_COLLECTIVE (tensor parallelism's all-reduces and the
// like) on the communicator of its group. Collective.
tri_status engine_run_collective(tri_engine *engine, const tri_program *program,
                                 const tri_node *node, void *const *in, void *const *out);
// Runs such a node on a communicator with as many ranks as the node has slices, in memory of the
// host. It needs no engine, so that tests of single ops can call it too.
tri_status engine_collective(tri_comm *comm, const tri_graph *graph, const tri_node *node,
                             void *const *in, void *const *out);

tri_status engine_open_storage(tri_engine *engine, tri_ledger *ledger); // offload.c
// Whether a bucket's state is offloaded; TRI_STATE_MASTERS stands for its masters.
bool engine_is_offloaded(const tri_engine *engine, tri_bucket_kind bucket, int state);
// Copies this rank's range of a state, or of the masters (TRI_STATE_MASTERS), between the host's
// memory and where it lies between steps: in memory or in storage.
tri_status engine_read_own(tri_engine *engine, int unit, tri_bucket_kind bucket, int state,
                           float *to);
tri_status engine_write_own(tri_engine *engine, int unit, tri_bucket_kind bucket, int state,
                            const float *from);
// Reads the unit's offloaded masters to where kernels can read them: casts outside of a step have
// no FETCH before them.
tri_status engine_fetch_masters(tri_engine *engine, int unit);
// Starts what FETCH, LOAD or EVICT does: reading from the storage or writing to it.
tri_status engine_start_storage(tri_engine *engine, const tri_action *action, tri_ticket *ticket);

tri_status engine_open_takes(tri_engine *engine); // take.c
void engine_close_takes(tri_engine *engine);
// engine_begin_takes is called before the first action of a step and engine_end_takes after the
// last one: they change between the two halves of the inputs' memory, so that one step's inputs can
// arrive while the step before still reads its own.
void engine_begin_takes(tri_engine *engine);
tri_status engine_end_takes(tri_engine *engine);
// Makes TAKE start only after earlier steps have read the memory to which it copies, so that it
// does not overwrite their inputs.
tri_status engine_may_take(tri_engine *engine, const tri_action *action);
tri_status engine_take(tri_engine *engine, const tri_action *action, tri_ticket *ticket);

// In compute.c: runs FORWARD, RECOMPUTE and the kinds of BACKWARD.
void engine_find_gradient_units(tri_engine *engine);
tri_status engine_run_compute(tri_engine *engine, const tri_action *action);

// In communicate.c. engine_size_communication allocates room for the operations of the largest
// action, so that steps allocate nothing; engine_start_communication starts those of an action.
void engine_size_communication(tri_engine *engine);
// The data communicator over which an action's operations run.
tri_comm *engine_group_of(const tri_engine *engine, const tri_action *action);
// Runs an operation on the device's memory in order with kernels: after all that was issued to the
// compute lane before this call, and before all that is issued to the lane later.
tri_status engine_run_between(tri_engine *engine, tri_comm *comm, const tri_comm_op *op);
tri_status engine_start_communication(tri_engine *engine, const tri_action *action,
                                      tri_ticket *ticket);

#endif
