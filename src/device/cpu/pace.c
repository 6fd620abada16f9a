// The trials of loops on one thread and on all, and what follows from them.
#include "device/cpu/pace.h"

#include "base/os.h"

#include <float.h>

static void begin_trial(cpu_pace *pace) {
    pace->window = 1;
    pace->is_alone = !pace->is_alone_faster;
    pace->shortest_ns[0] = pace->shortest_ns[1] = DBL_MAX;
}

static void end_trial(cpu_pace *pace, int64_t now_ns) {
    bool was_alone_faster = pace->is_alone_faster;
    double alone_ns = pace->shortest_ns[1], divided_ns = pace->shortest_ns[0];
    // To change has to gain something: 0.9.
    pace->is_alone_faster = alone_ns < (was_alone_faster ? divided_ns : 0.9 * divided_ns);
    pace->is_alone = pace->is_alone_faster;
    pace->usual_ns = pace->is_alone ? alone_ns : divided_ns;
    pace->trial_ns = now_ns;
    pace->window = 0;
    int64_t most_ns = pace->is_alone ? CPU_PACE_ALONE_PAUSE_NS : CPU_PACE_PAUSE_NS;
    pace->pause_ns *= 2;
    if (was_alone_faster != pace->is_alone) pace->pause_ns = CPU_PACE_FIRST_PAUSE_NS;
    if (pace->pause_ns > most_ns) pace->pause_ns = most_ns;
}

// A window has ended: `loop_ns` went by from one loop to the next.
static void end_window(cpu_pace *pace, int64_t now_ns, double loop_ns) {
    if (pace->window) {
        double *shortest_ns = &pace->shortest_ns[pace->is_alone];
        if (loop_ns < *shortest_ns) *shortest_ns = loop_ns;
        pace->is_alone = !pace->is_alone;
        if (++pace->window > CPU_PACE_WINDOWS) end_trial(pace, now_ns);
        return;
    }
    if (loop_ns > CPU_PACE_LONG_NS) {
        pace->is_alone = pace->is_alone_faster = false;
        return;
    }
    // Loops that have become slower are a reason to look earlier.
    int64_t pause_ns = pace->pause_ns;
    if (loop_ns > 1.25 * pace->usual_ns && pause_ns > CPU_PACE_ALONE_PAUSE_NS / 2)
        pause_ns = CPU_PACE_ALONE_PAUSE_NS / 2;
    if (now_ns - pace->trial_ns >= pause_ns) begin_trial(pace);
}

bool cpu_pace_is_alone(cpu_pace *pace) {
    if (++pace->loops % CPU_PACE_LOOK) return pace->is_alone;
    int64_t now_ns = tri_os.monotonic_ns(), elapsed_ns = now_ns - pace->begin_ns;
    if (!pace->pause_ns) {
        pace->pause_ns = CPU_PACE_FIRST_PAUSE_NS;
        pace->trial_ns = now_ns;
    } else if (elapsed_ns < CPU_PACE_WINDOW_NS) {
        return pace->is_alone;
    } else {
        end_window(pace, now_ns, (double)elapsed_ns / pace->loops);
    }
    pace->begin_ns = now_ns;
    pace->loops = 0;
    return pace->is_alone;
}
