// A device for tests that behaves like a distant one: the CPU's kernels behind queues with threads
// of their own. What is issued is done later, and the host cannot touch the memory: its addresses
// fault, and are translated where work is issued. No other code knows that it is not a real device.
//
// TRIREME_FAR_DELAY_US=N lets the threads sleep for a random time of up to N microseconds before
// each item of work (random numbers of the seed TRIREME_FAR_SEED, by default 1). With
// TRIREME_FAR_REPORT, a line at the end says how many bytes were copied from memory of alloc_host
// and from other memory. The threads' names begin with "far".
#ifndef TRIREME_DEVICE_FAR_FAR_H
#define TRIREME_DEVICE_FAR_FAR_H

#include "device/device.h"

extern const tri_device_backend tri_device_far;

#endif
