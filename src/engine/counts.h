// The counts of metrics in an evaluation; see metric_counts.c.
#ifndef TRIREME_ENGINE_COUNTS_H
#define TRIREME_ENGINE_COUNTS_H

#include "plan/program.h"

struct tri_engine;

typedef struct engine_counts {
    int64_t count;  // how many counts all metrics together have; 0: there are none
    double *sums;   // in the device's memory: those of the step, then those of the micro-batch
    double *host;   // those of the step, in the host's memory
    tri_kernel add; // adds the counts of the micro-batch to those of the step
} engine_counts;

tri_status engine_make_counts(struct tri_engine *engine);
void engine_release_counts(struct tri_engine *engine);
// Sets the counts to zero, if the step is an evaluation.
tri_status engine_begin_counts(struct tri_engine *engine);
double *
engine_round_counts(const struct tri_engine *engine); // where kernels write those of a micro-batch
// Adds the counts that the block has made of a micro-batch.
tri_status engine_add_counts(struct tri_engine *engine, const tri_program *program, int block);
// Sums the counts over all ranks and copies them to the host.
tri_status engine_send_counts(struct tri_engine *engine);

#endif
