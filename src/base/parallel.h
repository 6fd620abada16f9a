// Divides a loop on the host among threads, where no device does it: for example for initial
// weights, before the first step.
#ifndef TRIREME_BASE_PARALLEL_H
#define TRIREME_BASE_PARALLEL_H

#include <stdint.h>

// Works on items first to end - 1 of a loop. Several threads call it at the same time, each for
// other items.
typedef void (*tri_parallel_range)(void *context, int64_t first, int64_t end);

// Returns how many threads this rank may take: OMP_NUM_THREADS, else the number of cores that it is
// bound to, but no more than it may use (tri_cores). So the ranks of a host together take its cores
// once.
int tri_parallel_threads(void);

// Calls `range` for all of `count` items and returns when all are done. It divides them among up to
// `threads` threads, the caller's and others that it starts, each with at least `grain` items.
// Where no other thread can be started, the caller's does all of the work.
void tri_parallel_for(int threads, int64_t count, int64_t grain, tri_parallel_range range,
                      void *context);

#endif
