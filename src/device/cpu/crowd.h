// Threads that wait for each other spin, which is fastest while each has a core, and takes the core
// from whom they wait for where cores are shared. A thread looks now and then how long the others
// are kept from running, and chooses.
#ifndef TRIREME_DEVICE_CPU_CROWD_H
#define TRIREME_DEVICE_CPU_CROWD_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cpu_crowd cpu_crowd;

// NULL for one thread, where the user has chosen (OMP_WAIT_POLICY, GOMP_SPINCOUNT), and where the
// system does not tell how long threads are delayed.
cpu_crowd *cpu_crowd_start(int threads);
void cpu_crowd_stop(cpu_crowd *crowd); // NULL allowed
bool cpu_crowd_yields(const cpu_crowd *crowd);

// The choice, for tests; a zeroed one begins.
typedef struct cpu_crowd_choice {
    bool yields;
    int64_t quiet_ns; // for how long nothing was delayed
    int64_t trial_ns; // how long that has to last before threads spin again
} cpu_crowd_choice;
void cpu_crowd_choose(cpu_crowd_choice *choice, int64_t wall_ns, int64_t delayed_ns);

#endif
