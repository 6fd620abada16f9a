// A communicator for a device whose memory the host cannot touch, on top of one that takes the
// host's memory: it copies what is sent out of the device, lets the inner communicator do the
// operation, and copies the result in. So any backend serves any device. The bits are those of the
// inner one.
#ifndef TRIREME_COMM_STAGED_STAGED_H
#define TRIREME_COMM_STAGED_STAGED_H

#include "comm/comm.h"
#include "device/device.h"

// Makes the communicator. Takes over `inner`, also if it fails. The operations of *out take the
// device's memory. It cannot be split: split the inner one.
tri_status tri_comm_staged_open(tri_comm *inner, tri_device *device, tri_comm **out);
// Fails everything that is under way at once; nothing else is started. Afterwards whatever waits
// for the communicator's tickets ends, so that the device's queues can be closed, and the tickets
// that it waited for are not used any more. Does nothing for NULL and for communicators of other
// kinds.
void tri_comm_staged_stop(tri_comm *comm);

#endif
