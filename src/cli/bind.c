// Binds the rank to cores before a command computes, unless its launcher has done so
// (launch/bind_rank.c).
#include "cli/cli.h"

#include "base/cores.h"
#include "launch/bind.h"
#include "rendezvous/rendezvous.h"

#include <omp.h>
#include <stdlib.h>

static const char *from_environment(const char *name) { return getenv(name); }

tri_status cli_bind_rank(int *cores) {
    TRI_TRY(tri_bind_rank(from_environment, cores));
    if (getenv("OMP_NUM_THREADS")) return TRI_OK;
    if (*cores) omp_set_num_threads(*cores);
    // The ranks of the host share what a quota allows (base/cores.h).
    tri_identity me;
    TRI_TRY(tri_identity_read(from_environment, &me));
    int quota = tri_cores_quota() / (me.local_size > 1 ? me.local_size : 1);
    if (omp_get_max_threads() > quota) omp_set_num_threads(quota > 1 ? quota : 1);
    return TRI_OK;
}
