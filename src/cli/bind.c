// Binds the rank before a command computes, if its launcher did not (launch/bind_rank.c).
#include "cli/cli.h"

#include "base/log.h"
#include "launch/bind.h"

#include <omp.h>
#include <stdlib.h>

static const char *from_environment(const char *name) { return getenv(name); }

tri_status cli_bind_rank(void) {
    int cores;
    tri_identity me;
    TRI_TRY(tri_bind_rank(from_environment, &cores));
    if (!cores) return TRI_OK;
    if (!getenv("OMP_NUM_THREADS")) omp_set_num_threads(cores);
    if (tri_identity_read(from_environment, &me) == TRI_OK && me.rank == 0)
        tri_log(TRI_LOG_INFO,
                "rank 0 is bound to %s, as the others of this host are to cores of their own; "
                "TRIREME_BIND=none leaves them unbound",
                tri_counted(cores, "core"));
    return TRI_OK;
}
