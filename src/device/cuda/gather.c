// Elements along an axis by their numbers on the GPU: how module/gather.cu is launched.
#include "device/cuda/internal.h"
#include "tensor/half.h"

static tri_status gather_workspace(const tri_device_description *device, const tri_graph *graph,
                                   const tri_node *node, size_t *out) {
    bool last = ((const tri_gather_attr *)node->attr)->last;
    *out = last ? (size_t)cuda_in_count(graph, node, 1) * sizeof(int64_t) : 0;
    return TRI_OK;
}

static tri_status gather_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                 tri_kernel *kernel) {
    const tri_gather_attr *attr = node->attr;
    cuda_gather p = {.axis = ops_index_axis(attr->axis, cuda_in_shape(graph, node, 1),
                                            cuda_in_shape(graph, node, 0)),
                     .element_bytes = (int)tri_dtype_bytes(cuda_in_type(graph, node, 1)),
                     .fault = cuda_fault_of(device)};
    p.owners = attr->last ? cuda_scatter_owners(&p.axis.cut) : 0;
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status gather_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_gather p = *(const cuda_gather *)kernel->state;
    p.index = args->in[0];
    p.x = args->in[1];
    p.y = args->out[0];
    p.later = p.owners ? args->workspace : NULL;
    CUDA_LAUNCH(args->queue, gather, p);
    return TRI_OK;
}

static tri_status scatter_workspace(const tri_device_description *device, const tri_graph *graph,
                                    const tri_node *node, size_t *out) {
    bool half = tri_dtype_is_half(cuda_in_type(graph, node, 1));
    *out = half ? (size_t)cuda_out_count(graph, node, 0) * sizeof(float) : 0;
    return TRI_OK;
}

static tri_status scatter_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                  tri_kernel *kernel) {
    const tri_scatter_attr *attr = node->attr;
    cuda_scatter p = {.axis =
                          ops_index_axis(attr->axis, &attr->shape, cuda_in_shape(graph, node, 0)),
                      .kind = (int)attr->kind,
                      .type = cuda_in_type(graph, node, 1),
                      .fault = cuda_fault_of(device)};
    p.owners = cuda_scatter_owners(&p.axis.cut);
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status scatter_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_scatter p = *(const cuda_scatter *)kernel->state;
    p.index = args->in[0];
    p.source = args->in[1];
    p.base = args->in[2];
    p.y = args->out[0];
    p.room = tri_dtype_is_half(p.type) ? args->workspace : p.y;
    CUDA_LAUNCH(args->queue, scatter, p);
    return TRI_OK;
}

const tri_kernel_def cuda_kernel_gather = {.op = &tri_op_gather,
                                           .name = "gather",
                                           .workspace = gather_workspace,
                                           .prepare = gather_prepare,
                                           .run = gather_run,
                                           .release = cuda_release};
const tri_kernel_def cuda_kernel_scatter = {.op = &tri_op_scatter,
                                            .name = "owners",
                                            .workspace = scatter_workspace,
                                            .prepare = scatter_prepare,
                                            .run = scatter_run,
                                            .release = cuda_release};
