// How much of the cores this process gets, and how long its threads wait for one.
#ifndef TRIREME_BASE_CPU_SHARE_H
#define TRIREME_BASE_CPU_SHARE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tri_cpu_share { // since some moment, of all threads together
    int64_t wall_ns;
    int64_t used_ns;
    int64_t delayed_ns; // ready to run, while others had the core
} tri_cpu_share;

// False where the system does not tell (it needs /proc/PID/task/TID/schedstat).
bool tri_cpu_share_read(tri_cpu_share *out);
// What passed between two readings. Threads that have ended meanwhile are left out.
tri_cpu_share tri_cpu_share_between(const tri_cpu_share *from, const tri_cpu_share *to);
// True where others kept threads from running for at least TRI_STARVED_PERCENT of the time.
bool tri_cpu_share_is_starved(const tri_cpu_share *passed);

#endif
