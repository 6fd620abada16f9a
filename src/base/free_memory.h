// Finds how much memory programs can still allocate on this host, so that a run that needs more is
// rejected before it begins.
#ifndef TRIREME_BASE_FREE_MEMORY_H
#define TRIREME_BASE_FREE_MEMORY_H

#include <stdint.h>

// How many bytes each of `sharers` processes of this host can still allocate; 1 if nothing is left,
// 0 if it is not known. The result is the smaller of two amounts. One is what the host's free
// memory (/proc/meminfo) and the limits of this process's control group and of all groups around it
// (v1 or v2) leave, divided by `sharers`. The other is what this process's own limit (ulimit -v)
// leaves. *whose (NULL allowed) tells which of the two it is, in words that complete "more than the
// 3 GB …", such as "that is free for it on this host".
int64_t tri_free_memory(int sharers, const char **whose);

#endif
