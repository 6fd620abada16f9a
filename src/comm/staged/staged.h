// A communicator for a device whose memory the host cannot touch, on top of one that takes the
// host's memory: it copies what is sent out of the device, lets the inner communicator do the
// operation, and copies the result in. So any backend serves any device. The bits are those of the
// inner one.
#ifndef TRIREME_COMM_STAGED_STAGED_H
#define TRIREME_COMM_STAGED_STAGED_H

#include "comm/threaded/threaded.h"

// Makes the communicator. Takes over `inner`, also if it fails. The operations of *out take the
// device's memory. It cannot be split: split the inner one.
tri_status tri_comm_staged_open(tri_comm *inner, tri_device *device, tri_comm **out);
#endif
