// A communicator for a device whose memory the host cannot read or write, on top of one that takes
// the host's memory. It copies operands from the device to the host, lets the inner communicator do
// the operation there, and copies the result back. So any backend can serve any device. Results
// have the same bits as those of the inner communicator.
#ifndef TRIREME_COMM_STAGED_STAGED_H
#define TRIREME_COMM_STAGED_STAGED_H

#include "comm/threaded/threaded.h"

// Makes the communicator. Takes over `inner`, even if it fails. The operations of *out take the
// device's memory. *out cannot be split: split the inner one instead.
tri_status tri_comm_staged_open(tri_comm *inner, tri_device *device, tri_comm **out);
#endif
