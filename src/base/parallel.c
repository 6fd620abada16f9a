// Divides a loop on the host among threads. The threads end with the loop: unlike those of OpenMP,
// they neither wait for more work on cores that others need, nor end the program where no thread
// can be started.
#include "base/parallel.h"

#include "base/cores.h"
#include "base/thread.h"

#include <omp.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct part {
    tri_parallel_range range;
    void *context;
    int64_t first, end;
    pthread_t thread;
    bool is_started;
} part;

int tri_parallel_threads(void) {
    int threads = omp_get_max_threads();
    if (getenv("OMP_NUM_THREADS")) return threads;
    int cores = tri_cores();
    return threads < cores ? threads : cores;
}

static void *run(void *context) {
    part *p = context;
    p->range(p->context, p->first, p->end);
    return NULL;
}

void tri_parallel_for(int threads, int64_t count, int64_t grain, tri_parallel_range range,
                      void *context) {
    enum { MOST = 64 };
    part parts[MOST];
    int64_t wanted = threads < MOST ? threads : MOST, most = count / (grain > 0 ? grain : 1);
    if (wanted > most) wanted = most;
    if (wanted < 1) wanted = 1;
    if (count <= 0) return;
    for (int i = 0; i < wanted; i++) {
        part *p = &parts[i];
        *p = (part){.range = range,
                    .context = context,
                    .first = count * i / wanted,
                    .end = count * (i + 1) / wanted};
        p->is_started = i > 0 && tri_thread_start(&p->thread, run, p) == 0;
    }
    for (int i = 0; i < wanted; i++)
        if (parts[i].is_started)
            pthread_join(parts[i].thread, NULL);
        else
            run(&parts[i]);
}
