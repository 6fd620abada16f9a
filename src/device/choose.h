// Finds a device by the name that the option --device gives.
#ifndef TRIREME_DEVICE_CHOOSE_H
#define TRIREME_DEVICE_CHOOSE_H

#include "device/device.h"

// `devices` ends with NULL. The name is that of a backend, with or without one of its models
// ("null:h200"), or "auto": the first device that exists on this host. A device that exists and
// cannot be used is an error, for auto too. TRI_BAD_INPUT: there is no such device; the message
// lists the backends or models.

// Describes the device without opening it, which is enough for a plan.
tri_status tri_device_describe(const tri_device_backend *const *devices, const char *name,
                               tri_device_description *out);
// Opens the device number `index` of this host.
tri_status tri_device_open(const tri_device_backend *const *devices, const char *name, int index,
                           tri_device **out);

#endif
