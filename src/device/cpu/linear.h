// What all kernels of linear layers share: y = x·Wᵀ + b with x [rows, in], W [out, in] and
// y [rows, out]. A task is which of three products a kernel computes: y, dx (the gradient of the
// input) or dW (the gradient of the weight). The layout pass (pass/layout.c) asks the kernels of a
// graph, one node after the other, which layouts they want.
#ifndef TRIREME_DEVICE_CPU_LINEAR_H
#define TRIREME_DEVICE_CPU_LINEAR_H

#include "device/cpu/gemm.h"
#include "device/cpu/gemm_bf16.h"

typedef enum linear_task { LINEAR_FORWARD, LINEAR_GRAD_INPUT, LINEAR_GRAD_WEIGHT } linear_task;

typedef struct linear_shape {
    int64_t rows, in, out;
    tri_dtype dtype; // type of x, dy and W, of which a task reads two
    // Type of what the task computes (y, dx or dW): y and dx may be F32 where `dtype` is BF16; dW
    // is F32.
    tri_dtype result;
} linear_shape;

linear_task linear_task_of(const tri_node *node);
linear_shape linear_shape_of(const tri_graph *graph, const tri_node *node);
bool linear_has_bias(const tri_node *node);
// The home layout of W, in which W, its gradient and its optimizer states are kept. It follows from
// the shape, the type and the device's instruction set alone, so that all ranks have the same one.
cpu_format linear_home(const tri_device_description *device, const linear_shape *shape);
// Chooses a kernel's layouts: x and y are plain (row-major). W is in its home layout, unless the
// layout pass has already made W plain.
void linear_layouts(const tri_device_description *device, const tri_graph *graph,
                    const tri_node *node, tri_layout *in, tri_layout *out);

// Chooses the layout in which a kernel reads the weight: the weight's home layout, unless the
// layout pass has already made the weight plain.
tri_layout linear_weight_layout(const tri_device_description *device, const tri_graph *graph,
                                tri_value weight, const linear_shape *shape);

// Describes the product in F32 that computes y, dx or dW (`task`), without addresses. `weight` is
// the layout of W or dW. *swaps becomes true if the product's left operand is the node's second
// input, and its right operand the node's first input.
cpu_gemm linear_gemm(linear_task task, const linear_shape *shape, const tri_layout *weight,
                     bool *swaps);
// As linear_gemm, in BF16; W and dW are plain.
cpu_bf16_gemm linear_bf16_gemm(linear_task task, const linear_shape *shape, bool *swaps);

// Computes dbias[out] = the sums of the columns of dy [rows, out], F32 or BF16, added in the order
// of the rows (CPU_SUM_TERMS), so that the bits do not depend on the number of threads. If dy comes
// in chunks, which have a multiple of 64 rows except for the last, `totals` [out] keeps the sums so
// far, to which `accumulate` adds. Else it is NULL.
void linear_sum_columns(const cpu_device *device, const linear_shape *shape, const void *dy,
                        float *dbias, double *totals, bool accumulate);

#endif
