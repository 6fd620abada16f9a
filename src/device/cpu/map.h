// What the two kernels of the op map share.
#ifndef TRIREME_DEVICE_CPU_MAP_H
#define TRIREME_DEVICE_CPU_MAP_H

#include "device/cpu/internal.h"

// Inputs of the output's shape may have any layout, if it is the same one: that of the last input.
// In a gradient this is a value of the forward pass, whose layout suits the kernels beside it.
void cpu_map_layouts(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *node, tri_layout *in, tri_layout *out);

#endif
