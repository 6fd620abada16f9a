// Chooses how threads that wait for each other wait. Spinning is fastest while each has a core;
// where cores are shared it takes the core from the thread that is waited for, and sleeping is
// faster. Which of the two is faster is measured, while the program runs.
#ifndef TRIREME_DEVICE_CPU_CROWD_H
#define TRIREME_DEVICE_CPU_CROWD_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cpu_crowd cpu_crowd;

// NULL for one thread, where the user has chosen (OMP_WAIT_POLICY, GOMP_SPINCOUNT), and where the
// system does not tell how long threads are delayed.
cpu_crowd *cpu_crowd_start(int threads);
void cpu_crowd_stop(cpu_crowd *crowd); // NULL allowed
// One more piece of work begins; from one thread. How fast they follow each other is the rate by
// which the two ways are compared.
void cpu_crowd_count(cpu_crowd *crowd); // NULL allowed
bool cpu_crowd_yields(const cpu_crowd *crowd);

// The choice, for tests; a zeroed one begins and spins.
typedef struct cpu_crowd_choice {
    bool yields;         // how threads wait now
    bool on_trial;       // to be compared with the other way, which was used before
    double rate;         // work per second, of the way that was in use before the trial
    int windows;         // since the trial began
    int64_t wall_ns;     // measured by the trial so far
    uint64_t work;       // likewise
    int64_t until_ns;    // time left before the next trial
    int64_t interval_ns; // between two trials
} cpu_crowd_choice;

// What happened in one window of time.
typedef struct cpu_crowd_window {
    int64_t wall_ns;
    int64_t delayed_ns; // that threads were ready to run while no core was free
    uint64_t work;
} cpu_crowd_window;
void cpu_crowd_choose(cpu_crowd_choice *choice, const cpu_crowd_window *window);

#endif
