// Chooses the CPUs of each worker of a host, and binds processes to them, so that workers do not
// run on each other's cores. It serves trireme run --numa-binding, and ranks that another launcher
// started (TRIREME_BIND).
#ifndef TRIREME_LAUNCH_BIND_H
#define TRIREME_LAUNCH_BIND_H

#include "launch/options.h"
#include "launch/topology.h"

#include <stdio.h>

// Where one worker runs.
typedef struct launch_place {
    launch_cpus cpus;
    int gpu; // number of the GPU in the topology; -1: none
} launch_place;

// Chooses a place for each of `workers` workers.
// - LAUNCH_BIND_AUTO: the workers get disjoint cores, near their GPUs. `visible` is the list in
//   CUDA_VISIBLE_DEVICES or a similar variable; NULL: worker i has GPU i. Without GPUs, or if not
//   every worker has one, the cores are divided in order.
// - The others: domains (NUMA nodes, sockets, groups of cores with one last-level cache) are
//   distributed over the workers in order and as evenly as possible; `exclusive` also divides a
//   NUMA node's cores among its workers.
// TRI_UNSUPPORTED: there are too few CPUs; the message says which are free.
tri_status launch_bind_plan(tri_arena *arena, const launch_topology *topology,
                            launch_binding binding, int workers, const char *visible,
                            launch_place *out);
// As launch_bind_plan, for the topology of this host, which it finds.
tri_status launch_bind_host(tri_arena *arena, launch_binding binding, int workers,
                            launch_topology *topology, launch_place *out);
// Prints the map of workers as a table, and the masks in one line, in the form of Slurm's
// --cpu-bind.
void launch_bind_print(tri_arena *arena, const launch_topology *topology,
                       const launch_place *places, int workers, FILE *out);
// Binds the calling process. It is async-signal-safe, because it runs in the worker's process
// between fork and exec. Returns -1 with errno on failure.
int launch_bind_apply(const launch_cpus *cpus);

// Binds a rank that srun or mpirun started to its part of the host's cores, if the host's ranks may
// use more CPUs than their parts. The variable TRIREME_BIND (auto or none; default auto) can forbid
// this; `get` reads variables. *cores: to how many cores the process is now bound; 0: it was not
// bound.
tri_status tri_bind_rank(const char *(*get)(const char *name), int *cores);

#endif
