// Finds how many cores this process may use: a container or a batch system limits the CPUs on which
// it runs, or the processor time that it may use of them.
#include "base/cores.h"

#include "base/control_group.h"
#include "base/os.h"

#include <limits.h>

static void look_at_quota(void *context, bool is_v1, const char *folder) {
    int *least = context;
    int64_t quota = tri_number_in_file(folder, is_v1 ? "cpu.cfs_quota_us" : "cpu.max", "");
    int64_t period = is_v1 ? tri_number_in_file(folder, "cpu.cfs_period_us", "")
                           : tri_number_in_file(folder, "cpu.max", " ");
    if (quota <= 0 || period <= 0) return;
    int64_t cores = (quota - 1) / period + 1;
    if (cores < *least) *least = (int)cores;
}

int tri_cores_quota(void) {
    int least = INT_MAX;
    tri_control_groups("cpu", look_at_quota, &least);
    return least;
}

int tri_cores(void) {
    int cpus = tri_os_cpus(), quota = tri_cores_quota();
    return cpus < quota ? cpus : quota;
}
