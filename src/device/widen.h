// Computes ops in F16 or BF16 (the half types) on devices that only have an F32 kernel for them, by
// conversion to F32 and back.
#ifndef TRIREME_DEVICE_WIDEN_H
#define TRIREME_DEVICE_WIDEN_H

#include "device/device.h"

// Whether an input or an output is F16 or BF16.
bool tri_node_has_half(const tri_graph *graph, const tri_node *node);

// A kernel for any op except `cast`: converts inputs of a half type to F32, runs the F32 kernel
// that the device has for the op, and rounds the outputs to the half type. Devices list it last:
// the first kernel in the list that supports a node is chosen, and one made for half types is
// faster.
extern const tri_kernel_def tri_kernel_widened;

#endif
