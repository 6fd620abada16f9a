// No arithmetic: graphs, plans and schedules run, values stay what they are.
#ifndef TRIREME_DEVICE_NULL_H
#define TRIREME_DEVICE_NULL_H

#include "device/device.h"

extern const tri_device_backend tri_device_null;

#endif
