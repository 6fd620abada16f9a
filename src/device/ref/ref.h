// Plain C, the truth that every other device is held against.
#ifndef TRIREME_DEVICE_REF_H
#define TRIREME_DEVICE_REF_H

#include "device/device.h"

extern const tri_device_backend tri_device_ref;

#endif
