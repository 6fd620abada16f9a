// The program's OpenMP runtime. Kernels, ours and oneDNN's, are compiled for libgomp, which is
// loaded, but the program's functions of the same names come first. So kernels run on a team
// (base/team.h), whose threads wait in another way than libgomp's: these spin for milliseconds,
// even if a thread for which they wait has no core.
//
// Only the program has these functions. In another program, which uses the library, OpenMP is that
// program's affair. They are what has to do with a region; for the rest, such as the number of
// threads, libgomp still reads the environment. If the user has set a variable there that the team
// does not follow, libgomp runs the regions, too.
#include "cli/cli.h"

#include "base/team.h"

#include <dlfcn.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define OPENMP_EXPORT __attribute__((visibility("default")))

typedef struct runtime {
    void (*parallel)(void (*run)(void *), void *context, unsigned threads, unsigned flags);
    void (*barrier)(void);
    int (*thread_num)(void), (*num_threads)(void), (*in_parallel)(void);
} runtime;

static void team_parallel(void (*run)(void *), void *context, unsigned threads, unsigned flags) {
    // As libgomp does, ends the program if there are no threads: a kernel's work is divided among
    // all of them.
    tri_status status = tri_team_run(threads ? (int)threads : omp_get_max_threads(), run, context);
    if (status != TRI_OK) exit(cli_fail(status));
}

static int team_in_parallel(void) { return tri_team_is_inside(); }

static runtime chosen = {.parallel = team_parallel,
                         .barrier = tri_team_barrier,
                         .thread_num = tri_team_index,
                         .num_threads = tri_team_size,
                         .in_parallel = team_in_parallel};

// Runs before `main`.
__attribute__((constructor)) static void choose(void) {
    static const char *const settings[] = {"OMP_PLACES",    "OMP_PROC_BIND",   "GOMP_CPU_AFFINITY",
                                           "OMP_STACKSIZE", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"};
    static const char *const names[] = {"GOMP_parallel", "GOMP_barrier", "omp_get_thread_num",
                                        "omp_get_num_threads", "omp_in_parallel"};
    void *found[sizeof names / sizeof *names];
    bool is_set = false;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        is_set = is_set || getenv(settings[i]);
    if (!is_set) return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!(found[i] = dlsym(RTLD_NEXT, names[i]))) return;
    _Static_assert(sizeof found == sizeof chosen, "a function for each name");
    memcpy(&chosen, found, sizeof chosen);
}

OPENMP_EXPORT void GOMP_parallel(void (*run)(void *), void *context, unsigned threads,
                                 unsigned flags);
OPENMP_EXPORT void GOMP_barrier(void);

void GOMP_parallel(void (*run)(void *), void *context, unsigned threads, unsigned flags) {
    chosen.parallel(run, context, threads, flags);
}
void GOMP_barrier(void) { chosen.barrier(); }
OPENMP_EXPORT int omp_get_thread_num(void) { return chosen.thread_num(); }
OPENMP_EXPORT int omp_get_num_threads(void) { return chosen.num_threads(); }
OPENMP_EXPORT int omp_in_parallel(void) { return chosen.in_parallel(); }
