// Order and running sums along one axis on the GPU: how module/order.cu and module/scan.cu are
// launched.
#include "device/cuda/internal.h"

static bool supports(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *node) {
    return cuda_is_number(cuda_in_type(graph, node, 0));
}

static tri_status argmax_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                 tri_kernel *kernel) {
    const tri_argmax_attr *attr = node->attr;
    cuda_argmax p = {.cut = ops_axis_cut(cuda_in_shape(graph, node, 0), attr->axis),
                     .minimum = attr->minimum,
                     .type = cuda_in_type(graph, node, 0)};
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status argmax_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_argmax p = *(const cuda_argmax *)kernel->state;
    p.x = args->in[0];
    p.index = args->out[0];
    CUDA_LAUNCH(args->queue, argmax, p);
    return TRI_OK;
}

static tri_status sort_workspace(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node, size_t *out) {
    *out = 2 * (size_t)cuda_in_count(graph, node, 0) * (sizeof(int64_t) + sizeof(int32_t));
    return TRI_OK;
}

static tri_status sort_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                               tri_kernel *kernel) {
    const tri_sort_attr *attr = node->attr;
    cuda_sort p = {.cut = ops_axis_cut(cuda_in_shape(graph, node, 0), attr->axis),
                   .count = attr->count,
                   .descending = attr->descending,
                   .type = cuda_in_type(graph, node, 0)};
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status sort_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_sort p = *(const cuda_sort *)kernel->state;
    int64_t count = p.cut.outer * p.cut.size * p.cut.inner;
    p.x = args->in[0];
    p.y = args->out[0];
    p.index = args->out[1];
    p.keys[0] = args->workspace;
    p.keys[1] = p.keys[0] + count;
    p.order[0] = (int32_t *)(p.keys[1] + count);
    p.order[1] = p.order[0] + count;
    CUDA_LAUNCH(args->queue, sort, p);
    return TRI_OK;
}

static tri_status scan_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                               tri_kernel *kernel) {
    const tri_scan_attr *attr = node->attr;
    cuda_scan p = {.cut = ops_axis_cut(cuda_in_shape(graph, node, 0), attr->axis),
                   .kind = attr->kind,
                   .reverse = attr->reverse,
                   .type = cuda_in_type(graph, node, 0)};
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status scan_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_scan p = *(const cuda_scan *)kernel->state;
    bool extreme = p.kind == TRI_SCAN_MAX || p.kind == TRI_SCAN_MIN;
    p.x = args->in[0];
    p.y = args->out[0];
    p.index = extreme ? args->out[1] : NULL;
    CUDA_LAUNCH(args->queue, scan, p);
    return TRI_OK;
}

static tri_status scan_grad_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const cuda_scan *s = kernel->state;
    cuda_scan_grad p = {.cut = s->cut,
                        .kind = s->kind,
                        .type = s->type,
                        .x = args->in[0],
                        .y = args->in[1],
                        .dy = args->in[2],
                        .dx = args->out[0]};
    CUDA_LAUNCH(args->queue, scan_grad, p);
    return TRI_OK;
}

const tri_kernel_def cuda_kernel_argmax = {.op = &tri_op_argmax,
                                           .name = "argmax",
                                           .supports = supports,
                                           .prepare = argmax_prepare,
                                           .run = argmax_run,
                                           .release = cuda_release};
const tri_kernel_def cuda_kernel_sort = {.op = &tri_op_sort,
                                         .name = "merged",
                                         .supports = supports,
                                         .workspace = sort_workspace,
                                         .prepare = sort_prepare,
                                         .run = sort_run,
                                         .release = cuda_release};
const tri_kernel_def cuda_kernel_scan = {.op = &tri_op_scan,
                                         .name = "scan",
                                         .supports = supports,
                                         .prepare = scan_prepare,
                                         .run = scan_run,
                                         .release = cuda_release};
const tri_kernel_def cuda_kernel_scan_grad = {.op = &tri_op_scan_grad,
                                              .name = "scan",
                                              .supports = supports,
                                              .prepare = scan_prepare,
                                              .run = scan_grad_run,
                                              .release = cuda_release};
