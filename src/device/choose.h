// Finds a device by the name that the option --device gives.
#ifndef TRIREME_DEVICE_CHOOSE_H
#define TRIREME_DEVICE_CHOOSE_H

#include "device/device.h"

// Describes the device `name` without opening it, which is enough to plan a run. `devices` lists
// the backends and ends with NULL. `name` is that of a backend, with or without one of its models
// ("null:h200"), or "auto": the first device that exists on this host. A device that exists but
// cannot be used is an error, for auto too. TRI_BAD_INPUT: no backend or model has this name; the
// message lists those that there are. TRI_NOT_FOUND: this host has no such device.
tri_status tri_device_describe(const tri_device_backend *const *devices, const char *name,
                               tri_device_description *out);
// Opens the device `name`, of several on this host the one with number `index`. Chooses it, and
// fails, as tri_device_describe does.
tri_status tri_device_open(const tri_device_backend *const *devices, const char *name, int index,
                           tri_device **out);

// Opens the device of a rank: the one with the rank's number on its host. If this process sees
// fewer devices, as in a container that has only some of the host's GPUs, opens the one with the
// number that the rank's launcher gave it; -1: it gave none.
tri_status tri_device_open_of_rank(const tri_device_backend *const *devices, const char *name,
                                   int local_rank, int launcher_local_rank, tri_device **out);

#endif
