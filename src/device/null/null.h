// The device `null` computes nothing: graphs, plans and schedules run, and values stay as they are.
// So schedules, communication and the engine can be tested even with models that are too large to
// compute. What the host reads is defined all the same: each loss and metric is the pair sum 0 and
// its count, so that its mean is 0 and not NaN, and the norm of the gradients is 0. Memory takes
// space only where something touches it.
#ifndef TRIREME_DEVICE_NULL_H
#define TRIREME_DEVICE_NULL_H

#include "device/device.h"

extern const tri_device_backend tri_device_null;

#endif
