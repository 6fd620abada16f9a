// Finds a device by its name, as the flag --device takes it.
#ifndef TRIREME_DEVICE_CHOOSE_H
#define TRIREME_DEVICE_CHOOSE_H

#include "device/device.h"

// `devices` ends with NULL. The name is a backend's, with or without one of its models
// ("null:h200"), or "auto": the first of the devices that is there. A device that is there and
// cannot be used is an error, for auto too. TRI_BAD_INPUT lists the backends or models that there
// are.

// Describes the device without opening it, which is enough for a plan.
tri_status tri_device_describe(const tri_device_backend *const *devices, const char *name,
                               tri_device_description *out);
// Opens the device with this number on its host.
tri_status tri_device_open(const tri_device_backend *const *devices, const char *name, int index,
                           tri_device **out);

#endif
