// Where, during one step, everything lies that does not stay: values that wait between segments,
// inputs, gathered parameters, gradients on their way, what storage brings. Placed over the whole
// schedule by lifetime.
#ifndef TRIREME_PLAN_STEP_MEMORY_H
#define TRIREME_PLAN_STEP_MEMORY_H

#include "plan/flat.h"
#include "plan/program.h"
#include "plan/schedule.h"

// The two stretches of memory that a step uses again and again.
typedef enum tri_heap {
    TRI_HEAP_ACTIVATIONS, // of the device; while STEPs run, the optimizer's states lie there
    TRI_HEAP_STATE,       // parameters and gradients that come and go, which communicators touch
    TRI_HEAP_COUNT
} tri_heap;

// What an action finds at some offset: a slot. The inputs of a round, the bundles of the program
// of its micro-batch; of a unit's part the parameters and gradients as kernels have them, and of
// this rank's range the masters and the optimizer's states, one behind the other.
enum { TRI_SLOT_INPUTS = 0 };
int tri_slot_parameters(int unit, tri_bucket_kind bucket);
int tri_slot_gradients(int unit, tri_bucket_kind bucket);
int tri_slot_masters(int unit, tri_bucket_kind bucket);
int tri_slot_states(int unit, tri_bucket_kind bucket);
int tri_slot_bundle(const tri_flat *flat, int bundle);
tri_heap tri_slot_heap(const tri_flat *flat, int slot);

// What lies in storage between its uses, of this rank's range of every unit.
typedef struct tri_offload_set {
    int states;                     // of the optimizer; 0: they stay in memory
    bool masters[TRI_BUCKET_COUNT]; // of that part
} tri_offload_set;

// Whether this action on a unit is one of those that bring, use or put away the part's states; its
// masters.
bool tri_offload_touches_states(const tri_offload_set *offload_set, tri_action_kind kind,
                                tri_bucket_kind bucket);
bool tri_offload_touches_masters(const tri_offload_set *offload_set, tri_action_kind kind,
                                 tri_bucket_kind bucket);
int64_t tri_offload_bytes(const tri_offload_set *offload_set, const tri_flat *flat,
                          const tri_action *action);

// Before an action runs, the slot is at this offset of its stretch.
typedef struct tri_setting {
    int slot;
    int64_t offset;
} tri_setting;

typedef struct tri_step_memory {
    tri_setting *settings;
    int *first; // by action, one more than there are actions
    int64_t heap_bytes[TRI_HEAP_COUNT];
    int64_t *live_bytes[TRI_HEAP_COUNT]; // by action: of the stretch, what is in use
    tri_wait *waits;                     // for memory that is used again
    int wait_count;
} tri_step_memory;

typedef struct tri_step_memory_request {
    const tri_schedule *schedule;
    const tri_schedule_request *blocks; // what the schedule was written from
    const tri_flat *flat;
    tri_program *const *programs; // by round; NULL where there are no samples
    // By program, see tri_round: which crossings an edge carries.
    const tri_edge_value *const *edge_values; // by round
    const int *const *edge_of_value;          // by round: the edge of each crossing
    const int *edge_value_count;              // by round
    bool gathers;                             // parameters lie where GATHER puts them until RELEASE
    bool scatters; // gradients lie where the first writer puts them until SCATTER
    tri_offload_set offload_set;
} tri_step_memory_request;

void tri_step_memory_plan(tri_arena *arena, const tri_step_memory_request *request,
                          tri_step_memory *out);

#endif
