// How many cores this process may use. This is the one place that decides it: the number of threads
// and of ranks, and whether threads spin while they wait, follow from it.
#ifndef TRIREME_BASE_CORES_H
#define TRIREME_BASE_CORES_H

// The number of CPUs on which this process may run (sched_getaffinity), or as many as the quota of
// its control groups allows (tri_cores_quota), if that is fewer; at least 1.
int tri_cores(void);
// How many cores this process and the others of its control group may use together, by a limit on
// processor time that containers and batch systems set: quota / period (v1: cpu.cfs_quota_us and
// cpu.cfs_period_us; v2: cpu.max), rounded up; the tightest of its group and of all groups around
// it. INT_MAX: there is no limit.
int tri_cores_quota(void);

#endif
