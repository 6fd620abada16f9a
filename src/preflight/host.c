// Checks what each host has for its ranks: whether there is enough free memory for all of them, and
// whether the ranks run more threads than they have CPUs.
#include "preflight/judge.h"
#include "preflight/state.h"

#include "base/cores.h"
#include "base/free_memory.h"
#include "base/quantity.h"

#include <sched.h>
#include <stdio.h>

static tri_status measure_memory(preflight *p) {
    preflight_host_side mine = {.free_bytes = tri_free_memory(1, NULL)};
    p->host_sides = TRI_NEW_ARRAY(p->arena, preflight_host_side, p->identity.size);
    return preflight_gather(p, &mine, p->host_sides, sizeof mine, "memory");
}

static void judge_memory(preflight *p, preflight_row *row) {
    const preflight_limits *limits = &p->request->limits;
    double *bytes = TRI_NEW_ARRAY(p->arena, double, p->host_count);
    bool *low = TRI_NEW_ARRAY(p->arena, bool, p->host_count);
    const char **texts = TRI_NEW_ARRAY(p->arena, const char *, p->host_count);
    preflight_list list = {.arena = p->arena};
    row->values = tri_tree_list(p->arena);
    for (int h = 0; h < p->host_count; h++) {
        bytes[h] = (double)p->host_sides[p->first[h]].free_bytes;
        texts[h] = tri_arena_printf(p->arena, "%s free", tri_bytes_text(bytes[h]));
        tri_tree_append(p->arena, row->values, tri_tree_double(p->arena, bytes[h]));
    }
    row->summary = preflight_by_host(p, texts);
    preflight_find_slow(p->arena, bytes, p->host_count, limits->memory_fraction, low);
    for (int h = 0; h < p->host_count; h++) {
        bool is_short = bytes[h] > 0 && bytes[h] < limits->memory_gb * 1e9 * p->local_ranks[h];
        if (is_short || (bytes[h] > 0 && low[h]))
            preflight_list_add(&list, "%s has %s for %s", p->host_names[h],
                               tri_bytes_text(bytes[h]), tri_counted(p->local_ranks[h], "rank"));
    }
    if (list.count)
        preflight_fail(p, row,
                       "%s; each rank needs %g GB, and the hosts' median is %s free: look for "
                       "other programs, or ask for more memory",
                       preflight_list_text(&list), limits->memory_gb,
                       tri_bytes_text(preflight_median(p->arena, bytes, p->host_count)));
}

const preflight_check preflight_memory = {
    .name = "memory", .attempts = 1, .measure = measure_memory, .judge = judge_memory};

static tri_status measure_binding(preflight *p) {
    preflight_host_side mine = p->host_sides[p->identity.rank];
    launch_topology topology = {0};
    cpu_set_t usable;
    if (sched_getaffinity(0, sizeof usable, &usable) != 0) CPU_ZERO(&usable);
    mine.cpus.bound = true;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &usable)) launch_cpus_add(&mine.cpus, cpu);
    // If the topology cannot be read, each CPU counts as a core.
    (void)launch_topology_read(p->arena, NULL, false, &topology);
    mine.cores = topology.core_count ? topology.core_count : launch_cpus_count(&mine.cpus);
    mine.quota = tri_cores_quota();
    if (mine.cores > mine.quota) mine.cores = mine.quota;
    return preflight_gather(p, &mine, p->host_sides, sizeof mine, "binding");
}

static bool shares_cpus(const launch_cpus *a, const launch_cpus *b) {
    for (size_t i = 0; i < sizeof a->set; i++)
        if (a->set[i] & b->set[i]) return true;
    return false;
}

static void add_cpus(launch_cpus *to, const launch_cpus *from) {
    for (size_t i = 0; i < sizeof to->set; i++) to->set[i] |= from->set[i];
}

// Ranks of one host whose CPUs overlap, directly or through other ranks, and the number of threads
// that they run.
typedef struct cpu_group {
    launch_cpus cpus;
    int ranks, threads, last;
    int quota; // cores that the ranks' control groups allow; INT_MAX: no limit
} cpu_group;

// Finds the ranks that share CPUs with `rank`, directly or through other ranks, and removes them
// from `left`, the ranks of its host that are in no group yet.
static cpu_group take_group(const preflight *p, int rank, bool *left) {
    cpu_group group = {.cpus = p->host_sides[rank].cpus, .quota = p->host_sides[rank].quota};
    bool grows = true;
    while (grows) {
        grows = false;
        for (int r = rank; r < p->identity.size; r++) {
            if (!left[r] || p->host_of[r] != p->host_of[rank]) continue;
            if (!shares_cpus(&group.cpus, &p->host_sides[r].cpus)) continue;
            add_cpus(&group.cpus, &p->host_sides[r].cpus);
            group.threads += p->devices[r].threads;
            group.ranks++;
            group.last = r;
            left[r] = false;
            grows = true;
        }
    }
    return group;
}

static const char *describe_cores(const preflight *p, int host) {
    int least = INT32_MAX, most = 0;
    for (int r = 0; r < p->identity.size; r++) {
        if (p->host_of[r] != host) continue;
        int cores = p->host_sides[r].cores;
        least = cores < least ? cores : least;
        most = cores > most ? cores : most;
    }
    const char *many = p->local_ranks[host] > 1 ? " for each rank" : "";
    if (least == most) return tri_arena_printf(p->arena, "%s%s", tri_counted(most, "core"), many);
    return tri_arena_printf(p->arena, "%d to %d cores for each rank", least, most);
}

static tri_tree *binding_tree(const preflight *p) {
    tri_tree *list = tri_tree_list(p->arena);
    for (int r = 0; r < p->identity.size; r++) {
        tri_tree *entry = tri_tree_map(p->arena);
        tri_tree_put(p->arena, entry, "rank", tri_tree_int(p->arena, r));
        tri_tree_put(p->arena, entry, "cores", tri_tree_int(p->arena, p->host_sides[r].cores));
        tri_tree_put(p->arena, entry, "cpus",
                     tri_tree_string(p->arena, launch_cpus_text(p->arena, &p->host_sides[r].cpus)));
        tri_tree_append(p->arena, list, entry);
    }
    return list;
}

static void judge_binding(preflight *p, preflight_row *row) {
    bool *left = TRI_NEW_ARRAY(p->arena, bool, p->identity.size);
    preflight_list crowded = {.arena = p->arena};
    int sharing = 0;
    for (int r = 0; r < p->identity.size; r++) left[r] = true;
    for (int r = 0; r < p->identity.size; r++) {
        if (!left[r]) continue;
        cpu_group group = take_group(p, r, left);
        int cpus = launch_cpus_count(&group.cpus);
        const char *allowed = "";
        if (group.quota < cpus) {
            cpus = group.quota;
            allowed =
                tri_arena_printf(p->arena, ", of which their quota allows %d at a time", cpus);
        }
        sharing += group.ranks > 1 ? group.ranks : 0;
        if (group.threads <= cpus) continue;
        if (group.ranks == 1)
            preflight_list_add(&crowded, "%s runs %d threads on CPUs %s%s",
                               preflight_rank_text(p, r), group.threads,
                               launch_cpus_text(p->arena, &group.cpus), allowed);
        else
            preflight_list_add(&crowded, "%d ranks of %s, %d to %d, run %d threads on CPUs %s%s",
                               group.ranks, p->host_names[p->host_of[r]], r, group.last,
                               group.threads, launch_cpus_text(p->arena, &group.cpus), allowed);
    }
    const char **texts = TRI_NEW_ARRAY(p->arena, const char *, p->host_count);
    for (int h = 0; h < p->host_count; h++) texts[h] = describe_cores(p, h);
    row->summary = tri_arena_printf(p->arena, "%s%s", preflight_by_host(p, texts),
                                    sharing ? ", shared with other ranks" : "");
    row->values = binding_tree(p);
    if (crowded.count)
        preflight_fail(p, row,
                       "%s; give each rank cores of its own (srun --cpus-per-task, trireme run "
                       "--numa-binding) or fewer threads (OMP_NUM_THREADS)",
                       preflight_list_text(&crowded));
}

const preflight_check preflight_binding = {
    .name = "binding", .attempts = 1, .measure = measure_binding, .judge = judge_binding};
