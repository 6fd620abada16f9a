// Reads a host's topology into plain tables, by hwloc. Read next: bind.c.
#include "launch/topology.h"

#include <ctype.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void launch_cpus_add(launch_cpus *cpus, int cpu) {
    if (cpu >= 0 && cpu < LAUNCH_MAX_CPUS) cpus->set[cpu / 8] |= (unsigned char)(1u << cpu % 8);
}

bool launch_cpus_has(const launch_cpus *cpus, int cpu) {
    return cpu < LAUNCH_MAX_CPUS && cpus->set[cpu / 8] >> cpu % 8 & 1;
}

int launch_cpus_count(const launch_cpus *cpus) {
    int count = 0;
    for (int cpu = 0; cpu < LAUNCH_MAX_CPUS; cpu++) count += launch_cpus_has(cpus, cpu);
    return count;
}

const char *launch_cpus_text(tri_arena *arena, const launch_cpus *cpus) {
    const char *text = "";
    for (int cpu = 0, last; cpu < LAUNCH_MAX_CPUS; cpu = last + 1) {
        last = cpu;
        if (!launch_cpus_has(cpus, cpu)) continue;
        while (launch_cpus_has(cpus, last + 1)) last++;
        text = tri_arena_printf(arena, "%s%s%d", text, *text ? "," : "", cpu);
        if (last > cpu) text = tri_arena_printf(arena, "%s-%d", text, last);
    }
    return *text ? text : "none";
}

bool launch_cpus_read(const char *text, launch_cpus *out) {
    *out = (launch_cpus){0};
    for (const char *at = text;; at++) {
        char *end;
        if (!isdigit((unsigned char)*at)) return false;
        long first = strtol(at, &end, 10), last = first;
        if (*end == '-') {
            if (!isdigit((unsigned char)end[1])) return false;
            last = strtol(end + 1, &end, 10);
        }
        if (last < first || last >= LAUNCH_MAX_CPUS) return false;
        for (long i = first; i <= last; i++) launch_cpus_add(out, (int)i);
        if (!*end) return true;
        if (*end != ',') return false;
        at = end;
    }
}

const char *launch_cpus_mask(tri_arena *arena, const launch_cpus *cpus, int width) {
    char digits[LAUNCH_MAX_CPUS / 4 + 1];
    int count = 0;
    for (int cpu = LAUNCH_MAX_CPUS - 4; cpu >= 0; cpu -= 4) {
        int digit = cpus->set[cpu / 8] >> cpu % 8 & 15;
        if (count || digit || cpu < width) digits[count++] = "0123456789abcdef"[digit];
    }
    digits[count] = 0;
    return tri_arena_printf(arena, "0x%s", digits);
}

// Returns the number, from 0, of the socket, NUMA node or cache (`object`) to which a core belongs.
// Called for one usable core after the other. If `object` differs from that of the previous core
// (*last), or is NULL (the core has no such object), the core gets a new number; else the number of
// the previous core. *counted is how many numbers were given so far.
static int position_of(hwloc_obj_t object, int *counted, hwloc_obj_t *last) {
    if (!object || object != *last) (*counted)++;
    *last = object;
    return *counted - 1;
}

static hwloc_obj_t node_of(hwloc_topology_t topology, hwloc_obj_t core) {
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)))
        if (hwloc_bitmap_isincluded(core->cpuset, node->cpuset)) return node;
    return NULL;
}

static void read_cores(tri_arena *arena, hwloc_topology_t topology, launch_topology *out) {
    // Some virtual machines report no cores; then every CPU counts as a core.
    hwloc_obj_type_t type =
        hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    int count = hwloc_get_nbobjs_by_type(topology, type);
    hwloc_obj_t socket = NULL, node = NULL, cache = NULL;
    out->cores = TRI_NEW_ARRAY(arena, launch_core, count);
    for (int i = 0; i < count; i++) {
        hwloc_obj_t object = hwloc_get_obj_by_type(topology, type, (unsigned)i);
        launch_core *core = &out->cores[out->core_count];
        int cpu = hwloc_bitmap_first(object->cpuset);
        for (; cpu >= 0 && core->thread_count < LAUNCH_CORE_THREADS;
             cpu = hwloc_bitmap_next(object->cpuset, cpu))
            if (cpu < LAUNCH_MAX_CPUS) core->threads[core->thread_count++] = cpu;
        if (!core->thread_count) continue;
        hwloc_obj_t own = node_of(topology, object);
        core->socket =
            position_of(hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, object),
                        &out->sockets, &socket);
        core->node = position_of(own, &out->nodes, &node);
        core->node_number = own ? (int)own->os_index : core->node;
        core->cache =
            position_of(hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_L3CACHE, object),
                        &out->caches, &cache);
        out->cpu_count += core->thread_count;
        out->core_count++;
    }
    hwloc_const_cpuset_t all = hwloc_topology_get_complete_cpuset(topology);
    out->cpu_width = all ? hwloc_bitmap_last(all) + 1 : 0;
}

// Whether a PCI device is a GPU for computing: a display controller (class 0x03) or an accelerator
// (0x12) of NVIDIA, AMD or Intel. The vendor has to be checked, because the chip for a server's
// console is a display controller too.
static bool is_gpu(hwloc_obj_t pci) {
    int class = pci->attr->pcidev.class_id >> 8, vendor = pci->attr->pcidev.vendor_id;
    return (class == 0x03 || class == 0x12) &&
           (vendor == 0x10de || vendor == 0x1002 || vendor == 0x8086);
}

static int by_address(const void *a, const void *b) {
    return strcmp(((const launch_device *)a)->name, ((const launch_device *)b)->name);
}

// Finds the usable cores nearest to a device: those below the object in hwloc's hierarchy, such as
// a NUMA node, to which the device is attached. If there are none, no core is nearer than another,
// so the device's range is all cores.
static launch_device make_device(hwloc_topology_t topology, const launch_topology *host,
                                 hwloc_obj_t device, const char *name) {
    launch_device out = {.first_core = 0, .end_core = host->core_count};
    snprintf(out.name, sizeof out.name, "%s", name);
    hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology, device);
    int first = -1, end = -1;
    for (int i = 0; near && near->cpuset && i < host->core_count; i++) {
        if (!hwloc_bitmap_isset(near->cpuset, (unsigned)host->cores[i].threads[0])) continue;
        if (first < 0) first = i;
        end = i + 1;
    }
    if (first >= 0) out.first_core = first, out.end_core = end;
    return out;
}

static void read_devices(tri_arena *arena, hwloc_topology_t topology, launch_topology *out) {
    int gpus = 0, interfaces = 0;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_pcidev(topology, o));) {
        char name[32];
        const struct hwloc_pcidev_attr_s *at = &o->attr->pcidev;
        if (!is_gpu(o)) continue;
        snprintf(name, sizeof name, "%04x:%02x:%02x.%x", (unsigned)at->domain, at->bus, at->dev,
                 at->func);
        TRI_PUSH(arena, out->gpus, out->gpu_count, gpus) = make_device(topology, out, o, name);
    }
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_osdev(topology, o));)
        if (o->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK && o->name)
            TRI_PUSH(arena, out->interfaces, out->interface_count, interfaces) =
                make_device(topology, out, o, o->name);
    if (out->gpu_count) qsort(out->gpus, (size_t)out->gpu_count, sizeof *out->gpus, by_address);
    if (out->interface_count)
        qsort(out->interfaces, (size_t)out->interface_count, sizeof *out->interfaces, by_address);
}

tri_status launch_topology_read(tri_arena *arena, const char *xml, bool devices,
                                launch_topology *out) {
    *out = (launch_topology){0};
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) return TRI_FAIL(TRI_NO_MEMORY, "hwloc: no memory");
    // Keeps only the CPUs that this process may use, because a batch system may have granted only
    // some of the host.
    if (!xml)
        hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING |
                                               HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM);
    if (devices) hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    tri_status status = TRI_OK;
    if ((xml && hwloc_topology_set_xml(topology, xml) != 0) || hwloc_topology_load(topology) != 0) {
        status =
            TRI_FAIL(TRI_UNSUPPORTED, "%s: the topology cannot be read", xml ? xml : "this host");
    } else {
        read_cores(arena, topology, out);
        if (devices) read_devices(arena, topology, out);
        if (!out->core_count)
            status = TRI_FAIL(TRI_UNSUPPORTED, "%s: hwloc tells no CPUs", xml ? xml : "this host");
    }
    hwloc_topology_destroy(topology);
    return status;
}
