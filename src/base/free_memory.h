// How much memory programs can still allocate on this host, so that a run that needs more is
// rejected before it begins.
#ifndef TRIREME_BASE_FREE_MEMORY_H
#define TRIREME_BASE_FREE_MEMORY_H

#include <stdint.h>

// How many bytes each of `sharers` processes of this host can still allocate, by /proc/meminfo, the
// control group of this process (of either version), and its own limit (ulimit -v). 0: not known.
// *whose (NULL allowed) names the limit that decides, in words that complete "more than the 3 GB
// …".
int64_t tri_free_memory(int sharers, const char **whose);

#endif
