// What all kernels of the device cuda read from their node, and how they keep it.
#include "device/cuda/internal.h"

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

tri_status cuda_prepare(tri_kernel *kernel, const void *state, size_t size_bytes) {
    kernel->state = malloc(size_bytes);
    if (!kernel->state)
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for kernel %s", kernel->def->op->name);
    memcpy(kernel->state, state, size_bytes);
    return TRI_OK;
}

struct cuda_fault *cuda_fault_of(tri_device *device) {
    const cuda_device *d = cuda_of(device);
    return d->runtime->fault(d->context);
}

void cuda_release(tri_kernel *kernel) { free(kernel->state); }
