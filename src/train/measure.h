// Measures how long FORWARD and BACKWARD of each block (a layer or a group of layers) take on this
// device, for `trireme plan --measure`, because measured times make its estimates more exact than
// the device's data sheet does.
#ifndef TRIREME_TRAIN_MEASURE_H
#define TRIREME_TRAIN_MEASURE_H

#include "nn/optimizer.h"
#include "plan/estimate.h"

// Measures blocks: runs steps of one rank for about `seconds`, with micro-batches of `batch`
// samples of zeros, and takes the median time of each block's FORWARD and of its BACKWARD. *out
// lies in `arena`. The model and options of `request` are used, but not its mesh, sharding,
// recomputation and offload, because estimates of all of these use the same times. TRI_BAD_INPUT:
// the whole model does not fit into the free memory of the device or this host.
tri_status tri_measure_compute(tri_arena *arena, tri_device *device,
                               const tri_plan_request *request, const tri_optimizer *optimizer,
                               int64_t batch, double seconds, tri_measured *out);

#endif
