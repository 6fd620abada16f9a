// No arithmetic: graphs, plans and schedules run, values stay what they are. Losses and metrics
// come out as (0, count), so that means are 0 and not NaN; `add` does nothing and every norm is 0.
// Memory that nobody touches is not taken from the system.
#ifndef TRIREME_DEVICE_NULL_H
#define TRIREME_DEVICE_NULL_H

#include "device/device.h"

extern const tri_device_backend tri_device_null;

#endif
