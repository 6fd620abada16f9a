// Measures how long FORWARD and BACKWARD of each block take on this device, for `trireme plan
// --measure`, because measured costs are closer than those from data sheets.
#ifndef TRIREME_TRAIN_MEASURE_H
#define TRIREME_TRAIN_MEASURE_H

#include "nn/optimizer.h"
#include "plan/estimate.h"

// Runs steps of one rank with micro-batches of `batch` samples of zeros for about `seconds`, and
// takes the median time of each block's FORWARD and of its BACKWARD. *out lies in `arena`. Uses the
// model and options of `request`, but not its mesh, sharding, recomputation and offload, because
// estimates of all these are made from the same times. TRI_BAD_INPUT: the whole model does not fit
// into this host's free memory.
tri_status tri_measure_compute(tri_arena *arena, tri_device *device,
                               const tri_plan_request *request, const tri_optimizer *optimizer,
                               int64_t batch, double seconds, tri_measured *out);

#endif
