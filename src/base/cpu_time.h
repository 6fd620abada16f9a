// How much of the cores this process gets, and how long its threads wait for a core, so that a slow
// run can be explained by other processes.
#ifndef TRIREME_BASE_CPU_TIME_H
#define TRIREME_BASE_CPU_TIME_H

#include <stdbool.h>
#include <stdint.h>

// Times since an arbitrary start. All except wall_ns are sums over all threads of this process.
typedef struct tri_cpu_time {
    int64_t wall_ns;
    int64_t used_ns;    // time on a core
    int64_t delayed_ns; // time in which a thread was ready to run but no core was free
} tri_cpu_time;

// Reads the times of this process. False: the system does not tell them, because it has no files
// /proc/PID/task/TID/schedstat.
bool tri_cpu_time_read(tri_cpu_time *out);
// The difference of two readings. If threads ended in between, delayed_ns is too small, because the
// second reading lacks their time; it is never below 0.
tri_cpu_time tri_cpu_time_between(const tri_cpu_time *from, const tri_cpu_time *to);
// True if the waits of all threads for a core add up to at least TRI_STARVED_PERCENT of wall_ns.
bool tri_cpu_time_is_starved(const tri_cpu_time *passed);

#endif
