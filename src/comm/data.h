// Data communicators: those that actions use. Each is opened for a device, over the control
// communicator of its group, which takes the host's memory and is opened first, so that the ranks
// can agree on how to open it.
#ifndef TRIREME_COMM_DATA_H
#define TRIREME_COMM_DATA_H

#include "comm/comm.h"
#include "device/device.h"

// What every data communicator can do. Gradients need it to accumulate and to travel as half types,
// and users need it to learn where ranks disagree. trainer.deterministic also wants
// TRI_COMM_RANK_ORDER.
enum {
    TRI_COMM_DATA_ABILITIES =
        TRI_COMM_ACCUMULATES | TRI_COMM_WIRE_TYPES | TRI_COMM_FINDS_MISMATCHES,
};

// Opens a data communicator. Collective over `control`. *out takes the memory of `device` and has
// at least the abilities `wanted`; comm/generic and comm/staged add what is missing. If `control`
// can do all that itself, *out is `control`. The two fail together. If `control` is NULL, so is
// *out.
tri_status tri_comm_data_open(tri_comm *control, tri_device *device, unsigned wanted,
                              tri_comm **out);
// Ends what is under way and starts nothing else, so that the device's queues can end.
void tri_comm_data_stop(tri_comm *data);
// Closes a data communicator, unless it is `control` itself, which its owner closes. NULL allowed.
void tri_comm_data_close(tri_comm *data, tri_comm *control);

#endif
