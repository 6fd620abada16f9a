// Pooling, dropout and conversion of images' bytes to floats, on the GPU: how module/pool.cu is
// launched.
#include "device/cuda/internal.h"

#include <math.h>

static bool real_input(const tri_graph *graph, const tri_node *node, int input) {
    return cuda_is_real(cuda_in_type(graph, node, input));
}

// Whether the elements of one sample can be numbered in 32 bits. The kernel numbers them so,
// because divisions of 32 bits are faster than those of 64 bits.
static bool is_countable(const tri_shape *shape) {
    int64_t count = 1;
    for (int i = 1; i < shape->rank; i++) {
        if (shape->dims[i] >= INT32_MAX) return false;
        count *= shape->dims[i];
        if (count >= INT32_MAX) return false;
    }
    return true;
}

static bool supports(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *node) {
    int input = node->op == &tri_op_max_pool2d_grad;
    return real_input(graph, node, input) && is_countable(cuda_in_shape(graph, node, 0)) &&
           is_countable(cuda_out_shape(graph, node, 0));
}

// Makes the parameters of dropout's mask for the probability `p` of dropping an element, as
// ref_mask_of in device/ref/node.c does. `run` fills in mask.position, because it differs at each
// call.
static cuda_mask mask_of(double p, uint64_t key) {
    cuda_mask mask = {.key = key, .scale = p < 1 ? (float)(1 / (1 - p)) : 0};
    if (p > 0 && p < 1) mask.threshold = (uint32_t)fmin(ceil(p * 0x1p32), UINT32_MAX);
    return mask;
}

static cuda_windows windows_of(const tri_max_pool2d_attr *a, const tri_shape *x,
                               const tri_shape *y) {
    cuda_windows sizes;
    for (int d = 0; d < 2; d++) {
        sizes.in[d] = (int)x->dims[2 + d];
        sizes.out[d] = (int)y->dims[2 + d];
        sizes.kernel[d] = (int)a->kernel[d];
        sizes.stride[d] = (int)a->stride[d];
        sizes.padding[d] = (int)a->padding[d];
    }
    return sizes;
}

static tri_status max_pool_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                   tri_kernel *kernel) {
    const tri_max_pool2d_attr *a = node->attr;
    const tri_shape *x = cuda_in_shape(graph, node, 0), *y = cuda_out_shape(graph, node, 0);
    cuda_max_pool p = {.samples = x->dims[0],
                       .channels = x->dims[1],
                       .sizes = windows_of(a, x, y),
                       .channels_last = cuda_is_channels_last(graph, node),
                       .relu = a->relu,
                       .mask = mask_of(a->dropout, a->key),
                       .type = cuda_in_type(graph, node, 0)};
    return cuda_prepare(kernel, &p, sizeof p);
}

// An index that others read than the gradient is plain.
static void max_pool_layouts(const tri_device_description *device, const tri_graph *graph,
                             const tri_node *node, tri_layout *in, tri_layout *out) {
    if (!((const tri_max_pool2d_attr *)node->attr)->indexed) {
        cuda_layouts_of_images(device, graph, node, in, out);
        return;
    }
    for (int k = 0; k < node->input_count; k++) in[k] = TRI_LAYOUT_PLAIN;
    for (int k = 0; k < node->output_count; k++) out[k] = TRI_LAYOUT_PLAIN;
}

static tri_status max_pool_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_max_pool p = *(const cuda_max_pool *)kernel->state;
    p.x = args->in[0];
    p.mask.position = args->in[1];
    p.y = args->out[0];
    p.index = args->out[1];
    CUDA_LAUNCH(args->queue, max_pool, p);
    return TRI_OK;
}

static tri_status max_pool_grad_prepare(tri_device *device, const tri_graph *graph,
                                        const tri_node *node, tri_kernel *kernel) {
    const tri_max_pool2d_attr *a = node->attr;
    const tri_shape *x = cuda_out_shape(graph, node, 0), *y = cuda_in_shape(graph, node, 0);
    cuda_max_pool_grad p = {.samples = x->dims[0],
                            .channels = x->dims[1],
                            .sizes = windows_of(a, x, y),
                            .channels_last = cuda_is_channels_last(graph, node),
                            .scale = a->dropout < 1 ? (float)(1 / (1 - a->dropout)) : 0,
                            .type = cuda_in_type(graph, node, 1)};
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status max_pool_grad_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_max_pool_grad p = *(const cuda_max_pool_grad *)kernel->state;
    p.index = args->in[0];
    p.dy = args->in[1];
    p.dx = args->out[0];
    CUDA_LAUNCH(args->queue, max_pool_grad, p);
    return TRI_OK;
}

static tri_status avg_pool_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                   tri_kernel *kernel) {
    const tri_avg_pool2d_attr *a = node->attr;
    bool is_grad = node->op == &tri_op_avg_pool2d_grad;
    const tri_shape *x = is_grad ? &a->x_shape : cuda_in_shape(graph, node, 0);
    const tri_shape *y = is_grad ? cuda_in_shape(graph, node, 0) : cuda_out_shape(graph, node, 0);
    cuda_avg_pool p = {.samples = x->dims[0],
                       .channels = x->dims[1],
                       .channels_last = cuda_is_channels_last(graph, node),
                       .type = cuda_in_type(graph, node, 0)};
    for (int i = 0; i < 2; i++) {
        p.windows[i] = y->dims[2 + i];
        p.axis[i] = (pool_axis){.in = x->dims[2 + i],
                                .out = a->out[i],
                                .kernel = a->kernel[i],
                                .stride = a->stride[i],
                                .padding = a->padding[i]};
    }
    if (a->out[0] == 0 && !a->exclude_padding) p.divisor = a->kernel[0] * a->kernel[1];
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status avg_pool_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_avg_pool p = *(const cuda_avg_pool *)kernel->state;
    p.x = args->in[0];
    p.y = args->out[0];
    if (kernel->def->op == &tri_op_avg_pool2d)
        CUDA_LAUNCH(args->queue, avg_pool, p);
    else
        CUDA_LAUNCH(args->queue, avg_pool_grad, p);
    return TRI_OK;
}

static bool dropout_supports(const tri_device_description *device, const tri_graph *graph,
                             const tri_node *node) {
    tri_map_dropout dropout;
    return tri_map_is_dropout(graph, node, &dropout) && real_input(graph, node, 0);
}

static tri_status dropout_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                  tri_kernel *kernel) {
    tri_map_dropout a = {.p = 0};
    tri_map_is_dropout(graph, node, &a);
    const tri_shape *x = cuda_in_shape(graph, node, 0);
    cuda_dropout p = {.samples = x->dims[0],
                      .elements = 1,
                      .run = a.run,
                      .stride = a.stride,
                      .first = a.first,
                      .mask = mask_of(a.p, a.key),
                      .type = cuda_in_type(graph, node, 0)};
    for (int i = 1; i < x->rank; i++) p.elements *= x->dims[i];
    if (cuda_is_channels_last(graph, node)) p.channels = x->dims[1];
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status dropout_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_dropout p = *(const cuda_dropout *)kernel->state;
    p.x = args->in[0];
    p.mask.position = args->in[1];
    p.y = args->out[0];
    if (p.elements > 0) CUDA_LAUNCH(args->queue, dropout, p);
    return TRI_OK;
}

static tri_status bytes_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                tri_kernel *kernel) {
    const tri_pixel_scale *a = node->attr;
    const tri_shape *x = cuda_in_shape(graph, node, 0);
    cuda_normalize_bytes p = {.count = tri_shape_count(x),
                              .channels = (int)a->channels,
                              .channels_last = cuda_is_channels_last(graph, node)};
    p.plane = p.count ? p.count / (x->dims[0] * a->channels) : 1;
    for (int i = 0; i < TRI_MAX_PIXEL_CHANNELS; i++) {
        p.mean[i] = (float)a->mean[i];
        p.std[i] = (float)a->std[i];
    }
    return cuda_prepare(kernel, &p, sizeof p);
}

// Chooses layouts for normalize_bytes: the images that it makes have channels last if a later node
// reads them so. The bytes that it reads are row-major, because the data loader makes them so.
static void bytes_layouts(const tri_device_description *device, const tri_graph *graph,
                          const tri_node *node, tri_layout *in, tri_layout *out) {
    in[0] = out[0] = TRI_LAYOUT_PLAIN;
    if (cuda_is_read_channels_last(device, graph, node->outputs[0]))
        out[0] = cuda_channels_last(cuda_out_shape(graph, node, 0));
}

static tri_status bytes_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_normalize_bytes p = *(const cuda_normalize_bytes *)kernel->state;
    p.x = args->in[0];
    p.y = args->out[0];
    CUDA_LAUNCH(args->queue, normalize_bytes, p);
    return TRI_OK;
}

#define KERNEL(identifier, title, supports_function, layouts_function, function)                   \
    KERNEL_OF(identifier, identifier, title, supports_function, layouts_function, function)
#define KERNEL_OF(identifier, op_name, title, supports_function, layouts_function, function)       \
    const tri_kernel_def cuda_kernel_##identifier = {.op = &tri_op_##op_name,                      \
                                                     .name = title,                                \
                                                     .supports = supports_function,                \
                                                     .layouts = layouts_function,                  \
                                                     .prepare = function##_prepare,                \
                                                     .run = function##_run,                        \
                                                     .release = cuda_release};
KERNEL(max_pool2d, "pool", supports, max_pool_layouts, max_pool)
KERNEL(max_pool2d_grad, "pool", supports, max_pool_layouts, max_pool_grad)
KERNEL(avg_pool2d, "pool", supports, cuda_layouts_of_images, avg_pool)
KERNEL(avg_pool2d_grad, "pool", supports, cuda_layouts_of_images, avg_pool)
KERNEL_OF(dropout, map, "dropout", dropout_supports, cuda_layouts_of_images, dropout)
KERNEL(normalize_bytes, "bytes", NULL, bytes_layouts, bytes)
