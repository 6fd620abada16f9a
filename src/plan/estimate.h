// Estimates how long a step would take: the time of each action follows from the speeds of a rank
// (tri_rates), and then all ranks are simulated.
#ifndef TRIREME_PLAN_ESTIMATE_H
#define TRIREME_PLAN_ESTIMATE_H

#include "plan/pipeline_plans.h"
#include "plan/simulate.h"

// The speeds of one rank, from data sheets or measurements, by which costs are estimated.
typedef struct tri_rates {
    double flops_per_s;        // multiplications and additions per second, in F32
    double half_flops_per_s;   // the same in F16 and BF16
    double memory_bytes_per_s; // bytes per second that kernels read and write
    // Bytes per second that a rank sends to others while it receives as many.
    double link_bytes_per_s;
    double disk_bytes_per_s; // bytes per second of reading or writing the file of strategy.offload
    double host_bytes_per_s; // bytes per second of copies between device and host, one direction
    // Memory bandwidth of one CPU socket of the host, and how many devices share that socket.
    double socket_bytes_per_s;
    int socket_devices;
    // Bytes per second that a host sends to others while it receives as many, and how many ranks
    // share it; 0: all ranks reach each other by the links. Groups whose ranks are on one host use
    // the links too.
    double network_bytes_per_s;
    int host_ranks;
} tri_rates;

extern const tri_rates tri_rates_assumed; // the rates of one core of a server, its memory and disk
// Gets the rates of the device's model from its maker's data sheet; if the model is not known,
// tri_rates_assumed. *from says which: "the maker's peak" or "assumed"; may be NULL.
tri_rates tri_rates_of(const tri_device_description *device, const char **from);

// How many bytes per second of the host's memory a rank's CPU can read and write in a run of
// `ranks` ranks: the ranks on one socket share its memory bandwidth.
double tri_rates_of_host_memory(const tri_rates *rates, int ranks);

// The least time, in seconds, that one training sample can take if one rank computes all of it.
// `arithmetic`: its operations, at the peak rate for the type of each node's numbers. `traffic`:
// the bytes that nodes and updates read and write, at the rate of the memory. These times divided
// by the measured time are MFU and MBU. Nodes that run again for recomputation are counted once.
typedef struct tri_least_seconds {
    double arithmetic, traffic;
} tri_least_seconds;
void tri_estimate_least(const tri_plan *plan, const tri_rates *rates, tri_least_seconds *out);

// Measured seconds of a program's segments (the nodes of one block in one phase), for `batch`
// samples: [block][phase]. They are measured on one rank that has whole layers, without tensor
// parallelism, so that one measurement serves meshes of all sizes. If the pipeline's order does not
// compute the gradients of weights apart (in the phase WEIGHT), BACKWARD includes them.
typedef struct tri_measured {
    int64_t batch;
    double (*seconds)[TRI_PHASE_COUNT];
} tri_measured;

typedef struct tri_estimate {
    double step_s;
    double bubble; // fraction of step_s in which ranks wait instead of computing
    // Arithmetic of the model in one step, over all ranks; recomputation is not counted.
    double flops;
    // By pipeline rank and action of the step TRI_STEP_FULL: when the action begins and ends.
    tri_moment **moments;
} tri_estimate;

// Estimates each action and simulates the step. Segments (the nodes of one block in one phase) take
// the times in `measured`, to which the estimates of their collective ops are added. NULL: nothing
// was measured; then each node takes the time of its arithmetic or of its memory traffic, whichever
// is longer, because a device does both at once. For a gather or a scatter among n ranks each rank
// sends (n - 1) / n of the buffer, around a ring; for an all-reduce, twice as much.
void tri_estimate_step(tri_arena *arena, const tri_pipeline_plans *pipeline, const tri_rates *rates,
                       const tri_measured *measured, tri_estimate *out);

#endif
