// Data communicators, which carry what the actions of a training step exchange: gradients,
// parameters, activations. Each takes the memory of a device. It is opened over a control
// communicator of the same ranks, which takes the host's memory and is opened first, so that the
// ranks can agree on how to open the data communicator.
#ifndef TRIREME_COMM_DATA_H
#define TRIREME_COMM_DATA_H

#include "comm/comm.h"
#include "comm/options.h"
#include "device/device.h"

// What every data communicator can do. For gradients it adds sums to the old contents of `recv`,
// and sends the terms of sums in a half type. It also reports ranks whose calls differ, so that the
// user gets an error instead of a hang. The recipe's option trainer.deterministic also demands
// TRI_COMM_RANK_ORDER.
enum {
    TRI_COMM_DATA_ABILITIES =
        TRI_COMM_ACCUMULATES | TRI_COMM_WIRE_TYPES | TRI_COMM_FINDS_MISMATCHES,
};

typedef struct tri_comm_data_request {
    // The control communicator of the ranks that open the data communicator. NULL: this rank is not
    // one of them, so nothing is opened.
    tri_comm *control;
    tri_device *device;
    unsigned wanted; // bits of tri_comm_ability
    tri_comm_use use;
    // The recipe's choice. TRI_COMM_NCCL: data between ranks must go by NCCL; if that is not
    // possible, the request fails on all ranks.
    tri_comm_choice choice;
    // A data communicator that has more ranks than the new one. If NCCL can split communicators, it
    // makes the new one by splitting `parent`, and `colour` is this rank's colour
    // (tri_comm_backend.split). Then all ranks of `parent` have to make this request at the same
    // time. NULL: the new one is opened without splitting another.
    tri_comm *parent;
    int colour;
} tri_comm_data_request;

// Opens a data communicator. Collective over `control`. *out takes the memory of `device` and has
// at least the wanted abilities; comm/generic and comm/staged add those that are missing. *out is
// `control` itself if the device's memory is the host's and `control` has all wanted abilities. If
// one of the two communicators fails later, so does the other. If `control` is NULL, *out becomes
// NULL.
tri_status tri_comm_data_open(const tri_comm_data_request *request, tri_comm **out);
// Calls tri_comm_backend.stop, so that the device's queues can end. NULL allowed.
void tri_comm_data_stop(tri_comm *data);
// Closes a data communicator, unless it is `control` itself, which its owner closes. NULL allowed.
void tri_comm_data_close(tri_comm *data, tri_comm *control);

// Whether NCCL carries data between devices of this kind, if all ranks have NCCL.
bool tri_comm_data_is_nccl(const tri_device_backend *device);
// A communicator of `ranks` ranks over NCCL carries its SENDs and RECVs over `links` more
// communicators, of two ranks each. Returns how many bytes of the device's memory one rank needs in
// all of them for this program's own buffers, and adds to *estimate how many bytes NCCL itself is
// likely to allocate for them.
int64_t tri_comm_data_bytes(int ranks, tri_comm_use use, int links, int64_t *estimate);
// Checks that the recipe's choice of a communicator suits the kind of device. TRI_BAD_INPUT: the
// choice is NCCL, and NCCL cannot carry data between devices of this kind.
tri_status tri_comm_data_check(tri_comm_choice choice, const tri_device_backend *device);

#endif
