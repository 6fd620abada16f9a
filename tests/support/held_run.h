// Runs steps of an engine in which chosen actions are held up: an action does not begin before
// others are done, or before some time has passed. An action is one entry of a step's schedule, and
// is named by its index there. A wait is a dependency in the schedule: one action begins only after
// another one is done. A test leaves out one wait and checks that the result is then wrong.
#ifndef TESTS_SUPPORT_HELD_RUN_H
#define TESTS_SUPPORT_HELD_RUN_H

#include "engine/engine_internal.h"
#include "support/device_notes.h"
#include "support/random_run.h"

// A program that uses held_run.c has to be linked with the option --wrap for tri_ledger_begin,
// tri_ledger_enter and tri_ledger_end, which the engine calls around each action, and for
// tri_storage_start and staged_group_advance.

enum { HELD_RUN_STEPS = 2, HELD_RUN_ALLOCATIONS = 256, HELD_RUN_ACTIONS = 512 };

// The device `far` (a device for tests that behaves like a GPU) under another name, with an `alloc`
// that notes all allocations, so that a test can read and overwrite all of the device's memory.
extern tri_device_backend held_run_device;
// Fills held_run_device. Has to be called before held_run_device is used.
void held_run_make_device(void);

// One rank of a random run: its engine, and copies of its inputs and its memory before the first
// step, from which the run can be repeated.
typedef struct held_run {
    const random_run *run;
    int rank;
    tri_device *device;
    tri_engine *engine;
    float *numbers[HELD_RUN_STEPS][TRI_MAX_ROUNDS]; // inputs and targets of each micro-batch
    // By allocation of device memory: its bytes before the first step. For memory that keeps
    // nothing from step to step, this is a pattern that no number has.
    void *saved_memory[HELD_RUN_ALLOCATIONS];
    float *offloaded; // state that lies in a file or in the host's memory: before the first step
} held_run;

// What is held up in a run, and which wait is left out.
typedef struct held_run_plan {
    int held_action;        // the action that is held up; -1: none
    bool delays_results;    // `held_action` is a collective: delays not its begin, but its results
    const bool *awaited;    // by action: whether `held_action` waits until this action is done
    int waiter, dependency; // the two actions of the wait that is left out; -1: none is left out
    // The last action that may begin before `dependency` is done; -1: all may.
    int last_before_dependency;
    // How long `held_action` is still held up after the actions that it awaits are done.
    int64_t more_us;
    int64_t limit_us;  // the latest time, after the step was issued, at which `held_action` goes on
    int most_delay_us; // every action is delayed by a random time of at most this
    uint64_t seed;
    device_notes *notes; // by action: which memory it uses; NULL: this is not recorded
} held_run_plan;

typedef struct held_run_result {
    tri_status status;
    uint64_t bits;   // hash of results and state
    uint64_t memory; // hash of all of the device's memory
    bool expired;    // the held action went on because of limit_us, and not after what it awaited
    // One of the two actions of the wait that is left out has started no work, so that there is
    // nothing to order.
    bool orders_nothing;
} held_run_result;

tri_status held_run_open(const random_run *run, const tri_plan *plan,
                         const tri_device_backend *backend, tri_comm *comm, held_run *out);
void held_run_close(held_run *run);
// Runs HELD_RUN_STEPS steps, beginning with the state that the engine had when it was opened.
tri_status held_run_steps(held_run *run, const held_run_plan *plan, held_run_result *out);

#endif
