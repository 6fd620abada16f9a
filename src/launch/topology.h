// What a host has, as far as binding needs it: the cores that this process may use, and where GPUs
// and network interfaces are attached. From hwloc; a file of hwloc's XML describes other hosts, for
// tests.
#ifndef TRIREME_LAUNCH_TOPOLOGY_H
#define TRIREME_LAUNCH_TOPOLOGY_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>

enum { LAUNCH_MAX_CPUS = 8192 };
typedef struct launch_cpus {
    bool bound; // false: the worker is not bound to any CPUs
    unsigned char set[LAUNCH_MAX_CPUS / 8];
} launch_cpus;

void launch_cpus_add(launch_cpus *cpus, int cpu);
bool launch_cpus_has(const launch_cpus *cpus, int cpu);
int launch_cpus_count(const launch_cpus *cpus);
// Writes a set of CPUs for people: "1-7,64-71"; "none" for an empty set.
const char *launch_cpus_text(tri_arena *arena, const launch_cpus *cpus);
// Reads such a text; false: it is not of that form.
bool launch_cpus_read(const char *text, launch_cpus *out);
// Writes a set of CPUs as Slurm's --cpu-bind takes it: "0x00fe", with a digit for every four CPUs
// up to `width`, at least.
const char *launch_cpus_mask(tri_arena *arena, const launch_cpus *cpus, int width);

enum { LAUNCH_CORE_THREADS = 16 };
// A core. Numbers of sockets, NUMA nodes and caches count those of the host that have usable cores,
// because a batch system may have granted only some.
typedef struct launch_core {
    int threads[LAUNCH_CORE_THREADS]; // the system's numbers of its usable CPUs
    int thread_count;
    int socket, node, cache;
    int node_number; // the NUMA node's number as the system counts
} launch_core;

typedef struct launch_device {
    char name[32];
    int first_core, end_core; // the usable cores that are nearest
} launch_device;

typedef struct launch_topology {
    launch_core *cores; // in the order of the host's hierarchy
    int core_count, cpu_count;
    int cpu_width; // one more than the highest CPU number of the host
    int sockets, nodes, caches;
    launch_device *gpus, *interfaces; // GPUs in the order of their PCI addresses
    int gpu_count, interface_count;
} launch_topology;

// Reads the topology. `xml`: a file that hwloc wrote; NULL: this host and the CPUs that this
// process may use. `devices`: look for GPUs and network interfaces too, which takes longer.
tri_status launch_topology_read(tri_arena *arena, const char *xml, bool devices,
                                launch_topology *out);

#endif
