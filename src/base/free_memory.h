// How much memory programs can still allocate on this host, so that a run that needs more is
// refused before it begins.
#ifndef TRIREME_BASE_FREE_MEMORY_H
#define TRIREME_BASE_FREE_MEMORY_H

#include <stdint.h>

// Bytes that each of `sharers` processes of this host can still allocate, by /proc/meminfo, by the
// control group that this process is in (either version), and by its own limit (ulimit -v). 0:
// unknown. *whose (NULL allowed) names the bound that counts, in words that complete "more than the
// 3 GB …".
int64_t tri_free_memory(int sharers, const char **whose);

#endif
