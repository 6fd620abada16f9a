// Data communicators: those that actions use. Each is opened for a device, over the control
// communicator of its group, which takes the host's memory and is opened first, so that the ranks
// can agree on how to open it.
#ifndef TRIREME_COMM_DATA_H
#define TRIREME_COMM_DATA_H

#include "comm/comm.h"
#include "comm/options.h"
#include "device/device.h"

// What every data communicator can do. Gradients need it to accumulate and to travel as half types,
// and users need it to learn where ranks disagree. trainer.deterministic also wants
// TRI_COMM_RANK_ORDER.
enum {
    TRI_COMM_DATA_ABILITIES =
        TRI_COMM_ACCUMULATES | TRI_COMM_WIRE_TYPES | TRI_COMM_FINDS_MISMATCHES,
};

typedef struct tri_comm_data_request {
    tri_comm *control; // NULL: nothing is opened
    tri_device *device;
    unsigned wanted; // abilities
    tri_comm_use use;
    // TRI_COMM_NCCL: data of several ranks go by NCCL, or the request fails on all of them.
    tri_comm_choice choice;
    // A data communicator of more ranks, all of which make this request in turn, and the colour of
    // control's ranks among them: where the library can, the new communicator is split from it.
    // NULL: it is opened by itself.
    tri_comm *parent;
    int colour;
} tri_comm_data_request;

// Collective over `control`. *out takes the memory of `device` and has at least the abilities that
// are wanted; comm/generic and comm/staged add what is missing. If `control` can do all that
// itself, *out is `control`. The two fail together. If `control` is NULL, so is *out.
tri_status tri_comm_data_open(const tri_comm_data_request *request, tri_comm **out);
// tri_comm_backend.stop, so that the device's queues can end. NULL allowed.
void tri_comm_data_stop(tri_comm *data);
// Closes a data communicator, unless it is `control` itself, which its owner closes. NULL allowed.
void tri_comm_data_close(tri_comm *data, tri_comm *control);

// Whether NCCL carries data between devices of this kind, where all ranks have it.
bool tri_comm_data_is_nccl(const tri_device_backend *device);
// Bytes of the device's memory that one rank takes for a communicator of so many ranks over NCCL,
// with links to others for messages. Adds to *estimate what NCCL takes for itself.
int64_t tri_comm_data_bytes(int ranks, tri_comm_use use, int links, int64_t *estimate);
// TRI_BAD_INPUT: data of such devices do not go by the communicator of that choice.
tri_status tri_comm_data_check(tri_comm_choice choice, const tri_device_backend *device);

#endif
