// A team: threads that run a function at the same time, each for another index, again and again.
// The library's kernels use it in the program `trireme`, whose OpenMP runtime it is (cli/openmp.c).
#ifndef TRIREME_BASE_TEAM_H
#define TRIREME_BASE_TEAM_H

#include "base/status.h"

#include <stdbool.h>

// How long a thread of a team that waits for another one spins before it sleeps.
#define TRI_TEAM_SPIN_US 50

// Calls run(context) `size` times, from 1 to TRI_MAX_THREADS, at the same time on as many threads,
// and returns when all calls have ended. In each call tri_team_index() is another number from 0 to
// size - 1. The calling thread makes the call of index 0, and after that those that no other thread
// has begun. Within a call, tri_team_run makes a single call, of index 0. If several threads call
// tri_team_run, one waits until the other's calls have ended. TRI_NO_MEMORY: no call was made,
// because the system starts no more threads.
tri_status tri_team_run(int size, void (*run)(void *context), void *context);
// The index of the call in which the calling thread is, and how many calls there are. Outside of
// tri_team_run they are 0 and 1.
int tri_team_index(void);
int tri_team_size(void);
bool tri_team_is_inside(void); // true: the calling thread is in a call of tri_team_run
// Waits until all calls of this tri_team_run have called tri_team_barrier, too.
void tri_team_barrier(void);

#endif
