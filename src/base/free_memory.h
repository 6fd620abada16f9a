// How much memory programs can still allocate on this host, so that a run that needs more is
// rejected before it begins.
#ifndef TRIREME_BASE_FREE_MEMORY_H
#define TRIREME_BASE_FREE_MEMORY_H

#include <stdint.h>

// How many bytes each of `sharers` processes of this host can still allocate; 0: not known. The
// processes share what these leave: /proc/meminfo, this process's control group, and all groups
// around it up to the root of /sys/fs/cgroup (v1 or v2). If this process's own limit (ulimit -v)
// leaves it less than its share of that, the result is what the limit leaves. *whose (NULL allowed)
// tells which limit gave the result, the host's or this process's, in words that complete "more
// than the 3 GB …", such as "that is free for it on this host".
int64_t tri_free_memory(int sharers, const char **whose);

#endif
