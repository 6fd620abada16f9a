// Decides which CPUs each worker of a host may use. A worker is a rank's process, which `trireme
// run` starts. A core may have several hardware threads, and each of these is a CPU for the system.
// Read next: bind_rank.c, for ranks that other launchers started.
#include "launch/bind.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// The consecutive cores [first, end) of the topology.
typedef struct cores {
    int first, end;
} cores;

static void add_core(const launch_core *core, launch_cpus *out) {
    for (int i = 0; i < core->thread_count; i++) launch_cpus_add(out, core->threads[i]);
}

// Divides the cores `of` among `sharers` workers, and adds to `out` the CPUs of worker number
// `index` among them. Each worker gets whole cores or, if there are fewer cores than workers, whole
// hardware threads. If there are not even enough threads, several workers get the same one.
static void add_share(const launch_topology *t, cores of, int index, int sharers,
                      launch_cpus *out) {
    int count = of.end - of.first;
    if (count >= sharers) {
        int first = (int)((long)index * count / sharers);
        int end = (int)((long)(index + 1) * count / sharers);
        for (int i = first; i < end; i++) add_core(&t->cores[of.first + i], out);
        return;
    }
    int threads = 0, at = 0;
    for (int i = of.first; i < of.end; i++) threads += t->cores[i].thread_count;
    int first = (int)((long)index * threads / sharers);
    int end = (int)((long)(index + 1) * threads / sharers);
    if (end == first) end = first + 1;
    for (int i = of.first; i < of.end; i++)
        for (int k = 0; k < t->cores[i].thread_count; k++, at++)
            if (at >= first && at < end) launch_cpus_add(out, t->cores[i].threads[k]);
}

static int domain_of_core(const launch_core *core, launch_binding binding) {
    switch (binding) {
    case LAUNCH_BIND_SOCKET:
        return core->socket;
    case LAUNCH_BIND_CORE_COMPLEX:
        return core->cache;
    default:
        return core->node;
    }
}

static cores cores_of_domain(const launch_topology *t, launch_binding binding, int domain) {
    cores out = {0, 0};
    while (out.first < t->core_count && domain_of_core(&t->cores[out.first], binding) != domain)
        out.first++;
    out.end = out.first;
    while (out.end < t->core_count && domain_of_core(&t->cores[out.end], binding) == domain)
        out.end++;
    return out;
}

// Gives each worker a domain: a socket, the cores of a last-level cache, or a NUMA node. Worker i
// of n gets domain i * domains / n. So if there are more workers than domains, consecutive workers
// share a domain, because consecutive ranks exchange most data with each other.
static void plan_domains(const launch_topology *t, launch_binding binding, int workers,
                         launch_assignment *out) {
    int domains = binding == LAUNCH_BIND_SOCKET         ? t->sockets
                  : binding == LAUNCH_BIND_CORE_COMPLEX ? t->caches
                                                        : t->nodes;
    for (int i = 0; i < workers; i++) {
        int own = (int)((long)i * domains / workers), index = 0, sharers = 0;
        for (int k = 0; k < workers; k++) {
            if ((long)k * domains / workers != own) continue;
            index += k < i;
            sharers++;
        }
        bool divides = binding == LAUNCH_BIND_EXCLUSIVE;
        add_share(t, cores_of_domain(t, binding, own), divides ? index : 0, divides ? sharers : 1,
                  &out[i].cpus);
    }
}

// Finds each worker's GPU by `visible`, the value of CUDA_VISIBLE_DEVICES or a similar variable:
// with "2,3", worker 0 has GPU 2 and worker 1 has GPU 3. If `visible` is NULL, worker i has GPU i.
// False: there is no GPU for some worker, or `visible` has names instead of numbers.
static bool assign_gpus(const launch_topology *t, const char *visible, int workers,
                        launch_assignment *out) {
    const char *at = visible;
    for (int i = 0; i < workers; i++) {
        long gpu = i;
        if (visible) {
            char *end;
            if (!isdigit((unsigned char)*at)) return false;
            gpu = strtol(at, &end, 10);
            if (*end && *end != ',') return false;
            at = *end ? end + 1 : end;
        }
        if (gpu < 0 || gpu >= t->gpu_count) return false;
        out[i].gpu = (int)gpu;
    }
    return true;
}

static bool same_cores(const launch_device *a, const launch_device *b) {
    return a->first_core == b->first_core && a->end_core == b->end_core;
}

static int distance(const launch_core *a, const launch_core *b) { return abs(a->node - b->node); }

// Gives the cores of those NUMA nodes of a socket that are near no worker's GPU to the workers
// whose GPUs are at this socket. Each node goes as a whole to the worker that has the fewest CPUs
// so far; if several have equally few, to the one whose GPU is nearest. If the workers cannot get
// equally many of these nodes, none gets any, so that all workers are equally fast.
static void add_free_nodes(const launch_topology *t, int socket, int workers,
                           launch_assignment *out) {
    int free_nodes = 0, sharers = 0;
    bool *taken = calloc((size_t)t->nodes + 1, sizeof *taken);
    for (int i = 0; taken && i < workers; i++) {
        const launch_device *gpu = &t->gpus[out[i].gpu];
        sharers += t->cores[gpu->first_core].socket == socket;
        for (int c = gpu->first_core; c < gpu->end_core; c++) taken[t->cores[c].node] = true;
    }
    for (int node = 0; taken && node < t->nodes; node++) {
        cores own = cores_of_domain(t, LAUNCH_BIND_NODE, node);
        free_nodes += t->cores[own.first].socket == socket && !taken[node];
    }
    for (int node = 0; taken && sharers && free_nodes % sharers == 0 && node < t->nodes; node++) {
        cores own = cores_of_domain(t, LAUNCH_BIND_NODE, node);
        int best = -1, best_count = 0, best_way = 0;
        if (t->cores[own.first].socket != socket || taken[node]) continue;
        for (int i = 0; i < workers; i++) {
            const launch_core *at = &t->cores[t->gpus[out[i].gpu].first_core];
            int count = launch_cpus_count(&out[i].cpus), way = distance(at, &t->cores[own.first]);
            if (at->socket != socket ||
                (best >= 0 && (count > best_count || (count == best_count && way >= best_way))))
                continue;
            best = i;
            best_count = count;
            best_way = way;
        }
        add_share(t, own, 0, 1, &out[best].cpus);
    }
    free(taken);
}

// Gives each worker the cores near its GPU. Workers whose GPUs are near the same cores divide
// these, in the order of the GPUs.
static void plan_near_gpus(const launch_topology *t, int workers, launch_assignment *out) {
    for (int i = 0; i < workers; i++) {
        const launch_device *gpu = &t->gpus[out[i].gpu];
        int index = 0, sharers = 0;
        for (int k = 0; k < workers; k++) {
            if (!same_cores(gpu, &t->gpus[out[k].gpu])) continue;
            index += out[k].gpu < out[i].gpu || (out[k].gpu == out[i].gpu && k < i);
            sharers++;
        }
        add_share(t, (cores){gpu->first_core, gpu->end_core}, index, sharers, &out[i].cpus);
    }
    for (int socket = 0; socket < t->sockets; socket++) add_free_nodes(t, socket, workers, out);
}

static bool are_disjoint(const launch_assignment *assignments, int workers) {
    launch_cpus all = {0};
    for (int i = 0; i < workers; i++)
        for (int b = 0; b < LAUNCH_MAX_CPUS / 8; b++) {
            if (all.set[b] & assignments[i].cpus.set[b]) return false;
            all.set[b] |= assignments[i].cpus.set[b];
        }
    return true;
}

static void plan_in_order(const launch_topology *t, int workers, launch_assignment *out) {
    for (int i = 0; i < workers; i++) {
        out[i].cpus = (launch_cpus){0};
        add_share(t, (cores){0, t->core_count}, i, workers, &out[i].cpus);
    }
}

tri_status launch_bind_plan(tri_arena *arena, const launch_topology *t, launch_binding binding,
                            int workers, const char *visible, launch_assignment *out) {
    for (int i = 0; i < workers; i++) out[i] = (launch_assignment){.gpu = -1};
    if (binding == LAUNCH_BIND_NONE) return TRI_OK;
    launch_cpus all = {0};
    for (int i = 0; i < t->core_count; i++) add_core(&t->cores[i], &all);
    bool disjoint = binding == LAUNCH_BIND_AUTO || binding == LAUNCH_BIND_EXCLUSIVE;
    if (disjoint && workers > t->cpu_count)
        return TRI_FAIL(
            TRI_UNSUPPORTED, "binding: %d workers need a CPU each, and %s free here: %s", workers,
            t->cpu_count == 1 ? "one is" : tri_arena_printf(arena, "%d are", t->cpu_count),
            launch_cpus_text(arena, &all));
    if (binding != LAUNCH_BIND_AUTO) {
        plan_domains(t, binding, workers, out);
    } else {
        bool near = assign_gpus(t, visible, workers, out);
        if (near) plan_near_gpus(t, workers, out);
        for (int i = 0; !near && i < workers; i++) out[i].gpu = -1;
        // The sets of cores near the GPUs may overlap partly, or have fewer CPUs than workers. Then
        // two workers have a CPU in common. In this case, and if not every worker has a GPU, all
        // cores of the host are divided among the workers, in the order of the workers.
        if (!near || !are_disjoint(out, workers)) plan_in_order(t, workers, out);
    }
    for (int i = 0; i < workers; i++) out[i].cpus.bound = true;
    return TRI_OK;
}

static const char *visible_devices(void) {
    static const char *const names[] = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                        "HIP_VISIBLE_DEVICES"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i])) return getenv(names[i]);
    return NULL;
}

tri_status launch_bind_host(tri_arena *arena, launch_binding binding, int workers,
                            launch_topology *topology, launch_assignment *out) {
    TRI_TRY(launch_topology_read(arena, NULL, binding == LAUNCH_BIND_AUTO, topology));
    return launch_bind_plan(arena, topology, binding, workers, visible_devices(), out);
}

// Lists the network interfaces at the NUMA node of a core, for the table of launch_bind_print:
// "hsn0 hsn1"; "-": none.
static const char *near_interfaces(tri_arena *arena, const launch_topology *t,
                                   const launch_core *core) {
    const char *text = "";
    for (int i = 0; i < t->interface_count; i++) {
        const launch_device *d = &t->interfaces[i];
        const launch_core *at = &t->cores[d->first_core];
        if (d->end_core - d->first_core < t->core_count && at->node == core->node)
            text = tri_arena_printf(arena, "%s%s%s", text, *text ? " " : "", d->name);
    }
    return *text ? text : "-";
}

void launch_bind_print(tri_arena *arena, const launch_topology *t,
                       const launch_assignment *assignments, int workers, FILE *out) {
    const char *masks = "";
    fprintf(out, "%-6s %-12s %-10s %-12s %6s  %s\n", "rank", "GPU", "NUMA node", "interfaces",
            "cores", "CPUs");
    for (int i = 0; i < workers; i++) {
        const launch_assignment *p = &assignments[i];
        const char *nodes = "";
        const launch_core *first = NULL;
        int last = -1, count = 0;
        for (int c = 0; c < t->core_count; c++) {
            const launch_core *core = &t->cores[c];
            if (!launch_cpus_has(&p->cpus, core->threads[0]) &&
                !launch_cpus_has(&p->cpus, core->threads[core->thread_count - 1]))
                continue;
            if (!first) first = core;
            if (core->node_number != last)
                nodes =
                    tri_arena_printf(arena, "%s%s%d", nodes, *nodes ? "," : "", core->node_number);
            last = core->node_number;
            count++;
        }
        if (p->gpu >= 0) first = &t->cores[t->gpus[p->gpu].first_core];
        fprintf(out, "%-6d %-12s %-10s %-12s %6d  %s\n", i,
                p->gpu >= 0 ? t->gpus[p->gpu].name : "-", *nodes ? nodes : "-",
                first ? near_interfaces(arena, t, first) : "-", count,
                launch_cpus_text(arena, &p->cpus));
        masks = tri_arena_printf(arena, "%s%s%s", masks, i ? "," : "",
                                 launch_cpus_mask(arena, &p->cpus, t->cpu_width));
    }
    fprintf(out, "masks: %s\n", masks);
}

int launch_bind_apply(const launch_cpus *cpus) {
    if (!cpus->bound) return 0;
    // Linux expects an array of unsigned long with one bit for each CPU. On a little-endian machine
    // `set`, an array of bytes, looks the same in memory.
    return syscall(SYS_sched_setaffinity, 0, sizeof cpus->set, cpus->set) < 0 ? -1 : 0;
}
