// How much memory programs can still allocate on this host.
#ifndef TRIREME_BASE_FREE_MEMORY_H
#define TRIREME_BASE_FREE_MEMORY_H

#include <stdint.h>

// Bytes that are free or can be freed, by /proc/meminfo and by the control group that this process
// is in (either version). 0: unknown.
int64_t tri_free_memory(void);

#endif
