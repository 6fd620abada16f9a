// What is known of a host when ranks are bound to its CPUs: the cores that this process may use,
// and where GPUs and network interfaces are attached. hwloc finds this; for tests, a file of
// hwloc's XML can describe another host.
#ifndef TRIREME_LAUNCH_TOPOLOGY_H
#define TRIREME_LAUNCH_TOPOLOGY_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>

enum { LAUNCH_MAX_CPUS = 8192 };
typedef struct launch_cpus {
    bool bound; // false: the worker is not bound to CPUs
    unsigned char set[LAUNCH_MAX_CPUS / 8];
} launch_cpus;

void launch_cpus_add(launch_cpus *cpus, int cpu);
bool launch_cpus_has(const launch_cpus *cpus, int cpu);
int launch_cpus_count(const launch_cpus *cpus);
// Writes a set of CPUs for readers: "1-7,64-71"; "none" for an empty set.
const char *launch_cpus_text(tri_arena *arena, const launch_cpus *cpus);
// Reads a text such as launch_cpus_text writes. False: it does not have this form.
bool launch_cpus_read(const char *text, launch_cpus *out);
// Writes a set of CPUs as a mask for Slurm's --cpu-bind, with zeros in front so that there is a
// digit for every four of the host's `width` CPUs: CPUs 1-7 of 16 are "0x00fe".
const char *launch_cpus_mask(tri_arena *arena, const launch_cpus *cpus, int width);

enum { LAUNCH_CORE_THREADS = 16 };
// A core. Sockets, NUMA nodes and last-level caches are numbered from 0, and those without usable
// cores are not counted: a batch system may have granted only some of the host's cores.
typedef struct launch_core {
    int threads[LAUNCH_CORE_THREADS]; // the system's numbers of its usable CPUs
    int thread_count;
    int socket, node, cache;
    int node_number; // the NUMA node's number in the system
} launch_core;

typedef struct launch_device {
    char name[32];
    int first_core, end_core; // range of usable cores nearest to the device: [first_core, end_core)
} launch_device;

typedef struct launch_topology {
    launch_core *cores; // sorted so that the cores of a socket, NUMA node or cache are consecutive
    int core_count, cpu_count;
    int cpu_width; // the highest CPU number of the host, plus one
    // How many sockets, NUMA nodes and last-level caches have usable cores.
    int sockets, nodes, caches;
    launch_device *gpus, *interfaces; // GPUs in the order of their PCI addresses
    int gpu_count, interface_count;
} launch_topology;

// Reads the topology. `xml`: a file that hwloc has written; NULL: this host, with the CPUs that
// this process may use. `devices`: also finds GPUs and network interfaces, which takes longer.
tri_status launch_topology_read(tri_arena *arena, const char *xml, bool devices,
                                launch_topology *out);

#endif
