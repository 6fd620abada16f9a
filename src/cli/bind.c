// Binds the rank to cores before a command computes, unless its launcher has done so
// (launch/bind_rank.c).
#include "cli/cli.h"

#include "launch/bind.h"

#include <omp.h>
#include <stdlib.h>

static const char *from_environment(const char *name) { return getenv(name); }

tri_status cli_bind_rank(int *cores) {
    TRI_TRY(tri_bind_rank(from_environment, cores));
    if (*cores && !getenv("OMP_NUM_THREADS")) omp_set_num_threads(*cores);
    return TRI_OK;
}
