// Searches settings with which a run fits into the memory of its ranks, so that a user whose run
// does not fit is told what to change.
#ifndef TRIREME_PLAN_FIT_H
#define TRIREME_PLAN_FIT_H

#include "plan/estimate.h"

// A run with other settings, which trains the same model to the same result.
typedef struct tri_candidate {
    // The candidate, as overrides of the recipe: "strategy.name=zero2 batch.micro=4".
    const char *overrides;
    int64_t peak_bytes; // the most bytes in use at one time on any rank
    double step_s;      // estimated time of a step
} tri_candidate;

enum { TRI_MAX_CANDIDATES = 64 };

// Finds settings with which the rank that needs the most memory needs at most `memory_bytes`, the
// fastest settings first. It tries smaller micro-batches; recomputation of some or all blocks;
// optimizer states, gradients and parameters sharded over all ranks (all three also over half of
// them); pipelines; offload. The micro-batch stays as it is where batch norm would give another
// result. `candidates` has room for TRI_MAX_CANDIDATES. *least is the setting that needs the least
// memory of all, even if it does not fit, so that the caller can tell how far the model is from
// fitting; its overrides are NULL if no plan could be made. Returns how many fit.
int tri_fit_search(tri_arena *arena, const tri_device_description *device,
                   const tri_plan_request *request, const tri_rates *rates,
                   const tri_measured *measured, int64_t memory_bytes, tri_candidate *candidates,
                   tri_candidate *least);

// Whether the model has batch norm, whose results depend on the micro-batch.
bool tri_fit_keeps_micro(const tri_plan *plan);
// Gets how much memory a rank of the request may use: the setting strategy.memory or, without it,
// `there`, the memory that exists (tri_device_memory_of). If `there` is a device's own memory and
// its size is known, the result is the smaller of the two.
tri_device_memory tri_fit_memory(const tri_plan_request *request, const tri_device_memory *there);
// Checks that the rank that needs the most memory needs at most `memory`, where that is known.
// TRI_BAD_INPUT: it needs more; the message is one line with the missing amount and the fastest
// settings that would fit.
tri_status tri_fit_check(const tri_device_description *device, const tri_plan_request *request,
                         int64_t peak_bytes, const tri_device_memory *memory);
// Checks that the host has enough free memory for the state that each of `sharers` ranks on it
// offloads by this plan. TRI_BAD_INPUT: it does not; the message is one line with both sizes.
tri_status tri_fit_check_host(const tri_plan *plan, int sharers);

#endif
