// Binds workers to CPUs (--numa-binding).
#ifndef TRIREME_LAUNCH_BIND_H
#define TRIREME_LAUNCH_BIND_H

#include "launch/options.h"

#include <sched.h>

enum { LAUNCH_MAX_CPUS = 8192 };
typedef struct launch_cpus {
    bool bound; // false: the worker is not bound to any CPUs
    unsigned char set[LAUNCH_MAX_CPUS / 8];
} launch_cpus;

// Finds the CPUs of worker `local_rank` of `workers` among those that this process may use. Domains
// (NUMA nodes, sockets, groups of cores with one last-level cache) are distributed over the workers
// in order and as evenly as possible; `exclusive` also divides a NUMA node's cores among its
// workers. TRI_UNSUPPORTED: the host reports no such domains, or too few CPUs.
tri_status launch_bind(launch_binding binding, int local_rank, int workers, launch_cpus *out);
// Binds the calling process; for the worker's process between fork and exec, so it is
// async-signal-safe. Returns -1 with errno on failure.
int launch_bind_apply(const launch_cpus *cpus);

#endif
