// Binds a rank that srun or mpirun started, if the ranks of the host would otherwise run on each
// other's cores.
#include "launch/bind.h"

#include "base/os.h"
#include "base/variable.h"
#include "rendezvous/rendezvous.h"

#include <string.h>
#include <unistd.h>

// Counts the CPUs of this host that are online, including those that this process may not use.
static int host_cpus(void) {
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : (int)count;
}

tri_status tri_bind_rank(const char *(*get)(const char *name), int *cores_out) {
    *cores_out = 0;
    const char *choice = "auto";
    TRI_TRY(tri_variable_choice(get, "TRIREME_BIND", &choice));
    tri_identity me;
    TRI_TRY(tri_identity_read(get, &me));
    // Leaves alone the workers of trireme run and torchrun (me.launcher is "torchrun" for both),
    // because the --numa-binding of their launcher decides how they are bound. Also leaves alone a
    // process that no launcher started ("none"), because it shares the host with no other rank.
    bool other = strcmp(me.launcher, "torchrun") != 0 && strcmp(me.launcher, "none") != 0;
    if (!other || !strcmp(choice, "none") || me.local_size < 2 ||
        me.local_size > TRI_MAX_LOCAL_RANKS || me.local_rank >= me.local_size)
        return TRI_OK;
    int usable = tri_os_cpus();
    if (usable < me.local_size || (long)usable * me.local_size <= host_cpus()) return TRI_OK;
    tri_arena *arena = tri_arena_create(NULL, "binding");
    launch_topology topology;
    launch_assignment *assignments = TRI_NEW_ARRAY(arena, launch_assignment, me.local_size);
    tri_status status =
        launch_bind_host(arena, LAUNCH_BIND_AUTO, me.local_size, &topology, assignments);
    const launch_cpus *own = &assignments[me.local_rank].cpus;
    if (status == TRI_OK && launch_bind_apply(own) != 0)
        status = tri_os_fail("bind", "this process to its CPUs");
    for (int i = 0; status == TRI_OK && i < topology.core_count; i++)
        *cores_out += launch_cpus_has(own, topology.cores[i].threads[0]);
    tri_arena_destroy(arena);
    return status;
}
