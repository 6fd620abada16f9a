// Half types by way of F32: the one mechanism that computes any op in F16 or BF16 on a device that
// has a kernel for it in F32.
#ifndef TRIREME_DEVICE_WIDEN_H
#define TRIREME_DEVICE_WIDEN_H

#include "device/device.h"

// Whether an input or an output is F16 or BF16.
bool tri_node_has_half(const tri_graph *graph, const tri_node *node);

// Any op but `cast`: widens the half inputs, runs the device's first kernel for F32 and narrows the
// half outputs, each rounded once. The last row of a device's kernels.
extern const tri_kernel_def tri_kernel_widened;

#endif
