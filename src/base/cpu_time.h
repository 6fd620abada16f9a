// Measures how long this process ran on cores, and how long its threads waited for a core. Long
// waits explain a slow run: other processes use the cores.
#ifndef TRIREME_BASE_CPU_TIME_H
#define TRIREME_BASE_CPU_TIME_H

#include <stdbool.h>
#include <stdint.h>

// A reading of this process's times, or the difference of two readings. Each time is counted from
// an arbitrary start, so only differences have a meaning. All except wall_ns are sums over all
// threads.
typedef struct tri_cpu_time {
    int64_t wall_ns;
    int64_t used_ns;    // time on a core
    int64_t delayed_ns; // time in which a thread was ready to run but no core was free
} tri_cpu_time;

// Reads the times of this process. False: they are not known, because the system has no files
// /proc/PID/task/TID/schedstat.
bool tri_cpu_time_read(tri_cpu_time *out);
// The difference of two readings. If threads ended in between, delayed_ns is too small, because the
// second reading lacks their time; it is never below 0.
tri_cpu_time tri_cpu_time_between(const tri_cpu_time *from, const tri_cpu_time *to);
// True if the waits of all threads for a core add up to at least TRI_STARVED_PERCENT of wall_ns.
bool tri_cpu_time_is_starved(const tri_cpu_time *passed);

#endif
