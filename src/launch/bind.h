// Which CPUs a worker may use (--numa-binding).
#ifndef TRIREME_LAUNCH_BIND_H
#define TRIREME_LAUNCH_BIND_H

#include "launch/options.h"

#include <sched.h>

enum { LAUNCH_MAX_CPUS = 8192 };
typedef struct launch_cpus {
    bool bound; // false: leave the worker where it is
    unsigned char set[LAUNCH_MAX_CPUS / 8];
} launch_cpus;

// CPUs of worker `local_rank` of `workers`, among those this process may use. Domains (NUMA nodes,
// sockets, groups of cores with one last-level cache) are dealt to the workers in order, as evenly
// as they go; `exclusive` also divides a NUMA node's cores among its workers.
tri_status launch_bind(launch_binding binding, int local_rank, int workers, launch_cpus *out);
// Async-signal-safe; for the worker's process, before it becomes the program.
int launch_bind_apply(const launch_cpus *cpus);

#endif
