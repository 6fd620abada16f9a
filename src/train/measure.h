// What the passes of a model's blocks take on this machine, for `trireme plan --measure`.
#ifndef TRIREME_TRAIN_MEASURE_H
#define TRIREME_TRAIN_MEASURE_H

#include "nn/optimizer.h"
#include "plan/estimate.h"

// Runs steps of one rank with micro-batches of `batch` zeros for about `seconds`, and takes the
// median of each pass; *out lies in `arena`. `request`: the model and its options; neither its mesh
// nor its sharing, recomputation and offload matter. TRI_BAD_INPUT where one rank of the whole
// model has no room on this host.
tri_status tri_measure_compute(tri_arena *arena, tri_device *device,
                               const tri_plan_request *request, const tri_optimizer *optimizer,
                               int64_t batch, double seconds, tri_measured *out);

#endif
