// Losses that sum over all elements (squared error, binary cross-entropy, relative L2) and their
// gradients, on the GPU: how the kernels of module/distance.cu are launched. For a loss the first
// kernel writes partial sums to the workspace and the second adds them up, in an order that does
// not depend on the device.
#include "device/cuda/internal.h"

typedef struct distance_row {
    const tri_op *op;
    cuda_distance_function function;
} distance_row;

static const distance_row rows[] = {
    {&tri_op_mse_loss, CUDA_SQUARED_ERROR},
    {&tri_op_mse_loss_grad, CUDA_SQUARED_ERROR},
    {&tri_op_binary_cross_entropy, CUDA_BINARY_CROSS_ENTROPY},
    {&tri_op_binary_cross_entropy_grad, CUDA_BINARY_CROSS_ENTROPY},
    {&tri_op_relative_l2_loss, CUDA_RELATIVE_L2},
    {&tri_op_relative_l2_loss_grad, CUDA_RELATIVE_L2},
};

static cuda_distance_function function_of(const tri_op *op) {
    size_t i = 0;
    while (rows[i].op != op) i++;
    return rows[i].function;
}

static cuda_distance distance_of(const tri_graph *graph, const tri_node *node) {
    int64_t elements = cuda_in_count(graph, node, 0);
    cuda_distance p = {.function = function_of(node->op),
                       .samples = 1,
                       .count = elements,
                       .type = cuda_in_type(graph, node, 0)};
    if (p.function == CUDA_RELATIVE_L2) {
        p.samples = cuda_in_shape(graph, node, 0)->dims[0];
        p.count = p.samples ? elements / p.samples : 0;
    }
    p.slices = (p.count + CUDA_DISTANCE_SLICE - 1) / CUDA_DISTANCE_SLICE;
    if (p.slices > CUDA_DISTANCE_MAX_SLICES) p.slices = CUDA_DISTANCE_MAX_SLICES;
    return p;
}

// Computes the size of the workspace: the terms of the loss or, for the gradient of relative L2,
// the factors of the samples; then, for relative L2, the sums over slices.
static tri_status workspace(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node, size_t *out) {
    cuda_distance p = distance_of(graph, node);
    bool per_sample = p.function == CUDA_RELATIVE_L2, has_terms = node->op->input_count == 2;
    int64_t terms = per_sample ? p.samples * (1 + 2 * p.slices) : has_terms ? p.slices : 0;
    *out = (size_t)terms * sizeof(double);
    return TRI_OK;
}

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel) {
    cuda_distance p = distance_of(graph, node);
    if (node->op->input_count > 2) p.seed_type = cuda_in_type(graph, node, 2);
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status loss_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_distance p = *(const cuda_distance *)kernel->state;
    bool per_sample = p.function == CUDA_RELATIVE_L2;
    cuda_loss_sum sum = {.term = CUDA_TERMS,
                         .count = per_sample ? p.samples : p.slices,
                         .whole = (double)(per_sample ? p.samples : p.count),
                         .terms = args->workspace,
                         .out = args->out[0]};
    p.prediction = args->in[0];
    p.target = args->in[1];
    p.terms = args->workspace;
    p.slice_sums = per_sample ? p.terms + p.samples : NULL;
    if (p.samples > 0) CUDA_LAUNCH(args->queue, distance, p);
    CUDA_LAUNCH(args->queue, loss_sum, sum);
    return TRI_OK;
}

static tri_status grad_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_distance p = *(const cuda_distance *)kernel->state;
    p.prediction = args->in[0];
    p.target = args->in[1];
    p.seed = args->in[2];
    p.dx = args->out[0];
    p.factors = p.function == CUDA_RELATIVE_L2 ? args->workspace : NULL;
    p.slice_sums = p.factors ? p.factors + p.samples : NULL;
    CUDA_LAUNCH(args->queue, distance, p);
    return TRI_OK;
}

#define LOSS(identifier)                                                                           \
    const tri_kernel_def cuda_kernel_##identifier = {.op = &tri_op_##identifier,                   \
                                                     .name = "distance",                           \
                                                     .supports = cuda_takes_real,                  \
                                                     .workspace = workspace,                       \
                                                     .prepare = prepare,                           \
                                                     .run = loss_run,                              \
                                                     .release = cuda_release};
#define GRADIENT(identifier)                                                                       \
    const tri_kernel_def cuda_kernel_##identifier = {.op = &tri_op_##identifier,                   \
                                                     .name = "distance",                           \
                                                     .supports = cuda_takes_real,                  \
                                                     .workspace = workspace,                       \
                                                     .prepare = prepare,                           \
                                                     .run = grad_run,                              \
                                                     .release = cuda_release};
LOSS(mse_loss)
GRADIENT(mse_loss_grad)
LOSS(binary_cross_entropy)
GRADIENT(binary_cross_entropy_grad)
LOSS(relative_l2_loss)
GRADIENT(relative_l2_loss_grad)
