// Layer norm and RMS norm, and their gradients, on the GPU: how module/row_norm.cu is launched.
#include "device/cuda/internal.h"

static bool is_centred(const tri_node *node) {
    return node->op == &tri_op_layer_norm || node->op == &tri_op_layer_norm_grad;
}

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel) {
    const tri_norm_attr *attr = node->attr;
    cuda_row_norm p = {.centred = is_centred(node),
                       .width = cuda_in_width(graph, node, 0),
                       .eps = (float)attr->eps,
                       .x_type = cuda_in_type(graph, node, 0),
                       .y_type = cuda_out_type(graph, node, 0)};
    p.rows = cuda_in_count(graph, node, 0) / p.width;
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_row_norm p = *(const cuda_row_norm *)kernel->state;
    p.x = args->in[0];
    p.weight = args->in[1];
    p.bias = p.centred ? args->in[2] : NULL;
    p.y = args->out[0];
    p.mean = p.centred ? args->out[1] : NULL;
    p.inv = args->out[p.centred ? 2 : 1];
    CUDA_LAUNCH(args->queue, row_norm, p);
    return TRI_OK;
}

static bool has_weight(const tri_node *node) {
    return !is_centred(node) || tri_value_is(node->inputs[4]);
}

static cuda_row_norm_grad grad_of(const tri_graph *graph, const tri_node *node) {
    cuda_row_norm_grad p = {.centred = is_centred(node),
                            .width = cuda_in_width(graph, node, 0),
                            .x_type = cuda_in_type(graph, node, 0),
                            .y_type = cuda_in_type(graph, node, 1)};
    p.rows = cuda_in_count(graph, node, 0) / p.width;
    p.blocks = cuda_row_norm_blocks(p.rows, p.width);
    return p;
}

// Computes the size of the workspace of the gradient's kernels. Each thread block sums the
// gradients of the weight and (in layer norm) of the bias over its own rows. The workspace has
// these sums, first the weight's, then the bias's, and behind them the workspace of the kernel that
// adds up the sums of all blocks.
static tri_status grad_workspace(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node, size_t *out) {
    cuda_row_norm_grad p = grad_of(graph, node);
    size_t sums = has_weight(node) ? (p.centred ? 2 : 1) : 0;
    cuda_column_sums added = cuda_column_sums_of(p.blocks, p.width, TRI_F32);
    *out = sums * (size_t)(p.blocks * p.width) * sizeof(float) + cuda_column_sums_bytes(&added);
    return TRI_OK;
}

static tri_status grad_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                               tri_kernel *kernel) {
    cuda_row_norm_grad p = grad_of(graph, node);
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status add_blocks(const tri_kernel_args *args, const cuda_row_norm_grad *p,
                             const float *block_sums, float *out) {
    cuda_column_sums sums = cuda_column_sums_of(p->blocks, p->width, TRI_F32);
    sums.x = block_sums;
    sums.sums = out;
    sums.room = (float *)args->workspace + (p->centred ? 2 : 1) * p->blocks * p->width;
    CUDA_LAUNCH(args->queue, column_sums, sums);
    return TRI_OK;
}

static tri_status grad_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_row_norm_grad p = *(const cuda_row_norm_grad *)kernel->state;
    p.x = args->in[0];
    p.dy = args->in[1];
    p.mean = p.centred ? args->in[2] : NULL;
    p.inv = args->in[3];
    p.weight = args->in[p.centred ? 4 : 2];
    p.sum = args->in[p.centred ? 5 : 4];
    p.dx = args->out[0];
    p.dweight = p.weight ? args->workspace : NULL;
    p.dbias = p.weight && p.centred ? p.dweight + p.blocks * p.width : NULL;
    CUDA_LAUNCH(args->queue, row_norm_grad, p);
    if (p.dweight) TRI_TRY(add_blocks(args, &p, p.dweight, args->out[1]));
    if (p.dbias) TRI_TRY(add_blocks(args, &p, p.dbias, args->out[2]));
    return TRI_OK;
}

#define NORM(identifier)                                                                           \
    const tri_kernel_def cuda_kernel_##identifier = {.op = &tri_op_##identifier,                   \
                                                     .name = "row-norm",                           \
                                                     .supports = cuda_takes_real,                  \
                                                     .prepare = prepare,                           \
                                                     .run = run,                                   \
                                                     .release = cuda_release};
#define NORM_GRAD(identifier)                                                                      \
    const tri_kernel_def cuda_kernel_##identifier = {.op = &tri_op_##identifier,                   \
                                                     .name = "row-norm",                           \
                                                     .supports = cuda_takes_real,                  \
                                                     .workspace = grad_workspace,                  \
                                                     .prepare = grad_prepare,                      \
                                                     .run = grad_run,                              \
                                                     .release = cuda_release};
NORM(rms_norm)
NORM_GRAD(rms_norm_grad)
NORM(layer_norm)
NORM_GRAD(layer_norm_grad)
