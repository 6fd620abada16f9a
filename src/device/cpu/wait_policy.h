// Chooses whether OpenMP threads that wait for each other spin or yield their cores. Spinning is
// faster while each thread has a core. Where cores are shared, a spinning thread may take the core
// of the thread that it waits for, and yielding is faster. The choice is made by measuring, while
// the program runs.
#ifndef TRIREME_DEVICE_CPU_WAIT_POLICY_H
#define TRIREME_DEVICE_CPU_WAIT_POLICY_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cpu_wait_policy cpu_wait_policy;

// Starts a thread that chooses for `threads` OpenMP threads until cpu_wait_policy_stop. Returns
// NULL if there is nothing to choose: with one thread, if the user has chosen (OMP_WAIT_POLICY,
// GOMP_SPINCOUNT), or if the system does not tell how long threads wait for a core.
cpu_wait_policy *cpu_wait_policy_start(int threads);
void cpu_wait_policy_stop(cpu_wait_policy *policy); // NULL allowed
// Counts one parallel loop: spinning and yielding are compared by the number of loops per second.
// Only one thread may call this.
void cpu_wait_policy_count(cpu_wait_policy *policy); // NULL allowed
bool cpu_wait_policy_yields(const cpu_wait_policy *policy);

// The state of the choice. A state that is all zero begins with spinning. Time is divided into
// windows (cpu_wait_window). Loops are the parallel loops that cpu_wait_policy_count has counted.
// The state is declared here so that tests can look into it.
typedef struct cpu_wait_choice {
    bool yields;   // true: waiting threads at present yield their cores; false: they spin
    bool on_trial; // `yields` is being compared with its opposite, which was in use before
    // Average number of parallel loops per second. During a trial it stays as measured before the
    // trial. 0: not measured.
    double rate;
    int windows;         // time windows since the trial began
    int64_t wall_ns;     // wall-clock time that the trial has measured so far
    uint64_t loops;      // number of parallel loops in this time
    int64_t until_ns;    // wall-clock time left before the next trial
    int64_t interval_ns; // wall-clock time between two trials
} cpu_wait_choice;

// What happened in one window of time. From this follows whether waiting threads spin or yield.
typedef struct cpu_wait_window {
    int64_t wall_ns;    // length of the window, wall-clock time
    int64_t delayed_ns; // sum over threads: how long each was ready to run but had no core
    uint64_t loops;     // number of parallel loops
} cpu_wait_window;
// Updates the choice with what happened in the latest window of time.
void cpu_wait_choose(cpu_wait_choice *choice, const cpu_wait_window *window);

#endif
