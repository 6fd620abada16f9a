// Where, during one step, everything lies that does not stay for the whole run: values that one
// segment (the nodes of one block in one phase) makes for another, inputs, gathered parameters,
// gradients before SCATTER, and offloaded state while an action needs it in memory. Each is in use
// from a first to a last action of the schedule; buffers in use at the same time do not overlap. A
// block is a layer or a group of layers that is scheduled as one. A unit is parameters that are
// gathered, reduced and updated together, mostly those of a block; a bucket is a range of a unit's
// parameters that are handled alike (flat.h). Scratch is memory for values that only one segment
// uses.
// One step of fsdp with two blocks (a, b), over its actions:
//
//     STATE        | parameters a | parameters b |  b's gradients  | a's gradients
//     (heap)       |       parameters b     |      parameters a    |
//     ACTIVATIONS  | inputs |  a's activations                 | optimizer states
//     (heap)       |        |     b's activations         |    |   (offload)
//                  +-----------------------------------------------------------> actions
//                   FORWARD a, b            BACKWARD b, a        STEP a, b
#ifndef TRIREME_PLAN_STEP_MEMORY_H
#define TRIREME_PLAN_STEP_MEMORY_H

#include "plan/flat.h"
#include "plan/program.h"
#include "plan/schedule.h"

// Heaps: ranges of memory that a step uses again and again. What GATHER receives and SCATTER sends
// has a heap of its own, because a communicator allocates this memory, with the same size on all
// ranks. Inputs that are copied ahead have one too, because the previous step still uses the other
// heaps meanwhile.
typedef enum tri_heap {
    // Values that one segment (a block's nodes of one phase) makes and another one reads. In a run
    // of one rank, scratch memory and gradients lie here too. Offloaded optimizer states lie here
    // while STEP actions run.
    TRI_HEAP_ACTIVATIONS,
    // Parameters that GATHER has collected, gradients that wait for SCATTER, and offloaded masters
    // while actions use them. Collectives send from this heap and receive into it.
    TRI_HEAP_STATE,
    // The inputs of this rank's first micro-batch in a step, if the device copies inputs while it
    // computes (takes_ahead in schedule.h). This heap exists twice and steps alternate between the
    // two, because these inputs are copied while the previous step still computes.
    TRI_HEAP_INPUTS,
    TRI_HEAP_COUNT
} tri_heap;

// Slots: the entries of a table in which kernels look addresses up, because addresses change from
// action to action. There is one slot for the inputs of a micro-batch, one for the scratch, one for
// each bundle of the program (tri_bundle: values that are kept from one segment to another), and
// four for each bucket of each unit: parameters as kernels read them, gradients as kernels write
// them, this rank's range of the F32 master weights, and its range of the optimizer states, which
// lie one after the other.
enum { TRI_SLOT_INPUTS, TRI_SLOT_SCRATCH, TRI_SLOT_FIRST_BUCKET };
int tri_slot_parameters(int unit, tri_bucket_kind bucket);
int tri_slot_gradients(int unit, tri_bucket_kind bucket);
int tri_slot_masters(int unit, tri_bucket_kind bucket);
int tri_slot_states(int unit, tri_bucket_kind bucket);
int tri_slot_bundle(const tri_flat *flat, int bundle);
// Whether the slot (table entry with an address) stands for parameters, gradients, masters or
// optimizer states of a bucket.
bool tri_slot_is_of_bucket(const tri_flat *flat, int slot);

// What of this rank's training state is offloaded: it lies in storage between its uses, and takes
// memory only while an action uses it. Masters are the F32 weights that the optimizer updates.
typedef struct tri_offload_set {
    int states; // how many optimizer states are offloaded; 0: they stay in memory
    bool masters[TRI_BUCKET_COUNT]; // by bucket: its masters are offloaded
} tri_offload_set;

// Whether an action of this kind, on a unit, needs the bucket's offloaded states (or its offloaded
// masters) in memory, because it reads them from storage, uses them or writes them back.
bool tri_offload_touches_states(const tri_offload_set *offload_set, tri_action_kind kind,
                                tri_bucket_kind bucket);
bool tri_offload_touches_masters(const tri_offload_set *offload_set, tri_action_kind kind,
                                 tri_bucket_kind bucket);
int64_t tri_offload_bytes(const tri_offload_set *offload_set, const tri_flat *flat,
                          const tri_action *action);

// A buffer: a range of a heap, in use from the first action that touches it to the last one. Before
// and after that, other buffers may lie there.
typedef struct tri_step_buffer {
    tri_heap heap;
    int64_t offset, size_bytes;
} tri_step_buffer;

// One buffer that an action touches. Before the action runs, the slot (entry of the table in which
// kernels look up addresses) is set to the buffer's address, `offset` bytes into its heap.
typedef struct tri_setting {
    int slot;
    int buffer; // index into tri_step_memory.buffers
    int64_t offset;
} tri_setting;

typedef struct tri_step_memory {
    tri_step_buffer *buffers;
    int buffer_count;
    tri_setting *settings;
    int *first; // the settings of action i are settings[first[i] … first[i + 1] - 1]
    int64_t heap_bytes[TRI_HEAP_COUNT];
    // By heap and action: how many of the heap's bytes are in use.
    int64_t *live_bytes[TRI_HEAP_COUNT];
    tri_wait *waits; // waits that are needed because memory is reused
    int wait_count;
} tri_step_memory;

typedef struct tri_step_memory_request {
    const tri_schedule *schedule;
    const tri_schedule_request *schedule_request; // the input from which the schedule was written
    const tri_flat *flat;
    tri_program *const *programs; // by micro-batch; NULL: it has no samples
    // The values that pipeline stages send each other (tri_step_round), which need memory until
    // they are sent or read. An edge is the values that one block makes and another stage reads,
    // one message for each micro-batch.
    const tri_edge_value *const *edge_values; // by micro-batch
    const int *const *edge_of_value;          // by micro-batch and edge value: its edge
    const int *edge_value_count;              // by micro-batch: how many values its edges carry
    // Whole parameters lie on the state heap, from GATHER to RELEASE; false: they are resident,
    // held during the whole step.
    bool releases;
    // Whole gradients lie on the state heap, from the first action that writes them to SCATTER;
    // false: they are resident, or `packs_gradients` is set.
    bool scatters_rounds;
    // Whole gradients lie on the activations' heap, from the first action that writes them to the
    // end of the step; false: they are resident, or `scatters_rounds` is set.
    bool packs_gradients;
    // The scratch of each compute action lies on the activations' heap; false: it is resident.
    bool packs_scratch;
    tri_offload_set offload_set;
    int64_t alignment; // alignment of each buffer, in bytes
} tri_step_memory_request;

void tri_step_memory_plan(tri_arena *arena, const tri_step_memory_request *request,
                          tri_step_memory *out);

// Checks that the schedule's dependencies order all uses of the same memory: an action that uses a
// buffer must come after all actions that used another buffer there before; else it would overwrite
// data that they still need. TRI_INTERNAL: the message names the two actions. Defined in
// verify_memory.c.
tri_status tri_step_memory_verify(const tri_step_memory *memory, const tri_schedule *schedule);

#endif
