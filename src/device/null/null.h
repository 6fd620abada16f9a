// The device `null` computes nothing: a run goes through all its steps, and values stay as they
// are. So schedules, communication and the engine can be tested even with models that are too large
// to compute. Losses and metrics, which are pairs of a sum and a count, become (0, count), so that
// means are 0 and not NaN. No gradient is computed or added, so norms of gradients are 0. Memory
// that nothing touches takes no space.
#ifndef TRIREME_DEVICE_NULL_H
#define TRIREME_DEVICE_NULL_H

#include "device/device.h"

extern const tri_device_backend tri_device_null;

#endif
