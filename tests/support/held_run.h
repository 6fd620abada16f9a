// Runs steps of an engine in which chosen actions are held up: an action does not begin before
// others are done, or before some time has passed.
#ifndef TESTS_SUPPORT_HELD_RUN_H
#define TESTS_SUPPORT_HELD_RUN_H

#include "engine/engine_internal.h"
#include "support/device_notes.h"
#include "support/random_run.h"

// The program has to be linked with the options --wrap of tri_ledger_begin, tri_ledger_enter and
// tri_ledger_end, which the engine calls around each action, of tri_storage_start, and of
// staged_group_advance.

enum { HELD_RUN_STEPS = 2, HELD_RUN_ALLOCATIONS = 256, HELD_RUN_ACTIONS = 512 };

// The device far with another name in its tables: it notes what is allocated, so that a test can
// read and overwrite all of the device's memory.
extern tri_device_backend held_run_device;
void held_run_make_device(void); // before it is used

// One rank: its engine, and what it began with.
typedef struct held_run {
    const random_run *run;
    int rank;
    tri_device *device;
    tri_engine *engine;
    float *numbers[HELD_RUN_STEPS][TRI_MAX_ROUNDS]; // inputs and targets of each micro-batch
    void *images[HELD_RUN_ALLOCATIONS]; // by allocation: its bytes, where engines keep nothing from
                                        // step to step with a pattern that no number has
    float *offloaded;                   // what lies in a file
} held_run;

// What is held up in a run, and which wait is left out.
typedef struct held_run_plan {
    int held;  // -1: nothing
    bool late; // not before it begins, but before its results arrive; of collectives on a unit
    const bool *free;       // by action: what is done before
    int behind;             // all actions after this one begin after `dependency` is done; -1: none
    int waiter, dependency; // of the wait that is left out; -1: all are there
    int64_t more_us;        // `held` goes on so long after all of `free`
    int64_t limit_us;       // ... and so long after the step was issued in any case
    int most_delay_us;      // of every action, at random
    uint64_t seed;
    device_notes *notes; // by action; NULL: none are wanted
} held_run_plan;

typedef struct held_run_result {
    tri_status status;
    uint64_t bits;   // of results and state
    uint64_t memory; // of all of the device's memory
    bool expired;    // `held` began because of the limit
    bool is_nothing; // there is no work that the wait could order
} held_run_result;

tri_status held_run_open(const random_run *run, const tri_plan *plan,
                         const tri_device_backend *backend, tri_comm *comm, held_run *out);
void held_run_close(held_run *run);
// From the state in which the engine was opened.
tri_status held_run_steps(held_run *run, const held_run_plan *plan, held_run_result *out);

#endif
