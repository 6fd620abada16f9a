// What the kernels of linear layers share: y = x·Wᵀ + b with x [rows, in], W [out, in], y [rows,
// out].
#ifndef TRIREME_DEVICE_CPU_LINEAR_H
#define TRIREME_DEVICE_CPU_LINEAR_H

#include "device/cpu/tile.h"

typedef enum linear_task { LINEAR_FORWARD, LINEAR_GRAD_INPUT, LINEAR_GRAD_WEIGHT } linear_task;

typedef struct linear_shape {
    int64_t rows, in, out;
    tri_dtype dtype;  // of x, y and W; a gradient of W is F32
    tri_dtype result; // of y or dx where that is what is made: it may be wider
} linear_shape;

linear_task linear_task_of(const tri_node *node);
linear_shape linear_shape_of(const tri_graph *graph, const tri_node *node);
bool linear_has_bias(const tri_node *node);
// What follows the products of a forward pass but the bias.
cpu_epilogue linear_epilogue(const tri_node *node);
// W's home order, a rule on its shape and type.
cpu_format linear_home(const tri_device *device, const linear_shape *shape);
// Layouts where x and y are plain and W lies as it does, if that is its home order or plain.
void linear_layouts(const tri_device *device, const tri_graph *graph, const tri_node *node,
                    tri_layout *in, tri_layout *out);

// dbias[out] = the sums of the columns of dy [rows, out], F32 or BF16, each in the order of rows.
void linear_sum_columns(const cpu_device *device, const linear_shape *shape, const void *dy,
                        float *dbias);

#endif
