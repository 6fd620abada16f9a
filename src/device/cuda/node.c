// Helpers for kernels of the device cuda. They read shapes and types of the inputs and outputs of
// the node that a kernel computes, and keep a kernel's parameters as its state.
#include "device/cuda/internal.h"
#include "device/map_compiled.h"
#include "ops/product_map.h"

#include <stdlib.h>
#include <string.h>

static const tri_value_info *input(const tri_graph *graph, const tri_node *node, int i) {
    return tri_value_get(graph, node->inputs[i]);
}

static const tri_value_info *output(const tri_graph *graph, const tri_node *node, int i) {
    return tri_value_get(graph, node->outputs[i]);
}

const tri_shape *cuda_in_shape(const tri_graph *graph, const tri_node *node, int i) {
    return &input(graph, node, i)->shape;
}

const tri_shape *cuda_out_shape(const tri_graph *graph, const tri_node *node, int i) {
    return &output(graph, node, i)->shape;
}

tri_dtype cuda_in_type(const tri_graph *graph, const tri_node *node, int i) {
    return input(graph, node, i)->dtype;
}

tri_dtype cuda_out_type(const tri_graph *graph, const tri_node *node, int i) {
    return output(graph, node, i)->dtype;
}

int64_t cuda_in_count(const tri_graph *graph, const tri_node *node, int i) {
    return tri_shape_count(&input(graph, node, i)->shape);
}

int64_t cuda_out_count(const tri_graph *graph, const tri_node *node, int i) {
    return tri_shape_count(&output(graph, node, i)->shape);
}

int64_t cuda_in_width(const tri_graph *graph, const tri_node *node, int i) {
    const tri_shape *shape = cuda_in_shape(graph, node, i);
    return shape->dims[shape->rank - 1];
}

bool cuda_takes_real(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *node) {
    return cuda_is_real(cuda_in_type(graph, node, 0));
}

bool cuda_is_relu_of(const tri_node *node, const tri_op *op, tri_node *product) {
    tri_node map;
    double slope;
    if (node->op != &tri_op_product_map || tri_product_op(node) != op) return false;
    tri_product_map_split(node, product, &map);
    return tri_compiled_find(&((const tri_map_attr *)map.attr)->formula, &slope) ==
           TRI_COMPILED_relu;
}

tri_status cuda_prepare(tri_kernel *kernel, const void *state, size_t size_bytes) {
    kernel->state = malloc(size_bytes);
    if (!kernel->state)
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for kernel %s", kernel->def->op->name);
    memcpy(kernel->state, state, size_bytes);
    return TRI_OK;
}

// Cuts the rows into slices of at least 128 rows, which thread blocks sum side by side, so that the
// GPU has enough to do even if there are few columns.
cuda_column_sums cuda_column_sums_of(int64_t rows, int64_t columns, tri_dtype type) {
    enum { SLICE_ROWS = 128, MAX_SLICES = 64 };
    int64_t slices = rows / SLICE_ROWS < MAX_SLICES ? rows / SLICE_ROWS : MAX_SLICES;
    return (cuda_column_sums){
        .rows = rows, .columns = columns, .slices = slices > 1 ? slices : 1, .type = type};
}

size_t cuda_column_sums_bytes(const cuda_column_sums *sums) {
    return sums->slices > 1 ? (size_t)(sums->slices * sums->columns) * sizeof(float) : 0;
}

struct cuda_fault *cuda_fault_of(tri_device *device) {
    const cuda_device *d = cuda_of(device);
    return d->runtime->fault(d->context);
}

void cuda_release(tri_kernel *kernel) { free(kernel->state); }
