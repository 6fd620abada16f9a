// Which CPUs each worker of `trireme run --numa-binding` may use, from hwloc's picture of the host.
#include "launch/bind.h"

#include <hwloc.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static hwloc_obj_type_t domain_type(launch_binding binding) {
    switch (binding) {
    case LAUNCH_BIND_SOCKET:
        return HWLOC_OBJ_PACKAGE;
    case LAUNCH_BIND_CORE_COMPLEX:
        return HWLOC_OBJ_L3CACHE;
    default:
        return HWLOC_OBJ_NUMANODE;
    }
}

// Worker i of n uses domain i * domains / n: where there are more workers than domains, consecutive
// workers share one.
static int domain_of(int local_rank, int workers, int domains) {
    return (int)((long)local_rank * domains / workers);
}

// The cores of worker `index` of the `sharers` that divide the domain's cores; at least one. Where
// there are fewer cores than sharers, hardware threads are divided instead.
static void divide_cores(hwloc_topology_t topology, hwloc_const_cpuset_t domain, int index,
                         int sharers, hwloc_cpuset_t out) {
    int cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology, domain, HWLOC_OBJ_CORE);
    hwloc_obj_type_t type = cores >= sharers ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    int units = hwloc_get_nbobjs_inside_cpuset_by_type(topology, domain, type);
    int first = (int)((long)index * units / sharers),
        end = (int)((long)(index + 1) * units / sharers);
    if (end == first) end = first + 1;
    hwloc_bitmap_zero(out);
    for (int i = first; i < end && i < units; i++) {
        hwloc_obj_t unit = hwloc_get_obj_inside_cpuset_by_type(topology, domain, type, (unsigned)i);
        hwloc_bitmap_or(out, out, unit->cpuset);
    }
}

static tri_status choose_cpus(hwloc_topology_t topology, launch_binding binding, int local_rank,
                              int workers, hwloc_cpuset_t cpus) {
    int domains = hwloc_get_nbobjs_by_type(topology, domain_type(binding));
    if (domains < 1)
        return TRI_FAIL(TRI_UNSUPPORTED, "--numa-binding: this host reports no %s",
                        binding == LAUNCH_BIND_CORE_COMPLEX ? "last-level caches" : "such domains");
    int own = domain_of(local_rank, workers, domains);
    hwloc_obj_t domain = hwloc_get_obj_by_type(topology, domain_type(binding), (unsigned)own);
    hwloc_bitmap_copy(cpus, domain->cpuset);
    if (binding == LAUNCH_BIND_EXCLUSIVE) {
        int sharers = 0, index = 0;
        for (int i = 0; i < workers; i++)
            if (domain_of(i, workers, domains) == own) {
                if (i < local_rank) index++;
                sharers++;
            }
        divide_cores(topology, domain->cpuset, index, sharers, cpus);
    }
    return hwloc_bitmap_iszero(cpus)
               ? TRI_FAIL(TRI_UNSUPPORTED, "--numa-binding: no CPU is left for local rank %d",
                          local_rank)
               : TRI_OK;
}

tri_status launch_bind(launch_binding binding, int local_rank, int workers, launch_cpus *out) {
    *out = (launch_cpus){0};
    if (binding == LAUNCH_BIND_NONE) return TRI_OK;
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0)
        return TRI_FAIL(TRI_NO_MEMORY, "--numa-binding: no memory");
    tri_status status = TRI_OK;
    // Only the CPUs that this process may use: a batch system may have granted a part of the host.
    hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING |
                                           HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM);
    if (hwloc_topology_load(topology) != 0)
        status = TRI_FAIL(TRI_UNSUPPORTED, "--numa-binding: this host's topology cannot be read");
    hwloc_cpuset_t cpus = hwloc_bitmap_alloc();
    if (status == TRI_OK) status = choose_cpus(topology, binding, local_rank, workers, cpus);
    int cpu = status == TRI_OK ? hwloc_bitmap_first(cpus) : -1;
    for (; cpu >= 0 && cpu < LAUNCH_MAX_CPUS; cpu = hwloc_bitmap_next(cpus, cpu))
        out->set[cpu / 8] |= (unsigned char)(1u << cpu % 8);
    out->bound = status == TRI_OK;
    hwloc_bitmap_free(cpus);
    hwloc_topology_destroy(topology);
    return status;
}

int launch_bind_apply(const launch_cpus *cpus) {
    if (!cpus->bound) return 0;
    // The kernel expects an array of words; on a little-endian machine an array of bytes is the
    // same.
    return syscall(SYS_sched_setaffinity, 0, sizeof cpus->set, cpus->set) < 0 ? -1 : 0;
}
