// Chooses the CPUs of each worker (a rank's process) of a host, and binds processes to them, so
// that workers do not run on each other's cores. `trireme run --numa-binding` uses this, and so do
// ranks that another launcher started, unless the environment variable TRIREME_BIND forbids it.
#ifndef TRIREME_LAUNCH_BIND_H
#define TRIREME_LAUNCH_BIND_H

#include "launch/options.h"
#include "launch/topology.h"

#include <stdio.h>

// The CPUs and the GPU with which one worker runs.
typedef struct launch_assignment {
    launch_cpus cpus;
    int gpu; // number of the GPU in the topology; -1: none
} launch_assignment;

// Chooses for each of `workers` workers the CPUs and the GPU with which it runs.
// - LAUNCH_BIND_AUTO: the workers get disjoint cores, near their GPUs. `visible` is the list in
//   CUDA_VISIBLE_DEVICES or a similar variable; NULL: worker i has GPU i. Without GPUs, or if not
//   every worker has one, the first worker gets the first cores, and so on.
// - LAUNCH_BIND_NONE: no worker is bound.
// - Every other binding gives each worker one domain: a socket (LAUNCH_BIND_SOCKET), the cores that
//   share a last-level cache (LAUNCH_BIND_CORE_COMPLEX), or a NUMA node. Worker i of n gets domain
//   i * domains / n. Workers of one domain may all run on all of its cores; only with
//   LAUNCH_BIND_EXCLUSIVE they divide these.
// TRI_UNSUPPORTED: there are too few CPUs; the message says which are free.
tri_status launch_bind_plan(tri_arena *arena, const launch_topology *topology,
                            launch_binding binding, int workers, const char *visible,
                            launch_assignment *out);
// As launch_bind_plan, for this host, whose topology it finds and returns.
tri_status launch_bind_host(tri_arena *arena, launch_binding binding, int workers,
                            launch_topology *topology, launch_assignment *out);
// Prints a table of the workers with their GPUs and CPUs, then their CPUs as masks in one line:
// "masks: 0x00fe,0xfe00", as Slurm's --cpu-bind=mask_cpu takes them.
void launch_bind_print(tri_arena *arena, const launch_topology *topology,
                       const launch_assignment *assignments, int workers, FILE *out);
// Binds the calling process to these CPUs, if cpus->bound is set. The function is
// async-signal-safe, so that a worker's process can call it between fork and exec. Returns -1 with
// errno on failure.
int launch_bind_apply(const launch_cpus *cpus);

// Binds this rank to cores that no other rank of the host gets. This is for ranks that srun or
// mpirun started, and is done only if the rank may use more than its fraction of the host's CPUs
// (all CPUs divided by the number of ranks there). TRIREME_BIND=none forbids it; `get` reads
// environment variables, as getenv does. *cores: the number of cores to which the process is now
// bound; 0: it was not bound.
tri_status tri_bind_rank(const char *(*get)(const char *name), int *cores);

#endif
