// Where, during one step, everything lies that does not stay for the whole run: values that wait
// between segments, inputs, gathered parameters, gradients before SCATTER, what storage brings.
// Each is in use from a first to a last action of the schedule; buffers in use at the same time do
// not overlap. One step of fsdp with two blocks (a, b), over its actions:
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

// Heaps: ranges of memory that a step uses again and again. There are several, because what
// communicators touch, and inputs that are copied ahead, need memory of their own.
typedef enum tri_heap {
    TRI_HEAP_ACTIVATIONS, // while STEPs run, offloaded optimizer states lie here
    TRI_HEAP_STATE,       // parameters and gradients that come and go, which communicators touch
    // The inputs that a step takes first, on a device that runs ahead. There are two of this heap,
    // used by every other step, because these inputs are copied while the step before still
    // computes.
    TRI_HEAP_INPUTS,
    TRI_HEAP_COUNT
} tri_heap;

// Slots: the entries of a table that says at what address an action finds something. Kernels look
// up slots, because addresses change from action to action. There is one for a round's inputs, one
// for each bundle of the program, and four for each bucket of each unit: parameters as kernels read
// them, gradients as kernels write them, this rank's range of the masters, and its range of the
// optimizer states, one after the other.
enum { TRI_SLOT_INPUTS = 0 };
int tri_slot_parameters(int unit, tri_bucket_kind bucket);
int tri_slot_gradients(int unit, tri_bucket_kind bucket);
int tri_slot_masters(int unit, tri_bucket_kind bucket);
int tri_slot_states(int unit, tri_bucket_kind bucket);
int tri_slot_bundle(const tri_flat *flat, int bundle);
// The heap in which a slot's buffers lie, except for those of TRI_HEAP_INPUTS.
tri_heap tri_slot_heap(const tri_flat *flat, int slot);

// What of this rank's state is offloaded: it lies in storage between its uses, so that it needs
// memory only while an action uses it.
typedef struct tri_offload_set {
    int states;                     // of the optimizer; 0: they stay in memory
    bool masters[TRI_BUCKET_COUNT]; // by bucket
} tri_offload_set;

// Whether an action on a unit brings, uses or puts away the bucket's offloaded states, or its
// offloaded masters: these are the actions during which they need memory.
bool tri_offload_touches_states(const tri_offload_set *offload_set, tri_action_kind kind,
                                tri_bucket_kind bucket);
bool tri_offload_touches_masters(const tri_offload_set *offload_set, tri_action_kind kind,
                                 tri_bucket_kind bucket);
int64_t tri_offload_bytes(const tri_offload_set *offload_set, const tri_flat *flat,
                          const tri_action *action);

// Memory that is in use from the first to the last action that has a setting with this buffer.
// Outside of these actions other buffers may lie there.
typedef struct tri_step_buffer {
    tri_heap heap;
    int64_t offset, size_bytes;
} tri_step_buffer;

// Before the action runs, the slot is set to this offset of its heap, so that the action's kernels
// find the buffer there.
typedef struct tri_setting {
    int slot;
    int buffer; // into tri_step_memory.buffers
    int64_t offset;
} tri_setting;

typedef struct tri_step_memory {
    tri_step_buffer *buffers;
    int buffer_count;
    tri_setting *settings;
    int *first; // action i has settings[first[i] … first[i + 1] - 1]
    int64_t heap_bytes[TRI_HEAP_COUNT];
    int64_t *live_bytes[TRI_HEAP_COUNT]; // by action: how much of the heap is in use
    tri_wait *waits;                     // because memory is reused
    int wait_count;
} tri_step_memory;

typedef struct tri_step_memory_request {
    const tri_schedule *schedule;
    const tri_schedule_request *blocks; // what the schedule was written from
    const tri_flat *flat;
    tri_program *const *programs; // by round; NULL where there are no samples
    // What edges carry, which needs memory until it is sent or read: see tri_round.
    const tri_edge_value *const *edge_values; // by round
    const int *const *edge_of_value;          // by round, and by edge value: its edge
    const int *edge_value_count;              // by round
    bool releases;                            // parameters lie where GATHER puts them until RELEASE
    bool scatters_rounds; // gradients lie where the first writer puts them until SCATTER
    tri_offload_set offload_set;
    int64_t alignment; // of buffers
} tri_step_memory_request;

void tri_step_memory_plan(tri_arena *arena, const tri_step_memory_request *request,
                          tri_step_memory *out);

// In verify_memory.c. Checks that the schedule's dependencies order all uses of the same memory: an
// action that uses a buffer has to come after all actions that used another buffer there before, or
// it overwrites what they need. TRI_INTERNAL names the two actions.
tri_status tri_step_memory_verify(const tri_step_memory *memory, const tri_schedule *schedule);

#endif
