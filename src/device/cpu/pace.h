// Decides whether small loops are divided among the threads. Two threads on cores that share a
// cache do more than one; on cores that do not, each line of memory that one of them writes and the
// other reads costs so much that small networks take twice the time of one thread. A virtual
// machine's cores can be both, one after the other. So both ways are tried from time to time, and
// the faster one is used until the next trial.
#ifndef TRIREME_DEVICE_CPU_PACE_H
#define TRIREME_DEVICE_CPU_PACE_H

#include <stdbool.h>
#include <stdint.h>

// A trial is WINDOWS windows, of one way and the other in turn. The better of a way's two windows
// counts, because another program may disturb one of them.
enum { CPU_PACE_WINDOWS = 4, CPU_PACE_LOOK = 16 };
#define CPU_PACE_WINDOW_NS INT64_C(5000000)
// Loops that take longer than this, with what lies between them, are always divided.
#define CPU_PACE_LONG_NS 100e3
// From one trial to the next: at first, and at most while loops are divided and while they are not.
#define CPU_PACE_FIRST_PAUSE_NS INT64_C(50000000)
#define CPU_PACE_PAUSE_NS INT64_C(4000000000)
#define CPU_PACE_ALONE_PAUSE_NS INT64_C(500000000)

// What one thread that starts loops knows of them. All zero at first.
typedef struct cpu_pace {
    bool is_alone;         // the caller does all parts now
    bool is_alone_faster;  // the latest trial's result
    int window;            // of a trial, from 1; 0: there is none now
    int loops;             // since begin_ns
    int64_t begin_ns;      // of this window
    int64_t trial_ns;      // when the latest trial ended
    int64_t pause_ns;      // from then to the next one
    double usual_ns;       // of a loop, in the way that is used, at the latest trial
    double shortest_ns[2]; // of this trial, by is_alone: the time from one loop to the next
} cpu_pace;

// Is called before each loop. Returns whether the caller shall do all parts of it.
bool cpu_pace_is_alone(cpu_pace *pace);

#endif
