// Resizing of one axis and its gradient on the GPU: how module/interpolate.cu is launched.
#include "device/cuda/internal.h"

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel) {
    const tri_interpolate_attr *attr = node->attr;
    bool gradient = node->op == &tri_op_interpolate_grad;
    const tri_shape *x = gradient ? cuda_out_shape(graph, node, 0) : cuda_in_shape(graph, node, 0);
    cuda_interpolate p = {.outer = 1,
                          .inner = 1,
                          .axis = ops_interpolate_axis(attr, x),
                          .gradient = gradient,
                          .type = cuda_in_type(graph, node, 0)};
    for (int i = 0; i < x->rank; i++)
        if (i != attr->axis) *(i < attr->axis ? &p.outer : &p.inner) *= x->dims[i];
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_interpolate p = *(const cuda_interpolate *)kernel->state;
    p.x = args->in[0];
    p.y = args->out[0];
    CUDA_LAUNCH(args->queue, interpolate, p);
    return TRI_OK;
}

#define INTERPOLATE(identifier)                                                                    \
    const tri_kernel_def cuda_kernel_##identifier = {.op = &tri_op_##identifier,                   \
                                                     .name = "interpolate",                        \
                                                     .supports = cuda_takes_real,                  \
                                                     .prepare = prepare,                           \
                                                     .run = run,                                   \
                                                     .release = cuda_release};
INTERPOLATE(interpolate)
INTERPOLATE(interpolate_grad)
