// A device for tests that behaves like a GPU: the CPU's kernels behind queues, each with its own
// thread. Work is done later than it is issued. The host cannot use the device's memory: nothing is
// mapped at the addresses that it gets. When work is issued, these addresses are translated to
// those of the memory that the kernels use. No other code knows that this is not a real device.
//
// TRIREME_FAR_DELAY_US=N lets the threads sleep for a random time of up to N microseconds before
// one item of work in four, chosen at random (the random numbers have the seed TRIREME_FAR_SEED, by
// default 1). With TRIREME_FAR_REPORT, a line at the end tells how many bytes were copied from
// memory of alloc_host and from other memory. The names of the threads begin with "far".
#ifndef TRIREME_DEVICE_FAR_FAR_H
#define TRIREME_DEVICE_FAR_FAR_H

#include "device/device.h"

extern const tri_device_backend tri_device_far;

#endif
